"""Limits of programs: longer on a slow machine, and replaced by the plan's deadline of the phase."""

import sys
import time
from pathlib import Path

import pytest

from dbbench import process, results
from dbbench.errors import DeadlinePassed
from dbbench.model import Phase
from dbbench.remote import ssh
from dbbench.results import RunFolder
from dbbench.run.record import Record
from dbbench.storage.devices import canary
from tests.support.runs import small_run

SLEEP = (sys.executable, "-c", "import time; time.sleep(0.5); print('done')")


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine may be busy."""
    monkeypatch.setattr(process, "_LOOPS_S", 1e9)


@pytest.mark.starts_processes
def test_a_program_may_run_longer_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it printed before its usual limit is not lost."""
    with pytest.raises(DeadlinePassed, match="still running after 0 s"):
        process.run(SLEEP, timeout_s=0.1)
    monkeypatch.setattr(process, "_LOOPS_S", 1e-9)
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


@pytest.mark.parametrize(
    ("rates", "longer"),
    [
        ({}, 1.0),
        ({"cpu_ms": 900.0, "fdatasync_ms": 0.1, "write_mb_per_s": 3000.0}, 1.0),
        ({"fdatasync_ms": 250.0, "write_mb_per_s": 3000.0}, 10.0),
        ({"fdatasync_ms": 0.1, "write_mb_per_s": 3.0}, 20.0),
        ({"fdatasync_ms": 1e9, "write_mb_per_s": 0.0}, 100.0),
    ],
)
def test_programs_may_run_longer_on_a_slow_disk(rates: dict[str, float], longer: float) -> None:
    """As initdb, whose thousand files reach the disk one by one; by what `canary` measured."""
    with process.on_disk(lambda: canary.slowness(rates)):
        assert process.allowed_s(120.0) == pytest.approx(120.0 * longer)
    assert process.allowed_s(120.0) == 120.0


@pytest.mark.parametrize(("flush_ms", "limit_s"), [(1.0, 600.0), (250.0, 6000.0), (9e9, 86400.0)])
def test_a_phase_has_more_time_on_a_slow_disk(
    flush_ms: float,
    limit_s: float,
    tmp_path: Path,
) -> None:
    """At most a day."""
    folder = RunFolder(results.create_run(tmp_path, small_run(), ""))
    record = Record(folder, folder.run.order[0], lambda _: None)
    record.facts.canary = {"fdatasync_ms": flush_ms}
    assert record._deadline_s(Phase.MKFS) == limit_s


def test_waiting_takes_longer_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for udev, for a device that is still closed, for a program that repeats a step."""
    began = time.monotonic()
    assert process.wait_while(lambda: time.monotonic() < began + 5, 0.05) is True
    monkeypatch.setattr(process, "_LOOPS_S", 1e-9)
    again = time.monotonic()
    assert process.wait_while(lambda: time.monotonic() < again + 0.2, 0.05) is False


def test_the_plan_can_give_a_login_on_another_host_more_time() -> None:
    """Its host may be slow. What ssh does itself has limits that only a slow machine stretches."""
    assert ssh.command("load", ["true"])[-7:-2] == [
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ServerAliveCountMax=6",
        "--",
    ]
    for usual_s in (ssh.CONNECT_S, ssh.ASK_S):
        with process.in_phase("start", 3600.0):
            assert process.allowed_s(usual_s) == pytest.approx(3660.0, abs=1)


def test_the_remedy_names_the_deadline_that_helps() -> None:
    """Without a phase there is none in the plan."""
    with process.in_phase("restore", None):
        assert 'restore = "12h"' in (process.too_late("initdb").remedy or "")
    assert "[deadlines]" not in (process.too_late("modprobe").remedy or "")
