"""Precondition an SSD, so that all trials start from the same state: discarded, or written until its rate is steady.

A new or discarded SSD writes faster than a full one that has to clean up. `discard` gives every trial the same start;
`precondition` gives the state of a disk in its second year, once before each block of trials. Wear is read too.

A short probe of CPU and disk before each trial, recorded with it, to detect changes of the machine between trials.

The values are not a benchmark. On a device it writes in the middle, where no filesystem has its signature, always at
the same place; the device is locked, and mkfs follows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import (
    AnswerUnknown,
    CommandFailed,
    ConditionImpossible,
    DeadlinePassed,
    ProgramMissing,
    ProgramNotStarted,
)
from dbbench.model import ConditionFacts, WearFacts
from dbbench.storage.devices import ceiling, hold
from dbbench.storage.devices.port import Device

_BLKDISCARD: Final = 0x1277  # linux/fs.h
FILLS: Final = 2  # twice the user capacity: then no spare block is left unwritten (SNIA SSS PTS, workload independent)
# Steady by the same specification: five rounds whose rates lie within 20 % of their mean, and whose fitted line stays
# within 10 % of it; 25 rounds at most, of a minute each. Small devices (tests) are filled in seconds: 1 s.
_ROUNDS, _MOST_ROUNDS, _RANGE, _SLOPE = 5, 25, 0.20, 0.10
_LONG_ROUND_S, _SHORT_ROUND_S = 60.0, 1.0
_SMALL: Final = 8 * 2**30
_FILL_RATE: Final = 20 * 10**6  # bytes/s; a disk that is slower than that is stuck
_UNIT: Final = 512_000  # an NVMe "data unit": a thousand blocks of 512 bytes (NVM Express base specification, log 02h)
_KELVIN: Final = 273
_MIB: Final = 2**20
_WRITE_BYTES: Final = 32 * _MIB
_FLUSHES: Final = 8
_CPU_BYTES: Final = 4 * _MIB  # about 3 to 15 ms of SHA-256 on one core
_CPU_TRIES: Final = 3  # the least of them: what the core can do when nobody interrupts
PROBE: Final = ".dbbench-canary"


def discarded(device: Device) -> ConditionFacts:
    """Discard every block of each disk. Raises ConditionImpossible if a disk does not support it."""
    began = time.monotonic()
    for member in device.each:
        hold.must_be_alone(member.fd)
        try:
            fcntl.ioctl(hold.fd_of(member.fd), _BLKDISCARD, struct.pack("QQ", 0, member.facts.size_bytes))
        except OSError as error:
            what = "does not discard" if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY) else f": {error.strerror}"
            raise ConditionImpossible(
                f"{member.path} {what}",
                effect="The device was not changed.",
                remedy='Set condition = "none" or "precondition" in [device].',
            ) from None
    return ConditionFacts("discard", round(time.monotonic() - began, 3), written_bytes=0)


def preconditioned(device: Device, seed: int) -> ConditionFacts:
    """Fill each disk twice, then write it at random until its rate is steady. Raises ConditionImpossible without fio.

    If it is not steady after 25 rounds, `steady` is False; the rounds are in the result.
    """
    if process.find("fio") is None:
        raise ConditionImpossible(
            "preconditioning requires fio, which is not installed",
            effect="Nothing was changed.",
            remedy="Install it: apt-get install --no-install-recommends fio",
        )
    began, written, rates, steady = time.monotonic(), 0, list[float](), True
    for member in device.each:
        hold.must_be_alone(member.fd)
        size = member.facts.size_bytes
        for _ in range(FILLS):
            _fio(member, ["--rw=write", "--bs=1m", f"--size={size}"], 60 + size / _FILL_RATE, seed)
        each_s = round_s(size)
        disk_rates: list[float] = []
        while len(disk_rates) < _MOST_ROUNDS and not settled(disk_rates):
            words = ["--rw=randwrite", "--bs=8k", f"--size={size}", "--time_based", f"--runtime={each_s:.0f}s"]
            disk_rates.append(_fio(member, words, 60 + 2 * each_s, seed + len(disk_rates)))
        written += FILLS * size + round(sum(disk_rates) * 8192 * each_s)
        rates, steady = rates + disk_rates, steady and settled(disk_rates)
    return ConditionFacts("precondition", round(time.monotonic() - began, 3), written, tuple(rates), steady)


def round_s(size_bytes: int) -> float:
    """Return the length of a round on a disk of this size."""
    return _SHORT_ROUND_S if size_bytes < _SMALL else _LONG_ROUND_S


def settled(rates: Sequence[float]) -> bool:
    """Whether the last five rounds are steady."""
    last = list(rates[-_ROUNDS:])
    if len(last) < _ROUNDS or not (mean := statistics.fmean(last)):
        return False
    line = statistics.linear_regression(range(_ROUNDS), last)
    return max(last) - min(last) <= _RANGE * mean and abs(line.slope) * (_ROUNDS - 1) <= _SLOPE * mean


def _fio(device: Device, words: list[str], timeout_s: float, seed: int) -> float:
    """Run one job on the device; return its IOPS."""
    argv = ["fio", "--output-format=json", "--name=condition", f"--filename={device.argument}", "--ioengine=libaio",
            "--direct=1", "--iodepth=32", "--refill_buffers", "--allow_file_create=0",
            f"--randseed={seed}", *words]  # fmt: skip
    return ceiling.parsed(process.run(argv, timeout_s=timeout_s, pass_fds=(device.fd,)).stdout)[0].iops


# --- wear ------------------------------------------------------------------------------------------


def wear(disk: str) -> WearFacts | None:
    """Return what a disk reports through nvme-cli or smartctl, or None if neither is installed or reports anything."""
    path = f"/dev/{disk}"
    if not disk or disk.startswith("loop"):
        return None
    for argv, read in (
        (["nvme", "smart-log", "--output-format=json", path], of_nvme),
        (["smartctl", "--json", "--attributes", "--info", path], of_smartctl),
    ):
        with contextlib.suppress(
            ProgramMissing, ProgramNotStarted, CommandFailed, DeadlinePassed, AnswerUnknown, ValueError
        ):
            # smartctl's status is a set of flags; what it could read stands in its JSON all the same.
            facts = read(json.loads(process.run(argv, timeout_s=20, ok=range(256), note=False).stdout))
            if facts is not None:
                return facts
    return None


@process.understood("nvme")
def of_nvme(document: Mapping[str, Any]) -> WearFacts | None:
    """Parse nvme-cli's smart-log: temperature in kelvin, use in per cent (it may exceed 100)."""
    units, used, kelvin = (document.get(key) for key in ("data_units_written", "percent_used", "temperature"))
    if units is None and used is None:
        return None
    return WearFacts(
        written_bytes=None if units is None else int(units) * _UNIT,
        used_share=None if used is None else float(used) / 100,
        temperature_c=None if kelvin is None else float(kelvin) - _KELVIN,
    )


@process.understood("smartctl")
def of_smartctl(document: Mapping[str, Any]) -> WearFacts | None:
    """Parse smartctl's JSON of NVMe and SATA disks; for SATA, most makers share only the name for bytes written."""
    log = document.get("nvme_smart_health_information_log") or {}
    units, used = log.get("data_units_written"), log.get("percentage_used")
    written = None if units is None else int(units) * _UNIT
    for row in (document.get("ata_smart_attributes") or {}).get("table", ()):
        if row.get("name") == "Total_LBAs_Written":
            written = int(row["raw"]["value"]) * int(document.get("logical_block_size", 512))
    celsius = (document.get("temperature") or {}).get("current")
    if written is None and used is None and celsius is None:
        return None
    return WearFacts(written, None if used is None else float(used) / 100, None if celsius is None else float(celsius))


def endurance_share(found: WearFacts | None, written_bytes: int) -> float | None:
    """Return the share of the disk's life that writing so many bytes uses, derived from its use so far.

    None if the disk does not report it, or has been used too little.
    """
    if found is None or not found.used_share or not found.written_bytes:
        return None
    return written_bytes / (found.written_bytes / found.used_share)


def probe(target: Device | Path) -> dict[str, float]:
    """Return cpu_ms (fixed work), write_mb_per_s (32 MiB, 1 MiB at a time) and fdatasync_ms (median of 8 with 4 KiB).

    `target`: a locked device, or a directory in which a file is written and removed. Disk values are omitted if direct
    I/O is refused or there is no space; nothing is raised for that.
    """
    rates = {"cpu_ms": _cpu_ms()}
    try:
        rates |= _of_device(target) if isinstance(target, Device) else _of_directory(target)
    except OSError:
        return rates  # what could not be measured is not there
    return rates


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
    path = folder / PROBE
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
    for offset in range(0, _WRITE_BYTES, len(block)):
        os.pwrite(fd, block, begin + offset)


def _write_through(fd: int, block: memoryview, begin: int) -> None:
    os.pwrite(fd, block, begin)
    os.fdatasync(fd)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
