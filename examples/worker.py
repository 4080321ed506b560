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

class Checkpoint(Exception):
    """Raised by a step to go on later: the next claim has the cursor in claim["step"]["checkpoint"]."""
    def __init__(self, cursor, items_processed=0, accumulated_results=None):
        self.body = {"cursor": cursor, "items_processed": items_processed, "accumulated_results": accumulated_results}

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

def deliver(path, **body):
    """Sends an outcome, again and again while there is no response, for the length of a lease."""
    for left in reversed(range(LEASE)):
        try:
            return post(path, **body)
        except OSError as e:  # includes HTTP errors
            if not left or getattr(e, "code", 500) < 500:
                raise
            time.sleep(1)

def run(claim):
    path, lease, done = claim["step"]["step_uuid"] + "/", claim["lease"], threading.Event()
    threading.Thread(target=extend, args=(path, lease, done), daemon=True).start()
    function = next(f for name, f in STEPS.items() if fnmatch.fnmatchcase(claim["callable"], name))
    try:
        try:
            verb, body = "complete", {"result": function(claim)}
        except Checkpoint as c:
            verb, body = "checkpoint", c.body
        json.dumps(body)  # what is not JSON is a failure of the step
    except Exception as e:
        error = {"message": str(e) or repr(e), "error_type": type(e).__name__, "retryable": not isinstance(e, Permanent)}
        verb, body = "fail", {"error": error}
    done.set()
    try:
        deliver(path + verb, lease=lease, **body)
    except urllib.error.HTTPError as e:
        if e.code not in (400, 413, 422):  # such as 409: the lease has expired
            raise
        error = {"message": e.read().decode(), "error_type": "refused", "retryable": False}
        deliver(path + "fail", lease=lease, error=error)

def work_once(wait_seconds=0, worker_id=socket.gethostname()):
    """Runs a step, if there is one. It returns whether there was."""
    claims = post("claim", callables=list(STEPS), lease_seconds=LEASE, wait_seconds=wait_seconds, worker_id=worker_id)
    for claim in claims:
        run(claim)
    return bool(claims)

def work(worker_id=socket.gethostname()):
    while True:
        try:
            work_once(30, worker_id)
        except OSError as e:  # includes HTTP errors
            print(e, e.read().decode() if isinstance(e, urllib.error.HTTPError) else "")
            time.sleep(1)

if __name__ == "__main__":
    @step("demo.approve")
    def approve(claim):
        return {"approved": claim["task"]["context"]["amount"] < 1000, "asked": claim["dependency_results"]["request"]}

    @step("demo.count")  # counts to the limit in the context, a hundred at a time
    def count(claim):
        last = claim["step"].get("checkpoint", {"cursor": 0})["cursor"]
        cursor, limit = min(last + 100, claim["task"]["context"]["limit"]), claim["task"]["context"]["limit"]
        if cursor < limit:
            raise Checkpoint(cursor, items_processed=cursor)
        return cursor

    work()
