"""What fio writes: its summary as JSON+ with every latency bucket, its logs of rates, and its line of progress."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dbbench import process
from dbbench.drivers.port import Live
from dbbench.errors import DriverFailed
from dbbench.histogram import Histogram, bucket_of
from dbbench.series import Column

READ: Final = "0"  # the direction in a log; writes are 1, trims 2
WRITE: Final = "1"
_SIDES: Final = ("read", "write")
_IOPS: Final = re.compile(r"\[(?:[rwt]=\d+(?:\.\d+)?[kM]?,?)+ IOPS\]")
_ONE: Final = re.compile(r"=(\d+(?:\.\d+)?)([kM]?)")
_TIMES: Final = {"": 1.0, "k": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Summary:
    """All jobs together, over the measured time alone."""

    seconds: float  # of the longest job
    ios: int
    read_bytes: int
    write_bytes: int
    histogram: Histogram  # completion latencies of reads and writes
    longest_ms: float | None
    errors: int


@process.understood("fio")
def parse(text: str) -> Summary:
    """The JSON+ summary. fio prints notes before it; DriverFailed where there is none."""
    begin = text.find("{")
    try:
        jobs: list[dict[str, Any]] = json.loads(text[begin:])["jobs"] if begin >= 0 else []
    except (ValueError, KeyError) as error:
        raise DriverFailed(f"fio's summary cannot be read: {error}") from None
    sides = [job[side] for job in jobs for side in _SIDES if job[side]["total_ios"]]
    if not sides:
        raise DriverFailed("fio's summary has no reads and no writes")
    histogram = Histogram()
    for side in sides:
        for nanoseconds, count in side["clat_ns"].get("bins", {}).items():
            histogram.add(bucket_of(int(nanoseconds) / 1000), count)
    return Summary(
        seconds=max(side["runtime"] for side in sides) / 1000,
        ios=sum(side["total_ios"] for side in sides),
        read_bytes=sum(job["read"]["io_bytes"] for job in jobs),
        write_bytes=sum(job["write"]["io_bytes"] for job in jobs),
        histogram=histogram,
        longest_ms=max(side["clat_ns"]["max"] for side in sides) / 1e6,
        errors=sum(1 for job in jobs if job.get("error")),
    )


@process.understood("fio")
def by_second(logs: Iterable[str], begin_utc: float, seconds: int, interval_s: float, side: str) -> Column:
    """A rate of one direction, a value a second from `begin_utc`: the mean of a job's intervals, summed over jobs.

    `logs`: one text a job, of lines "ms since 1970 at the interval's end, value, direction, ..." (fio's
    log_unix_epoch). A second without an entry is a gap.
    """
    column: Column = [None] * seconds
    for log in logs:
        own: dict[int, list[float]] = defaultdict(list)
        for line in log.splitlines():
            ended_ms, value, direction, *_ = (field.strip() for field in line.split(","))
            if direction == side:
                own[math.floor(int(ended_ms) / 1000 - interval_s / 2 - begin_utc)].append(float(value))
        for second, values in own.items():
            if 0 <= second < seconds:
                column[second] = (column[second] or 0.0) + sum(values) / len(values)
    return column


def live(line: str) -> Live | None:
    """The progress of a printed line, "[r=13.2k,w=13.2k IOPS]", as I/Os a second."""
    found = _IOPS.findall(line)
    if not found:
        return None
    return Live(0, sum(float(number) * _TIMES[unit] for number, unit in _ONE.findall(found[-1])), None)
