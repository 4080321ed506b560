"""Tests workflows with a real Stepwell: one process for many tests, and an isolated sandbox with a virtual clock for
each test. With pytest, use the fixture "sandbox"; with unittest, the class TestCase."""
from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import unittest
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

__all__ = ["Sandbox", "Service", "TestCase", "start"]
__tracebackhide__ = __unittest = True  # pytest and unittest leave this file out of tracebacks

_SERVE = ["--fixture", "--quiet", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--print-ready",
          "--exit-with-parent"]
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # the service is here, behind no proxy


def start(*flags: object, cwd: str | os.PathLike[str] | None = None, **env: str) -> Service:
    """Starts Stepwell with further flags, such as "--templates", FILE, and environment variables."""
    return Service(flags, cwd, env)


class Service:
    """A running Stepwell. It ends with stop, or with this process, however that ends."""

    def __init__(self, flags: Sequence[object], cwd: str | os.PathLike[str] | None, env: dict[str, str]) -> None:
        env = {"STEPWELL_LOG__LEVEL": "warn"} | os.environ | env
        command, self.flags = _program(env), [str(flag) for flag in flags]
        try:
            self._program = subprocess.Popen([*command, *_SERVE, *self.flags], cwd=cwd, env=env,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as e:
            _fail(f"{shlex.join(command)} does not run: {e.strerror}")
        assert self._program.stdout is not None
        if not (ready := self._program.stdout.readline()):
            self.stop()
            _fail(f"{' '.join(['stepwell', *self.flags])} did not start: its output says why")
        self.url: str = json.loads(ready)["orchestration_url"]

    def sandbox(self, **options: object) -> Sandbox:
        """Creates a sandbox, whose clock is frozen. Options are such as deterministic_ids="SEED"."""
        return Sandbox(self.url + "/_stepwell/sandboxes", options)

    def stop(self) -> None:
        self._program.communicate()  # closes its standard input, which ends it

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Sandbox:
    """A service for one test, with tasks, stubs and a clock of its own. Its url is for the application under test."""

    def __init__(self, sandboxes: str, options: dict[str, object]) -> None:
        box = _request("POST", sandboxes, options)
        self.url: str = box["orchestration_url"]
        self._self = f"{sandboxes}/{box['name']}"
        self.clock(freeze=True)

    def delete(self) -> None:
        """Deletes the sandbox. The fixture and TestCase do this after each test."""
        _request("DELETE", self._self)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request, fails the test if the service refuses it, and returns the response: JSON as values, else text."""
        return _request(method, self.url + path, body)

    def control(self, path: str, **body: object) -> Any:
        """Posts to the control API, under /_stepwell/, and fails the test if the response has a warning."""
        reply = self.request("POST", "/_stepwell/" + path, body)
        if isinstance(reply, dict) and "warning" in reply:  # such as an unknown step
            _fail(reply["warning"])
        return reply

    def clock(self, **change: object) -> Any:
        """Moves the clock: advance="1h", or auto=True to jump to each timer."""
        return self.control("clock", **change)

    def stub(self, step: str, *outcomes: object, then: str = "last") -> None:
        """Scripts the outcomes of a step's attempts. Then the last one repeats, or, with then="handler", the step runs."""
        for i, outcome in enumerate(outcomes):
            try:
                json.dumps(outcome, allow_nan=False)
            except (TypeError, ValueError) as e:
                _fail(f"outcomes[{i}] of step {step} is not JSON: {e}")
        self.control("stubs", match={"step": step}, outcomes=outcomes, then=then)

    def create(self, template: str, /, **context: object) -> str:
        """Creates a task of the template "namespace/name", and returns its id."""
        namespace, _, name = template.partition("/")
        task = self.request("POST", "/v1/tasks", {"namespace": namespace, "name": name, "context": context})
        return str(task["task_uuid"])

    def explore(self, template: str, /, *, before: str | None = None, check: str | None = None,
                allow: object = None, **context: object) -> None:
        """Runs a task with every fault of every step, and fails the test with the table if one does not end as it should."""
        namespace, _, name = template.partition("/")
        found = self.control("explore", namespace=namespace, name=name, context=context, before=before, check=check, allow=allow)
        if found["findings"]:
            _fail("\n" + found["text"])

    def steps(self, task: str) -> list[dict[str, Any]]:
        """Waits until nothing runs, and returns the steps of a task."""
        self.control("wait-idle")
        steps: list[dict[str, Any]] = self.request("GET", f"/v1/tasks/{task}/workflow_steps")
        return steps

    def step(self, task: str, name: str) -> dict[str, Any]:
        """Waits until nothing runs, and returns a step of a task."""
        steps = {s["name"]: s for s in self.steps(task)}
        if name not in steps:
            _fail(f"the task has no step {name}; it has {', '.join(steps)}")
        return steps[name]

    def complete(self, task: str, step: str, result: object) -> None:
        """Completes a step as a person does."""
        self.request("PATCH", f"/v1/tasks/{task}/workflow_steps/{self.step(task, step)['step_uuid']}", {
            "action_type": "complete_manually", "completion_data": {"result": result},
            "reason": "test", "completed_by": "test"})

    def status(self, task: str, want: str) -> None:
        """Waits until nothing runs, and checks the status of a task."""
        self.control("wait-idle")
        self.control("verify", task_uuid=task, status=want)

    def why(self, task: str) -> str:
        """Says in one line why a task is stuck."""
        return str(self.request("GET", f"/v1/tasks/{task}/explain")["message"])

    def calls(self, step: str, want: int) -> None:
        """Waits until nothing runs, and checks how often a step's handler or stub was called, in this sandbox."""
        self.control("wait-idle")
        self.control("verify", match={"step": step}, count={"exactly": want})

    def result(self, task: str, step: str) -> Any:
        """Waits until nothing runs, and returns the result of a step. It fails the test if the step has none."""
        found = self.step(task, step)
        if found["current_state"] not in ("complete", "resolved_manually"):
            _fail(f"step {step} has no result: {self.why(task)}")
        return found["results"] and found["results"]["result"]


class TestCase(unittest.TestCase):
    """For unittest: starts Stepwell with the class's flags, and gives each test a sandbox."""

    flags: ClassVar[Sequence[object]] = ()
    service: ClassVar[Service]
    sandbox: Sandbox

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.service = start(*cls.flags)
        cls.addClassCleanup(cls.service.stop)

    def setUp(self) -> None:
        super().setUp()
        self.sandbox = self.service.sandbox()
        self.addCleanup(self.sandbox.delete)


def _fail(message: str) -> NoReturn:
    raise AssertionError(message)


def _request(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with _open(request) as reply:
            text = reply.read().decode()
            return json.loads(text) if text and reply.headers.get_content_type() == "application/json" else text or None
    except urllib.error.HTTPError as e:
        text = e.read().decode()
    except OSError as e:  # such as a service that has ended
        text = str(getattr(e, "reason", e))
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = f"{method} {url}: {text}"
    _fail(message)


def _program(env: dict[str, str]) -> list[str]:
    """Finds the command that starts Stepwell, as docs/testing.md says."""
    if given := env.get("STEPWELL"):
        return [given] if os.path.exists(given) else shlex.split(given)
    scripts = sysconfig.get_path("scripts")  # where a wheel with the program puts it
    if found := _which("stepwell", os.pathsep.join([scripts, env.get("PATH", "")])):
        return [found]
    if not (source := env.get("STEPWELL_SOURCE") or _installed_from()):
        _fail("there is no program stepwell: put it on PATH, set STEPWELL to it, or set STEPWELL_SOURCE to its checkout")
    source = os.path.realpath(source)
    if not (go := _which("go", env.get("PATH", ""))):
        _fail(f"there is no program stepwell, and no Go to build it in {source}")
    return [_build(go, source)]


def _which(name: str, path: str) -> str | None:
    """Returns the program in the first absolute directory of a PATH that has it.

    shutil.which also looks into relative directories, and on Windows into the working directory first: a program there
    may be anybody's.
    """
    file_name = name + ".exe" if sys.platform == "win32" else name
    for directory in path.split(os.pathsep):
        file = os.path.join(directory, file_name)
        if os.path.isabs(directory) and os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return None


@functools.cache
def _build(go: str, source: str) -> str:
    """Builds the program of a checkout, which takes no time if nothing has changed."""
    build = subprocess.run([go, "run", "./packages/build"], cwd=source, text=True, stdout=subprocess.PIPE,
                           env=os.environ | {"GOFLAGS": "", "GOWORK": "off"})
    if build.returncode != 0:
        _fail(f"building the service in {source} failed: its output says why")
    return build.stdout.strip()


def _installed_from() -> str | None:
    """Returns the checkout that pip or uv installed this package from (PEP 610)."""
    try:
        origin = importlib.metadata.distribution("stepwell").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    url = urllib.parse.urlparse(json.loads(origin or "{}").get("url", ""))
    checkout = Path(urllib.request.url2pathname(url.path)).parent.parent
    return str(checkout) if url.scheme == "file" and (checkout / "go.mod").exists() else None
