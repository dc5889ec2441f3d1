"""Readings at the edges of the window: disks, processes, the server's counters, and what was not
written yet.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from dbbench import process
from dbbench.drivers.protocol import Load
from dbbench.engines.port import Counts, Server
from dbbench.engines.serving import grown_between
from dbbench.machine import pagecache, threads
from dbbench.machine.cores import written_cores
from dbbench.machine.host.host_load import HostLoad, foreign_load, load_warnings, reading
from dbbench.machine.limits import Confined, MemoryReading
from dbbench.model import CheckpointFacts, CoresFacts, IoFacts, Json, Role, TrialWarning, Work
from dbbench.remote import Client
from dbbench.samplers.accounting import (
    CpuClock,
    DiskBytes,
    DiskClock,
    IoClock,
    TaskClock,
    cpu_ms,
)
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


@dataclass(frozen=True)
class Bench:
    """What is measured: devices, server, load generator, and where their files may be."""

    disks: Mapping[Role, Device]
    server: Server
    limits: Confined
    client: Client | None  # the load generator is on another host
    files: Sequence[Path]  # the dataset
    places: Sequence[Path]  # where server and load may have files open
    elsewhere: bool  # the plan has some of the server's files on another device


@dataclass(frozen=True)
class DiskFigures:
    """What the disks transferred in the window, in bytes; None: not counted."""

    io: IoFacts = field(default_factory=IoFacts)  # of the trial's devices
    shared: Sequence[str] = ()  # the disks below the images
    below_bytes: int | None = None  # of `shared`, for all processes of the machine
    others_bytes: int | None = None  # of all disks that the trial does not use
    unwritten_bytes: int = 0  # in the page cache of the whole machine, at the end
    dirtied_bytes: int = 0  # growth of these in the window


@dataclass(frozen=True)
class ProcessFigures:
    """What server and load generator used in the window."""

    cpu: Mapping[str, float | None] = field(default_factory=dict)  # see `CpuClock`
    # `seconds` and `client_cpu_s` of the load generator's host, which may be this one
    client_cpu: Mapping[str, float | None] = field(default_factory=dict)
    cores: CoresFacts | None = None
    memory: MemoryReading | None = None  # of the server's control group
    server_bytes: int | None = None  # largest memory of the server's processes
    client_threads: Mapping[str, float] = field(default_factory=dict)  # see `TaskClock`
    switches_per_s: float | None = None  # context switches of server and load generator
    strays: Sequence[str] = ()  # files outside of `Bench.places` that they had open
    # read_bytes, write_bytes of a local load's system calls
    moved: Mapping[str, int | None] = field(default_factory=dict)
    stored: DiskBytes | None = None  # of the same processes: what a disk transferred for them


@dataclass(frozen=True)
class EngineFigures:
    """The server's own figures."""

    grown: Counts = field(default_factory=dict)  # its counters in the window
    lived: Counts = field(default_factory=dict)  # from before the load to the end of its sessions
    checkpoints: CheckpointFacts = field(default_factory=CheckpointFacts)
    hit_ratio: float | None = None
    dirty_bytes: int = 0  # at the end of the window
    resident_bytes: int | None = None  # part of the files in the page cache at that time


class ForeignIo(NamedTuple):
    """What other processes moved on a disk, if it disturbs."""

    megabytes: float
    share: float  # of all bytes


class DiskReading:
    """Begins with its creation."""

    def __init__(self, volumes: Mapping[Role, Device]) -> None:
        leaves = devices.leaves_of(volumes)
        self._unwritten_bytes = _unwritten_bytes()
        self._log = DiskClock(volumes["log"].leaves) if "log" in volumes else None
        self._below = DiskClock(shared_disks(volumes))
        self._others = DiskClock(sysfs.other_disks(leaves))
        self._devices = DiskClock(leaves)

    def end(self) -> DiskFigures:
        # Read at once, so that all counters are of the same moment.
        below = self._below.difference()
        others = self._others.difference()
        log = None if self._log is None else _io(self._log)
        io = replace(_io(self._devices), wal=log)
        unwritten = _unwritten_bytes()
        return DiskFigures(
            io,
            self._below.disks,
            _bytes_of(below),
            _bytes_of(others),
            unwritten,
            max(0, unwritten - self._unwritten_bytes),
        )


class ProcessReading:
    """Begins with its creation. `tasks` reads in between."""

    def __init__(self, bench: Bench, load: Load) -> None:
        self._bench = bench
        self._load = load
        self._host = reading(self._pids())
        self._io = IoClock()
        pid = bench.server.pid
        self._cpu = CpuClock(load.pids, pid)
        self._cores = bench.limits.facts(pid, load.pids)
        if bench.client is not None:  # the load generator's CPUs are those of its host
            cores = written_cores(bench.client.cores)
            self._cores = replace(self._cores, client=cores, shared=0)
            bench.client.read_cpu()
        self._local = bench.client is None
        places = () if bench.elsewhere else bench.places
        self.tasks = TaskClock(load.pids if self._local else (), pid, places=places)

    def end(self) -> tuple[ProcessFigures, HostLoad]:
        cpu = self._cpu.difference()
        client = self._bench.client
        client_cpu = cpu if client is None else client.cpu()
        host = foreign_load(self._host, reading(self._pids()))
        counted = bool(self._load.pids) and self._local
        figures = ProcessFigures(
            cpu=cpu,
            client_cpu=client_cpu,
            cores=self._cores,
            memory=self._bench.limits.memory_read(),
            server_bytes=self.tasks.server_bytes,
            client_threads=self.tasks.client_threads(),
            switches_per_s=self.tasks.switches_per_s(),
            strays=sorted(self.tasks.elsewhere()),
            moved=self._io.difference() if counted else {},
            stored=self._io.stored() if counted else None,
        )
        return figures, host

    def _pids(self) -> tuple[int, ...]:
        pid = self._bench.server.pid
        if pid is None:
            return self._load.pids
        return (pid, *self._load.pids)


class EngineReading:
    """Created before the load; `begin` and `end` are the edges of the window."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._idle = server.counters()
        self._before = self._idle

    def begin(self) -> None:
        self._before = self._server.counters()

    def end(self, files: Sequence[Path]) -> EngineFigures:
        """Return the figures of the window; `files`: the dataset."""
        server = self._server
        grown = grown_between(self._before, server.counters())
        resident: int | None = None
        with contextlib.suppress(OSError):
            resident = pagecache.resident_bytes(files)
        return EngineFigures(
            grown=grown,
            checkpoints=server.checkpoints(grown),
            hit_ratio=server.hit_ratio(grown),
            dirty_bytes=server.dirty_bytes() or 0,
            resident_bytes=resident,
        )

    def wait_for_sessions(self) -> Counts:
        """Return the counters' growth when the load's sessions have ended: one of PostgreSQL may
        outlive its client.
        """
        lived: Counts = {}

        def has_sessions() -> bool:
            nonlocal lived
            lived = grown_between(self._idle, self._server.counters())
            return lived.get("sessions_connected", 0) > 0

        process.wait_while(has_sessions, ENDED_S, 0.02)
        return lived


@dataclass(frozen=True)
class Readings:
    """Everything that was read around one trial's window."""

    bench: Bench
    host: HostLoad
    disks: DiskFigures = DiskFigures()
    processes: ProcessFigures = ProcessFigures()
    engine: EngineFigures = EngineFigures()
    drain_write_bytes: int | None = None
    # bytes of the trial's devices from the start of the load to the end of the drain
    device_read_bytes: int | None = None
    device_write_bytes: int | None = None

    @property
    def debt_bytes(self) -> int:
        """Return what server and page cache had not written at the end of the window."""
        return self.disks.unwritten_bytes + self.engine.dirty_bytes

    def work(self, explicit: bool) -> Work:
        """Return the counts over the whole life of the load: PostgreSQL counts transactions up to
        10 s late.
        """
        counted = self.bench.server.work(self.engine.lived, explicit)
        return replace(counted, **self.processes.moved)

    def writes(self, explicit: bool) -> int | None:
        """Return a lower bound of the window's commits that changed something."""
        return self.bench.server.work(self.engine.grown, explicit).writes

    def cpu_ms(self) -> float | None:
        """Return the CPU time with kernel workers, without dbbench and, if there is a server, the
        client.
        """
        cpu = self.processes.cpu
        return cpu_ms(cpu if self.bench.server.pid is not None else {**cpu, "client_cpu_s": 0.0})

    def cpu_pct(self) -> float | None:
        """Return the same CPU time as a share of all cores over the load, in per cent."""
        used_ms = self.cpu_ms()
        seconds = self.processes.cpu.get("seconds")
        cpus = self.processes.cpu.get("cpus")
        if used_ms is not None and seconds and cpus:
            return used_ms / 10 / seconds / cpus
        return None

    def warnings(self) -> Iterator[TrialWarning]:
        yield from self.bench.server.warnings()
        yield from load_warnings(self.host)
        places = {
            "disk below": self.foreign_below(),
            "filesystem under test": self.foreign_on_device(),
        }
        for place, foreign in places.items():
            if foreign is not None:
                text = f"other processes transferred {foreign.megabytes:.0f} MB on the {place}"
                text += f", {percent(foreign.share)} of all{self.host.other_runs_text}"
                yield TrialWarning("W127", text)

    def foreign_below(self) -> ForeignIo | None:
        """Return the foreign I/O on the disks below the images. The trial's own is that of its
        devices, and all of its processes' if a part of the cluster is on another disk, which is
        not known.
        """
        own_bytes = _bytes_of(vars(self.disks.io))
        moved = self.host.ours_moved
        if self.bench.elsewhere and own_bytes is not None and moved is not None:
            own_bytes += moved.read + moved.written
        return foreign_io(self.disks.below_bytes, own_bytes, self.host.seconds)

    def foreign_on_device(self) -> ForeignIo | None:
        """Return the foreign I/O on the trial's own device: at most what the trial did not transfer
        there (a server counts what it writes), and at most what others transferred with calls,
        less the traffic of all other disks and what is not written yet. The filesystem's own
        writes are in the first, I/O on other filesystems is in the second, so only the smaller
        one counts.
        """
        all_bytes = _bytes_of(vars(self.disks.io))
        trial = self.host.ours_moved
        foreign = self.host.foreign_moved
        if all_bytes is None or trial is None or foreign is None:
            return None

        # What the trial's processes transferred.
        by_server = self.disks.io.engine_write_bytes
        own_bytes = trial.read + (trial.written if by_server is None else by_server)

        # What others transferred with calls. Bytes of a loop device pass the disk below it too.
        passed = all_bytes if self.disks.shared else 0
        other_disks = max(0, (self.disks.others_bytes or 0) - passed)
        called = foreign.read + min(foreign.written, foreign.called)
        foreign_bytes = max(0, called - other_disks - self.disks.dirtied_bytes)

        own_bytes = max(own_bytes, all_bytes - foreign_bytes)
        return foreign_io(all_bytes, own_bytes, self.host.seconds)


class Meter:
    """Reads around one trial's window; created when the server runs and the load does not yet."""

    readings: Readings  # exist after the window

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._engine = EngineReading(bench.server)
        self._whole = DiskClock(devices.leaves_of(bench.disks))

    def begin(self) -> None:
        """Call when the load has started: what it laid out before is not part of it."""
        self._whole = DiskClock(devices.leaves_of(self._bench.disks))

    @contextlib.contextmanager
    def window(self, load: Load) -> Iterator[None]:
        self._engine.begin()
        disk_reading = DiskReading(self._bench.disks)
        process_reading = ProcessReading(self._bench, load)
        with threads.beside("tasks", process_reading.tasks.work):
            yield
        disks = disk_reading.end()
        processes, host = process_reading.end()
        engine = self._engine.end(self._bench.files)
        written = self._bench.server.written_bytes(engine.grown)
        disks = replace(disks, io=replace(disks.io, engine_write_bytes=written))
        self.readings = Readings(self._bench, host, disks, processes, engine)

    @contextlib.contextmanager
    def drain(self) -> Iterator[None]:
        """Count what the drain writes."""
        clock = DiskClock(devices.leaves_of(self._bench.disks))
        yield
        whole = self._whole.difference()
        self.readings = replace(
            self.readings,
            drain_write_bytes=clock.difference()["write_bytes"],
            device_read_bytes=whole["read_bytes"],
            device_write_bytes=whole["write_bytes"],
        )

    def read_end(self) -> None:
        """Read the server's counters for the last time."""
        engine = replace(self.readings.engine, lived=self._engine.wait_for_sessions())
        self.readings = replace(self.readings, engine=engine)


def foreign_io(
    all_bytes: int | None,
    own_bytes: int | None,
    seconds: float,
) -> ForeignIo | None:
    """Return what other processes moved on a disk, if it disturbs. `own_bytes`: of the trial."""
    if not all_bytes or own_bytes is None or seconds <= 0:
        return None
    foreign = all_bytes - own_bytes
    share = foreign / all_bytes
    disturbs = share >= FOREIGN_SHARE and foreign / seconds >= FOREIGN_BYTES
    if disturbs:
        return ForeignIo(foreign / 1e6, share)
    return None


def _io(clock: DiskClock) -> IoFacts:
    counted: Json = clock.difference()
    note = devices.flushes_reason(clock.disks)
    if note:
        counted["flushes"] = None
    return IoFacts(**counted, flushes_note=note)


def _unwritten_bytes() -> int:
    """Return Dirty and Writeback of the whole machine (proc_meminfo(5))."""
    kilobytes = re.findall(
        r"^(?:Dirty|Writeback): *(\d+)",
        MEMINFO.read_text(),
        re.MULTILINE,
    )
    return 1024 * sum(map(int, kilobytes))


def _bytes_of(counted: Mapping[str, Any]) -> int | None:
    values = (counted.get("read_bytes"), counted.get("write_bytes"))
    measured = [size for size in values if size is not None]
    return sum(measured) if measured else None
