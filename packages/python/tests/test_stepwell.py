"""The package's own suite. Run it where the package is installed: python -m pytest packages/python"""
from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable

import pytest

import stepwell as package
from stepwell import Sandbox, Service

pytest_plugins = "pytester"
FLAGS = ["--templates", pathlib.Path(__file__).parents[3] / "examples/testing/order.json"]


def test_a_payment_is_settled_after_a_retry_and_seven_days(sandbox: Sandbox) -> None:
    sandbox.stub("charge", {"error": {"message": "declined"}}, {"result": {"receipt": 1}})
    task = sandbox.create("shop/order", amount=120)
    sandbox.status(task, "waiting_for_retry")
    sandbox.clock(advance="1h")
    sandbox.calls("charge", 2)
    assert sandbox.result(task, "charge") == {"receipt": 1}
    sandbox.clock(auto=True)
    sandbox.control("wait-idle")
    sandbox.complete(task, "settle", "settled")
    sandbox.status(task, "complete")
    assert sandbox.result(task, "settle") == "settled"
    assert [s["name"] for s in sandbox.steps(task)] == ["charge", "return_period", "settle"]
    assert sandbox.step(task, "charge")["attempts"] == 2
    assert sandbox.why(task) == "the task is complete: nothing is left to do"
    assert sandbox.request("GET", f"/v1/tasks/{task}")["status"] == "complete"


def test_a_state_is_saved_and_loaded(stepwell: Service, sandbox: Sandbox) -> None:
    task = sandbox.create("shop/order")
    with stepwell.sandbox(seed=sandbox.request("GET", "/_stepwell/state")) as other:
        other.status(task, "steps_in_process")


def test_nobody_answers(sandbox: Sandbox) -> None:
    task = sandbox.create("people/leave", who="anna")
    sandbox.clock(auto=True)  # which does not jump to a deadline
    sandbox.control("wait-idle")
    sandbox.status(task, "steps_in_process")
    sandbox.clock(advance="48h")
    assert sandbox.step(task, "remind")["current_state"] == "complete"
    sandbox.clock(advance="24h")
    sandbox.status(task, "complete")
    assert [s["name"] for s in sandbox.steps(task)] == ["ask", "approve", "remind", "approve_late", "nobody_answered"]


def test_somebody_answers(sandbox: Sandbox) -> None:
    task = sandbox.create("people/leave", who="anna")
    sandbox.clock(advance="71h")
    sandbox.complete(task, "approve_late", {"decision_point_outcome": {"type": "create_steps", "step_names": ["grant"]}})
    sandbox.status(task, "complete")
    assert [s["name"] for s in sandbox.steps(task)] == ["ask", "approve", "remind", "approve_late", "grant"]


def test_every_fault_of_every_step(sandbox: Sandbox) -> None:
    sandbox.stub("charge", {"result": {"receipt": 1}})
    sandbox.stub("settle", {"result": "settled"})
    with pytest.raises(AssertionError, match=r"STEP +fails_once(?s:.*)--only charge:nobody  stuck: ") as said:
        sandbox.explore("shop/order", amount=120)
    assert "amount" not in str(said.value)
    sandbox.explore("shop/order", amount=120, allow={"nobody": ["stuck"]})


def test_tests_do_not_see_each_other(stepwell: Service) -> None:
    with stepwell.sandbox() as one, stepwell.sandbox(deterministic_ids="seed") as two:
        one.create("shop/order")
        assert two.request("GET", "/v1/tasks")["pagination"]["total_count"] == 0
        assert two.clock(freeze=True)["now"].startswith("2026-01-01T00:00:00")


@pytest.mark.parametrize("check, want", [
    (lambda s, task: s.status(task, "complete"),
     'the task is waiting_for_retry, not complete: step "charge" '),
    (lambda s, task: s.status(task, "completed"), 'must be a state of tasks, not "completed"; did you mean complete?'),
    (lambda s, task: s.stub("charge", {"result": 1}, {"result": object()}), "outcomes[1] of step charge is not JSON: "),
    (lambda s, task: s.stub("charge", '{"result": 1}'), "outcomes[0] must be an object"),
    (lambda s, task: s.calls("charge", 2), "1 call matches, 2 wanted: attempt 1 failed (declined)"),
    (lambda s, task: s.calls("chrge", 1), 'no template has a step "chrge"'),
    (lambda s, task: s.result(task, "charge"), "step charge has no result: "),
    (lambda s, task: s.step(task, "pay"), "the task has no step pay; it has charge, return_period, settle"),
    (lambda s, task: s.create("shop/odrer"), "no template shop/odrer is registered; did you mean shop/order?"),
    (lambda s, task: s.request("GET", "/nowhere"), "no such path: /nowhere"),
])
def test_a_failure_says_in_one_line_what_happened(
        sandbox: Sandbox, check: Callable[[Sandbox, str], None], want: str) -> None:
    sandbox.stub("charge", {"error": {"message": "declined"}})
    task = sandbox.create("shop/order")
    with pytest.raises(AssertionError) as said:
        check(sandbox, task)
    assert want in str(said.value) and "\n" not in str(said.value)


def test_a_service_that_has_ended_is_named() -> None:
    with package.start() as service:
        sandbox = service.sandbox()
    with pytest.raises(AssertionError, match=re.escape(f"POST {sandbox.url}/v1/tasks: ")):
        sandbox.create("shop/order")


def test_members_of_a_context_have_any_names(sandbox: Sandbox) -> None:
    task = sandbox.create("shop/order", self=1, template=2, namespace=3)
    context = sandbox.request("GET", f"/v1/tasks/{task}/context")["context"]
    assert context == {"self": 1, "template": 2, "namespace": 3}


SUITE = """
    def test_first(stepwell, sandbox):
        print("\\nSERVICE", stepwell.url, sandbox.url)

    def test_second(stepwell, sandbox):
        print("\\nSERVICE", stepwell.url, sandbox.url)
"""


@pytest.mark.parametrize("arguments, services", [
    ([], 1), (["--import-mode=importlib"], 1), (["-n2"], 2), (["-n2", "--import-mode=importlib"], 2)])
def test_one_service_runs_for_a_session_or_a_worker(pytester: pytest.Pytester, arguments: list[str], services: int) -> None:
    if "-n2" in arguments:
        pytest.importorskip("xdist")
    pytester.makeini(f"[pytest]\nstepwell_flags = --templates '{FLAGS[1]}'")
    for directory in "one", "two":  # two modules of one name, which only importlib accepts, without __init__.py
        pytester.mkpydir(directory) if "--import-mode=importlib" not in arguments else pytester.mkdir(directory)
        pytester.path.joinpath(directory, "test_it.py").write_text("\n".join(line[4:] for line in SUITE.split("\n")))
    result = pytester.runpytest_subprocess("-rP", "-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(passed=4)
    told = [line.split()[1:] for line in result.outlines if line.startswith("SERVICE")]
    assert len({service for service, _ in told}) == services, told
    assert len({sandbox for _, sandbox in told}) == 4, told


def test_a_failing_test_shows_the_line_of_the_test_only(pytester: pytest.Pytester) -> None:
    pytester.makeini(f"[pytest]\nstepwell_flags = --templates '{FLAGS[1]}'")
    pytester.makepyfile("def test_it(sandbox):\n    sandbox.status(sandbox.create('shop/order'), 'complete')\n")
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines([">*sandbox.status(*", "E*AssertionError: the task is *, not complete: *",
                                 "*.py:2: AssertionError"])
    assert "__init__.py" not in result.stdout.str()


def test_the_log_is_shown_with_the_test_that_fails_only(pytester: pytest.Pytester) -> None:
    pytester.makeini(f"[pytest]\nstepwell_flags = --templates '{FLAGS[1]}'")
    test = ("def test_{0}(sandbox):\n    sandbox.stub('charge', {{'error': {{'message': 'declined {0}'}}}})\n"
            "    sandbox.status(sandbox.create('shop/order'), '{1}')\n")
    pytester.makepyfile(test.format("one", "waiting_for_retry") + test.format("two", "complete"))
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*Captured stderr call*", '*"INFO"*declined two*'])
    assert "declined one" not in result.stdout.str() + result.stderr.str()


def test_a_service_that_does_not_start_says_why(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nstepwell_flags = --templates nowhere.json")
    pytester.makepyfile("def test_it(sandbox): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E*AssertionError: stepwell --templates nowhere.json did not start: its output says why",
                                 "*nowhere.json*"])


def test_a_session_has_one_set_of_flags(pytester: pytest.Pytester) -> None:
    flags = "import pytest\n@pytest.fixture(scope='session')\ndef stepwell_flags():\n    return ['--log-level', '{}']\n"
    test = "def test_it(sandbox): pass\n"
    pytester.makepyfile(test_1=flags.format("warn") + test, test_2=flags.format("error") + test)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["Stepwell runs with the flags * in this session, not *: have one fixture stepwell_flags*"])


class OrderTest(package.TestCase):
    flags = FLAGS

    def test_unittest_has_a_sandbox_for_each_test(self) -> None:
        self.sandbox.stub("charge", {"result": 1})
        self.sandbox.create("shop/order")
        self.sandbox.calls("charge", 1)


def test_unittest_runs_the_class_above() -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-m", "unittest", f"{__name__}.OrderTest"], text=True,
                         cwd=pathlib.Path(__file__).parent, stderr=subprocess.PIPE)
    assert "\nOK" in run.stderr, run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_the_service_ends_when_its_runner_is_killed() -> None:
    runner = subprocess.Popen([sys.executable, "-c", "import stepwell; print(stepwell.start().url, flush=True); input()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert runner.stdout and runner.stderr
    url = runner.stdout.readline().strip()
    urllib.request.urlopen(url + "/health/live").close()
    runner.send_signal(signal.SIGKILL)
    runner.stderr.read()  # ends with the service, which writes there, too
    with pytest.raises(OSError):
        urllib.request.urlopen(url + "/health/live")
    runner.communicate()


def script(file: pathlib.Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(0o755)
    return str(file)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_the_program_is_found_where_it_is_given_on_path_or_in_a_checkout(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    on_path = script(tmp_path / "bin/stepwell", "")
    go = tmp_path / "go/go"
    script(go, '[ ! -e broken ] || exit 1; echo "built by $* in $PWD"')
    env = {"STEPWELL": "run it", "PATH": f"{tmp_path}/bin", "STEPWELL_SOURCE": str(checkout)}
    find = package._program
    assert find(env) == ["run", "it"]
    spaced = script(tmp_path / "a b/stepwell", "")
    assert find(env | {"STEPWELL": spaced}) == [spaced]
    del env["STEPWELL"]
    assert find(env) == [on_path]
    env["PATH"] = str(tmp_path)
    with pytest.raises(AssertionError, match=f"there is no program stepwell, and no Go to build it in {checkout}"):
        find(env)
    monkeypatch.chdir(tmp_path / "bin")
    script(tmp_path / "bin/go", "exit 1")
    for relative in "", ".", "../bin":
        with pytest.raises(AssertionError, match="there is no program stepwell, and no Go"):
            find(env | {"PATH": relative})
    env["PATH"] = f"{tmp_path}/go"
    assert find(env) == [f"built by run ./packages/build in {checkout}"]
    (checkout / "broken").touch()
    package._build.cache_clear()
    with pytest.raises(AssertionError, match=f"building the service in {checkout} failed: its output says why"):
        find(env)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_the_checkout_it_was_installed_from_is_built(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "a checkout"
    (checkout / "packages/python").mkdir(parents=True)
    (checkout / "go.mod").touch()
    origin = {"url": (checkout / "packages/python").as_uri(), "dir_info": {}}
    info = tmp_path / "stepwell-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: stepwell\nVersion: 9\n")
    (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    script(tmp_path / "go/go", "pwd")
    assert package._program({"PATH": os.pathsep.join([f"{tmp_path}/go", "/bin"])}) == [str(checkout)]
    (info / "direct_url.json").write_text("{}")
    with pytest.raises(AssertionError, match="there is no program stepwell: put it on PATH, set STEPWELL to it, or set"):
        package._program({"PATH": ""})
