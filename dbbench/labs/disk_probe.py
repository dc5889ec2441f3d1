"""Is this disk fit for a database? Small flushed writes and direct reads in directories, in random turns."""

from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.compare.interval import LEAST_BLOCKS, SAME, estimate
from dbbench.errors import DiskTooSmall, FileUnreadable
from dbbench.machine import host
from dbbench.storage.devices import naming, sysfs
from dbbench.storage.devices.directory import disk_below
from dbbench.storage.filesystems.common import mount_of
from dbbench.storage.small_io import METHODS, MOST_BYTES, MeasuredDirectory, atomic_write_bytes, percentile
from dbbench.units import change, count, duration_text, interval, join_words, number, size_text

COMMIT: Final = METHODS[0]  # what a server does for each commit: the method that directories are compared by
ROUND_S: Final = 2.0  # of each directory: half of it for COMMIT, whose tail needs most values
LEVEL: Final = 0.98  # a directory is called different from itself in 2 % of all probes
BEYOND: Final = 10  # values that lie beyond a percentile that is printed
LOOK_S: Final = 0.5
FOREIGN_BYTES_S, FOREIGN_REQUESTS_S = 2**20, 50.0
LEAST_S: Final = 15e-6  # of a flush; the fastest devices take as long
ROTATION_S: Final = 0.002  # half a rotation at 15 000 rpm


@dataclass(frozen=True)
class Latency:
    """Of one method. A percentile is None with fewer than ten values beyond it."""

    method: str
    count: int
    per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float

    @classmethod
    def of(cls, method: str, taken_s: Sequence[float]) -> Latency:
        ordered = sorted(taken_s)

        def rank(percent: float) -> float | None:
            beyond = len(ordered) * (1 - percent / 100)
            return 1000 * percentile(ordered, percent) if beyond >= BEYOND - 1e-9 else None

        per_s = len(ordered) / sum(ordered)
        return cls(method, len(ordered), per_s, rank(50), rank(99), rank(99.9), 1000 * ordered[-1])


@dataclass(frozen=True)
class Probed:
    """What a directory is, and how fast."""

    path: str
    facts: Mapping[str, Any]
    latencies: tuple[Latency, ...]
    cautions: tuple[str, ...]

    @property
    def place(self) -> str:
        """Return the filesystem and its disks in words."""
        disks = []
        for name, disk in self.facts["disks"].items():
            rotating = ", rotating" if disk["rotational"] == "1" else ""
            model = f" ({disk['model']})" if disk["model"] else ""
            disks.append(f"{name}{model}{rotating}, write cache {disk['write_cache'] or 'unknown'}")
        below = f" on {'; '.join(disks)}" if disks else ""
        layers = f", with {join_words(self.facts['layers'])} in between" if self.facts["layers"] else ""
        machine = f", in a virtual machine ({self.facts['virtualisation']})" if self.facts["virtualisation"] else ""
        return f"{self.facts['filesystem']}{below}{layers}{machine}"

    @property
    def sentence(self) -> str:
        commit = self.latencies[0]
        rank = ("thousand", commit.p999_ms) if commit.p999_ms is not None else ("hundred", commit.p99_ms)
        tail = "" if rank[1] is None else f"; one in a {rank[0]} takes {duration_text(rank[1] / 1000)}"
        return f"one session can commit about {number(float(f'{commit.per_s:.2g}'))} times per second{tail}"


@dataclass(frozen=True)
class Pair:
    """A directory compared with the first: commits per second, as a ratio with its interval (None below 3 rounds)."""

    path: str
    baseline: str
    ratio: float
    low: float | None
    high: float | None
    same_disks: tuple[str, ...]

    @property
    def sentence(self) -> str:
        figures = f"{change(self.ratio)}, {LEVEL:.0%} interval {interval(self.low, self.high)}"
        if self.low is None or self.high is None:
            text = f"too few rounds to compare {self.path} with {self.baseline}"
        elif self.low > 1 or self.high < 1:
            text = f"{self.path} commits {'faster' if self.low > 1 else 'more slowly'} than {self.baseline} ({figures})"
        elif max(-math.log(self.low), math.log(self.high)) <= SAME:
            text = f"{self.path} commits as fast as {self.baseline} ({figures})"
        else:
            text = f"{self.path} cannot be distinguished from {self.baseline} ({figures})"
        return text + (
            f"; the same disk lies under both: {join_words(list(self.same_disks))}" if self.same_disks else ""
        )


def probe(paths: Sequence[Path], seconds: float, seed: int) -> tuple[list[Probed], list[Pair]]:
    """Measure directories for `seconds` in all. Raises FileUnreadable, DeviceLocked, DiskTooSmall."""
    turns = random.Random(seed)
    with contextlib.ExitStack() as stack:
        directories = [stack.enter_context(_open(path, seed + number)) for number, path in enumerate(paths)]
        disks = [_disks(path) for path in paths]
        busy = [_foreign_rates(leaves) for leaves in disks]
        taken: list[list[dict[str, list[float]]]] = [[] for _ in paths]
        flushes = [sysfs.flushes(leaves) for leaves in disks]
        end = time.monotonic() + seconds
        while not taken[0] or time.monotonic() < end:
            for at in turns.sample(range(len(paths)), len(paths)):
                taken[at].append(_round(directories[at], turns))
        flushed = [_difference(sysfs.flushes(leaves), before) for leaves, before in zip(disks, flushes, strict=True)]
    probed = []
    for at, path in enumerate(paths):
        latencies = tuple(
            Latency.of(m.name, [value for turn in taken[at] for value in turn[m.name]])
            for m in METHODS if all(m.name in turn for turn in taken[at])
        )  # fmt: skip
        calls = sum(row.count for row in latencies if not row.method.startswith("random_read"))
        sharing = sum(leaves == disks[at] for leaves in disks)
        cautions = (*_cautions(disks[at], latencies, flushed[at], calls * sharing), *_foreign_text(disks[at], busy[at]))
        probed.append(Probed(str(path), _facts(path, disks[at]), latencies, cautions))
    return probed, [_pair(paths, taken, disks, at) for at in range(1, len(paths))]


def _open(path: Path, seed: int) -> contextlib.closing[MeasuredDirectory]:
    try:
        free_bytes = shutil.disk_usage(path).free
        if free_bytes < MOST_BYTES:
            text = f"{path} has {size_text(free_bytes)} of free space; the probe needs {size_text(MOST_BYTES)}"
            raise DiskTooSmall(
                text, effect="Nothing was measured.", remedy="Free some space or name another directory."
            )
        return contextlib.closing(MeasuredDirectory(path, seed))
    except OSError as error:
        remedy = "Name an existing directory in which you may create files."
        raise FileUnreadable(f"{path}: {error.strerror}", effect="Nothing was measured.", remedy=remedy) from None


def _round(directory: MeasuredDirectory, turns: random.Random) -> dict[str, list[float]]:
    """Measure every method once, in random order. One that the filesystem refuses is left out."""
    share = {m.name: ROUND_S / 2 if m is COMMIT else ROUND_S / 2 / (len(METHODS) - 1) for m in METHODS}
    taken: dict[str, list[float]] = {}
    for method in turns.sample(METHODS, len(METHODS)):
        try:
            taken[method.name] = directory.measure(method, share[method.name])
        except OSError as error:
            if method.flags & os.O_DIRECT:
                continue
            raise FileUnreadable(f"{directory.path}: {method.title}: {error.strerror}") from None
    return taken


def _pair(paths: Sequence[Path], taken: Sequence[Sequence[Mapping[str, list[float]]]],
          disks: Sequence[tuple[str, ...]], at: int) -> Pair:  # fmt: skip
    rates = [[len(turn[COMMIT.name]) / sum(turn[COMMIT.name]) for turn in taken[each]] for each in (0, at)]
    result = estimate(list(zip(*rates, strict=True)))
    half = result.half_width(LEVEL) if result.n >= LEAST_BLOCKS else None
    low, high = (None, None) if half is None else (math.exp(result.mean - half), math.exp(result.mean + half))
    same = tuple(disk for disk in disks[at] if disk in disks[0])
    return Pair(str(paths[at]), str(paths[0]), result.ratio, low, high, same)


def _facts(path: Path, leaves: tuple[str, ...]) -> dict[str, Any]:
    """Return the filesystem and the disk; None for what the kernel does not show."""
    mount, name, layers = mount_of(path), disk_below(path), set[str]()
    below = [sysfs.disk_of(name)] if name else []
    for device in below:  # from the filesystem's device down to the disks
        slaves = sysfs.slaves(device)
        below += [sysfs.disk_of(slave) for slave in slaves]
        uuid = sysfs.read(sysfs.folder(device) / "dm/uuid") or ""
        if slaves:
            layers.add(uuid.partition("-")[0] if uuid else "RAID" if device.startswith("md") else device)
    attributes = {leaf: sysfs.queue_attributes(leaf) for leaf in leaves}
    wanted = ("rotational", "write_cache", "fua", "atomic_write_unit_max_bytes")
    return {
        "filesystem": mount.fstype,
        "options": list(mount.options),
        "disks": {leaf: {"model": naming.model(leaf) or None, **{key: attributes[leaf].get(key) for key in wanted}}
                  for leaf in leaves},
        "layers": sorted(layers),
        "atomic_write_bytes": atomic_write_bytes(path),
        "virtualisation": host.virtualisation(),
    }  # fmt: skip


def _disks(path: Path) -> tuple[str, ...]:
    name = disk_below(path)
    return sysfs.leaves(name) if name else ()


def _cautions(leaves: tuple[str, ...], rows: Sequence[Latency], flushed: int | None, calls: int) -> tuple[str, ...]:
    """Return reasons not to believe that a flushed write is safe after a power loss."""
    cautions = []
    fastest_s = min((row.p50_ms for row in rows if row.p50_ms and "fdatasync" in row.method), default=math.inf) / 1000
    rotating = [leaf for leaf in leaves if sysfs.read(sysfs.folder(leaf) / "queue/rotational") == "1"]
    rotating = [] if host.virtualisation() else rotating  # virtual disks claim it whatever they are
    if not leaves:
        cautions.append("the kernel shows no disk below: data is in memory, or on another machine")
    elif flushed is not None and flushed < calls / 10:
        cautions.append(f"only {count(flushed, 'flush', 'flushes')} reached the disk for {number(calls)} calls: "
                        "the filesystem does not flush its cache, so commits can be lost in a power loss")  # fmt: skip
    if leaves and fastest_s < LEAST_S:
        cautions.append(f"a flush takes {duration_text(fastest_s)}: faster than any disk, so something confirms it "
                        "before the data are safe")  # fmt: skip
    elif rotating and fastest_s < ROTATION_S:
        cautions.append(f"a flush takes {duration_text(fastest_s)}, but {join_words(rotating)} claims to rotate: it "
                        "does not, or a cache confirms flushes before the data are safe")  # fmt: skip
    return tuple(cautions)


def _foreign_rates(leaves: tuple[str, ...]) -> tuple[float, float]:
    """Return the bytes and requests per second of the disks while the probe is idle."""
    before = [sysfs.io_counters(leaf) for leaf in leaves]
    time.sleep(LOOK_S)
    moved = [0.0, 0.0]
    for leaf, old in zip(leaves, before, strict=True):
        new = sysfs.io_counters(leaf)
        if old is not None and new is not None:
            moved[0] += new.read_bytes + new.write_bytes - old.read_bytes - old.write_bytes
            moved[1] += new.read_operations + new.write_operations - old.read_operations - old.write_operations
    return moved[0] / LOOK_S, moved[1] / LOOK_S


def _foreign_text(leaves: tuple[str, ...], rates: tuple[float, float]) -> tuple[str, ...]:
    if rates[0] < FOREIGN_BYTES_S and rates[1] < FOREIGN_REQUESTS_S:
        return ()
    load = f"{size_text(rates[0])} and {number(round(rates[1]))} requests per second"
    return (f"other processes use {join_words(list(leaves))} ({load} before the probe): it measures what is left",)


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before
