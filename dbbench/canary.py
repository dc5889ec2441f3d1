"""A short probe of CPU and disk before each trial, recorded beside it: did the machine change between trials?

Its figures are no benchmark and no reason to judge anything yet. On a device it writes into the middle, where no
filesystem has its signature, always at the same place; the device is ours and mkfs comes next.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench.devices.port import Device

_MIB: Final = 2**20
_WRITE_BYTES: Final = 32 * _MIB
_FLUSHES: Final = 8
_CPU_BYTES: Final = 4 * _MIB  # about 3 to 15 ms of SHA-256 on one core
_CPU_TRIES: Final = 3  # the least of them: what the core can do when nobody interrupts
_PROBE: Final = ".dbbench-canary"


def probe(target: Device | Path) -> dict[str, float]:
    """cpu_ms (fixed work), write_mb_per_s (32 MiB, 1 MiB at a time) and fdatasync_ms (median of 8 with 4 KiB).

    `target`: a device of ours, or a directory, where a file is written and removed. Disk figures are left out
    where direct I/O is refused or the device has no room; nothing is raised for that.
    """
    found = {"cpu_ms": _cpu_ms()}
    try:
        found |= _of_device(target) if isinstance(target, Device) else _of_directory(target)
    except OSError:
        return found  # what could not be measured is not there
    return found


def _cpu_ms() -> float:
    block = bytes(_CPU_BYTES)
    return round(1000 * min(_timed(lambda: hashlib.sha256(block)) for _ in range(_CPU_TRIES)), 3)


def _of_device(device: Device) -> dict[str, float]:
    middle = device.facts.size_bytes // 2 // _MIB * _MIB
    if device.facts.size_bytes - middle < 2 * _WRITE_BYTES:
        return {}
    fd = os.open(device.argument, os.O_WRONLY | os.O_DIRECT)
    try:
        return _written(fd, middle)
    finally:
        os.close(fd)


def _of_directory(folder: Path) -> dict[str, float]:
    path = folder / _PROBE
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        return _written(fd, 0)
    finally:
        os.close(fd)
        path.unlink()


def _written(fd: int, begin: int) -> dict[str, float]:
    with mmap.mmap(-1, _MIB) as page:  # direct I/O wants aligned memory
        page.write(os.urandom(_MIB))  # so that nothing below can leave out zeros
        whole = memoryview(page)
        small = whole[:4096]
        try:
            seconds = _timed(lambda: _write_all(fd, whole, begin))
            flushes = [_timed(lambda: _write_through(fd, small, begin)) for _ in range(_FLUSHES)]
        finally:
            small.release()
            whole.release()
    return {
        "write_mb_per_s": round(_WRITE_BYTES / 1e6 / seconds, 1),
        "fdatasync_ms": round(1000 * statistics.median(flushes), 3),
    }


def _write_all(fd: int, block: memoryview, begin: int) -> None:
    for at in range(0, _WRITE_BYTES, len(block)):
        os.pwrite(fd, block, begin + at)


def _write_through(fd: int, block: memoryview, begin: int) -> None:
    os.pwrite(fd, block, begin)
    os.fdatasync(fd)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
