import pathlib, stepwell

def setUpModule():
    stepwell.start("--templates", pathlib.Path(__file__).with_name("order.json"))

class OrderTest(stepwell.TestCase):
    def test_a_declined_card_is_retried_after_an_hour(self):
        self.stub("charge", {"error": {"message": "declined"}}, {"result": {"receipt": 1}})
        task = self.create("shop/order", amount=120)
        self.status(task, "waiting_for_retry")
        self.clock(advance="1h")
        self.calls("charge", 2)

    def test_the_payment_is_settled_after_seven_days(self):
        self.stub("charge", {"result": {"receipt": 1}})
        self.stub("settle", {"result": "settled"})
        task = self.create("shop/order", amount=120)
        self.clock(advance="167h59m")
        self.calls("settle", 0)
        self.clock(advance="1m")
        self.status(task, "complete")
