def test_a_declined_card_is_charged_again_later(sandbox):
    sandbox.stub("charge", {"error": {"message": "declined"}})
    sandbox.status(sandbox.create("shop/order"), "waiting_for_retry")

def test_the_payment_is_settled_after_a_retry_and_seven_days(sandbox):
    sandbox.stub("charge", {"error": {"message": "declined"}}, {"result": {"receipt": 1}})
    sandbox.stub("settle", {"result": "settled"})
    task = sandbox.create("shop/order", amount=120)
    sandbox.clock(advance="1h")
    sandbox.calls("charge", 2)
    sandbox.clock(advance="167h59m")
    sandbox.calls("settle", 0)
    sandbox.clock(advance="1m")
    sandbox.status(task, "complete")
