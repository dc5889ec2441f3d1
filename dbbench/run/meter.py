"""Readings at the edges of the window: disks, CPU, the server's counters, and unwritten data
afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.drivers.protocol import Load
from dbbench.engines.port import Counts, Server
from dbbench.engines.serving import grown_between
from dbbench.machine import pagecache, threads
from dbbench.machine.cores import written_cores as written
from dbbench.machine.host.load import HostLoad, foreign_load, load_warnings, reading
from dbbench.machine.limits import Confined, MemoryReading
from dbbench.model import CheckpointFacts, CoresFacts, IoFacts, Role, TrialWarning, Work
from dbbench.remote import Client
from dbbench.samplers.accounting import CpuClock, DiskClock, IoClock, TaskClock, cpu_ms
from dbbench.storage import devices
from dbbench.storage.devices import sysfs
from dbbench.storage.devices.directory import shared_disks
from dbbench.storage.devices.port import Device
from dbbench.units import percent

# Foreign I/O counts only above both limits: less does not slow down a current disk, and dbbench's
# own results and logs are below them.
FOREIGN_SHARE: Final = 0.25
FOREIGN_BYTES: Final = 8e6  # bytes per second
# a session ends within milliseconds of its client, on a busy machine within a second
ENDED_S: Final = 5.0
MEMINFO: Final = Path("/proc/meminfo")


@dataclass
class Meter:
    """Readings around one trial's window. Figures are available after the block of their name has
    ended.
    """

    disks: Mapping[Role, Device]
    server: Server
    load: Load
    limits: Confined
    files: Sequence[Path]  # the dataset
    io: IoFacts = field(default_factory=IoFacts)  # of the window
    # transferred by the disks that hold the images, for all processes of the machine
    below_bytes: int | None = None
    others_bytes: int | None = None  # transferred by all disks that the trial does not use
    shared: tuple[str, ...] = ()  # the disks below the images
    cpu: dict[str, float | None] = field(default_factory=dict)
    machine: HostLoad | None = None
    switches_per_s: float | None = None  # context switches of server and load generator
    server_bytes: int | None = None  # largest memory of the server's processes in the window
    # the server's counters before the load started
    idle: dict[str, float] = field(default_factory=dict)
    grown: Counts = field(default_factory=dict)  # in the window
    checkpoints: CheckpointFacts = field(default_factory=CheckpointFacts)
    hit_ratio: float | None = None
    # from `idle` to the end of all sessions of the load
    lived: Counts = field(default_factory=dict)
    # read_bytes, write_bytes of the load's system calls
    moved: dict[str, int | None] = field(default_factory=dict)
    # Bytes that are dirty or under write-back, in the server and in the page cache, at the end of
    # the window.
    debt_bytes: int | None = None
    drain_write_bytes: int | None = None
    dirtied_bytes: int = 0  # growth of what the whole page cache has not written yet
    cores: CoresFacts | None = None
    memory: MemoryReading | None = None  # memory use of the server's control group
    resident_bytes: int | None = None  # part of the files in the page cache when the window ended
    elsewhere: bool = False  # some of the server's files are not on the device under test
    places: Sequence[Path] = ()  # where server and load may have files open
    strays: Sequence[str] = ()  # files outside of `places` that they had open
    client: Client | None = None  # the load generator is on another host
    # The values `seconds` and `client_cpu_s`, from this host or the client's.
    client_cpu: dict[str, float | None] = field(default_factory=dict)

    @contextlib.contextmanager
    def window(self) -> Iterator[None]:
        before = self.server.counters()
        machine = reading(self._pids())
        moved = IoClock()
        dirty = _page_cache_debt()
        log = DiskClock(self.disks["log"].leaves) if "log" in self.disks else None
        self.shared = shared_disks(self.disks)
        below = DiskClock(self.shared)
        others = DiskClock(sysfs.other_disks(devices.leaves_of(self.disks)))
        disk = DiskClock(devices.leaves_of(self.disks))
        cpu = CpuClock(self.load.pids, self.server.pid)
        self.cores = self.limits.facts(self.server.pid, self.load.pids)
        if self.client is not None:  # the load generator's CPUs are those of its host
            self.cores = dataclasses.replace(
                self.cores, client=written(self.client.cores), shared=0
            )
            self.client.read_cpu()
        pids = self.load.pids if self.client is None else ()
        places = () if self.elsewhere else self.places
        tasks = TaskClock(pids, self.server.pid, places=places)
        with threads.beside("tasks", tasks.work):
            yield
        self.below_bytes, self.others_bytes = (
            _bytes_of(below.difference()),
            _bytes_of(others.difference()),
        )
        log_io = _io(log) if log is not None else None
        io = dataclasses.replace(_io(disk), wal=log_io)
        self.cpu = cpu.difference()
        self.client_cpu = self.client.cpu() if self.client is not None else self.cpu
        self.machine = foreign_load(machine, reading(self._pids()))
        self.grown, self.moved = grown_between(before, self.server.counters()), moved.difference()
        self.checkpoints, self.hit_ratio = (
            self.server.checkpoints(self.grown),
            self.server.hit_ratio(self.grown),
        )
        self.io = dataclasses.replace(io, engine_write_bytes=self.server.written_bytes(self.grown))
        debt = _page_cache_debt()
        self.debt_bytes = debt + (self.server.dirty_bytes() or 0)
        self.dirtied_bytes = max(0, debt - dirty)
        self.switches_per_s = tasks.switches_per_s()
        self.server_bytes = tasks.server_bytes
        self.strays = sorted(tasks.elsewhere())
        self.memory = self.limits.memory_read()
        with contextlib.suppress(OSError):
            self.resident_bytes = pagecache.resident_bytes(self.files)

    def _pids(self) -> tuple[int, ...]:
        return (*(() if self.server.pid is None else (self.server.pid,)), *self.load.pids)

    @contextlib.contextmanager
    def drain(self) -> Iterator[None]:
        disk = DiskClock(devices.leaves_of(self.disks))
        yield
        self.drain_write_bytes = disk.difference()["write_bytes"]

    def read_end(self) -> None:
        """Read the counters when the load's sessions have ended: one of PostgreSQL may outlive its
        client.
        """

        def some_left() -> bool:
            self.lived = grown_between(self.idle, self.server.counters())
            return self.lived.get("sessions_connected", 0) > 0

        process.wait_while(some_left, ENDED_S, 0.02)

    def work(self, explicit: bool) -> Work:
        """Return the counts over the whole life of the load: PostgreSQL counts transactions up to
        10 s late.
        """
        work_facts = self.server.work(self.lived, explicit)
        return (
            dataclasses.replace(work_facts, **self.moved)
            if self.load.pids and self.client is None
            else work_facts
        )

    def writes(self, explicit: bool) -> int | None:
        """Return a lower bound of the window's commits that changed something."""
        return self.server.work(self.grown, explicit).writes

    def cpu_ms(self) -> float | None:
        """Return the CPU time with kernel workers, without dbbench and, if there is a server, the
        client.
        """
        return cpu_ms(
            self.cpu if self.server.pid is not None else {**self.cpu, "client_cpu_s": 0.0}
        )

    def cpu_pct(self) -> float | None:
        """Return the same CPU time as a share of all cores over the load, in per cent."""
        used_ms = self.cpu_ms()
        seconds = self.cpu.get("seconds")
        cpus = self.cpu.get("cpus")
        return used_ms / 10 / seconds / cpus if used_ms is not None and seconds and cpus else None

    def warnings(self) -> tuple[TrialWarning, ...]:
        if self.machine is None:
            return self.server.warnings()
        below = foreign_io(self.below_bytes, self._below_bytes(), self.machine.seconds)
        foreign = tuple(
            TrialWarning(
                "W127",
                f"other processes transferred {mb:.0f} MB on the {where}, {percent(share)} of all",
            )
            for where, amount in (("disk below", below), ("filesystem under test", self.intruding))
            for mb, share in ([] if amount is None else [amount])
        )
        return (*self.server.warnings(), *load_warnings(self.machine), *foreign)

    def _below_bytes(self) -> int | None:
        """Return what this trial transferred on the disks below: all of its own devices, and all of
        its processes if a part of the cluster is on another disk, which is not known.
        """
        disk_bytes = _bytes_of(vars(self.io))
        ours = self.machine.ours_moved if self.machine is not None and self.elsewhere else None
        return (
            None if disk_bytes is None else disk_bytes + (ours.read + ours.written if ours else 0)
        )

    @cached_property
    def intruding(self) -> tuple[float, float] | None:
        """The (10^6 bytes, share of all) of other processes on the trial's own device, if it is
        enough to disturb: at most what the trial did not transfer there (a server counts what it
        writes), and at most what others transferred with calls, less the traffic of all other
        disks and what is not written yet. The filesystem's own writes are in the first, I/O on
        other filesystems is in the second, so only the smaller one counts.
        """
        if self.machine is None or (whole := _bytes_of(vars(self.io))) is None:
            return None
        ours = self.machine.ours_moved
        theirs = self.machine.foreign_moved
        written = self.io.engine_write_bytes
        if ours is None or theirs is None:
            return None
        own = ours.read + (ours.written if written is None else written)
        elsewhere = max(0, (self.others_bytes or 0) - (whole if self.shared else 0))
        foreign = max(
            0, theirs.read + min(theirs.written, theirs.called) - elsewhere - self.dirtied_bytes
        )
        return foreign_io(whole, max(own, whole - foreign), self.machine.seconds)


def foreign_io(whole: int | None, own: int | None, seconds: float) -> tuple[float, float] | None:
    """Return (10^6 bytes, share of all) of other processes on a disk, if it disturbs. `own`: bytes
    of the trial.
    """
    if not whole or own is None or seconds <= 0:
        return None
    foreign = whole - own
    share = foreign / whole
    return (
        (foreign / 1e6, share)
        if share >= FOREIGN_SHARE and foreign / seconds >= FOREIGN_BYTES
        else None
    )


def _io(clock: DiskClock) -> IoFacts:
    counted: dict[str, Any] = clock.difference()
    note = devices.flushes_reason(clock.disks)
    return IoFacts(
        **{**counted, "flushes": None if note else counted["flushes"]}, flushes_note=note
    )


def _page_cache_debt() -> int:
    """Return Dirty and Writeback of the whole machine, in bytes (proc_meminfo(5))."""
    return 1024 * sum(
        map(int, re.findall(r"^(?:Dirty|Writeback): *(\d+)", MEMINFO.read_text(), re.MULTILINE))
    )


def _bytes_of(counted: Mapping[str, Any]) -> int | None:
    measured = [
        size for name in ("read_bytes", "write_bytes") if (size := counted.get(name)) is not None
    ]
    return sum(measured) if measured else None
