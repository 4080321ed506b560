def test_a_declined_card_is_retried_after_an_hour(sandbox):
    sandbox.stub("charge", {"error": {"message": "declined"}}, {"result": {"receipt": 1}})
    task = sandbox.create("shop/order", amount=120)
    sandbox.status(task, "waiting_for_retry")
    sandbox.clock(advance="1h")
    sandbox.calls("charge", 2)

def test_the_payment_is_settled_after_seven_days(sandbox):
    sandbox.stub("charge", {"result": {"receipt": 1}})
    sandbox.stub("settle", {"result": "settled"})
    task = sandbox.create("shop/order", amount=120)
    sandbox.clock(advance="167h59m")
    sandbox.calls("settle", 0)
    sandbox.clock(advance="1m")
    sandbox.status(task, "complete")
