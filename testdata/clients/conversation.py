"""Talks to all three APIs with clients that openapi-python-client generated.

Usage: conversation.py ORCHESTRATION_URL WORKER_URL MOUNT_URL, with the packages
orchestration, worker and mount on the path.
"""

import importlib
import inspect
import pkgutil
import sys

import mount
import mount.models as mounted
import orchestration
import orchestration.models as models
import worker
from orchestration.api.steps import act_on_step, checkpoint_claimed_step, claim_steps, complete_claimed_step, list_steps
from orchestration.api.tasks import create_task, get_task, list_tasks

# A stream, names of files, and what would have to be made first.
UNASKED = {"stream_events", "docs_file", "console_file", "get_stub", "get_sandbox"}


def want(got, wanted):
    if got != wanted:
        raise SystemExit(f"got {got!r}; want {wanted!r}")


def call_every_get(package, url, values):
    """Calls every operation that reads, with its required parameters alone."""
    client = package.Client(base_url=url, follow_redirects=True)
    called, api = 0, importlib.import_module(package.__name__ + ".api")
    for module in pkgutil.walk_packages(api.__path__, api.__name__ + "."):
        operation = importlib.import_module(module.name)
        call = getattr(operation, "sync_detailed", None)
        name = module.name.rsplit(".", 1)[1]
        if call is None or name in UNASKED or operation._get_kwargs.__code__.co_consts.count("get") == 0:
            continue
        parameters = inspect.signature(call).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty and p.name != "client"]
        response = call(client=client, **{p: values[p] for p in required})
        if response.status_code not in (200, 302) or response.parsed is None and response.status_code == 200:
            raise SystemExit(f"{name}: got {response.status_code} {response.content[:300]!r}; want 200 and a parsed body")
        called += 1
    return called


def main():
    urls = sys.argv[1:4]
    client = orchestration.Client(base_url=urls[0])

    context = models.TaskRequestContextType0.from_dict({"order_id": 7})
    request = models.TaskRequest(name="diamond", namespace="demo", context=context, tags=["generated"])
    task = create_task.sync(client=client, body=request, wait="30s")
    want(type(task), models.TaskResponse)
    want((task.status, task.context["order_id"]), (models.TaskState.COMPLETE, 7))
    want(get_task.sync(task.task_uuid, client=client).total_steps, 4)
    want(get_task.sync(task.task_uuid, client=client, wait="terminal", timeout="1s").status, models.TaskState.COMPLETE)
    found = list_tasks.sync(client=client, status=[models.TaskStateFilter.COMPLETE], name="diamond", per_page=5, cursor="")
    want(found.tasks[0].task_uuid, task.task_uuid)

    refused = create_task.sync(client=client, body=models.TaskRequest(name="nothing", namespace="demo"))
    want((type(refused), refused.error.code), (models.ApiError, models.ErrorCode.NOT_FOUND))

    waiting = create_task.sync(client=client, body=models.TaskRequest(name="approval", namespace="demo"))
    claims = []
    while not claims:
        claims = claim_steps.sync(client=client, body=models.StepClaim(callables=["*"], wait_seconds=10))
    checkpoint = models.ClaimCheckpoint(lease=claims[0].lease, cursor={"page": 2}, items_processed=1)
    yielded = checkpoint_claimed_step.sync(claims[0].step.step_uuid, client=client, body=checkpoint)
    want((yielded.current_state, yielded.attempts), (models.StepState.ENQUEUED, 1))
    claims = claim_steps.sync(client=client, body=models.StepClaim(callables=["*"], wait_seconds=10))
    want(claims[0].step.checkpoint.cursor, {"page": 2})
    done = complete_claimed_step.sync(
        claims[0].step.step_uuid, client=client, body=models.ClaimCompletion(lease=claims[0].lease, result={"ok": True})
    )
    want((done.current_state, done.results.result), (models.StepState.COMPLETE, {"ok": True}))
    step = list_steps.sync(waiting.task_uuid, client=client)[0]
    reset = models.ResetForRetry(action_type="reset_for_retry", reason="a test", reset_by="a test")
    want(act_on_step.sync(waiting.task_uuid, step.step_uuid, client=client, body=reset).error.code, models.ErrorCode.BAD_REQUEST)

    task = create_task.sync(client=client, body=models.TaskRequest(name="failing", namespace="demo"), wait="30s")
    values = {
        "q": "approve",
        "task_uuid": task.task_uuid, "id": task.task_uuid, "task_id": task.task_uuid,
        "page": "tasks", "namespace": "demo", "name": "diamond", "version": "latest",
    }
    values["step_uuid"] = values["step_id"] = task.steps[0].workflow_step_uuid
    called = [call_every_get(p, u, values) for p, u in zip((orchestration, worker, mount), urls)]
    print("python: called", called, "reading operations of orchestration, worker, mount point")


main()
