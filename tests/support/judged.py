"""Evaluate a trial with invented facts and observations."""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from dbbench import model, results
from dbbench.datasets import Restored
from dbbench.engines.files import PROFILE
from dbbench.engines.port import Counts, Place, Server
from dbbench.errors import DbbenchError
from dbbench.machine.cores import Cores
from dbbench.machine.host.host_load import HostLoad
from dbbench.machine.limits import Confined
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Series
from dbbench.run.evaluate import Observed, judge
from dbbench.run.meter import Bench, DiskFigures, EngineFigures, ProcessFigures, Readings
from dbbench.run.record import Record
from tests.support.runs import small_run

LOOP = model.DeviceFacts("loop", "/dev/loop9", "loop9", 2**40)


def outcome() -> Outcome:
    """Return 20 transactions in a window of 2 s."""
    return Outcome(
        time.time(),
        2.0,
        20,
        0,
        Series(3, {"tps": [9.0, 10.0, 10.0]}),
        Histogram({500: 20}),
    )


class CountingServer(Server):
    """A server without a process, which has counted this work."""

    def __init__(self, counted: model.Work) -> None:
        super().__init__(PROFILE, Place(Path(), Path()))
        self._counted = counted

    def work(self, grown: Counts, explicit: bool) -> model.Work:
        return self._counted


# 2000 bytes written to the device for 1000 bytes of the engine
IO = model.IoFacts(
    read_bytes=0,
    write_bytes=2000,
    flushes=20,
    engine_write_bytes=1000,
    read_operations=10,
    write_operations=30,
)
CPUS = Cores(frozenset({0}), frozenset({0}))
UNCOUNTED = model.Work()
QUIET = HostLoad(2.0, 2, 0.0, 0.0, 0.0, ())


def readings(
    io: model.IoFacts = IO,
    counted: model.Work = UNCOUNTED,
    resident_bytes: int = 0,
    strays: tuple[str, ...] = (),
) -> Readings:
    """Return what a meter reads around a window on a quiet host with one CPU."""
    bench = Bench({}, CountingServer(counted), Confined(CPUS), None, (), (), elsewhere=False)
    cpu = {"seconds": 0.25, "cpus": 1.0, "system_cpu_s": 0.1, "dbbench_cpu_s": 0.0}
    processes = ProcessFigures(
        cpu=cpu,
        cores=model.CoresFacts("0", "0", 1),
        server_bytes=2**20,
        switches_per_s=50.0,
        strays=strays,
    )
    checkpoints = model.CheckpointFacts(1, 1)
    engine = EngineFigures(checkpoints=checkpoints, resident_bytes=resident_bytes)
    return Readings(bench, QUIET, DiskFigures(io), processes, engine, drain_write_bytes=0)


class FakeSamples:
    """The series of the samplers."""

    parts: Mapping[str, Any] = MappingProxyType({})

    def read(self, _begin_utc: float, seconds: int) -> tuple[Series, list[model.TrialWarning]]:
        return Series(seconds, {"cpu_user_pct": [5.0] * seconds}), []


@dataclass
class FakeKernel:
    """A kernel log with these lines."""

    machine: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    was_lost: bool = False

    def lines_about_machine(self) -> tuple[str, ...]:
        return self.machine

    def lines_about(self, _disk: str) -> tuple[str, ...]:
        return self.about

    def lost(self) -> bool:
        return self.was_lost


@dataclass
class FakeEngine:
    """An engine whose settings have these durability flags."""

    flags: tuple[model.Durability, ...] = ()

    def durability(self, _effective: Any, _tears: bool) -> tuple[model.Durability, ...]:
        return self.flags


@dataclass
class Judged:
    """Observations of a good trial on a loop device. A test changes some of them; `facts` are
    fields of `Facts`.
    """

    outcome: Outcome = dataclasses.field(default_factory=outcome)
    readings: Readings = dataclasses.field(default_factory=readings)
    kernel: FakeKernel = dataclasses.field(default_factory=FakeKernel)
    engine: FakeEngine = dataclasses.field(default_factory=FakeEngine)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def trial(self, folder: Path) -> model.Trial:
        """Return the evaluated trial, as read back from its results."""
        run_folder = results.create_run(folder / "results", small_run(), "")
        opened = results.RunFolder(run_folder)
        record = Record(opened, opened.run.order[0], lambda _: None)
        vars(record.facts).update(_FACTS | self.facts)
        restored = Restored(bytes=10**6, copy_s=0.5)
        samples = FakeSamples()
        everything = cast(Any, self)
        try:
            judge(
                record,
                Observed(
                    self.outcome,
                    cast(Any, samples),
                    self.readings,
                    restored,
                    everything.kernel,
                    everything.engine,
                    model.Durability.TORN_PREVENTED,
                    {},
                ),
            )
        except DbbenchError as error:
            record.fail(error)
        record.publish()
        return results.load_run(run_folder).trials[0]


_FACTS: dict[str, Any] = {
    "device": LOOP,
    "host_state": {},
    "host_state_end": {},
    "canary": {},
    "filesystem": model.FilesystemFacts("ext4"),
    "cache": model.CacheFacts("drop_caches", 10, 0, 5, 5, True),
    "effective_settings": {"fsync": "on"},
    "space": model.SpaceFacts(1000, 2000, 3000),
    "ceiling": model.CeilingFacts(),
}
