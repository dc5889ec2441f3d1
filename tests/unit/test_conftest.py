"""The rules that hold for all tests are held themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "start",
    [lambda: subprocess.run(["true"], check=False), os.fork, lambda: os.posix_spawn("/bin/true", ["true"], {})],
    ids=["run", "fork", "spawn"],
)
def test_a_unit_test_that_starts_a_process_fails(start: object) -> None:
    """Unit tests are quick and need nothing of the machine."""
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        start()  # type: ignore[operator]


@pytest.mark.starts_processes
def test_a_marked_unit_test_may_start_a_process() -> None:
    """The exception is visible where it is made."""
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0


def test_what_a_test_needs_is_looked_for(request: pytest.FixtureRequest) -> None:
    """A program, a filesystem and an engine that are not there are named; one that is there is not."""
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    assert conftest is not None
    assert conftest._lacks("no-such-program") == "the program no-such-program"
    assert conftest._lacks("fs:no-such-fs") == "a kernel with no-such-fs"
    assert conftest._lacks("fs:proc") is None
    assert conftest._lacks("sh") is None
