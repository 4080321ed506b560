#!/usr/bin/env python3
"""A Stepwell worker: it claims steps over HTTP and runs them. Copy it, and write your own steps at its end.
STEPWELL_URL says where the service is; STEPWELL_TOKEN is a bearer token, if it asks for one."""
import fnmatch, json, os, socket, threading, time, urllib.error, urllib.request

URL = os.environ.get("STEPWELL_URL", "http://127.0.0.1:8080")
LEASE = 30  # seconds that a step may go without a sign of life
STEPS = {}  # a callable, or what many begin with and a *, to the function for it

def step(callable):
    return lambda function: STEPS.setdefault(callable, function)

class Permanent(Exception):
    """Raised by a step that would fail again, however often it is tried."""

def post(path, **body):
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("STEPWELL_TOKEN"):
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(URL + "/v1/steps/" + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=90) as reply:
        return json.load(reply)

def extend(path, lease, done):
    while not done.wait(LEASE / 3):
        try:
            post(path + "extend", lease=lease, lease_seconds=LEASE)
        except OSError as e:  # the next time may be better
            print("not extended:", e)

def run(claim):
    path, lease, done = claim["step"]["step_uuid"] + "/", claim["lease"], threading.Event()
    threading.Thread(target=extend, args=(path, lease, done), daemon=True).start()
    try:
        function = next(f for name, f in STEPS.items() if fnmatch.fnmatchcase(claim["callable"], name))
        path, body = path + "complete", {"result": function(claim)}
    except Exception as e:
        error = {"message": str(e) or repr(e), "error_type": type(e).__name__, "retryable": not isinstance(e, Permanent)}
        path, body = path + "fail", {"error": error}
    done.set()
    post(path, lease=lease, **body)  # 409: the lease was over, and the step is somebody else's now

def work(worker_id=socket.gethostname()):
    while True:
        try:
            for claim in post("claim", callables=list(STEPS), lease_seconds=LEASE, wait_seconds=30, worker_id=worker_id):
                run(claim)
        except OSError as e:  # which an HTTP error is, too
            print(e, e.read().decode() if isinstance(e, urllib.error.HTTPError) else "")
            time.sleep(1)

if __name__ == "__main__":
    @step("demo.approve")
    def approve(claim):
        return {"approved": claim["task"]["context"]["amount"] < 1000, "asked": claim["dependency_results"]["request"]}

    work()
