"""Which processes of a trial were stopped, told from the states that /proc shows."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from dbbench.samplers.stops import Stops


def process(proc: Path, pid: int, parent: int, name: str, state: str) -> None:
    """A line as of proc_pid_stat(5)."""
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {state} {parent} " + " ".join(["0"] * 48))


def test_what_is_stopped_below_the_trial_is_named(tmp_path: Path) -> None:
    """By a signal or a tracer; not what waits for a disk, and not somebody else's."""
    log, began = tmp_path / "stops.jsonl", time.time() - 1
    for pid, parent, name, state in (
        (10, 1, "dbbench", "S"), (11, 10, "postgres", "T"), (12, 11, "postgres: walwriter", "D"),
        (13, 10, "pgbench", "S"), (14, 1, "vi", "T"), (15, 10, "a b) c", "t"),
    ):  # fmt: skip
        process(tmp_path, pid, parent, name, state)
    stops = Stops((10, 99), log, tmp_path)
    stops.look()
    stops.look()
    assert stops.series(began, 10).seconds == 10
    (told,) = stops.warnings()
    assert (told.id, told.suspect) == ("W129", True)
    assert told.text == "postgres (pid 11) for about 2 s, a b) c (pid 15) for about 2 s"
    assert [json.loads(line)["pid"] for line in log.read_text().splitlines()] == [11, 15, 11, 15]
    assert (stops.series(began - 20, 10).seconds, stops.warnings()) == (10, ())


def test_a_quiet_trial_has_no_file_and_a_full_disk_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is seen is told, though it cannot be written."""
    monkeypatch.setattr("dbbench.samplers.stops._EVERY_S", 0.01)
    process(tmp_path, 10, 1, "dbbench", "S")
    stops = Stops((10,), tmp_path / "there" / "stops.jsonl", tmp_path)
    with stops.running():
        time.sleep(0.05)
        process(tmp_path, 10, 1, "dbbench", "T")
        time.sleep(0.1)
    stops.series(time.time() - 5, 10)
    assert [warning.id for warning in stops.warnings()] == ["W129"]
    quiet = Stops((os.getpid(),), tmp_path / "quiet.jsonl")
    quiet.look()
    assert (quiet.series(time.time() - 5, 10).columns, quiet.warnings()) == ({}, ())
    assert not (tmp_path / "quiet.jsonl").exists()


def test_a_thread_that_did_not_come_to_its_turn_tells_of_a_machine_that_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own process was stopped, or all of the machine; a second of delay is a busy machine."""
    turns = iter((100.0, 101.0, 103.5, 110.0))
    monkeypatch.setattr("dbbench.samplers.stops.time.monotonic", lambda: next(turns))
    stops = Stops((10,), tmp_path / "stops.jsonl", tmp_path)
    for _ in range(4):
        stops.look()
    stops.series(time.time() - 20, 30)
    assert [warning.text for warning in stops.warnings()] == [
        f"dbbench, or the machine (pid {os.getpid()}) for about 6 s"
    ]
