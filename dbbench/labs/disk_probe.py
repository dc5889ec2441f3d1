"""Is this disk fit for a database? Small flushed writes and direct reads in directories, in random
turns.

The file is long because the facts of a disk decide which of its rates can be believed.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench.compare.interval import LEAST_BLOCKS, estimate
from dbbench.compare.unpaired import welch
from dbbench.compare.verdict import word
from dbbench.errors import DiskTooSmall, FileUnreadable, UsageInvalid
from dbbench.machine import host
from dbbench.metrics.table import METRICS as TABLE
from dbbench.results.fileio import user_name
from dbbench.samplers.accounting import DiskClock
from dbbench.storage.devices import naming, sysfs
from dbbench.storage.devices.directory import disk_below, disks_below
from dbbench.storage.filesystems.common import mount_of
from dbbench.storage.small_io import (
    APPEND_FSYNC,
    GROUP,
    METHODS,
    MOST_BYTES,
    OVERWRITE,
    PARALLEL,
    READ,
    MeasuredDirectory,
    Method,
    atomic_write_bytes,
    percentile,
)
from dbbench.units import (
    change,
    count,
    duration_text,
    interval,
    join_words,
    number,
    size_text,
)

RATE: Final = TABLE["tps"]
# what a server does for each commit: the method that directories are compared by
COMMIT: Final = METHODS[0]
ROUND_S: Final = 2.0  # of each directory: half of it for COMMIT, whose tail needs most values
GROUPED: Final = GROUP.io_bytes // COMMIT.io_bytes  # commits in one flush
BURST_ENDED: Final = math.log(0.8)  # a smaller change of the rate between minutes is not reported
LEVEL: Final = 0.98  # a directory is called different from itself in 2 % of all probes
BEYOND: Final = 10  # values that lie beyond a percentile that is printed
LOOK_S: Final = 0.5
CLEAR: Final = 2.0  # from this ratio on, "3 times as fast" is easier to read than a percentage
FLUSHED_SHARE: Final = 0.1  # of the calls; one in a batch may reach the disk for several of them
FOREIGN_BYTES_S = 2**20
FOREIGN_REQUESTS_S = 50.0
LEAST_S: Final = 15e-6  # of a flush; the fastest devices take as long
ROTATION_S: Final = 0.002  # half a rotation at 15 000 rpm
Round = Mapping[str, list[float]]  # method -> seconds of each call
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
    def of(cls, method: Method, taken_s: Sequence[float]) -> Latency:
        ordered = sorted(taken_s)

        def rank(percent: float) -> float | None:
            beyond = len(ordered) * (1 - percent / 100)
            if beyond >= BEYOND - 1e-9:
                return 1000 * percentile(ordered, percent)
            return None

        per_s = method.at_a_time * len(ordered) / sum(ordered)
        return cls(
            method.name,
            len(ordered),
            per_s,
            rank(50),
            rank(99),
            rank(99.9),
            1000 * ordered[-1],
        )


@dataclass(frozen=True)
class Probed:
    """What a directory is, and how fast. `limit`: the keys of `limit` in a plan that model it."""

    path: str
    facts: Mapping[str, Any]
    latencies: tuple[Latency, ...]
    cautions: tuple[str, ...]
    flushes: str = ""  # that they reach the disk; what is doubtful about them is a caution
    minutes: tuple[float, ...] = ()  # commits per second in each, if there are several
    limit: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        disks = []
        for name, disk in self.facts["disks"].items():
            kind = ", rotating" if disk["rotational"] == "1" else ""
            if disk["rotational"] is None and self.facts["virtualisation"]:
                kind = ", a virtual disk"
            model = f" ({disk['model']})" if disk["model"] else ""
            disks.append(f"{name}{model}{kind}, write cache {disk['write_cache'] or 'unknown'}")
        below = f" on {'; '.join(disks)}" if disks else ""
        text = f"{self.facts['filesystem']}{below}"
        if self.facts["layers"]:
            text += f", with {join_words(self.facts['layers'])} in between"
        if self.facts["virtualisation"]:
            text += f", in a virtual machine ({self.facts['virtualisation']})"
        return text

    @property
    def sentence(self) -> str:
        rates = {of.method: of.per_s for of in self.latencies}
        commit = self.latencies[0]
        text = f"enough for about {_two_digits(commit.per_s)} commits per second of one session, "
        if commit.per_s >= CLEAR * rates[APPEND_FSYNC.name]:
            text += f"{_two_digits(rates[APPEND_FSYNC.name])} with fsync instead of fdatasync, "
        grouped_per_s = _two_digits(GROUPED * rates[GROUP.name])
        text += f"{grouped_per_s} with group commit ({GROUPED} in a flush)"
        if commit.p999_ms is not None:
            return f"{text}; one in a thousand takes {duration_text(commit.p999_ms / 1000)}"
        if commit.p99_ms is not None:
            return f"{text}; one in a hundred takes {duration_text(commit.p99_ms / 1000)}"
        return text

    @property
    def model(self) -> tuple[str, str]:
        """Return what to do with the key of a plan, and the key."""
        text = "to model it on a machine with a faster disk, in [device] of a plan"
        if len(self.limit) < 2:
            text += " (its I/Os take less than 1 ms, the shortest delay of a model)"
        keys = ", ".join(f"{key} = {value}" for key, value in self.limit.items())
        return f"{text}:", f"limit = {{ {keys} }}"


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
        text = f"too few rounds to compare {self.path} with {self.baseline}"
        if self.low is not None and self.high is not None:
            verdict = word(math.log(self.low), math.log(self.high), RATE)
            level = f"{100 * LEVEL:.0f} % interval"
            width = f"{level} {interval(self.low, self.high)}"
            text = (
                f"{self.path} {RELATIONS[verdict]} {self.baseline} ({change(self.ratio)}, {width})"
            )
            if verdict == "faster" and self.ratio >= CLEAR:
                text = f"{self.path} commits about {times(self.ratio)} as fast as {self.baseline}"
                text += f" ({level} {_two_digits(self.low)} to {times(self.high)})"
            elif verdict == "slower" and self.ratio <= 1 / CLEAR:
                text = (
                    f"{self.baseline} commits about {times(1 / self.ratio)} as fast as {self.path}"
                )
                text += f" ({level} {_two_digits(1 / self.high)} to {times(1 / self.low)})"
        disks = join_words(list(self.same_disks))
        if disks:
            return f"{text}; the same disk lies under both: {disks}"
        return text


def times(ratio: float) -> str:
    """Return "2.5 times" or "180 times"."""
    return f"{_two_digits(ratio)} times"


def _two_digits(value: float) -> str:
    return number(float(f"{value:.2g}"))


def probe(
    paths: Sequence[Path],
    seconds: float,
    seed: int,
    tell: Callable[[float], None] = lambda _left_s: None,
) -> tuple[list[Probed], list[DirectoryPair]]:
    """Measure directories for `seconds` in all; `tell` is called with the seconds left, first when
    all directories are known to be usable. Raises FileUnreadable, DeviceInUse, DiskTooSmall,
    UsageInvalid.
    """
    turns = random.Random(seed)
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageInvalid(
            f"a directory is named twice: {' '.join(map(str, paths))}",
            remedy="Name each directory once.",
        )
    with contextlib.ExitStack() as stack:
        directories = []
        for number, path in enumerate(paths):
            directories.append(stack.enter_context(_open(path, seed + number)))
        disks = [disks_below(path) for path in paths]
        physical = [_physical(leaves) for leaves in disks]

        # What other processes do while the probe is idle.
        idle = {disk: DiskClock([disk]) for leaves in physical for disk in leaves}
        time.sleep(LOOK_S)
        foreign = {disk: _foreign_text(disk, clock) for disk, clock in idle.items()}

        # Rounds of all directories, in random order.
        rounds: list[list[Round]] = [[] for _ in paths]
        minutes: list[list[int]] = [[] for _ in paths]
        clocks = [DiskClock(leaves) for leaves in disks]
        end = time.monotonic() + seconds
        while not rounds[0] or time.monotonic() < end:
            for number in turns.sample(range(len(paths)), len(paths)):
                left_s = max(0.0, end - time.monotonic())
                tell(left_s)
                minutes[number].append(int((seconds - left_s) // 60))
                rounds[number].append(_round(directories[number], turns))
        flushed = [clock.difference()["flushes"] for clock in clocks]
        per_commit = [
            _flushes_of(directory, leaves)
            for directory, leaves in zip(directories, disks, strict=True)
        ]

    # What a directory is, and how fast; directories on the same disks share its flushes.
    probed = []
    machine = host.virtualisation()
    for number, path in enumerate(paths):
        latencies = _latencies(rounds[number])
        flushing = [latencies[method.name].count for method in METHODS if method.flushes]
        calls = sum(flushing) * disks.count(disks[number])
        facts = _facts(path, physical[number], machine)
        facts["flushes"] = flushed[number]
        facts["flush_calls"] = calls
        rows = tuple(latencies.values())
        flushes, doubtful = _flushes(facts)
        cautions = [flushes] if doubtful else []
        cautions += _cautions(facts, rows)
        cautions += [foreign[disk] for disk in physical[number] if foreign[disk]]
        reached = "" if doubtful else flushes
        rates, ended = _by_minute(rounds[number], minutes[number])
        if ended:
            cautions.append(ended)
        limit = _limit(facts, latencies, per_commit[number])
        probed.append(Probed(str(path), facts, rows, tuple(cautions), reached, rates, limit))
    pairs = []
    for number in range(1, len(paths)):
        same = tuple(disk for disk in physical[number] if disk in physical[0])
        ratio, low, high = _compare(rounds[0], rounds[number])
        pairs.append(DirectoryPair(str(paths[number]), str(paths[0]), ratio, low, high, same))
    return probed, pairs


def _latencies(rounds: Sequence[Round]) -> dict[str, Latency]:
    """Return the latencies of each method that every round has."""
    latencies = {}
    for method in METHODS:
        if all(method.name in values for values in rounds):
            taken_s = [second for values in rounds for second in values[method.name]]
            latencies[method.name] = Latency.of(method, taken_s)
    return latencies


def _flushes_of(directory: MeasuredDirectory, leaves: tuple[str, ...]) -> int:
    """Return the flushes that a disk gets for one overwrite and its fdatasync, at least 1."""
    clock = DiskClock(leaves)
    calls = len(directory.measure(OVERWRITE, LOOK_S))
    flushes = clock.difference()["flushes"] or 0
    of_disk = flushes / max(1, len(leaves))
    return max(1, round(of_disk / calls))


def _limit(
    facts: Mapping[str, Any],
    latencies: Mapping[str, Latency],
    flushes: int,
) -> dict[str, int]:
    """Return the keys of `limit` that make a faster disk like this one. Delays are whole
    milliseconds; a disk without a volatile cache gets no flushes, so its writes are slow.
    `flushes`: of one commit.
    """
    rates = [latencies[method.name].per_s for method in PARALLEL if method.name in latencies]
    limit = {}
    if rates:
        limit["iops"] = round(float(f"{min(rates):.2g}"))
    delays = {}
    if READ.name in latencies:
        delays["read_ms"] = latencies[READ.name].p50_ms
    caches = {disk["write_cache"] for disk in facts["disks"].values()}
    commit_ms = latencies[OVERWRITE.name].p50_ms
    key = "write_ms" if caches == {"write through"} else "flush_ms"
    delays[key] = commit_ms and commit_ms / flushes
    for key, delay_ms in delays.items():
        if delay_ms and round(delay_ms):
            limit[key] = round(delay_ms)
    return limit


def _by_minute(rounds: Sequence[Round], minutes: Sequence[int]) -> tuple[tuple[float, ...], str]:
    """Return the commits per second of each minute, () for a single one, and a caution if the last
    minute was slower than the first. `minutes`: that of each round.
    """
    of_minute: dict[int, list[Round]] = {}
    for minute, values in zip(minutes, rounds, strict=True):
        of_minute.setdefault(minute, []).append(values)
    rates = []
    logs = []
    for its_rounds in of_minute.values():
        taken_s = [second for values in its_rounds for second in values[COMMIT.name]]
        rates.append(len(taken_s) / sum(taken_s))
        logs.append([math.log(_commit_rate(values)) for values in its_rounds])
    if len(rates) < 2:
        return (), ""
    change = welch(logs[0], logs[-1])
    if change.df is None or change.mean > BURST_ENDED:
        return tuple(rates), ""
    # The last minute may also have been as fast as the first.
    if change.bounds(LEVEL)[1] > 0:
        return tuple(rates), ""
    text = f"the disk became slower: {number(rates[0])} commits per second in the first minute, "
    text += f"{number(rates[-1])} in the last. A burst credit may have ended: use --minutes "
    return tuple(rates), text + str(2 * len(rates))


def _open(path: Path, seed: int) -> contextlib.closing[MeasuredDirectory]:
    if not path.exists():
        remedy = f"Create it on the disk to be measured:  mkdir -p {shlex.quote(str(path))}"
        if path.absolute().is_relative_to("/dev"):
            remedy = "Name a directory on that disk; lsblk lists disks and where they are mounted."
        raise FileUnreadable(
            f"{path} does not exist", effect="Nothing was measured.", remedy=remedy
        )
    if not path.is_dir():
        raise FileUnreadable(
            f"{path} is a file or device, not a directory",
            effect="Nothing was measured.",
            remedy="Name a directory on its filesystem, or on a filesystem on that disk.",
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise FileUnreadable(
            f"the user {user_name(os.geteuid())} cannot create files in {path}",
            effect="Nothing was measured.",
            remedy="Name a directory of this account on the same filesystem, or use sudo.",
        )
    try:
        if os.statvfs(path).f_blocks == 0:
            raise FileUnreadable(
                f"{path} is on {mount_of(path).fstype}, a filesystem that stores no files",
                effect="Nothing was measured.",
                remedy="Name a directory on a disk.",
            )
        free = shutil.disk_usage(path).free
        if free < MOST_BYTES:
            text = f"{path} has {size_text(free)} of free space"
            raise DiskTooSmall(
                f"{text}; the probe needs {size_text(MOST_BYTES)}",
                effect="Nothing was measured.",
                remedy="Free some space or name another directory.",
            )
        return contextlib.closing(MeasuredDirectory(path, seed))
    except OSError as error:
        remedy = "Name an existing directory in which you may create files."
        raise FileUnreadable(
            f"{path}: {error.strerror}",
            effect="Nothing was measured.",
            remedy=remedy,
        ) from None


def _round(directory: MeasuredDirectory, turns: random.Random) -> Round:
    """Measure every method once, in random order. One that the filesystem refuses is left out."""
    taken: dict[str, list[float]] = {}
    for method in turns.sample(METHODS, len(METHODS)):
        seconds = ROUND_S / 2
        if method is not COMMIT:
            seconds /= len(METHODS) - 1
        try:
            taken[method.name] = directory.measure(method, seconds)
        except OSError as error:
            if method.reads:
                continue
            raise FileUnreadable(f"{directory.path}: {method.title}: {error.strerror}") from None
    return taken


def _compare(
    baseline: Sequence[Round], rounds: Sequence[Round]
) -> tuple[float, float | None, float | None]:
    """Return the ratio of commits per second, and its interval."""
    first = map(_commit_rate, baseline)
    second = map(_commit_rate, rounds)
    pairs = list(zip(first, second, strict=True))
    result = estimate(pairs)
    if result.n < LEAST_BLOCKS:
        return result.ratio, None, None
    low, high = result.bounds(LEVEL)
    return result.ratio, math.exp(low), math.exp(high)


def _commit_rate(values: Round) -> float:
    return len(values[COMMIT.name]) / sum(values[COMMIT.name])


def _physical(leaves: tuple[str, ...]) -> tuple[str, ...]:
    """Return these disks, and those below the files of loop devices among them."""
    disks = list(leaves)
    for name in leaves:
        file = sysfs.attribute(name, "loop/backing_file")
        if file and Path(file).parent.is_dir():
            disks += disks_below(Path(file).parent)
    return tuple(dict.fromkeys(disks))


def _facts(
    path: Path,
    leaves: tuple[str, ...],
    virtualisation: str | None,
) -> dict[str, Any]:
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
        uuid = sysfs.attribute(device, "dm/uuid")
        if slaves and uuid:
            layers.add(uuid.partition("-")[0])
        elif slaves:
            layers.add("RAID" if device.startswith("md") else device)
    # What the kernel knows of each disk, as far as it can be trusted.
    disks = {}
    for leaf in leaves:
        attributes = sysfs.queue_attributes(leaf)
        if virtualisation and attributes.get("rotational") == "1":
            del attributes["rotational"]
        disks[leaf] = {"model": naming.model(leaf) or None}
        for key in ("rotational", "write_cache", "fua", "atomic_write_unit_max_bytes"):
            disks[leaf][key] = attributes.get(key)
    return {
        "filesystem": mount.fstype,
        "options": list(mount.options),
        "disks": disks,
        "layers": sorted(layers),
        "virtualisation": virtualisation,
        "atomic_write_bytes": atomic_write_bytes(path),
    }


def _flushes(facts: Mapping[str, Any]) -> tuple[str, bool]:
    """Return whether flushes reach the disk, as far as the kernel can tell, and whether that is in
    doubt.
    """
    reached = facts["flushes"]
    calls = number(facts["flush_calls"])
    caches = {disk["write_cache"] for disk in facts["disks"].values()}
    if not caches:
        return "the kernel shows no disk below: data is in memory, or on another machine", True
    if reached is None:
        return "the kernel does not count flushes, so whether they reach the disk is unknown", True
    disk = "virtual disk" if facts["virtualisation"] else "disk"
    # The kernel sends no flushes to a disk without a volatile cache.
    if caches == {"write through"}:
        text = f"the {disk} reports no volatile write cache, so it needs no flushes"
    elif reached < FLUSHED_SHARE * facts["flush_calls"]:
        few = f"only {count(reached, 'flush', 'flushes')} reached the {disk} for {calls} calls"
        lost = "the filesystem does not flush its cache, so commits can be lost in a power loss"
        return f"{few}: {lost}", True
    else:
        text = f"flushes reach the {disk}: {number(reached)} for {calls} calls"
    if facts["virtualisation"]:
        text += "; a virtual machine cannot determine whether the host passes them on"
    return text, False


def _cautions(facts: Mapping[str, Any], rows: Sequence[Latency]) -> list[str]:
    """Return reasons not to believe that a flushed write is safe after a power loss."""
    cautions = []
    flushes_ms = [row.p50_ms for row in rows if row.p50_ms and "fdatasync" in row.method]
    if not flushes_ms:
        return []  # a slow machine has too few values for a median
    fastest_s = min(flushes_ms) / 1000
    disks = facts["disks"]
    rotating = [name for name, disk in disks.items() if disk["rotational"] == "1"]
    early = f"a flush takes {duration_text(fastest_s)}"
    if disks and fastest_s < LEAST_S:
        why = "faster than any disk, so something confirms it before the data are safe"
        cautions.append(f"{early}: {why}")
    elif rotating and fastest_s < ROTATION_S:
        why = "it does not, or a cache confirms flushes before the data are safe"
        cautions.append(f"{early}, but {join_words(rotating)} claims to rotate: {why}")
    return cautions


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
