"""Is this disk fit for a database? Small flushed writes and direct reads in directories, in random
turns.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.compare.interval import LEAST_BLOCKS, estimate
from dbbench.compare.verdict import word
from dbbench.errors import DiskTooSmall, FileUnreadable
from dbbench.machine import host
from dbbench.metrics.table import METRICS as TABLE
from dbbench.samplers.accounting import DiskClock
from dbbench.storage.devices import naming, sysfs
from dbbench.storage.devices.directory import disk_below, disks_below
from dbbench.storage.filesystems.common import mount_of
from dbbench.storage.small_io import (
    METHODS,
    MOST_BYTES,
    MeasuredDirectory,
    atomic_write_bytes,
    percentile,
)
from dbbench.units import change, count, duration_text, interval, join_words, number, size_text

RATE: Final = TABLE["tps"]
# what a server does for each commit: the method that directories are compared by
COMMIT: Final = METHODS[0]
ROUND_S: Final = 2.0  # of each directory: half of it for COMMIT, whose tail needs most values
LEVEL: Final = 0.98  # a directory is called different from itself in 2 % of all probes
BEYOND: Final = 10  # values that lie beyond a percentile that is printed
LOOK_S: Final = 0.5
FOREIGN_BYTES_S = 2**20
FOREIGN_REQUESTS_S = 50.0
LEAST_S: Final = 15e-6  # of a flush; the fastest devices take as long
ROTATION_S: Final = 0.002  # half a rotation at 15 000 rpm
RELATIONS: Final = {
    "faster": "commits faster than",
    "slower": "commits more slowly than",
    "same": "commits as fast as",
    "inconclusive": "cannot be distinguished from",
}


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
        disks = []
        for name, disk in self.facts["disks"].items():
            kind = {"0": "", "1": ", rotating"}.get(disk["rotational"], ", kind unknown")
            model = f" ({disk['model']})" if disk["model"] else ""
            disks.append(f"{name}{model}{kind}, write cache {disk['write_cache'] or 'unknown'}")
        below = f" on {'; '.join(disks)}" if disks else ""
        layers = (
            f", with {join_words(self.facts['layers'])} in between" if self.facts["layers"] else ""
        )
        machine = (
            f", in a virtual machine ({self.facts['virtualisation']})"
            if self.facts["virtualisation"]
            else ""
        )
        return f"{self.facts['filesystem']}{below}{layers}{machine}"

    @property
    def sentence(self) -> str:
        commit = self.latencies[0]
        rank = (
            ("thousand", commit.p999_ms)
            if commit.p999_ms is not None
            else ("hundred", commit.p99_ms)
        )
        tail = (
            "" if rank[1] is None else f"; one in a {rank[0]} takes {duration_text(rank[1] / 1000)}"
        )
        return (
            f"one session can commit about {number(float(f'{commit.per_s:.2g}'))} times per "
            f"second{tail}"
        )


@dataclass(frozen=True)
class DirectoryPair:
    """A directory compared with the first: commits per second, as a ratio with its interval (None
    below 3 rounds).
    """

    path: str
    baseline: str
    ratio: float
    low: float | None
    high: float | None
    same_disks: tuple[str, ...]

    @property
    def sentence(self) -> str:
        figures = (
            f"{change(self.ratio)}, {100 * LEVEL:.0f} % interval {interval(self.low, self.high)}"
        )
        text = f"too few rounds to compare {self.path} with {self.baseline}"
        if self.low is not None and self.high is not None:
            verdict = RELATIONS[word(math.log(self.low), math.log(self.high), RATE)]
            text = f"{self.path} {verdict} {self.baseline} ({figures})"
        disks = join_words(list(self.same_disks))
        return f"{text}; the same disk lies under both: {disks}" if disks else text


def probe(
    paths: Sequence[Path], seconds: float, seed: int
) -> tuple[list[Probed], list[DirectoryPair]]:
    """Measure directories for `seconds` in all. Raises FileUnreadable, DeviceInUse, DiskTooSmall."""
    turns = random.Random(seed)
    with contextlib.ExitStack() as stack:
        directories = [
            stack.enter_context(_open(path, seed + number)) for number, path in enumerate(paths)
        ]
        disks = [disks_below(path) for path in paths]
        physical = [_physical(leaves) for leaves in disks]
        foreign = [{disk: DiskClock([disk]) for disk in leaves} for leaves in physical]
        time.sleep(LOOK_S)
        busy = [
            tuple(filter(None, itertools.starmap(_foreign_text, each.items()))) for each in foreign
        ]
        taken: list[list[dict[str, list[float]]]] = [[] for _ in paths]
        clocks = [DiskClock(leaves) for leaves in disks]
        end = time.monotonic() + seconds
        while not taken[0] or time.monotonic() < end:
            for at in turns.sample(range(len(paths)), len(paths)):
                taken[at].append(_round(directories[at], turns))
        flushed = [clock.difference()["flushes"] for clock in clocks]
    probed = []
    machine = host.virtualisation()
    reads = {method.name for method in METHODS if method.reads}
    for at, path in enumerate(paths):
        latencies = tuple(
            Latency.of(m.name, [value for turn in taken[at] for value in turn[m.name]])
            for m in METHODS
            if all(m.name in turn for turn in taken[at])
        )
        calls = sum(row.count for row in latencies if row.method not in reads) * disks.count(
            disks[at]
        )
        facts = _facts(path, physical[at], machine)
        cautions = (*_cautions(facts, latencies, flushed[at], calls), *busy[at])
        probed.append(Probed(str(path), facts, latencies, cautions))
    return probed, [_pair(paths, taken, physical, at) for at in range(1, len(paths))]


def _open(path: Path, seed: int) -> contextlib.closing[MeasuredDirectory]:
    try:
        if (free := shutil.disk_usage(path).free) < MOST_BYTES:
            text = (
                f"{path} has {size_text(free)} of free space; the probe needs "
                f"{size_text(MOST_BYTES)}"
            )
            raise DiskTooSmall(
                text,
                effect="Nothing was measured.",
                remedy="Free some space or name another directory.",
            )
        return contextlib.closing(MeasuredDirectory(path, seed))
    except OSError as error:
        remedy = "Name an existing directory in which you may create files."
        raise FileUnreadable(
            f"{path}: {error.strerror}", effect="Nothing was measured.", remedy=remedy
        ) from None


def _round(directory: MeasuredDirectory, turns: random.Random) -> dict[str, list[float]]:
    """Measure every method once, in random order. One that the filesystem refuses is left out."""
    share = {
        m.name: ROUND_S / 2 if m is COMMIT else ROUND_S / 2 / (len(METHODS) - 1) for m in METHODS
    }
    taken: dict[str, list[float]] = {}
    for method in turns.sample(METHODS, len(METHODS)):
        try:
            taken[method.name] = directory.measure(method, share[method.name])
        except OSError as error:
            if method.reads:
                continue
            raise FileUnreadable(f"{directory.path}: {method.title}: {error.strerror}") from None
    return taken


def _pair(
    paths: Sequence[Path],
    taken: Sequence[Sequence[Mapping[str, list[float]]]],
    disks: Sequence[tuple[str, ...]],
    at: int,
) -> DirectoryPair:
    rates = [
        [len(turn[COMMIT.name]) / sum(turn[COMMIT.name]) for turn in taken[each]]
        for each in (0, at)
    ]
    result = estimate(list(zip(*rates, strict=True)))
    low, high = map(math.exp, result.bounds(LEVEL)) if result.n >= LEAST_BLOCKS else (None, None)
    same = tuple(disk for disk in disks[at] if disk in disks[0])
    return DirectoryPair(str(paths[at]), str(paths[0]), result.ratio, low, high, same)


def _physical(leaves: tuple[str, ...]) -> tuple[str, ...]:
    """Return these disks, and those below the files of loop devices among them."""
    files = [sysfs.attribute(name, "loop/backing_file") for name in leaves]
    folders = [Path(file).parent for file in files if file]
    return tuple(
        dict.fromkeys(
            [*leaves, *(disk for each in folders if each.is_dir() for disk in disks_below(each))]
        )
    )


def _facts(path: Path, leaves: tuple[str, ...], virtualisation: str | None) -> dict[str, Any]:
    """Return the facts, None if unknown, as is the rotation of a virtual disk: it claims to rotate
    whatever it is.
    """
    mount = mount_of(path)
    name = disk_below(path)
    layers = set[str]()
    below = [sysfs.disk_of(name)] if name else []
    for device in below:  # from the filesystem's device down to the disks
        slaves = sysfs.slaves(device)
        below += [sysfs.disk_of(slave) for slave in slaves]
        uuid = sysfs.attribute(device, "dm/uuid") or ""
        if slaves:
            layers.add(
                uuid.partition("-")[0] if uuid else "RAID" if device.startswith("md") else device
            )
    attributes = {leaf: sysfs.queue_attributes(leaf) for leaf in leaves}
    for values in attributes.values():
        if virtualisation and values.get("rotational") == "1":
            del values["rotational"]
    wanted = ("rotational", "write_cache", "fua", "atomic_write_unit_max_bytes")
    return {
        "filesystem": mount.fstype,
        "options": list(mount.options),
        "disks": {
            leaf: {
                "model": naming.model(leaf) or None,
                **{key: attributes[leaf].get(key) for key in wanted},
            }
            for leaf in leaves
        },
        "layers": sorted(layers),
        "virtualisation": virtualisation,
        "atomic_write_bytes": atomic_write_bytes(path),
    }


def _cautions(
    facts: Mapping[str, Any], rows: Sequence[Latency], flushed: int | None, calls: int
) -> tuple[str, ...]:
    """Return reasons not to believe that a flushed write is safe after a power loss."""
    cautions = []
    fastest_s = (
        min(
            (row.p50_ms for row in rows if row.p50_ms and "fdatasync" in row.method),
            default=math.inf,
        )
        / 1000
    )
    disks = facts["disks"]
    rotating = [name for name, disk in disks.items() if disk["rotational"] == "1"]
    if not disks:
        cautions.append("the kernel shows no disk below: data is in memory, or on another machine")
    elif flushed is not None and flushed < calls / 10:
        cautions.append(
            f"only {count(flushed, 'flush', 'flushes')} reached the disk for {number(calls)} "
            "calls: the filesystem does not flush its cache, so commits can be lost in a power "
            "loss"
        )
    early = f"a flush takes {duration_text(fastest_s)}"
    if disks and fastest_s < LEAST_S:
        cautions.append(
            f"{early}: faster than any disk, so something confirms it before the data are safe"
        )
    elif rotating and fastest_s < ROTATION_S:
        cautions.append(
            f"{early}, but {join_words(rotating)} claims to rotate: it does not, or a cache "
            "confirms flushes before the data are safe"
        )
    return tuple(cautions)


def _foreign_text(disk: str, clock: DiskClock) -> str:
    """Return a caution about the use of the disk while the probe was idle, or "" if there was
    little.
    """
    moved = clock.difference()
    bytes_s = ((moved["read_bytes"] or 0) + (moved["write_bytes"] or 0)) / LOOK_S
    requests_s = ((moved["read_operations"] or 0) + (moved["write_operations"] or 0)) / LOOK_S
    if bytes_s < FOREIGN_BYTES_S and requests_s < FOREIGN_REQUESTS_S:
        return ""
    load = f"{size_text(bytes_s)} and {number(round(requests_s))} requests per second"
    return f"other processes use {disk} ({load} before the probe): it measures what is left"
