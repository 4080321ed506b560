"""A worker, a carrier, and tasks that end."""
import http.server
import json
import os
import threading
import time
import uuid

import pytest
from tasker_core import InProcessDomainEventPoller, TaskerClient, Worker

from parcels.handlers import Ledger


class Carrier(http.server.BaseHTTPRequestHandler):
    """Is busy once for references with "busy", refuses those with "refuse", and has picked up those with "gone"."""
    asked: dict = {}

    def do_POST(self):
        booking = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reference = booking["reference"]
        self.asked[reference] = self.asked.get(reference, 0) + 1
        if "busy" in reference and self.asked[reference] == 1:
            return self.reply(503, {"message": "busy"})
        if "refuse" in reference:
            return self.reply(422, {"message": "no such address"})
        self.reply(201, {"service": booking["service"], "cents": booking["cents"],
                         "picked_up": "gone" in reference, "split": "split" in reference})

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session", autouse=True)
def worker():
    carrier = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Carrier)
    threading.Thread(target=carrier.serve_forever, daemon=True).start()
    os.environ["CARRIER_URL"] = f"http://127.0.0.1:{carrier.server_port}"
    with Worker.start(handler_packages=["parcels.handlers"]) as worker:
        poller, ledger = InProcessDomainEventPoller(), Ledger()
        ledger.start(poller)
        poller.start()
        yield worker
        poller.stop()
    carrier.shutdown()


@pytest.fixture
def run():
    """Creates a task, waits for its end, and returns its state and its steps by name."""
    client = TaskerClient(initiator="pytest", source_system="tests")

    def run(name, **context):
        context["run"] = str(uuid.uuid4())  # so that no context repeats
        task = client.create_task(name, namespace="parcels", context=context)
        for _ in range(1800):
            status = client.get_task(task.task_uuid).status
            if status in ("complete", "blocked_by_failures", "error"):
                return status, {step.name: step for step in client.list_task_steps(task.task_uuid)}
            time.sleep(0.1)
        raise TimeoutError(f"task {task.task_uuid} is {status}")
    return run
