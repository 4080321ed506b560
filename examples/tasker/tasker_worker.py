#!/usr/bin/env python3
"""Runs an application of the package tasker-py, unmodified, as an outside worker of Stepwell: this file takes the
place of the package's compiled extension, and the rest of the package runs on it.

    python tasker_worker.py -m pytest tests

STEPWELL_URL is the URL of the service; STEPWELL_TOKEN is a bearer token, if the service requires one. The worker takes
every step in the namespaces of its templates (TASKER_TEMPLATE_PATH, or config/tasks) that Stepwell itself does not
run. Without templates it takes the steps of the registered handlers."""
import collections, json, os, runpy, sys, threading, time, types, urllib.error, urllib.parse, urllib.request, uuid

URL = os.environ.get("STEPWELL_URL", "http://127.0.0.1:8080")
LEASE = 30  # seconds; extended every third of this
core = sys.modules["tasker_core._tasker_core"] = types.ModuleType("tasker_core._tasker_core")
worker = {}  # of bootstrap_worker: id, namespaces, and what ends the extensions
pending = {}  # by event id: the claim, the step event, and since when
events = collections.deque(maxlen=1000)  # domain events for this process

def call(method, path, body=None, tries=1):
    """Sends a request, and repeats it once a second while the service cannot be reached or cannot take it."""
    data = None if body is None else json.dumps(body, allow_nan=False).encode()
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("STEPWELL_TOKEN"):
        headers["Authorization"] = "Bearer " + token
    try:
        request = urllib.request.Request(URL + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read() or "null")
    except OSError as e:  # includes HTTP errors
        code = getattr(e, "code", 0)
        if tries > 1 and (not code or code >= 500):
            time.sleep(1)
            return call(method, path, body, tries - 1)
        said = f"HTTP {code} {e.reason}: {e.read().decode()}" if code else f"{URL}: {e}"
        error = RuntimeError("Orchestration error: " + said)
        error.code = code
        raise error from None

def logger(level, levels=("trace", "debug", "info", "warn", "error")):
    def log(message, fields=None):
        least = os.environ.get("LOG_LEVEL", "warn").lower()
        if levels.index(level) >= (levels.index(least) if least in levels else 3):
            print(level.upper(), message, *(f"{k}={v}" for k, v in (fields or {}).items()), file=sys.stderr, flush=True)
    return log

def bootstrap_worker(config=None):
    handle, status = str(uuid.uuid4()), "already_running" if worker else "started"
    if not worker:
        from tasker_core.template_discovery import HandlerDiscovery, TemplatePath
        folder = TemplatePath.find_template_config_directory()
        worker["id"] = (config or {}).get("worker_id") or "python-worker-" + handle
        worker["namespaces"] = sorted(HandlerDiscovery.discover_handlers_by_namespace(folder)) if folder else []
        worker["ended"] = threading.Event()
        threading.Thread(target=extend, args=(worker["ended"],), daemon=True).start()
    return {"handle_id": handle, "status": status, "worker_id": worker["id"], "message": "Python worker " + status}

def stop_worker():
    if not worker:
        return "Worker system not running"
    worker["ended"].set()
    worker.clear()
    return "Worker system stopped"

def extend(ended):
    while not ended.wait(LEASE / 3):
        for claim, *_ in list(pending.values()):
            body = {"lease": claim["lease"], "lease_seconds": LEASE}
            try:
                call("POST", f"/v1/steps/{claim['step']['step_uuid']}/extend", body)
            except RuntimeError as e:  # tried again at the next interval
                core.log_warn(f"not extended: {e}")

def poll_step_events():
    from tasker_core import HandlerRegistry
    body = {"callables": ["*"], "lease_seconds": LEASE, "wait_seconds": 1, "worker_id": worker["id"]}
    if worker["namespaces"]:
        body["namespaces"] = worker["namespaces"]
    else:
        body["callables"] = HandlerRegistry.instance(skip_bootstrap=True).list_handlers()[:100]
    try:
        claims = call("POST", "/v1/steps/claim", body)
        event = step_event(claims[0]) if claims else None
    except Exception as e:  # the library says nothing, waits and polls again
        core.log_error(f"no step is taken: {e!r}")
        raise
    if event:
        pending[event["event_id"]] = claims[0], event, time.time()
    return event

def step_event(claim):
    """Returns what the library expects of a claimed step."""
    task, step = claim["task"], claim["step"]
    path = "/".join(urllib.parse.quote(task[key], "") for key in ("namespace", "name", "version"))
    steps = {s["name"]: s for s in call("GET", "/v1/templates/" + path)["configuration"]["steps"]}
    base = step.get("template_step_name")
    base = base or (step["name"] if step["name"] in steps else step["name"].rpartition("_")[0])
    definition = {"name": base, "type": "standard", "retry": {}, "publishes_events": [], **steps.get(base, {})}
    config, context = dict(step["config"]), step["inputs"]  # the task's context, unless an operator has set others
    inputs = config
    if definition["type"] == "batch_worker":
        config.pop("cursor", None)
        batch = {key: context[key] for key in ("cursor", "batch_metadata", "is_no_op") if key in context}
        context, inputs = task["context"], {**config, **batch, "__template_step_name": base}
    definition["handler"] = {"method": None, "resolver": None, **step["handler"], "initialization": config}
    correlation = str(uuid.uuid4())
    return {
        "event_id": str(uuid.uuid4()), "task_uuid": task["task_uuid"], "step_uuid": step["step_uuid"],
        "correlation_id": correlation, "trace_id": correlation, "span_id": "span-" + step["step_uuid"],
        "task_correlation_id": task["correlation_id"], "parent_correlation_id": task.get("parent_correlation_id"),
        "task_sequence_step": {
            "task": {"task": {**task, "context": context, "complete": False}, "task_name": task["name"],
                     "task_version": task["version"], "namespace_name": task["namespace"]},
            "workflow_step": {
                **step, "workflow_step_uuid": step["step_uuid"], "task_uuid": task["task_uuid"],
                "template_step_name": base, "retryable": definition["retry"].get("retryable", True),
                "attempts": step["attempt"] - 1 or None, "inputs": inputs or None, "results": step.get("previous"),
                "in_process": False, "processed": False},
            "dependency_results": {name: full_result(result, claim.get("dependencies", {}).get(name, {}))
                                   for name, result in claim["dependency_results"].items()},
            "step_definition": definition}}

def full_result(result, told):
    metadata = {"completed_at": told.get("ended_at"), "execution_time_ms": told.get("execution_time_ms"),
                "custom": told.get("metadata", {}), "context": {}, "retryable": False}
    return {"step_uuid": told.get("step_uuid"), "success": True, "result": result, "metadata": metadata,
            "status": "completed", "error": None}

def deliver(event_id, verb, body):
    """Sends an outcome. It returns False if the step is no longer this worker's."""
    event_id = str(uuid.UUID(event_id))
    if event_id not in pending:
        return False
    claim, refused = pending[event_id][0], 0
    try:
        path = f"/v1/steps/{claim['step']['step_uuid']}/{verb}"
        call("POST", path, {"lease": claim["lease"], **body}, tries=LEASE)
    except RuntimeError as e:
        core.log_error(str(e))
        refused = e.code
        if refused not in (404, 409):
            raise
    finally:
        if verb != "complete" or refused not in (400, 413, 422):  # else the library sends a failure in its place
            pending.pop(event_id)
    return not refused

def complete_step_event(event_id, completion):
    _, event, _ = pending.get(str(uuid.UUID(event_id)), (None, None, None))
    metadata, error = completion.get("metadata") or {}, completion.get("error") or {}
    if completion["success"]:
        body = {"result": completion.get("result"), "metadata": metadata.get("custom") or {}}
        taken = deliver(event_id, "complete", body)
    else:
        taken = deliver(event_id, "fail", {"error": {
            "message": (error.get("message") or "Unknown error")[:10000],
            "error_type": (error.get("error_type") or "unknown")[:255],
            "retryable": metadata.get("retryable", error.get("retryable", True)),
            "context": {key: value for key, value in (error.get("metadata") or {}).items() if key != "headers"}}})
    for e in event["task_sequence_step"]["step_definition"]["publishes_events"] if taken else ():
        publish(e, event, completion)
    return taken

def publish(declared, event, completion):
    """Publishes an event in this process, as the extension does. Stepwell itself publishes it to its subscribers."""
    result, step = completion.get("result"), event["task_sequence_step"]
    when = (declared.get("condition") or "success") in ("always", "success" if completion["success"] else "failure")
    fits = isinstance(result, dict) or (declared.get("schema") or {}).get("type") != "object"  # null after a failure
    if when and fits and declared.get("delivery_mode") in ("fast", "broadcast"):
        metadata = {
            "task_uuid": event["task_uuid"], "step_uuid": event["step_uuid"],
            "step_name": step["workflow_step"]["name"], "namespace": step["task"]["namespace_name"],
            "correlation_id": event["task_correlation_id"],
            "fired_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), "fired_by": "tasker_worker"}
        events.append({"event_id": str(uuid.uuid4()), "event_name": declared["name"], "event_version": "1.0",
                       "metadata": metadata,
                       "payload": {"task_sequence_step": step, "execution_result": completion, "payload": result}})

def status():
    """Answers every question about the state of the worker: the library takes the members that it wants."""
    ages = [int((time.time() - since) * 1000) for *_, since in pending.values()]
    return {"running": True, "is_running": True, "status": "healthy", "components": {}, "worker_core_status": "Running",
            "environment": os.environ.get("TASKER_ENV", "development"), "supported_namespaces": worker["namespaces"],
            "web_api_enabled": False, "dispatch_channel_pending": len(ages), "pending_count": len(ages),
            "oldest_event_id": next(iter(pending), None), "oldest_pending_age_ms": max(ages, default=None),
            "newest_pending_age_ms": min(ages, default=None)}

def create_task(request):
    for member in ("name", "namespace", "version", "context", "initiator", "source_system", "reason"):
        if member not in request:
            raise ValueError(f"Invalid task request: missing field `{member}`")
    return call("POST", "/v1/tasks", request)

def list_tasks(limit, offset, namespace, status):
    asked = {"per_page": limit, "page": offset // limit + 1, "namespace": namespace, "status": status}
    return call("GET", "/v1/tasks?" + urllib.parse.urlencode({key: value for key, value in asked.items() if value}))

def task_path(task):
    return f"/v1/tasks/{uuid.UUID(task)}"

def step_path(task, step):
    return f"{task_path(task)}/workflow_steps/{uuid.UUID(step)}"

def running(function):
    def checked(*args):
        if not worker:
            raise RuntimeError("Worker not initialized. Call bootstrap_worker() first.")
        return function(*args)
    return checked

vars(core).update({
    "__version__": "0.1.8", "get_version": lambda: "0.1.8", "get_rust_version": lambda: "tasker-py 0.1.8 (Stepwell)",
    "health_check": lambda: True, "bootstrap_worker": bootstrap_worker, "stop_worker": stop_worker,
    "is_worker_running": lambda: bool(worker),
    "get_worker_status": lambda: status() if worker else {"running": False, "error": "Worker system not initialized"},
    **{"log_" + level: logger(level) for level in ("trace", "debug", "info", "warn", "error")},
    **{name: running(function) for name, function in {
        "poll_step_events": poll_step_events, "complete_step_event": complete_step_event,
        "checkpoint_yield_step_event": lambda event_id, data: deliver(event_id, "checkpoint", {
            key: data.get(key) for key in ("cursor", "items_processed", "accumulated_results")}),
        "poll_in_process_events": lambda: events.popleft() if events else None,
        "get_ffi_dispatch_metrics": status, "get_metrics": status, "get_health_check": status,
        "get_worker_config": status, "check_starvation_warnings": lambda: True, "cleanup_timeouts": lambda: 0,
        "transition_to_graceful_shutdown": lambda: "Worker system transitioned to graceful shutdown",
        "client_health_check": lambda: {"healthy": bool(call("GET", "/health"))}, "client_create_task": create_task,
        "client_list_tasks": list_tasks, "client_get_task": lambda task: call("GET", task_path(task)),
        "client_cancel_task": lambda task: {"cancelled": bool(call("DELETE", task_path(task)))},
        "client_list_task_steps": lambda task: call("GET", task_path(task) + "/workflow_steps"),
        "client_get_step": lambda task, step: call("GET", step_path(task, step)),
        "client_get_step_audit_history": lambda task, step: call("GET", step_path(task, step) + "/audit"),
    }.items()}})

if __name__ == "__main__":
    module = sys.argv[1:2] == ["-m"]
    del sys.argv[:1 + module]
    if not sys.argv:
        sys.exit("usage: tasker_worker.py [-m] PROGRAM [ARGUMENT…]")
    sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.abspath(sys.argv[0]))
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
