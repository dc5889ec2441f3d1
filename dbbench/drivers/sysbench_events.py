"""The files of `workloads/dbbench_events.lua`, one per thread of sysbench: events by second,
latency and kind.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from dbbench.drivers import tool
from dbbench.drivers.sysbench import printed_ms
from dbbench.errors import DriverFailed
from dbbench.metrics.counts import Counts, Ints
from dbbench.metrics.histogram import bucket_of

# The second column of a line is a latency bucket, or one of these values; -10 - kind counts the
# events of a kind, and
# -(10000 * kind + bucket) those of a kind in a bucket. See `workloads/dbbench_events.lua`.
_ERRORS = -1
_LONGEST = -2
_KIND = -10
_KIND_BUCKETS = 10_000
_MOST_KINDS = 9
_COLUMNS: Final = 3
QUEUE: Final = "queue"
# tolerated share of events in two intervals; 1 of 382 was on a busy machine
COUNTED_TWICE: Final = 0.005


def event_files(folder: Path) -> list[Path]:
    """Return one file per thread, in the order of the threads."""
    files = (path for path in folder.glob("events.*") if not path.is_symlink())
    return sorted(files, key=lambda path: int(path.suffix[1:]))


def parse(paths: Sequence[Path], seconds: int) -> Counts:
    """Return all threads' counts. Raises DriverFailed for a file that is truncated or not from the
    wrapper.
    """
    counts = Counts(seconds)
    for path in paths:
        with tool.open_left(path, tool.MOST_TEXT_BYTES) as file:
            content = file.read()
        try:
            if rows := [_row(line) for line in content.splitlines() if line]:
                _add(np.array(rows, dtype=np.int64), counts)
        except (ValueError, OverflowError, IndexError) as error:
            raise DriverFailed(f"{path.name} is not a file of the event counter: {error}") from None
    return counts


def _row(line: bytes) -> tuple[int, ...]:
    """Return the numbers of a line. numpy's own reader is not used, because damaged files have
    crashed it.
    """
    words = line.split()
    if len(words) != _COLUMNS:
        raise ValueError(f"{len(words)} columns instead of {_COLUMNS}")
    return tuple(int(word) for word in words)


def _add(rows: Ints, counts: Counts) -> None:
    second, what, value = rows.T
    inside = (second >= 0) & (second < counts.seconds)
    events = what >= 0
    errors = what == _ERRORS
    longest = (what == _LONGEST) & inside
    np.add.at(
        counts.latencies, (second[events & inside], what[events & inside]), value[events & inside]
    )
    np.add.at(counts.transactions, second[events & inside], value[events & inside])
    np.add.at(counts.errors, second[errors & inside], value[errors & inside])
    np.maximum.at(counts.longest_us, second[longest], value[longest])
    for kind in np.unique(what[(what < _KIND) & (what > -_KIND_BUCKETS)]):
        of_kind = counts.kinds.setdefault(int(_KIND - kind), np.zeros(counts.seconds, np.int64))
        np.add.at(of_kind, second[(what == kind) & inside], value[(what == kind) & inside])
    kinds, buckets = np.divmod(-what, _KIND_BUCKETS)
    for kind in np.unique(kinds[what <= -_KIND_BUCKETS]):
        if not 1 <= kind <= _MOST_KINDS:
            raise ValueError(f"unknown kind of event {kind}")
        these = (kinds == kind) & inside
        of_buckets = counts.kind_latencies.setdefault(int(kind), np.zeros_like(counts.latencies))
        np.add.at(of_buckets, (second[these], buckets[these]), value[these])
    counts.outside += int(value[events & ~inside].sum())
    counts.errors_outside += int(value[errors & ~inside].sum())


def put_queued_latencies(
    counts: Counts, written: str, whole_run: Counter[str], lived_s: float
) -> None:
    """Replace the latencies in `counts` by those of sysbench's own histogram, which includes the
    wait in the queue. `written` has "moment bucket count" lines, one group per interval of a
    second, which belongs to the second of its middle. `whole_run` is the histogram of the whole
    run: what it has beyond the intervals came after the last of them. sysbench reads it while
    threads add to it, so a few events may be in two intervals. Raises DriverFailed if
    `whole_run` lacks more than two events and more than COUNTED_TWICE of them.
    """
    intervals: dict[float, Counter[str]] = defaultdict(Counter)
    for line in written.splitlines():
        moment, bucket, events = line.split()
        intervals[float(moment)][printed_ms(int(bucket))] += int(events)
    rest = Counter(whole_run)
    for histogram in intervals.values():
        rest.subtract(histogram)
    if (-rest).total() > max(2, COUNTED_TWICE * whole_run.total()):
        raise DriverFailed(
            f"the intervals of sysbench hold {sum(h.total() for h in intervals.values())} events, "
            f"its histogram of the whole run {whole_run.total()}",
            remedy="dbbench reads latencies under a rate from sysbench 1.0 only. Remove `rate` or "
            "install it.",
        )
    counts.latencies[:], counts.longest_us[:] = 0, 0
    for end_s, histogram in intervals.items():
        _put(histogram, math.floor(end_s - 0.5), counts)
    _put(+rest, math.floor((max(intervals, default=0.0) + lived_s) / 2), counts)


def _put(histogram: Counter[str], second: int, counts: Counts) -> None:
    if not 0 <= second < counts.seconds:
        return
    for ms, events in histogram.items():
        latency_us = float(ms) * 1000
        counts.latencies[second, bucket_of(latency_us)] += events
        if events:
            counts.longest_us[second] = max(int(counts.longest_us[second]), round(latency_us))
