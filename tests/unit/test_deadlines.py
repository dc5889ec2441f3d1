"""Limits of programs: longer on a slow machine, and replaced by the plan's deadline of the phase."""

import sys

import pytest

from dbbench import process
from dbbench.errors import DeadlinePassed

SLEEP = (sys.executable, "-c", "import time; time.sleep(0.5); print('done')")


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine may be busy."""
    monkeypatch.setattr(process, "_slowness", lambda: 1.0)


@pytest.mark.starts_processes
def test_a_program_may_run_longer_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it printed before its usual limit is not lost."""
    with pytest.raises(DeadlinePassed, match="still running after 0 s"):
        process.run(SLEEP, timeout_s=0.1)
    monkeypatch.setattr(process, "_slowness", lambda: 100.0)
    assert process.run(SLEEP, timeout_s=0.1).stdout == "done\n"
    with process.running(SLEEP) as program:
        assert program.wait(0.1) == 0


def test_the_plans_deadline_replaces_the_limits_of_programs_in_its_phase() -> None:
    """As of initdb while a golden copy is built. Questions keep theirs: their answer may be missing."""
    assert process.allowed_s(120.0) == 120.0
    with process.in_phase("restore", None):
        assert process.allowed_s(120.0) == 120.0
    with process.in_phase("restore", 3600.0):
        assert process.allowed_s(120.0) == pytest.approx(3720.0, abs=1)
        assert process.allowed_s(20.0) == 20.0


def test_the_remedy_names_the_deadline_that_helps() -> None:
    """Without a phase there is none in the plan."""
    with process.in_phase("restore", None):
        assert 'restore = "12h"' in (process.too_late("initdb").remedy or "")
    assert "[deadlines]" not in (process.too_late("modprobe").remedy or "")
