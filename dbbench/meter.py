"""What is read at the edges of the window: disks, CPU, the server's own counters, what is still owed after it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench import devices, host, pagecache
from dbbench.devices.below import shared_disks
from dbbench.devices.port import Device
from dbbench.drivers.port import Load
from dbbench.engines.port import Server
from dbbench.limits import Confined, Reading
from dbbench.limits.cores import written
from dbbench.model import CheckpointFacts, ClientFacts, CoresFacts, IoFacts, TrialWarning
from dbbench.remote import Client
from dbbench.samplers.accounting import CpuClock, DiskClock, cpu_ms_per_tx

# Foreign I/O that counts: less moves nothing on a disk of today, and what results and logs of our own write is less.
FOREIGN_SHARE: Final = 0.25
FOREIGN_BYTES: Final = 8e6  # a second
MEMINFO: Final = Path("/proc/meminfo")


@dataclass
class Meter:
    """Readings around one trial's window. Figures are there after the block of their name has ended."""

    device: Device
    server: Server
    load: Load
    limits: Confined
    files: Sequence[Path]  # of the dataset
    disk: dict[str, int | None] = field(default_factory=dict)  # read_bytes, write_bytes, flushes of the window
    log: dict[str, int | None] = field(default_factory=dict)  # the same, of the log's own device
    below: dict[str, int | None] = field(default_factory=dict)  # of the disks that hold the images, everybody's
    cpu: dict[str, float | None] = field(default_factory=dict)
    machine: host.HostLoad | None = None
    before: dict[str, float] = field(default_factory=dict)  # the server's counters
    after: dict[str, float] = field(default_factory=dict)
    debt_bytes: int | None = None  # dirty and under write-back, in the server and in the page cache
    drain_write_bytes: int | None = None
    cores: CoresFacts | None = None
    memory: Reading | None = None  # of the server's control group
    resident_bytes: int | None = None  # of the files in the page cache when the window ended
    client: Client | None = None  # the load generator is on another host
    client_cpu: dict[str, float | None] = field(default_factory=dict)  # seconds and client_cpu_s, wherever it is

    @contextlib.contextmanager
    def window(self) -> Iterator[None]:
        """The measured window: totals of what happens within the block."""
        self.before = self.server.counters()
        machine = host.reading(self._pids())
        log = DiskClock(self.device.wal.leaves) if self.device.wal else None
        below = DiskClock(self._shared())
        disk, cpu = DiskClock(self.device.all_leaves), CpuClock(self.load.pids, self.server.pid)
        self.cores = self._cores()
        if self.client is not None:
            self.client.read_cpu()
        yield
        self.below = below.difference()
        self.disk, self.cpu, self.log = disk.difference(), cpu.difference(), log.difference() if log else {}
        self.client_cpu = self.client.cpu() if self.client is not None else self.cpu
        self.machine = host.foreign_load(machine, host.reading(self._pids()))
        self.after = self.server.counters()
        self.debt_bytes = _sum(_page_cache_debt(), self.server.dirty_bytes())
        self.memory, self.resident_bytes = self.limits.memory_read(), _resident(self.files)

    def _cores(self) -> CoresFacts:
        """Of the server here, and of the load generator where it is."""
        found = self.limits.facts(self.server.pid, self.load.pids)
        if self.client is None:
            return found
        return dataclasses.replace(found, client=written(self.client.cores), shared=0)

    @property
    def client_facts(self) -> ClientFacts | None:
        return self.client.facts if self.client is not None else None

    def _pids(self) -> tuple[int, ...]:
        return (*(() if self.server.pid is None else (self.server.pid,)), *self.load.pids)

    @contextlib.contextmanager
    def drain(self) -> Iterator[None]:
        """The drain: what it writes to the device."""
        disk = DiskClock(self.device.all_leaves)
        yield
        self.drain_write_bytes = disk.difference()["write_bytes"]

    @property
    def flushes_note(self) -> str:
        """Why device flushes are not measurable here; "" where they are."""
        return devices.flushes_reason(self.device.all_leaves)

    @property
    def flushes(self) -> int | None:
        return None if self.flushes_note else self.disk.get("flushes")

    @property
    def wal(self) -> IoFacts | None:
        """What of the window's bytes and flushes was the log's own device's; None without `[device.wal]`."""
        if self.device.wal is None:
            return None
        note = devices.flushes_reason(self.device.wal.leaves)
        flushes = None if note else self.log.get("flushes")
        return IoFacts(self.log.get("read_bytes"), self.log.get("write_bytes"), flushes, note)

    @property
    def checkpoints(self) -> CheckpointFacts:
        return self.server.checkpoints(self.before, self.after)

    @property
    def engine_write_bytes(self) -> int | None:
        return self.server.written_bytes(self.before, self.after)

    @property
    def hit_ratio(self) -> float | None:
        return self.server.hit_ratio(self.before, self.after)

    def cpu_ms_per_tx(self, transactions: int) -> float | None:
        """Of everything but client and dbbench: kernel workers of filesystem and loop device included. Where there is
        no server the client does its work."""
        used = self.cpu if self.server.pid is not None else {**self.cpu, "client_cpu_s": 0.0}
        return cpu_ms_per_tx(used, transactions)

    def warnings(self) -> tuple[TrialWarning, ...]:
        """Background load, steal, heat and foreign I/O in the window."""
        if self.machine is None:
            return ()
        foreign = foreign_io(self.below, self.disk, self.machine.seconds)
        text = "on the disk below, {:.0f} MB were of others, {:.0%} of all".format(*foreign) if foreign else ""
        return (*host.load_warnings(self.machine), *([TrialWarning("W127", text, suspect=True)] if text else ()))

    def _shared(self) -> tuple[str, ...]:
        return shared_disks(self.device)


def foreign_io(below: Mapping[str, int | None], ours: Mapping[str, int | None], seconds: float
               ) -> tuple[float, float] | None:  # fmt: skip
    """(10^6 bytes, share of all) that others read and wrote on the disk below, where it is as much as disturbs."""
    whole, own = (_sum(of.get("read_bytes"), of.get("write_bytes")) for of in (below, ours))
    if not whole or own is None or seconds <= 0:
        return None
    foreign = whole - own
    share = foreign / whole
    return (foreign / 1e6, share) if share >= FOREIGN_SHARE and foreign / seconds >= FOREIGN_BYTES else None


def _resident(files: Sequence[Path]) -> int | None:
    """A file that the server has removed meanwhile is no reason to fail: then it is not known."""
    try:
        return pagecache.resident_bytes(files)
    except OSError:
        return None


def _page_cache_debt() -> int | None:
    """Dirty and Writeback of the whole machine, in bytes (proc_meminfo(5))."""
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return None
    fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return sum(int(fields[name][0]) * 1024 for name in ("Dirty", "Writeback"))


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
