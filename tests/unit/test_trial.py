"""The stages of a trial: their order, their end, and the cleanup after a failure."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbbench.errors import DeadlinePassed, DeviceInUse, EngineDied, Interrupted
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import FIRST, Clock, Series, both_clocks
from dbbench.model import (
    Ageing,
    CacheFacts,
    CeilingFacts,
    CeilingRow,
    Durability,
    FilesystemFacts,
    Phase,
    Status,
)
from dbbench.run.record import deadline
from tests.support.judged import IO, FakeEngine, Judged, readings
from tests.support.road import TABLE, Road

# where the plan asks for them
OPTIONAL = (Phase.CONDITION, Phase.AGE, Phase.OPERATIONS)


def test_stages_stand_in_the_order_of_the_road(road: Road) -> None:
    """From the device to the result, and everything released in the reverse order. The results of
    the load are read beside the check, and before any stage that follows it. Every phase of the
    contract that the plan does not have to ask for is begun and ended once. The dataset is
    restored byte for byte, and nothing is left in the directory.
    """
    trial = road.trial()
    assert trial.error is None
    names = road.calls.names
    assert names.index("stage check") < names.index("outcome") < names.index("stage space")
    names.remove("outcome")
    assert names == [
        "stage canary",
        "device",
        "stage mkfs",
        "stage mount",
        "stage restore",
        "stage settle",
        "serve",
        "settle",
        "/serve",
        "stage drop_cache",
        "stage start",
        "serve",
        "samplers",
        "load",
        "stage warmup",
        "warm up",
        "stage measure",
        "measure",
        "/load",
        "stage drain",
        "checkpoint",
        "stage stop",
        "/samplers",
        "/serve",
        "stage check",
        "check",
        "stage space",
        "/device",
    ]
    expected = [phase for phase in Phase if phase not in OPTIONAL]
    assert expected == [phase.name for phase in trial.phases]
    assert (
        [phase.value for phase in expected]
        == road.phases("phase_begin")
        == road.phases("phase_end")
    )
    assert trial.dataset is not None and trial.dataset.bytes == len(TABLE)
    assert trial.checked == "all" and trial.canary["cpu_ms"] > 0 and trial.summary["tps"] == 10.0
    assert list(road.directory.iterdir()) == []


@pytest.mark.parametrize(
    ("phase", "asked"),
    [
        (Phase.CONDITION, {"condition": "discard"}),
        (Phase.AGE, {"age": Ageing()}),
        (Phase.OPERATIONS, {"operations": ("fsck",)}),
    ],
)
def test_a_phase_that_the_plan_asks_for_has_its_place(
    road: Road,
    phase: Phase,
    asked: dict[str, Any],
) -> None:
    """It is begun when all those before it have ended."""
    road.calls.fail(f"stage {phase.value}", EngineDied("planted"))
    trial = road.trial(**asked)
    before = [other for other in Phase if other is phase or other not in OPTIONAL]
    assert road.phases() == [other.value for other in before[: before.index(phase) + 1]]
    assert trial.error is not None and trial.error.phase == phase.value


def test_good_trial_has_its_figures(tmp_path: Path) -> None:
    """20 transactions in a window of 2 s, 2000 bytes to the device for 1000 of the engine."""
    trial = Judged().trial(tmp_path)
    assert (trial.status, trial.error) == (Status.OK, None)
    assert trial.summary["tps"] == 10.0
    assert trial.summary["write_amplification"] == 2.0
    assert trial.summary["restore_mb_per_s"] == 2.0
    assert trial.filesystem is not None and trial.filesystem.durability_class == "full"


@pytest.mark.parametrize(
    "place",
    [
        "device",
        "stage mkfs",
        "stage mount",
        "stage restore",
        "settle",
        "stage drop_cache",
        "warm up",
        "measure",
        "checkpoint",
        "stage drain",
        "stage stop",
        "check",
        "stage space",
        "outcome",
    ],
)
def test_failure_of_any_stage_gives_everything_back_and_is_a_failed_trial(
    road: Road, place: str
) -> None:
    """Whatever was taken when it failed is released, and the trial says what ended it."""
    road.calls.fail(place, EngineDied("planted"))
    trial = road.trial()
    assert trial.status is Status.FAILED
    text = "the server died, failed or did not stop: planted"
    assert trial.error is not None and (trial.error.id, trial.error.text) == ("E402", text)
    if place != "device":  # there it failed before it was taken
        assert road.calls.all_released()
    assert list(road.directory.iterdir()) == []


def test_fault_of_our_own_is_a_failed_trial_with_its_traceback(road: Road) -> None:
    """A bug loses nothing: the trial is failed, the traceback is in raw/."""
    road.calls.fail("stage mkfs", ZeroDivisionError("planted"))
    trial = road.trial()
    assert trial.error is not None and trial.error.id == "E999"
    raw = road.folder / "results/r/trials" / trial.id / "raw/traceback.txt"
    assert "planted" in raw.read_text()


@pytest.mark.parametrize(
    "error", [Interrupted("stop"), DeviceInUse("mounted"), KeyboardInterrupt()]
)
def test_being_stopped_or_refused_leaves_no_result(road: Road, error: BaseException) -> None:
    """Such a trial is run again: it has no folder that could be taken for a result."""
    road.calls.fail("stage mkfs", error)
    with pytest.raises(type(error)):
        road.trial()
    assert [
        p for p in (road.folder / "results/r/trials").iterdir() if not p.name.startswith(".")
    ] == []
    assert "/device" in road.calls.names


def test_class_full_without_one_flush_fails(tmp_path: Path) -> None:
    """A layer below discards the flushes, so the measured durability is not the promised one. With
    asynchronous commit no flush is promised, and the class says so.
    """
    trial = Judged(readings=readings(replace(IO, flushes=0))).trial(tmp_path)
    assert trial.error is not None and trial.error.id == "E352"
    engine = FakeEngine((Durability.ASYNC_COMMIT,))
    trial = Judged(readings=readings(replace(IO, flushes=0)), engine=engine).trial(
        tmp_path / "weaker"
    )
    assert trial.status is Status.OK
    assert trial.filesystem is not None and trial.filesystem.durability_class == "async-commit"


@pytest.mark.parametrize(
    ("of_file", "of_device", "expected"),
    [
        (16384, "16384", "torn-prevented (unit 16384, aligned)"),
        (16384, "4096", "torn-pages-possible"),
        (4096, "65536", "torn-pages-possible"),
        (None, "16384", "torn-pages-possible"),
        (16384, None, "torn-pages-possible"),
    ],
)
def test_torn_pages_are_prevented_if_file_and_device_are_atomic(
    tmp_path: Path,
    of_file: int | None,
    of_device: str | None,
    expected: str,
) -> None:
    """By what statx(2) and the queue report after the load; a kernel that reports nothing prevents
    nothing.
    """
    queue = {} if of_device is None else {"atomic_write_unit_max_bytes": of_device}
    facts = {
        "filesystem": FilesystemFacts("xfs", queue=queue, atomic_write_max_bytes=of_file),
        "effective_settings": {
            "innodb_flush_method": "O_DIRECT",
            "innodb_buffer_pool_size": "9999",
        },
    }
    trial = Judged(engine=FakeEngine((Durability.TORN_PAGES,)), facts=facts).trial(tmp_path)
    assert trial.filesystem is not None and trial.filesystem.durability_class == expected
    cached = Judged(
        readings=readings(resident_bytes=2**30),
        engine=FakeEngine((Durability.TORN_PAGES,)),
        facts=facts,
    )
    trial = cached.trial(tmp_path / "cached")  # the filesystem did not obey O_DIRECT
    assert (
        trial.filesystem is not None and trial.filesystem.durability_class == "torn-pages-possible"
    )


def test_a_load_that_only_reads_has_no_share_of_the_ceiling(tmp_path: Path) -> None:
    """The ceiling counts flushed writes, and such a load flushes nothing."""
    facts = {"ceiling": CeilingFacts((CeilingRow("write_8k_fdatasync", 100, 0.8, 10),))}
    writing = Judged(facts=facts).trial(tmp_path / "writing")
    assert writing.summary["ceiling_pct"] == 10
    reading = Judged(readings=readings(replace(IO, engine_write_bytes=100)), facts=facts).trial(
        tmp_path / "reading"
    )
    assert reading.summary["ceiling_pct"] is None and reading.ceiling.rows


def test_a_scan_costs_what_a_gib_costs(tmp_path: Path) -> None:
    """Five passes over 512 MiB read 2.5 GiB: totals per GiB, the duration of one pass, rates over
    all of them.
    """
    scanned = Outcome(
        time.time(),
        10.0,
        0,
        0,
        Series(10, {name: [] for name in FIRST}),
        None,
        {"duration_s": 2.0, "mb_per_s": 268.4},
        scanned_bytes=5 * 2**29,
    )
    disk = {
        "read_bytes": 5 * 2**29,
        "write_bytes": 25_000,
        "read_operations": 5000,
        "write_operations": 0,
    }
    summary = (
        Judged(outcome=scanned, readings=readings(replace(IO, **disk))).trial(tmp_path).summary
    )
    costs = {
        name.removesuffix("_per_gib"): value
        for name, value in summary.items()
        if name.endswith("_per_gib")
    }
    assert costs == {
        "cpu_ms": 40.0,
        "read_kb": 2**30 / 1000,
        "write_kb": 10.0,
        "flushes": 8.0,
        "io_operations": 2000,
        "context_switches": costs["context_switches"],
    }
    assert not [name for name in summary if name.endswith("_per_tx")]
    assert summary["device_read_mb_per_s"] == pytest.approx(5 * 2**29 / 1e6 / 10)
    assert summary["drained_s"] == 2.0 + (summary["drain_s"] or 0.0)


def test_unproved_cold_cache_makes_the_trial_suspect(tmp_path: Path) -> None:
    """A drop that could not be proved is reported and marks the trial."""
    cold = CacheFacts("drop_caches", 0, 0, reason="nothing was resident before")
    trial = Judged(facts={"cache": cold}).trial(tmp_path)
    assert trial.status is Status.SUSPECT
    assert ("W010", "nothing was resident before") in {(w.id, w.text) for w in trial.warnings}


def test_phase_beyond_its_deadline_is_an_error_with_its_id() -> None:
    """A hang is found by its phase's deadline, not in the morning; after the block nothing is
    pending.
    """
    with (
        pytest.raises(DeadlinePassed, match="phase mkfs exceeded its deadline of 0 s"),
        deadline(Phase.MKFS, 0.05),
    ):
        time.sleep(5)
    with deadline(Phase.MKFS, 0.05):
        pass
    time.sleep(0.1)


def test_clock_is_anchor_plus_monotonic_time() -> None:
    """A system clock that was set back an hour does not move it, and shows as a slip. None is seen
    where the process stops for a moment after the first reading of the system clock.
    """
    clock = Clock(utc=time.time() + 3600)
    assert clock.now_utc() == pytest.approx(time.time() + 3600, abs=30)
    assert clock.slip_s() == pytest.approx(-3600, abs=30)
    stops = [0.5]

    def stopped() -> float:
        system = time.time()
        time.sleep(stops.pop() if stops else 0)
        return system

    utc, monotonic = both_clocks(stopped)
    assert abs(utc - time.time() - (monotonic - time.monotonic())) < 0.2 and not stops
