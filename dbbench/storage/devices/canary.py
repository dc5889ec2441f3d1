"""The canary of a trial: a core and the device are measured shortly, to notice a machine that
became slower.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import mmap
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dbbench.results.fileio import open_fd
from dbbench.storage.devices.port import Device

_MIB: Final = 2**20
_WRITE_BYTES: Final = 32 * _MIB
_FLUSHES: Final = 8
_CPU_BYTES: Final = 4 * _MIB  # about 3 to 15 ms of SHA-256 on one core
_CPU_TRIES: Final = 3  # the shortest of these counts: what the core can do without interruptions
FILE: Final = ".dbbench-canary"
# Of an ordinary disk, one that rotates: flushes take longer on a slower one, writes are slower.
_ORDINARY: Final = {"fdatasync_ms": 25.0, "write_mb_per_s": 60.0}


def measure(target: Device | Path) -> dict[str, float]:
    """Return cpu_ms (fixed work), write_mb_per_s (32 MiB, 1 MiB at a time), fdatasync_ms (median of
    8 with 16 KiB). `target`: a locked device, or a directory for a file. No disk values without
    direct I/O or space.
    """
    block = bytes(_CPU_BYTES)
    rates = {
        "cpu_ms": round(
            1000 * min(_time(lambda: hashlib.sha256(block)) for _ in range(_CPU_TRIES)), 3
        )
    }
    if isinstance(target, Device) and target.fd < 0:
        target = target.path
    with contextlib.suppress(OSError):
        rates |= _of_device(target) if isinstance(target, Device) else _of_directory(target)
    return rates


def slowness(rates: Mapping[str, float]) -> float:
    """Return how many times slower than an ordinary disk the measured one is, at least 1."""
    flush_ms = rates.get("fdatasync_ms", 0.0)
    mb_per_s = rates.get("write_mb_per_s", math.inf)
    by_flush = flush_ms / _ORDINARY["fdatasync_ms"]
    by_write = _ORDINARY["write_mb_per_s"] / mb_per_s if mb_per_s else 1.0
    return max(1.0, by_flush, by_write)


def _of_device(device: Device) -> dict[str, float]:
    middle = device.facts.size_bytes // 2 // _MIB * _MIB
    if device.facts.size_bytes - middle < 2 * _WRITE_BYTES:
        return {}
    with open_fd(device.argument, os.O_WRONLY | os.O_DIRECT) as fd:
        return _write(fd, middle)


def _of_directory(folder: Path) -> dict[str, float]:
    path = folder / FILE
    with open_fd(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT) as fd:
        try:
            return _write(fd, 0)
        finally:
            # not before: btrfs and ZFS flush nothing of a file without a name, f2fs makes a
            # checkpoint
            path.unlink()


def _write(fd: int, begin: int) -> dict[str, float]:
    # Direct I/O needs aligned memory; the content is random, so that no layer below can skip zeros.
    # whole sectors of every size
    with mmap.mmap(-1, _MIB) as page, memoryview(page) as whole, whole[:16384] as small:
        page.write(os.urandom(_MIB))

        def flush() -> None:
            os.pwrite(fd, small, begin)
            os.fdatasync(fd)

        places = range(begin, begin + _WRITE_BYTES, _MIB)
        seconds = _time(lambda: [os.pwrite(fd, whole, place) for place in places])
        flushes = [_time(flush) for _ in range(_FLUSHES)]
    return {
        "write_mb_per_s": round(_WRITE_BYTES / 1e6 / seconds, 1),
        "fdatasync_ms": round(1000 * statistics.median(flushes), 3),
    }


def _time(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
