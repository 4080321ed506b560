#!/usr/bin/env python3
"""A Stepwell worker: claims steps over HTTP and runs them. Copy it, and replace the steps at the end.
STEPWELL_URL is the URL of the service; STEPWELL_TOKEN is a bearer token, if the service requires one."""
import fnmatch, json, os, socket, threading, time, urllib.error, urllib.request

URL = os.environ.get("STEPWELL_URL", "http://127.0.0.1:8080")
LEASE = 30  # seconds; each claim is extended every third of this
STEPS = {}  # maps a callable, or a prefix and *, to a function

def step(callable):
    return lambda function: STEPS.setdefault(callable, function)

class Permanent(Exception):
    """Raised by a step to fail without a retry."""

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
        except OSError as e:  # try again at the next interval
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
    post(path, lease=lease, **body)  # 409: the lease has expired

def work(worker_id=socket.gethostname()):
    while True:
        try:
            for claim in post("claim", callables=list(STEPS), lease_seconds=LEASE, wait_seconds=30, worker_id=worker_id):
                run(claim)
        except OSError as e:  # includes HTTP errors
            print(e, e.read().decode() if isinstance(e, urllib.error.HTTPError) else "")
            time.sleep(1)

if __name__ == "__main__":
    @step("demo.approve")
    def approve(claim):
        return {"approved": claim["task"]["context"]["amount"] < 1000, "asked": claim["dependency_results"]["request"]}

    work()
