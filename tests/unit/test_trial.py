"""The road: its order, its end, and what a failure on it leaves. The parts are no-ops that write their names."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dbbench import store
from dbbench.clock import Clock
from dbbench.datasets import Restored
from dbbench.devices.port import Device
from dbbench.drivers.port import Outcome
from dbbench.errors import DeadlinePassed, DeviceInUse, EngineDied, Interrupted
from dbbench.filesystems import Made, Mounted
from dbbench.histogram import Histogram
from dbbench.limits import Confined, Cores
from dbbench.model import (
    Ageing,
    CacheFacts,
    CeilingFacts,
    CheckpointFacts,
    CoresFacts,
    DeviceFacts,
    DeviceSpec,
    Durability,
    EngineAgeing,
    FilesystemFacts,
    Phase,
    Run,
    SpaceFacts,
    Status,
    Trial,
)
from dbbench.parts import Parts, Room
from dbbench.progress.events import Event
from dbbench.record import Record, deadline
from dbbench.series import Series
from dbbench.store import Draft
from dbbench.trial import run_trial

MakeRun = Callable[..., Run]


class NoOps:
    """Every part of the road; each writes its name, and fails where it is told to."""

    version, pid, pids = "15", 1, (1,)

    def __init__(self, root: Path, fail_at: str = "", error: BaseException | None = None) -> None:
        self.said: list[str] = []
        self.room = Room(root)
        self.room.make()
        self._fail_at, self._error = fail_at, error or EngineDied("planted")
        self.outcome_is = Outcome(time.time(), 2.0, 20, 0, Series(3, {"tps": [9.0, 10.0, 10.0]}), Histogram({500: 20}))
        self.engine_flags: tuple[Durability, ...] = ()
        self.wrote, self.flushes_counted = 1000, 20

    def say(self, name: str) -> None:
        self.said.append(name)
        if name == self._fail_at:
            raise self._error

    @contextmanager
    def around(self, name: str, value: Any) -> Iterator[Any]:
        self.say(f"{name}")
        try:
            yield value
        finally:
            self.said.append(f"/{name}")

    # the engine and its server
    def serving(self, *_: Any) -> Any:
        return self.around("serve", self)

    def settle(self) -> None:
        self.say("settle")

    def checkpoint(self) -> None:
        self.say("checkpoint")

    def check(self, *_: Any) -> str:
        self.say("check")
        return "all"

    def data_files(self, _: Path) -> list[Path]:
        return []

    def durability(self, _effective: Any, _tears: bool) -> tuple[Durability, ...]:
        return self.engine_flags

    def effective_settings(self) -> dict[str, str]:
        return {"fsync": "on"}

    # load, samplers, meter
    def wait_until(self, *_: Any) -> None:
        self.say("warm up")

    def wait(self, *_: Any) -> None:
        self.say("measure")

    def outcome(self) -> Outcome:
        self.say("outcome")
        return self.outcome_is

    def series(self, _begin: float, seconds: int) -> Series:
        return Series(seconds, {"cpu_user_pct": [5.0] * seconds})

    def warnings(self) -> tuple[()]:
        return ()

    def window(self) -> Any:
        return self.around("meter", None)

    def drain(self) -> Any:
        return self.around("drain meter", None)

    disk = {"read_bytes": 0, "write_bytes": 2000, "flushes": 20}  # noqa: RUF012
    cpu: dict[str, float] = {}  # noqa: RUF012
    checkpoints = CheckpointFacts(1, 1)
    debt_bytes = drain_write_bytes = 0
    wal = None
    flushes_note, hit_ratio = "", None
    limits = Confined(Cores(frozenset({0}), frozenset({0})))
    client_facts, client_cpu = None, cpu
    cores, memory, resident_bytes = CoresFacts("0", "0", 1), None, 0

    @property
    def flushes(self) -> int:
        return self.flushes_counted

    @property
    def engine_write_bytes(self) -> int:
        return self.wrote

    def cpu_ms_per_tx(self, _transactions: int) -> float:
        return 0.1

    def lines_about(self, _disk: str) -> tuple[str, ...]:
        return ()

    def lines_about_machine(self) -> tuple[str, ...]:
        return ()

    def lost(self) -> bool:
        return False

    def parts(self) -> Parts:
        facts = DeviceFacts("loop", "/dev/loop9", "loop9", 2**40)
        device = Device(Path("/dev/loop9"), -1, 7, 9, facts, ("loop9",))
        fs = Mounted(self.room.mount, "ext4", (), ("rw",), 128, (), True)

        def said(name: str, value: Any) -> Callable[..., Any]:
            def call(*_: Any) -> Any:
                self.say(name)
                return value

            return call

        return Parts(
            engine=self,  # type: ignore[arg-type]
            settings={},
            attached=lambda: self.around("device", device),
            kernel_messages=lambda: self.around("kernel", self),
            probe=said("probe", {}),
            host_state=said("host", {}),
            first_state=lambda: {},
            ceiling=CeilingFacts,
            wear=lambda _: None,
            conditioned=said("condition", None),
            layered=lambda device: self.around("layers", device),
            make=said("mkfs", Made((), "", {})),
            mounted=lambda _: self.around("mount", fs),
            filesystem_facts=said("facts", FilesystemFacts("ext4")),
            aged=said("age", None),
            restored=said("restore", Restored(bytes=10**6, files=3, copy_s=0.5, seconds=0.6)),
            log_moved=lambda _fs, _datadir, place: self.say("move log") or place,
            effective=lambda *_: self.effective_settings(),
            held=said("hold", None),
            drop_and_prove=said("drop", CacheFacts("drop_caches", 10, 0, 5, 5, True)),
            sampled=lambda *_: self.around("samplers", self),
            reached=lambda place, *_: self.around("reach", place),
            driving=lambda *_: self.around("load", self),
            confined=lambda: self.around("limits", Confined(Cores(frozenset({0}), frozenset({0})))),
            snapshotting=lambda *_: self.around("snapshots", None),
            meter=lambda *_: self,  # type: ignore[arg-type, return-value]
            sync=said("sync", None),
            must_be_healthy=said("healthy", None),
            consistent=said("consistent", ""),
            space=said("space", SpaceFacts(1000, 2000, 3000)),
            device_facts=said("device facts", facts),
            worn=said("wear", None),
            operated=said("operations", ()),
        )


def driven(make_run: MakeRun, tmp_path: Path, parts: NoOps, **plan: Any) -> tuple[Trial, list[Event]]:
    """Drive the first trial of a new run with these parts; its result as read back, and what was told."""
    new = make_run()
    folder = store.create_run(
        tmp_path / "results", dataclasses.replace(new, plan=dataclasses.replace(new.plan, **plan)), ""
    )
    run, told = store.load_spec(folder), list[Event]()
    record = Record(run, run.order[0], run.cells[0], Draft(folder, run.order[0].id), told.append)
    run_trial(record, parts.parts(), parts.room)
    return store.load_run(folder).trials[0], told


def test_stages_stand_in_the_order_of_the_road(make_run: MakeRun, tmp_path: Path) -> None:
    """From the device to the result, and everything given back in the reverse order."""
    parts = NoOps(tmp_path)
    driven(make_run, tmp_path, parts)
    assert parts.said == [
        "kernel", "device", "host", "probe", "condition", "layers", "mkfs", "mount", "facts", "age", "restore",
        "move log", "serve", "settle", "/serve", "hold", "drop", "limits", "reach", "serve", "samplers", "load",
        "warm up", "snapshots", "meter", "measure", "/meter", "/snapshots",
        "/load", "drain meter", "checkpoint", "sync", "/drain meter", "/samplers",
        "/serve", "/reach", "/limits", "healthy", "check", "consistent", "space", "device facts", "host", "wear",
        "operations", "/mount", "/layers", "/device", "/kernel", "outcome",
    ]  # fmt: skip


def test_phases_are_timed_and_told_in_their_order(make_run: MakeRun, tmp_path: Path) -> None:
    """Every phase of the contract, each once, begun and ended; ageing and operations where the plan has them."""
    trial, told = driven(make_run, tmp_path, NoOps(tmp_path), age=Ageing(), age_engine=EngineAgeing(),
                         operations=("fsck",), device=DeviceSpec(condition="discard"))  # fmt: skip
    assert list(Phase) == [phase.name for phase in trial.phases]
    assert [p.value for p in Phase] == [e.data["phase"] for e in told if e.kind == "phase_begin"]
    assert [p.value for p in Phase] == [e.data["phase"] for e in told if e.kind == "phase_end"]


def test_good_trial_has_its_figures(make_run: MakeRun, tmp_path: Path) -> None:
    """20 transactions in a window of 2 s, 2000 bytes to the device for 1000 of the engine."""
    trial, _ = driven(make_run, tmp_path, NoOps(tmp_path))
    assert (trial.status, trial.error) == (Status.OK, None)
    assert trial.summary["tps"] == 10.0
    assert trial.summary["write_amplification"] == 2.0
    assert trial.summary["restore_mb_per_s"] == 2.0
    assert trial.filesystem is not None and trial.filesystem.durability_class == "full"


@pytest.mark.parametrize("stage", ["probe", "mkfs", "facts", "restore", "settle", "drop", "warm up", "measure",
                                   "checkpoint", "sync", "healthy", "check", "space", "outcome"])  # fmt: skip
def test_failure_of_any_stage_gives_everything_back_and_is_a_failed_trial(
    make_run: MakeRun, tmp_path: Path, stage: str
) -> None:
    """Whatever was taken when it failed is given back, and the trial says what ended it."""
    parts = NoOps(tmp_path, fail_at=stage)
    trial, _ = driven(make_run, tmp_path, parts)
    assert trial.status is Status.FAILED
    assert trial.error is not None and (trial.error.id, trial.error.text) == ("E402", "the server died: planted")
    for name in ("device", "mount", "serve", "samplers", "load", "kernel"):
        assert parts.said.count(name) == parts.said.count(f"/{name}")


def test_fault_of_our_own_is_a_failed_trial_with_its_traceback(make_run: MakeRun, tmp_path: Path) -> None:
    """A bug loses nothing: the trial is failed, the traceback is in raw/."""
    trial, _ = driven(make_run, tmp_path, NoOps(tmp_path, "mkfs", ZeroDivisionError("planted")))
    assert trial.error is not None and trial.error.id == "E999"
    raw = tmp_path / "results/r/trials" / trial.id / "raw/traceback.txt"
    assert "planted" in raw.read_text()


@pytest.mark.parametrize("error", [Interrupted("stop"), DeviceInUse("mounted"), KeyboardInterrupt()])
def test_being_stopped_or_refused_leaves_no_result(make_run: MakeRun, tmp_path: Path, error: BaseException) -> None:
    """Such a trial is driven again: it has no folder that could be taken for a result."""
    parts = NoOps(tmp_path, "probe", error)
    with pytest.raises(type(error)):
        driven(make_run, tmp_path, parts)
    assert [p for p in (tmp_path / "results/r/trials").iterdir() if not p.name.startswith(".")] == []
    assert "/device" in parts.said


def test_class_full_without_one_flush_fails(make_run: MakeRun, tmp_path: Path) -> None:
    """Somebody below swallows the flushes: what was measured is not what was promised."""
    parts = NoOps(tmp_path)
    parts.flushes_counted = 0
    trial, _ = driven(make_run, tmp_path, parts)
    assert trial.error is not None and trial.error.id == "E605"


def test_weaker_class_needs_no_flush(make_run: MakeRun, tmp_path: Path) -> None:
    """With asynchronous commit no flush is promised, and the class says so."""
    parts = NoOps(tmp_path)
    parts.flushes_counted, parts.engine_flags = 0, (Durability.ASYNC_COMMIT,)
    trial, _ = driven(make_run, tmp_path, parts)
    assert trial.status is Status.OK
    assert trial.filesystem is not None and trial.filesystem.durability_class == "async-commit"


def test_unproved_cold_cache_makes_the_trial_suspect(make_run: MakeRun, tmp_path: Path) -> None:
    """A drop that could not be proved is said and marks the trial."""
    parts = NoOps(tmp_path)
    real = parts.parts
    cold = CacheFacts("drop_caches", 0, 0, reason="nothing was resident before")
    parts.parts = lambda: dataclasses.replace(real(), drop_and_prove=lambda *_: cold)  # type: ignore[method-assign]
    trial, _ = driven(make_run, tmp_path, parts)
    assert trial.status is Status.SUSPECT
    assert ("W010", "nothing was resident before") in {(w.id, w.text) for w in trial.warnings}


def test_phase_beyond_its_deadline_is_an_error_with_its_id() -> None:
    """A hang is found by its phase's deadline, not in the morning."""
    with pytest.raises(DeadlinePassed, match="phase mkfs took longer than 0 s"), deadline(Phase.MKFS, 0.05):
        time.sleep(5)


def test_deadline_that_is_kept_leaves_no_alarm() -> None:
    """After the block nothing is pending."""
    with deadline(Phase.MKFS, 0.05):
        pass
    time.sleep(0.1)


def test_clock_is_anchor_plus_monotonic_time() -> None:
    """A system clock that was set back an hour does not move it, and shows as a slip."""
    clock = Clock(utc=time.time() + 3600)
    assert clock.now_utc() == pytest.approx(time.time() + 3600, abs=0.1)
    assert clock.slip_s() == pytest.approx(-3600, abs=0.1)
