"""Tests workflows with a real Stepwell: one process for a module of tests, and an isolated sandbox with a virtual
clock for each test. Copy this file. The variable STEPWELL is the command to run; the default is "stepwell"."""
import json, os, shlex, subprocess, unittest, urllib.error, urllib.request

__unittest = True  # leaves this file out of tracebacks
SERVE = (" --fixture --quiet --log-level warn --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0"
         " --print-ready --exit-with-parent")
sandboxes = None  # the URL that creates sandboxes


def request(method, url, body=None):
    """Sends a request and returns the response. It fails the test with one line if the service refuses."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"},
                                                           method=method)) as reply:
            return json.loads(reply.read() or "null")
    except urllib.error.HTTPError as e:
        text = e.read().decode()
    try:
        text = json.loads(text)["error"]["message"]
    except ValueError:
        text = f"{method} {url}: {text}"
    raise AssertionError(text)


def start(*flags, **env):
    """Starts Stepwell with further flags, such as "--templates", FILE, and variables. Call it from setUpModule."""
    global sandboxes
    command = os.environ.get("STEPWELL", "stepwell")
    try:
        program = subprocess.Popen([*shlex.split(command + SERVE), *map(str, flags)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | env)
    except FileNotFoundError:
        raise AssertionError(f"there is no program {command!r}: set STEPWELL to the command that starts it") from None
    unittest.addModuleCleanup(program.communicate)  # closes its standard input, which ends it
    if not (ready := program.stdout.readline()):
        raise AssertionError(f"{command} {' '.join(map(str, flags))} did not start: its output says why")
    sandboxes = json.loads(ready)["orchestration_url"] + "/_stepwell/sandboxes"


class TestCase(unittest.TestCase):
    """Gives each test a sandbox, whose clock is frozen: self.url is its URL, for the application under test."""
    longMessage = False

    def setUp(self):
        box = request("POST", sandboxes)
        self.addCleanup(request, "DELETE", sandboxes + "/" + box["name"])
        self.url = box["orchestration_url"]
        self.clock(freeze=True)

    def control(self, path, **body):
        reply = request("POST", f"{self.url}/_stepwell/{path}", body)
        if reply and "warning" in reply:  # such as an unknown step
            self.fail(reply["warning"])

    def clock(self, **change):
        """Moves the clock: advance="1h", or auto=True to jump to each timer."""
        self.control("clock", **change)

    def stub(self, step, *outcomes, then="last"):
        """Scripts the outcomes of a step's attempts. Then the last one repeats, or, with then="handler", the step runs."""
        self.control("stubs", match={"step": step}, outcomes=outcomes, then=then)

    def create(self, template, **context):
        """Creates a task of the template "namespace/name", and returns its id."""
        namespace, name = template.split("/")
        return request("POST", self.url + "/v1/tasks", {"namespace": namespace, "name": name, "context": context})["task_uuid"]

    def steps(self, task):
        self.control("wait-idle")
        return {s["name"]: s for s in request("GET", f"{self.url}/v1/tasks/{task}/workflow_steps")}

    def step(self, task, name):
        if name not in (steps := self.steps(task)):
            self.fail(f"the task has no step {name}; it has {', '.join(steps)}")
        return steps[name]

    def complete(self, task, step, result):
        """Completes a step as a person does."""
        url = f"{self.url}/v1/tasks/{task}/workflow_steps/{self.step(task, step)['step_uuid']}"
        request("PATCH", url, {"action_type": "complete_manually", "completion_data": {"result": result},
                               "reason": "test", "completed_by": "test"})

    def status(self, task, want):
        """Waits until nothing runs, and checks the status of a task."""
        self.control("wait-idle")
        url = f"{self.url}/v1/tasks/{task}"
        if (got := request("GET", url)["status"]) != want:
            self.fail(f"the task is {got}, not {want}: {self.why(task)}")

    def why(self, task):
        """Says in one line why a task is stuck."""
        return request("GET", f"{self.url}/v1/tasks/{task}/explain")["message"]

    def calls(self, step, want):
        """Waits until nothing runs, and checks how often a step's handler or stub was called."""
        self.control("wait-idle")
        self.control("verify", match={"step": step}, count={"exactly": want})

    def result(self, task, step):
        """Waits until nothing runs, and returns the result of a step. It fails the test if the step has none."""
        found = self.step(task, step)
        if found["current_state"] not in ("complete", "resolved_manually"):
            self.fail(f"step {step} has no result: {self.why(task)}")
        return found["results"] and found["results"]["result"]
