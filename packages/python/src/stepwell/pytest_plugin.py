"""The pytest plugin: one service for a session, or for a worker of pytest-xdist, and a sandbox for each test."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from . import Sandbox, Service, start


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("stepwell_flags", "Flags of Stepwell, such as --templates FILE; files are relative to the rootdir.",
                  type="args")


@pytest.fixture(scope="session")
def stepwell_flags(pytestconfig: pytest.Config) -> Sequence[object]:
    """The flags of Stepwell: those of the configuration, unless the tests have a fixture of this name."""
    flags: list[str] = pytestconfig.getini("stepwell_flags")
    return flags


@pytest.fixture(scope="session", name="stepwell")
def _stepwell(pytestconfig: pytest.Config, stepwell_flags: Sequence[object]) -> Iterator[Service]:
    """A running Stepwell."""
    with start(*stepwell_flags, cwd=pytestconfig.rootpath) as service:
        yield service


@pytest.fixture
def sandbox(stepwell: Service, stepwell_flags: Sequence[object]) -> Iterator[Sandbox]:
    """A sandbox for this test, whose clock is frozen."""
    if (wanted := [str(flag) for flag in stepwell_flags]) != stepwell.flags:
        pytest.fail(f"Stepwell runs with the flags {stepwell.flags} in this session, not {wanted}: "
                    "have one fixture stepwell_flags, in the conftest.py of the whole suite", pytrace=False)
    with stepwell.sandbox() as box:
        yield box
