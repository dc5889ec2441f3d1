"""What fio prints, and its logs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dbbench import process
from dbbench.drivers.protocol import Live
from dbbench.errors import DriverFailed
from dbbench.metrics.histogram import Histogram, bucket_of
from dbbench.metrics.series import Column
from dbbench.storage.devices import ceiling

INTERVAL_S: Final = 0.5  # seconds per log entry; short, because fio omits an incomplete interval at its end
_EARLY: Final = 0.05  # of an interval: by how much two samples may be closer to each other
READ: Final = "0"  # directions in a log; trims are "2"
WRITE: Final = "1"
_SIDES: Final = ("read", "write")
_IOPS: Final = re.compile(r"\[(?:[rwt]=\d+(?:\.\d+)?[kM]?,?)+ IOPS\]")
_PRINTED: Final = re.compile(r'"timestamp_ms"\s*:\s*(\d+)')
_ONE: Final = re.compile(r"=(\d+(?:\.\d+)?)([kM]?)")
_CALLS: Final = ("sync", "psync", "vsync", "pvsync", "pvsync2")
_QUEUED: Final = ("libaio", "io_uring")
_TIMES: Final = {"": 1.0, "k": 1e3, "M": 1e6}


@dataclass(frozen=True)
class FioSummary:
    """The sum over all jobs, of the measured time only."""

    seconds: float  # duration of the longest job
    ios: int
    read_bytes: int
    write_bytes: int
    histogram: Histogram  # completion latencies of reads and writes
    longest_ms: float | None
    errors: int
    counted: bool = False  # the kernel attributes the jobs' bytes to their processes
    printed_utc: float | None = None  # when fio wrote the summary, by the system clock

    @property
    def running_utc(self) -> tuple[float, float] | None:
        """From when to when the jobs ran and fio wrote their logs; it omits an incomplete interval at their end."""
        if self.printed_utc is None:
            return None
        return self.printed_utc - self.seconds, self.printed_utc - 2 * INTERVAL_S


@process.understood("fio")
def parse(text: str) -> FioSummary:
    """Parse the JSON+ summary. Raises DriverFailed if there is none."""
    try:
        jobs = ceiling.parse_jobs(text)
    except ValueError as error:
        raise DriverFailed(f"fio's summary cannot be read: {error}") from None
    sides = [job[side] for job in jobs for side in _SIDES if job[side]["total_ios"]]
    if not sides:
        raise DriverFailed("the summary of fio has neither reads nor writes")
    histogram, printed = Histogram(), _PRINTED.search(text)
    for side in sides:
        for nanoseconds, count in side["clat_ns"].get("bins", {}).items():
            histogram.add(bucket_of(int(nanoseconds) / 1000), count)
    return FioSummary(
        seconds=max(side["runtime"] for side in sides) / 1000,
        ios=sum(side["total_ios"] for side in sides),
        read_bytes=sum(job["read"]["io_bytes"] for job in jobs),
        write_bytes=sum(job["write"]["io_bytes"] for job in jobs),
        histogram=histogram,
        longest_ms=max(side["clat_ns"]["max"] for side in sides) / 1e6,
        errors=sum(1 for job in jobs if job.get("error")),
        # I/O that uses system calls of its processes or goes to the disk directly (proc_pid_io(5)).
        counted=all(
            job.get("ioengine", "psync") in _CALLS
            or (job.get("ioengine") in _QUEUED and str(job.get("direct", 0)) == "1")
            for job in (job["job options"] for job in jobs)
        ),
        printed_utc=int(printed[1]) / 1000 if printed else None,
    )


@process.understood("fio")
def by_second(
    logs: Iterable[str],
    begin_utc: float,
    seconds: int,
    side: str,
    running_utc: tuple[float, float] | None = None,
) -> Column:
    """Return the rate of one direction per second from `begin_utc`: each job's mean, summed over the jobs. `logs`: one
    text per job, with lines "ms since 1970 at the interval's end, value, direction, ..." (fio's log_unix_epoch). There
    is no line for an interval without an I/O: such time is 0 between the first and the last line of a job, and within
    `running_utc`. A second is a gap if less than half of it is known."""
    column: Column = [None] * seconds
    for log in logs:
        entries = list(_entries(log, begin_utc))
        if not any(direction == side for *_, direction in entries):
            continue
        first, last = entries[0][0], entries[-1][1]
        if running_utc:
            first, last = min(first, running_utc[0] - begin_utc), max(last, running_utc[1] - begin_utc)
        amounts = [0.0] * seconds
        for begin, end, rate, direction in entries:
            if direction == side:
                for second, share in _shares(begin, end, seconds):
                    amounts[second] += rate * share
        for second, share in _shares(first, last, seconds):
            if share >= 0.5:
                column[second] = (column[second] or 0.0) + amounts[second] / share
    return column


def _entries(log: str, begin_utc: float) -> Iterator[tuple[float, float, float, str]]:
    """Yield begin and end in seconds since `begin_utc`, rate and direction of each line of a job's log. A value is the
    mean since fio's last sample, at the interval's pace or late; whole intervals before it had no I/O. A delay of more
    than an interval looks the same: then all of fio was stopped, with little or no I/O."""
    previous, last = -math.inf, -math.inf
    for line in log.splitlines():
        ended_ms, value, direction, *_ = (field.strip() for field in line.split(","))
        end = int(ended_ms) / 1000 - begin_utc
        if end - last > INTERVAL_S / 2:  # otherwise the other direction at the same time
            previous, last = last, end
        length = INTERVAL_S
        if previous > -math.inf:
            since = end - previous
            length = since - INTERVAL_S * max(0, math.floor(since / INTERVAL_S + _EARLY) - 1)
        yield end - length, end, float(value), direction


def _shares(begin: float, end: float, seconds: int) -> Iterator[tuple[int, float]]:
    """Yield each second of the series that is between the two times, and how much of it is."""
    for second in range(max(0, math.floor(begin)), min(seconds, math.ceil(end))):
        yield second, min(end, second + 1) - max(begin, second)


def live(line: str) -> Live | None:
    """Parse the progress in a printed line, "[r=13.2k,w=13.2k IOPS]", as I/Os per second."""
    rates = _IOPS.findall(line)
    if not rates:
        return None
    return Live(0, sum(float(number) * _TIMES[unit] for number, unit in _ONE.findall(rates[-1])), None)
