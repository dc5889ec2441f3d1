"""What fio measures on the bare device: flushed writes like commits, many random I/Os like
checkpoints and scans.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dbbench import errors, process
from dbbench.machine.limits import throttle
from dbbench.model import CeilingFacts, CeilingRow, DeviceLimit, Json, LimitFacts
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device

# requests in flight: the whole queue of a SATA disk, and enough for most of the rate of an NVMe
# disk
_DEEP: Final = 32
# bytes that are accessed: more than the cache of a controller, and fast on a large disk
_SPAN: Final = 4 * 2**30
_SKIP: Final = 2**20  # the first MiB stays erased, so that the data cannot look like a filesystem
_LONGEST_S: Final = 5.0
_SHORTEST_S: Final = 0.1
_SHARE: Final = 1 / 60  # share of the measured window for each row: 2 s for two minutes

ROWS: Final[dict[str, tuple[str, ...]]] = {
    "write_8k_fdatasync": ("--rw=randwrite", "--bs=8k", "--iodepth=1", "--fdatasync=1"),
    "write_16k_fdatasync": ("--rw=randwrite", "--bs=16k", "--iodepth=1", "--fdatasync=1"),
    "write_8k": ("--rw=randwrite", "--bs=8k", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "read_8k": ("--rw=randread", "--bs=8k", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "read_16k": ("--rw=randread", "--bs=16k", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "write_1m": ("--rw=write", "--bs=1m", f"--iodepth={_DEEP}", "--fdatasync=0"),
    "read_1m": ("--rw=read", "--bs=1m", f"--iodepth={_DEEP}", "--fdatasync=0"),
}
# rows that reach a limit
LIMITED: Final = {"iops": ("read_8k", "write_8k"), "mb_per_s": ("read_1m", "write_1m")}
LIMITED_S: Final = 1.0  # the kernel grants a limit's requests in slices of 0.1 s


def measure(
    device: Device,
    each_s: float,
    seed: int,
    rows: Sequence[str] = tuple(ROWS),
) -> CeilingFacts:
    """Measure the rows on a locked device without a filesystem, overwriting it beyond the first
    MiB. If fio is missing or fails, there are no rows and `note` gives the reason: the run is
    possible without them.
    """
    if process.find("fio") is None:
        return CeilingFacts(note="fio is not installed")
    size = min(device.facts.size_bytes - 2 * _SKIP, _SPAN)
    argv = command(device.argument, size, each_s, seed, rows)
    try:
        timeout_s = 60 + 3 * len(ROWS) * _LONGEST_S
        done = process.run(argv, timeout_s=timeout_s, pass_fds=(device.fd,))
        return CeilingFacts(parse_rows(done.stdout))
    except (errors.CommandFailed, errors.DeadlinePassed, ValueError) as error:
        return CeilingFacts(note=str(error).splitlines()[0])


def measure_limit(
    device: Device,
    limit: DeviceLimit,
    each_s: float,
    seed: int,
    journal: Journal,
    at: Path,
) -> LimitFacts:
    """Measure the device with a limit, as it is after a burst. Raises KernelLacks."""
    rows = limited_rows(limit)
    spent = replace(limit, burst_iops=None, burst_s=None)
    with throttle.limit_disks([device.number], spent, journal, at) as enforced:
        return LimitFacts(limit, enforced, measure(device, max(each_s, LIMITED_S), seed, rows).rows)


def limited_rows(limit: DeviceLimit) -> list[str]:
    """Return the rows that are measured with a limit."""
    limited: list[str] = []
    for name, rows in LIMITED.items():
        if getattr(limit, name) is not None:
            limited += rows
    return limited


def limit_facts(limit: DeviceLimit | None, ceiling: CeilingFacts) -> LimitFacts | None:
    """Return what was measured with a limit."""
    unmeasured = None if limit is None else LimitFacts(limit)
    return next((of for of in ceiling.limits if of.asked == limit), unmeasured)


def row_seconds(window_s: float) -> float:
    """Return how long each row is measured: a sixtieth of the window, 0.1 to 5 s."""
    return min(_LONGEST_S, max(_SHORTEST_S, window_s * _SHARE))


def command(
    target: str,
    size_bytes: int,
    each_s: float,
    seed: int,
    rows: Sequence[str] = tuple(ROWS),
) -> list[str]:
    """Return fio's argv for these rows in sequence, on an existing file or device."""
    common = [
        f"--filename={target}",
        f"--offset={_SKIP}",
        f"--size={size_bytes}",
        "--ioengine=libaio",
        "--direct=1",
        "--time_based",
        f"--runtime={round(1000 * each_s)}ms",
        f"--randseed={seed}",
        "--allow_file_create=0",
        "--refill_buffers",
    ]
    jobs = [
        word for name in rows for word in (f"--name={name}", "--stonewall", *common, *ROWS[name])
    ]
    return ["fio", "--output-format=json", *jobs]


def parse_jobs(printed: str) -> list[Json]:
    """Return the jobs in fio's JSON (`json`, `json+`, 3.x), each with the global options. Raises
    ValueError.
    """
    with contextlib.suppress(KeyError, TypeError, AttributeError, json.JSONDecodeError):
        # fio may print notes before the JSON
        document = json.loads(printed[max(0, printed.find("{")) :])
        common = document.get("global options", {})
        return [
            {**job, "job options": {**common, **job.get("job options", {})}}
            for job in document["jobs"]
        ]
    raise ValueError("the output of fio is not JSON")


def parse_rows(printed: str) -> tuple[CeilingRow, ...]:
    """Return the rows in fio's JSON. Raises ValueError if it is invalid, or if a job failed."""
    try:
        return tuple(_row(job) for job in parse_jobs(printed))
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the output of fio is not JSON") from None


def _row(job: Mapping[str, Any]) -> CeilingRow:
    if job["error"]:
        raise ValueError(f"fio's job {job['jobname']} failed with error {job['error']}")
    sides = (job["read"], job["write"])
    side = max(sides, key=lambda part: float(part["io_bytes"]))
    # A flush is part of the write that waits for it.
    flushes = job.get("sync", {}).get("lat_ns", {})
    flush_ns = float(flushes.get("mean") or 0.0)
    mean_ns = float(side["clat_ns"]["mean"]) + flush_ns
    return CeilingRow(
        name=str(job["jobname"]),
        iops=round(float(side["iops"]), 1),
        mb_per_s=round(float(side["bw_bytes"]) / 1e6, 2),
        mean_ms=round(mean_ns / 1e6, 4),
    )
