"""The counts that `workloads/dbbench_events.lua` writes: events by second and latency, one file a thread."""

from __future__ import annotations

import gzip
import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from dbbench.drivers.counts import Counts, Ints
from dbbench.drivers.sysbench_output import printed_ms
from dbbench.errors import DriverFailed
from dbbench.histogram import bucket_of

_ERRORS, _LONGEST, _KIND = -1, -2, -10  # in the place of a bucket; below _KIND: events of a kind, 1 at -11
_COLUMNS: Final = 3
QUEUE: Final = "queue"


def event_files(folder: Path) -> list[Path]:
    """One file a thread, in the order of the threads."""
    return sorted(folder.glob("events.*"), key=lambda path: int(path.suffix[1:]))


def parse(paths: Sequence[Path], seconds: int) -> Counts:
    """All threads' counts. DriverFailed for a file that is cut off or none of ours."""
    counts = Counts(seconds)
    for path in paths:
        try:
            if rows := [_row(line) for line in path.read_bytes().splitlines() if line]:
                _add(np.array(rows, dtype=np.int64), counts)
        except (ValueError, OverflowError, IndexError) as error:
            raise DriverFailed(f"{path.name} is not what the event counter writes: {error}") from None
    return counts


def _row(line: bytes) -> tuple[int, ...]:
    """The numbers of a line. Not by numpy's own reader, which damaged files have brought down with all of Python."""
    words = line.split()
    if len(words) != _COLUMNS:
        raise ValueError(f"{len(words)} columns instead of {_COLUMNS}")
    return tuple(int(word) for word in words)


def _add(rows: Ints, counts: Counts) -> None:
    second, what, value = rows.T
    inside = (second >= 0) & (second < counts.seconds)
    events, errors, longest = what >= 0, what == _ERRORS, (what == _LONGEST) & inside
    np.add.at(counts.latencies, (second[events & inside], what[events & inside]), value[events & inside])
    np.add.at(counts.transactions, second[events & inside], value[events & inside])
    np.add.at(counts.errors, second[errors & inside], value[errors & inside])
    np.maximum.at(counts.longest_us, second[longest], value[longest])
    for kind in np.unique(what[what < _KIND]):
        of_kind = counts.kinds.setdefault(int(_KIND - kind), np.zeros(counts.seconds, np.int64))
        np.add.at(of_kind, second[(what == kind) & inside], value[(what == kind) & inside])
    counts.outside += int(value[events & ~inside].sum())
    counts.errors_outside += int(value[errors & ~inside].sum())


def put_queued_latencies(counts: Counts, written: str, whole_run: Counter[str], lived_s: float) -> None:
    """Replace the latencies in `counts` by those of sysbench's own histogram, which has the wait in the queue.

    `written` has "moment bucket count" lines, one group an interval of a second; an interval belongs to the second
    that holds its middle. `whole_run` is the histogram that sysbench printed at its end: what it has beyond the
    intervals came after the last of them. DriverFailed where it has less.
    """
    intervals: dict[float, Counter[str]] = defaultdict(Counter)
    for line in written.splitlines():
        moment, bucket, events = line.split()
        intervals[float(moment)][printed_ms(int(bucket))] += int(events)
    rest = Counter(whole_run)
    for histogram in intervals.values():
        rest.subtract(histogram)
    if min(rest.values(), default=0) < 0:
        raise DriverFailed(
            f"the intervals of sysbench hold {sum(h.total() for h in intervals.values())} events, its histogram of the "
            f"whole run {whole_run.total()}: they cannot be trusted",
            remedy="Latencies under a rate are read as sysbench 1.0 keeps them; run without `rate` on another version.",
        )
    counts.latencies[:], counts.longest_us[:] = 0, 0
    for end_s, histogram in intervals.items():
        _put(histogram, math.floor(end_s - 0.5), counts)
    _put(rest, math.floor((max(intervals, default=0.0) + lived_s) / 2), counts)


def _put(histogram: Counter[str], second: int, counts: Counts) -> None:
    if not 0 <= second < counts.seconds:
        return
    for ms, events in histogram.items():
        latency_us = float(ms) * 1000
        counts.latencies[second, bucket_of(latency_us)] += events
        if events:
            counts.longest_us[second] = max(int(counts.longest_us[second]), round(latency_us))


def keep(paths: Sequence[Path], target: Path) -> None:
    """Put the files one after the other into `target`, compressed: their lines add up in any order."""
    with gzip.GzipFile(target, "wb", 1) as packed:
        for path in paths:
            with path.open("rb") as lines:
                shutil.copyfileobj(lines, packed)
            path.unlink()
