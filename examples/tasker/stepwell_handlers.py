#!/usr/bin/env python3
"""Runs a worker of Tasker, by the package tasker-py, that sends each step to the HTTP handlers of a
Stepwell configuration, with the envelope that Stepwell sends, and takes their replies as Stepwell does.

    python stepwell_handlers.py stepwell.toml

The templates are those of TASKER_TEMPLATE_PATH; the rest of the worker is configured as any worker of the package.
Handlers are the URLs in [worker.handlers], in worker.default_handler, or the callables themselves."""
import base64, concurrent.futures, http.client, json, os, signal, sys, threading, tomllib, zlib
import urllib.error, urllib.parse, urllib.request

from tasker_core import (
    HandlerDiscovery, TemplatePath, bootstrap_worker, complete_step_event, poll_step_events, stop_worker,
    transition_to_graceful_shutdown)
from tasker_core._tasker_core import checkpoint_yield_step_event

CONCURRENCY = 64
BATCH = ("cursor", "batch_metadata", "is_no_op")

class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)

def find(table, callable):
    """Returns the value of a callable: that of its name, else of its longest prefix with a *."""
    if callable in table:
        return table[callable]
    prefixes = [key for key in table if key.endswith("*") and callable.startswith(key[:-1])]
    return table[max(prefixes, key=len)] if prefixes else None

class Handlers:
    def __init__(self, config):
        worker = config.get("worker", {})
        self.urls, self.headers = worker.get("handlers", {}), worker.get("http_headers", {})
        self.default = worker.get("default_handler") or None

    def url(self, callable):
        web = ("http://", "https://")
        found = find(self.urls, callable) or (callable if callable.startswith(web) else self.default)
        return found if found and found.startswith(web) else None

    def post(self, callable, envelope, key, timeout):
        """Returns the outcome that a handler replies."""
        url = urllib.parse.urlsplit(self.url(callable))
        host = url.netloc.rpartition("@")[2]
        tables = {name: table for name, table in self.headers.items() if isinstance(table, dict)}
        headers = {name: value for name, value in self.headers.items() if name not in tables}
        headers.update({**tables.get(f"{url.scheme}://{host}", {}), **(find(tables, callable) or {})})
        if url.username is not None:
            user = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        headers.update({"Content-Type": "application/json", "User-Agent": "stepwell-handlers", "Idempotency-Key": key})
        request = urllib.request.Request(url._replace(netloc=host).geturl(), json.dumps(envelope).encode(), headers)
        try:
            with opener.open(request, timeout=timeout) as reply:
                return {**outcome(host, reply.read()), "wait": reply.headers.get("Retry-After")}
        except urllib.error.HTTPError as e:
            text, kind = e.read(8192).decode(errors="replace"), "redirect" if e.code < 400 else f"http_{e.code}"
            said = f"{host} replied {e.code} {http.client.responses.get(e.code, '')}".rstrip()
            return {**failure(": ".join(filter(None, [said, " ".join(text.split())[:200]])), kind,
                              e.code in (408, 425, 429) or e.code >= 500, status_code=e.code, context={"body": text}),
                    "wait": e.headers.get("Retry-After")}
        except (OSError, http.client.HTTPException) as e:
            if isinstance(getattr(e, "reason", e), TimeoutError):
                return failure(f"the attempt took longer than {timeout}s", "timeout", True)
            return failure(f"no reply from {host}: {e!r}", "network_error", True)

def failure(message, error_type, retryable, **more):
    return {"success": False, "error": {"message": message, "error_type": error_type, "retryable": retryable, **more}}

def envelope(sequence):
    """Returns what Stepwell sends for a step."""
    task, step, definition = sequence["task"], sequence["workflow_step"], sequence["step_definition"]
    inner, handler, given = task["task"], definition["handler"], step["inputs"] or {}
    batch = {name: given[name] for name in BATCH if name in given} if "__template_step_name" in given else {}
    if batch and isinstance(batch["cursor"]["start_cursor"], dict) and "cursor" in batch["cursor"]["start_cursor"]:
        batch["cursor"] = batch["cursor"]["start_cursor"]["cursor"]  # see portable
    config = {**(handler["initialization"] or {}), **({"cursor": batch["cursor"]} if batch else {})}
    before, near = sequence["dependency_results"], set(definition["dependencies"])
    if config.get("dependency_results") == "parents":
        before = {name: told for name, told in before.items() if name in near or name.rpartition("_")[0] in near}
    seconds = definition["timeout_seconds"]
    sent = {"step_uuid": step["workflow_step_uuid"], "name": step["name"], "config": config,
            "template_step_name": step["template_step_name"], "inputs": {**inner["context"], **batch},
            "attempt": (step["attempts"] or 0) + 1, "max_attempts": step["max_attempts"],
            "timeout_seconds": seconds, "remaining_ms": seconds * 1000,
            "handler": {name: handler[name] for name in ("callable", "method", "resolver") if handler[name]}}
    if step["results"]:
        last = step["results"]
        sent["previous"] = {"success": last["success"], "result": last["result"], "error": last["error"], **ended(last)}
    if step["checkpoint"]:
        sent["checkpoint"] = step["checkpoint"]
    return {
        "task": {"namespace": task["namespace_name"], "name": task["task_name"], "version": task["task_version"],
                 **{name: inner[name] + "Z" for name in ("requested_at", "created_at", "updated_at")},
                 **{name: inner[name] for name in ("task_uuid", "correlation_id", "parent_correlation_id", "context",
                                                   "initiator", "source_system", "reason", "tags", "priority")}},
        "step": sent,
        "dependency_results": {name: told["result"] for name, told in before.items()},
        "dependencies": {name: {"step_uuid": told["step_uuid"], "state": "complete", **ended(told)}
                         for name, told in before.items()}}

def ended(results):
    told = results["metadata"]
    return {"ended_at": told["completed_at"], "execution_time_ms": told["execution_time_ms"],
            "metadata": told["custom"]}

def outcome(host, body):
    """Reads a reply as Stepwell does."""
    text = body.decode(errors="replace")
    try:
        reply = json.loads(text) if text.strip() else None
    except ValueError as e:
        return failure(f"{host}: the reply: {e}: {text[:200]}", "invalid_result", False, context={"body": text[:8192]})
    decided = ("decision_point_outcome", "batch_processing_outcome")
    if not isinstance(reply, dict) or not isinstance(reply.get("success"), bool):
        return {"success": True, "result": reply}
    if not set(reply) <= {"success", "result", "error", "metadata", "checkpoint", *decided}:
        return {"success": True, "result": reply} if reply["success"] else failure(text, "handler_error", True)
    if any(reply.get(name) for name in decided):
        reply["result"] = {**(reply.get("result") or {}), **{name: reply[name] for name in decided if reply.get(name)}}
    return reply

def portable(result):
    """Gives the cursors of a batch the members that Tasker demands."""
    made = result.get("batch_processing_outcome") if isinstance(result, dict) else None
    for i, cursor in enumerate((made or {}).get("cursor_configs") or []):
        if not {"batch_id", "start_cursor", "end_cursor", "batch_size"} <= set(cursor):
            made["cursor_configs"][i] = {
                "batch_id": f"{i + 1:03d}", "start_cursor": {"cursor": cursor}, "end_cursor": None, "batch_size": 0}
    return result

def run(handlers, event):
    try:
        step, sent = event["step_uuid"], envelope(event["task_sequence_step"])
        key = f"{step}:{sent['step']['attempt']}"
        if "checkpoint" in sent["step"]:
            key += f":{zlib.crc32(json.dumps(sent['step']['checkpoint'], sort_keys=True).encode())}"
        reply = handlers.post(sent["step"]["handler"]["callable"], sent, key, sent["step"]["timeout_seconds"])
        if reply["success"] and reply.get("checkpoint"):
            return checkpoint_yield_step_event(event["event_id"], {
                "step_uuid": step, "items_processed": 0, "accumulated_results": None, **reply["checkpoint"]})
        done = completion(event, reply)
    except Exception as e:  # a member of the reply is of a wrong type
        done = completion(event, failure(f"the reply: {e!r}", "invalid_result", False))
    complete_step_event(event["event_id"], done)

def completion(event, reply):
    """Returns what the package sends for an outcome."""
    error = None if reply["success"] else {
        "message": "the handler reported a failure and gave no message", "error_type": "handler_error",
        "retryable": True, **{name: value for name, value in (reply.get("error") or {}).items() if value is not None}}
    wait = {"Retry-After": reply["wait"]} if error and (reply.get("wait") or "").isdecimal() else {}
    return {
        "step_uuid": event["step_uuid"], "task_uuid": event["task_uuid"], "correlation_id": event["correlation_id"],
        "success": reply["success"], "execution_time_ms": 0, "result": portable(reply.get("result")), "error": error,
        "status": "completed" if not error else "retryable_error" if error["retryable"] else "permanent_error",
        "metadata": {"custom": reply.get("metadata") or {}, "retryable": bool(error and error["retryable"])},
        "orchestration_metadata": {"headers": wait, "error_context": None, "backoff_hint": None, "custom": {}}}

def main():
    with open(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("STEPWELL_CONFIG", "stepwell.toml"), "rb") as file:
        handlers = Handlers(tomllib.load(file))
    folder = TemplatePath.find_template_config_directory()
    if not folder:
        sys.exit("no templates: set TASKER_TEMPLATE_PATH")
    if lost := [name for name in HandlerDiscovery.discover_all_handlers(folder) if not handlers.url(name)]:
        sys.exit(f"no HTTP handler for {', '.join(lost)}")
    ended, free = threading.Event(), threading.Semaphore(CONCURRENCY)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    started = bootstrap_worker()
    if not started.success:
        sys.exit(f"the worker does not start: {started.message}")
    print("the worker runs", flush=True)
    with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
        while not ended.is_set():
            free.acquire()
            event = poll_step_events()
            if event is None:
                free.release()
                ended.wait(0.01)
                continue
            pool.submit(run, handlers, event).add_done_callback(lambda done: (free.release(), report(done)))
    transition_to_graceful_shutdown()
    stop_worker()

def report(done):
    if done.exception():
        print(f"no outcome was sent: {done.exception()!r}", file=sys.stderr, flush=True)

if __name__ == "__main__":
    main()
