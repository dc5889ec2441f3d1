"""The bare device, before it has a filesystem: preconditioned, probed, and its ceiling measured.

A new or discarded SSD writes faster than a full one that has to clean up. `discard` gives every trial the same start;
`precondition` gives the state of a disk in its second year, once before each block of trials. Wear is read too.

A short probe of CPU and disk before each trial, recorded with it, detects changes of the machine between trials. Its
values are not a benchmark. On a device it writes in the middle, where no filesystem has its signature, always at the
same place; the device is locked, and mkfs follows.

The ceiling is fio on the bare device before the first filesystem is made, to compare with throughput. Each row is one
access pattern of databases: pages of 8 KiB (PostgreSQL) and 16 KiB (InnoDB), single writes with a flush each, like
commits, and many random reads and writes at a time, like checkpoints and scans."""

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

from dbbench import errors, packages, process
from dbbench.model import CeilingFacts, CeilingRow, ConditionFacts, WearFacts
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device

_BLKDISCARD: Final = 0x1277  # linux/fs.h
# Writes twice the capacity, so that no spare block is left unwritten (SNIA SSS PTS, workload independent).
FILLS: Final = 2
# Steady state by the same specification: five rounds whose rates are within 20 % of their mean, and whose fitted line
# is within 10 % of it; at most 25 rounds of one minute. Small devices in tests are filled in seconds: rounds of 1 s.
_ROUNDS, _MOST_ROUNDS, _RANGE, _SLOPE = 5, 25, 0.20, 0.10
_LONG_ROUND_S, _SHORT_ROUND_S = 60.0, 1.0
_SMALL: Final = 8 * 2**30
_FILL_RATE: Final = 20 * 10**6  # bytes/s; a slower disk is considered stuck
_UNIT: Final = 512_000  # an NVMe "data unit": a thousand blocks of 512 bytes (NVM Express base specification, log 02h)
_KELVIN: Final = 273
_MIB: Final = 2**20
_WRITE_BYTES: Final = 32 * _MIB
_FLUSHES: Final = 8
_CPU_BYTES: Final = 4 * _MIB  # about 3 to 15 ms of SHA-256 on one core
_CPU_TRIES: Final = 3  # the shortest of these counts: what the core can do without interruptions
PROBE: Final = ".dbbench-canary"


def discarded(device: Device) -> ConditionFacts:
    """Discard every block of each disk. Raises KernelLacks if a disk does not support it."""
    began = time.monotonic()
    for member in device.each:
        hold.must_be_alone(member.fd)
        try:
            fcntl.ioctl(hold.fd_of(member.fd), _BLKDISCARD, struct.pack("QQ", 0, member.facts.size_bytes))
        except OSError as error:
            what = (
                "does not support discard" if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY) else f": {error.strerror}"
            )
            raise errors.KernelLacks(
                f"{member.path} {what}",
                effect="The device was not changed.",
                remedy='Set condition = "none" or "precondition" in [device].',
            ) from None
    return ConditionFacts("discard", round(time.monotonic() - began, 3), written_bytes=0)


def preconditioned(device: Device, seed: int) -> ConditionFacts:
    """Fill each disk twice, then write it at random until its rate is steady. Raises ProgramMissing without fio.

    If it is not steady after 25 rounds, `steady` is False; the rounds are in the result.
    """
    if process.find("fio") is None:
        raise errors.ProgramMissing(
            "preconditioning requires fio, which is not installed",
            effect="Nothing was changed.",
            remedy=f"Install it: {packages.install(['fio'], '--no-install-recommends')}",
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
    return parsed_ceiling(process.run(argv, timeout_s=timeout_s, pass_fds=(device.fd,)).stdout)[0].iops


# --- Wear ------------------------------------------------------------------------------------------


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
            errors.ProgramMissing,
            errors.ProgramNotStarted,
            errors.CommandFailed,
            errors.DeadlinePassed,
            errors.AnswerUnknown,
            ValueError,
        ):
            # The status of smartctl is a set of flags; its JSON contains what it could read anyway.
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
    """Return cpu_ms (fixed work), write_mb_per_s (32 MiB, 1 MiB at a time) and fdatasync_ms (median of 8 with 16 KiB).

    `target`: a locked device, or a directory in which a file is written and removed. Disk values are omitted if direct
    I/O is refused or there is no space; nothing is raised for that.
    """
    rates = {"cpu_ms": _cpu_ms()}
    try:
        rates |= _of_device(target) if isinstance(target, Device) else _of_directory(target)
    except OSError:
        return rates  # rates that could not be measured are missing
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
    with mmap.mmap(-1, _MIB) as page:  # direct I/O needs aligned memory
        page.write(os.urandom(_MIB))  # random, so that no layer below can skip zeros
        whole = memoryview(page)
        small = whole[:16384]  # a multiple of every sector size, which direct I/O requires
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


_DEEP: Final = 32  # requests in flight: the whole queue of a SATA disk, and enough for most of the rate of an NVMe disk
_SPAN: Final = 4 * 2**30  # bytes that are accessed: more than the cache of a controller, and fast on a large disk
_SKIP: Final = 2**20  # the first MiB stays erased, so that the data cannot look like a filesystem
_LONGEST_S: Final = 5.0
_SHORTEST_S: Final = 0.1
_SHARE: Final = 1 / 60  # share of the measured window for each row: 2 s for two minutes

CEILING_ROWS: Final[dict[str, tuple[str, ...]]] = {
    "write_8k_fdatasync": ("--rw=randwrite", "--bs=8k", "--iodepth=1", "--fdatasync=1"),
    "write_16k_fdatasync": ("--rw=randwrite", "--bs=16k", "--iodepth=1", "--fdatasync=1"),
    "write_8k": ("--rw=randwrite", "--bs=8k", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "read_8k": ("--rw=randread", "--bs=8k", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "read_16k": ("--rw=randread", "--bs=16k", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "write_1m": ("--rw=write", "--bs=1m", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "read_1m": ("--rw=read", "--bs=1m", f"--iodepth={_DEEP}", "--fdatasync=0"),
}


def measured_ceiling(device: Device, window_s: float, seed: int) -> CeilingFacts:
    """Measure the rows on a locked device without a filesystem; its content beyond the first MiB is overwritten.

    If fio is missing or fails, there are no rows and `note` gives the reason: the run is possible without them.
    """
    if process.find("fio") is None:
        return CeilingFacts(note="fio is not installed")
    size = min(device.facts.size_bytes - 2 * _SKIP, _SPAN)
    argv = ceiling_command(device.argument, size, ceiling_seconds(window_s), seed)
    try:
        done = process.run(argv, timeout_s=60 + 3 * len(CEILING_ROWS) * _LONGEST_S, pass_fds=(device.fd,))
        return CeilingFacts(parsed_ceiling(done.stdout))
    except (errors.CommandFailed, errors.DeadlinePassed, ValueError) as error:
        return CeilingFacts(note=str(error).splitlines()[0])


def ceiling_seconds(window_s: float) -> float:
    """Return how long each row is measured: a sixtieth of the window, 0.1 to 5 s."""
    return min(_LONGEST_S, max(_SHORTEST_S, window_s * _SHARE))


def ceiling_command(
    target: str, size_bytes: int, each_s: float, seed: int, rows: Sequence[str] = tuple(CEILING_ROWS)
) -> list[str]:
    """Return fio's argv for these rows in sequence, on an existing file or device."""
    common = [f"--filename={target}", f"--offset={_SKIP}", f"--size={size_bytes}", "--ioengine=libaio", "--direct=1",
              "--time_based", f"--runtime={round(1000 * each_s)}ms", f"--randseed={seed}", "--allow_file_create=0",
              "--refill_buffers"]  # fmt: skip
    jobs = [word for name in rows for word in (f"--name={name}", "--stonewall", *common, *CEILING_ROWS[name])]
    return ["fio", "--output-format=json", *jobs]


def ceiling_jobs(printed: str) -> list[dict[str, Any]]:
    """Return the jobs in fio's JSON (formats `json` and `json+`, 3.x), each with the global options among its own.

    Raises ValueError if it is invalid.
    """
    with contextlib.suppress(KeyError, TypeError, AttributeError, json.JSONDecodeError):
        document = json.loads(printed[max(0, printed.find("{")) :])  # fio may print notes before the JSON
        common = document.get("global options", {})
        return [{**job, "job options": {**common, **job.get("job options", {})}} for job in document["jobs"]]
    raise ValueError("the output of fio is not JSON")


def parsed_ceiling(printed: str) -> tuple[CeilingRow, ...]:
    """Return the rows in fio's JSON. Raises ValueError if it is invalid, or if a job failed."""
    try:
        return tuple(_row(job) for job in ceiling_jobs(printed))
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the output of fio is not JSON") from None


def _row(job: Mapping[str, Any]) -> CeilingRow:
    if job["error"]:
        raise ValueError(f"fio's job {job['jobname']} failed with error {job['error']}")
    side = max((job["read"], job["write"]), key=lambda part: float(part["io_bytes"]))
    sync = job.get("sync", {}).get("lat_ns", {}).get("mean") or 0.0
    return CeilingRow(
        name=str(job["jobname"]),
        iops=round(float(side["iops"]), 1),
        mb_per_s=round(float(side["bw_bytes"]) / 1e6, 2),
        mean_ms=round((float(side["clat_ns"]["mean"]) + float(sync)) / 1e6, 4),
    )
