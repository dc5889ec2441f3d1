"""dm-delay: each I/O of a device takes longer by a constant time, which models a slower disk. What
it adds is measured with a few single I/Os, because the kernel delays in steps of its clock.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from dbbench import packages, process
from dbbench.errors import MakeFailed
from dbbench.model import Commands, Layer, Scalar, Scalars, Words
from dbbench.results.fileio import open_fd
from dbbench.results.journal import Journal
from dbbench.storage.devices import sysfs
from dbbench.storage.devices.port import Device
from dbbench.storage.layers import volume
from dbbench.storage.layers.volume import failing, open_volume, reserve

PROGRAMS: Final = ("dmsetup", "wipefs")  # for making and removing
TARGET: Final = "dm-delay"
KINDS: Final = ("read", "write", "flush")  # of I/O, in the order of the target's arguments
LEAST: Final = 5  # I/Os of each kind
MOST: Final = 25  # of a fast disk, whose times differ more on a busy machine
_MOST_S: Final = 0.25
OFF: Final = 0.20  # measured ÷ requested - 1
_BYTES: Final = 4096
_SECTOR: Final = 512  # of device-mapper
_CLOCK_MONOTONIC_COARSE: Final = 6  # linux/time.h; its resolution is the period of the clock's tick


def needs(layer: Layer) -> Words:
    """Return the kernel's target."""
    return (TARGET,)


def commands(layer: Layer, targets: Words) -> tuple[Commands, Words]:
    """Return the commands for one volume on each target, whose size is known in a trial only."""
    names = [f"dbbench-{number}" for number in range(1, len(targets) + 1)]
    argvs = [
        _create(name, f"0 SECTORS {_arguments(layer, target)}")
        for name, target in zip(names, targets, strict=True)
    ]
    return argvs, tuple(f"/dev/mapper/{name}" for name in names)


@contextlib.contextmanager
def make(
    layer: Layer,
    devices: Sequence[Device],
    journal: Journal,
) -> Iterator[tuple[Device, ...]]:
    """Yield a delayed volume on each of the devices. Raises MakeFailed, UnmountFailed."""
    bare = [single_ms(device.argument) for device in devices]
    with reserve("delay", end, devices, journal) as name, contextlib.ExitStack() as stack:
        volumes = []
        for number, device in enumerate(devices):
            member = f"{name}-{number + 1}"
            sectors = device.facts.size_bytes // _SECTOR
            table = f"0 {sectors} {_arguments(layer, device.number)}"
            with failing(f"dm-delay on {device.path}"):
                volume.load_module(*needs(layer))
                process.run(_create(member, table), env=volume.MAPPER_ENV)
                actual = _table(member)
            # What the kernel uses is read back and compared with the plan.
            if actual != table:
                raise MakeFailed(
                    f"{member} has the table {actual} instead of {table}",
                    effect="Nothing was measured.",
                )
            facts: Scalars = {"kind": "delay", "name": member}
            delayed = stack.enter_context(open_volume(volume.mapped_names(member)[member], facts))
            facts |= _describe_delays(layer, bare[number], single_ms(delayed.argument))
            volumes.append(delayed)
        yield tuple(volumes)


def _arguments(layer: Layer, target: str) -> str:
    """Return the target's line: the same device for reads, writes and flushes, each with its delay."""
    return "delay " + " ".join(f"{target} 0 {layer.delays.get(kind, 0)}" for kind in KINDS)


def _create(name: str, table: str) -> Words:
    return ("dmsetup", "create", name, "--table", table)


def _table(name: str) -> str:
    argv = ["dmsetup", "table", name]
    return process.run(argv, env=volume.MAPPER_ENV, note=False).stdout.strip()


def _describe_delays(
    layer: Layer,
    bare: Mapping[str, float],
    delayed: Mapping[str, float],
) -> Scalars:
    """Return for each kind of I/O the requested and the measured delay, and the clock's tick."""
    facts: Scalars = {"tick_ms": round(tick_ms(), 3)}
    for kind, asked in layer.delays.items():
        facts[f"{kind}_ms"] = asked
        facts[f"{kind}_measured_ms"] = round(delayed[kind] - bare[kind], 2)
    return facts


def single_ms(path: str) -> dict[str, float]:
    """Return the median milliseconds of a read, of a write and of a flush of a device whose first
    4 KiB may be overwritten.
    """
    with open_fd(path, os.O_RDWR | os.O_DIRECT) as fd, mmap.mmap(-1, _BYTES) as buffer:
        steps: dict[str, Callable[[], object]] = {
            "read": lambda: os.preadv(fd, [buffer], 0),
            "write": lambda: os.pwritev(fd, [buffer], 0),
            "flush": lambda: os.fsync(fd),
        }
        return {kind: statistics.median(_taken_ms(step)) for kind, step in steps.items()}


def _taken_ms(step: Callable[[], object]) -> list[float]:
    """Return the milliseconds of each step."""
    taken = list[float]()
    while len(taken) < LEAST or (len(taken) < MOST and sum(taken) < 1000 * _MOST_S):
        before = time.perf_counter()
        step()
        taken.append(1000 * (time.perf_counter() - before))
    return taken


def tick_ms() -> float:
    """Return the period of this kernel's clock: dm-delay waits for a whole number of ticks."""
    return 1000 * time.clock_getres(_CLOCK_MONOTONIC_COARSE)


def rounded_ms(asked_ms: float, tick: float) -> float:
    """Return what the kernel makes of a delay between I/Os that follow each other."""
    return math.ceil(asked_ms / tick - 1e-6) * tick


def deviations(facts: Mapping[str, Scalar], write_cache: str | None) -> Iterator[str]:
    """Yield a text for each delay of a volume that was measured more than 20 % off. `write_cache`:
    the kernel's word for that of the disk below.
    """
    tick = float(facts["tick_ms"])
    for kind in KINDS:
        asked = float(facts.get(f"{kind}_ms", 0))
        if not asked:  # the kernel passes these on without a delay
            continue
        measured = float(facts[f"{kind}_measured_ms"])
        if abs(measured - asked) <= OFF * asked:
            continue
        text = f"{kind}_ms = {asked:g}, but a single {kind} took {measured:g} ms longer"
        if abs(measured - rounded_ms(asked, tick)) <= OFF * measured:
            text += f": this kernel delays in steps of {tick:g} ms"
        elif kind == "flush" and write_cache == "write through":
            text += ": the disk has no volatile write cache, so the kernel sends it no flushes"
        yield text


def obstacle() -> str:
    """Return why this machine cannot delay the I/O of a device; "" if it can."""
    missing = [name for name in PROGRAMS if process.find(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: {packages.install(missing)}"
    return volume.kernel_lacks(TARGET) or ""


def delayed_by(device: str) -> str | None:
    """Return the device-mapper name of what already delays the device of that kernel name."""
    for name in (device, *sysfs.slaves(device)):
        mapped = sysfs.attribute(name, "dm/name")
        if mapped and _table(mapped).split()[2:3] == ["delay"]:
            return mapped
    return None


def end(name: str) -> bool:
    """Remove the volumes; return whether there were any. Raises UnmountFailed."""
    return volume.remove_dm(name)
