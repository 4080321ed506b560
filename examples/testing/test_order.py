"""Tests of an application's Stepwell workflow. Run: python3 -m unittest test_order.py. STEPWELL is the command to run."""
import json, os, pathlib, shlex, subprocess, unittest, urllib.error, urllib.request

SERVE = " --fixture --quiet --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0 --print-ready --exit-with-parent"
ORDER = json.loads(pathlib.Path(__file__).with_name("order.json").read_text())  # the application's template

def request(method, url, **body):
    data, headers = json.dumps(body).encode() if body else None, {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as reply:
            return json.loads(reply.read() or "null")
    except urllib.error.HTTPError as e:
        raise AssertionError(f"{method} {url}: {e.code} {e.read().decode()}") from None

def setUpModule():  # one process for all tests, which exits when its standard input closes
    global sandboxes
    stepwell = subprocess.Popen(shlex.split(os.environ.get("STEPWELL", "stepwell") + SERVE),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unittest.addModuleCleanup(stepwell.communicate)
    sandboxes = json.loads(stepwell.stdout.readline())["orchestration_url"] + "/_stepwell/sandboxes"

class OrderTest(unittest.TestCase):
    def setUp(self):  # one sandbox for each test
        box = request("POST", sandboxes)
        self.addCleanup(request, "DELETE", sandboxes + "/" + box["name"])
        self.url = box["orchestration_url"]
        self.control("templates", **ORDER)
        self.control("clock", freeze=True)

    def control(self, path, **body):
        return request("POST", f"{self.url}/_stepwell/{path}", **body)

    def order(self, charge):  # as the application does; charge lists the outcomes of the charge step
        self.control("stubs", match={"step": "charge"}, outcomes=charge)
        self.control("stubs", match={"step": "settle"}, outcomes=[{"result": "settled"}])
        self.task = request("POST", self.url + "/v1/tasks", namespace="shop", name="order")["task_uuid"]

    def check(self, status, step, calls):
        self.control("wait-idle")
        self.assertEqual(request("GET", f"{self.url}/v1/tasks/{self.task}")["status"], status)
        self.control("verify", match={"step": step}, count={"exactly": calls})

    def test_a_declined_card_is_retried_after_an_hour(self):
        self.order(charge=[{"error": {"message": "declined"}}, {"result": {"receipt": 1}}])
        self.check("waiting_for_retry", "charge", calls=1)
        self.control("clock", advance="1h")
        self.check("steps_in_process", "charge", calls=2)

    def test_the_payment_is_settled_after_seven_days(self):
        self.order(charge=[{"result": {"receipt": 1}}])
        self.control("clock", advance="167h59m")
        self.check("steps_in_process", "settle", calls=0)
        self.control("clock", advance="1m")
        self.check("complete", "settle", calls=1)

    def test_the_step_of_a_lost_worker_is_delivered_again(self):
        self.order(charge=[{"fault": "worker_lost"}, {"result": {"receipt": 1}}])
        self.control("clock", auto=True)  # jump to each timer
        self.check("complete", "charge", calls=2)
