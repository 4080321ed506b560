"""The pytest plugin: one service for a session, or for a worker of pytest-xdist, and a sandbox for each test."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import pytest

from . import Sandbox, Service, _program, start


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("stepwell_flags", "Flags of Stepwell, such as --templates FILE; files are relative to the rootdir.",
                  type="args")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the program before the first test that needs it, whose time limit would count the build."""
    used = any("stepwell" in getattr(item, "fixturenames", ()) for item in session.items)
    if used and not session.config.getoption("collectonly"):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled(), contextlib.suppress(AssertionError):  # which the first test meets again
            _program(dict(os.environ))


@pytest.fixture(scope="session")
def stepwell_flags(pytestconfig: pytest.Config) -> Sequence[object]:
    """The flags of Stepwell: those of the configuration, unless the tests have a fixture of this name."""
    flags: list[str] = pytestconfig.getini("stepwell_flags")
    return flags


@pytest.fixture(scope="session", name="stepwell")
def _stepwell(pytestconfig: pytest.Config, stepwell_flags: Sequence[object]) -> Iterator[Service]:
    """A running Stepwell."""
    # pytest captures the log, and shows it with the test that fails.
    with start(*stepwell_flags, cwd=pytestconfig.rootpath, STEPWELL_LOG__LEVEL="info") as service:
        yield service


@pytest.fixture
def sandbox(stepwell: Service, stepwell_flags: Sequence[object]) -> Iterator[Sandbox]:
    """A sandbox for this test, whose clock is frozen."""
    if (wanted := [str(flag) for flag in stepwell_flags]) != stepwell.flags:
        pytest.fail(f"Stepwell runs with the flags {stepwell.flags} in this session, not {wanted}: "
                    "have one fixture stepwell_flags, in the conftest.py of the whole suite", pytrace=False)
    with stepwell.sandbox() as box:
        yield box
