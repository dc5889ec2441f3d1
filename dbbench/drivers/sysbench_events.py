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
# Histogram of sysbench.c (OPER_LOG_*): 1024 buckets; the middle of the first is 0.001 ms, that of
# the last 100 s.
_LEAST_MS: Final = 1e-3
_STEP: Final = math.log(1e8) / 1023


def event_files(folder: Path) -> list[Path]:
    """Return one file per thread, in the order of the threads."""
    files = [path for path in folder.glob("events.*") if not path.is_symlink()]
    files.sort(key=lambda path: int(path.suffix[1:]))
    return files


def parse(paths: Sequence[Path], seconds: int, late_s: int = 0) -> Counts:
    """Return all threads' counts, from second `late_s` of the files on. Raises DriverFailed for a
    file that is truncated or not from the wrapper.
    """
    counts = Counts(seconds)
    for path in paths:
        with tool.open_output(path, tool.MOST_TEXT_BYTES) as file:
            content = file.read()
        try:
            rows = [_row(line) for line in content.splitlines() if line]
            if rows:
                _add(np.array(rows, dtype=np.int64) - (late_s, 0, 0), counts)
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
    # Events and errors before the start or after the end count only in the totals.
    inside = (rows[:, 0] >= 0) & (rows[:, 0] < counts.seconds)
    outside = rows[~inside]
    what = outside[:, 1]
    counts.outside += int(outside[what >= 0, 2].sum())
    counts.errors_outside += int(outside[what == _ERRORS, 2].sum())

    # The rest by second: events by latency, errors, and the longest latency.
    second, what, value = rows[inside].T
    events = what >= 0
    errors = what == _ERRORS
    longest = what == _LONGEST
    place = (second[events], what[events])
    np.add.at(counts.latencies, place, value[events])
    np.add.at(counts.transactions, second[events], value[events])
    np.add.at(counts.errors, second[errors], value[errors])
    np.maximum.at(
        counts.longest_us,
        second[longest],
        value[longest],
    )

    # Events of each kind, by the second alone.
    for code in np.unique(what[(what < _KIND) & (what > -_KIND_BUCKETS)]):
        kind = int(_KIND - code)
        if kind not in counts.kinds:
            counts.kinds[kind] = np.zeros(counts.seconds, np.int64)
        chosen = what == code
        np.add.at(
            counts.kinds[kind],
            second[chosen],
            value[chosen],
        )

    # The same, by second and latency.
    kinds, buckets = np.divmod(-what, _KIND_BUCKETS)
    for kind in np.unique(kinds[what <= -_KIND_BUCKETS]).tolist():
        if not 1 <= kind <= _MOST_KINDS:
            raise ValueError(f"unknown kind of event {kind}")
        if kind not in counts.kind_latencies:
            counts.kind_latencies[kind] = np.zeros_like(counts.latencies)
        chosen = kinds == kind
        place = (second[chosen], buckets[chosen])
        np.add.at(
            counts.kind_latencies[kind],
            place,
            value[chosen],
        )


def put_queued_latencies(
    counts: Counts,
    written: str,
    whole_run: Counter[str],
    lived_s: float,
    late_s: int = 0,
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
        intervals[float(moment) - late_s][printed_ms(int(bucket))] += int(events)
    rest = Counter(whole_run)
    for histogram in intervals.values():
        rest.subtract(histogram)
    if (-rest).total() > max(2, COUNTED_TWICE * whole_run.total()):
        held = sum(histogram.total() for histogram in intervals.values())
        raise DriverFailed(
            f"the intervals of sysbench hold {held} events, "
            f"its histogram of the whole run {whole_run.total()}",
            remedy="dbbench reads latencies under a rate from sysbench 1.0 only. Remove `rate` or "
            "install it.",
        )
    counts.latencies[:] = 0
    counts.longest_us[:] = 0
    for end_s, histogram in intervals.items():
        _put(histogram, end_s - 0.5, counts)
    last_s = max(intervals, default=0.0)
    _put(+rest, (last_s + lived_s) / 2, counts)


def _put(
    histogram: Counter[str],
    moment_s: float,
    counts: Counts,
) -> None:
    second = math.floor(moment_s)
    if not 0 <= second < counts.seconds:
        return
    for ms, events in histogram.items():
        latency_us = float(ms) * 1000
        counts.latencies[second, bucket_of(latency_us)] += events
        if events:
            longest_us = int(counts.longest_us[second])
            counts.longest_us[second] = max(longest_us, round(latency_us))


def printed_ms(bucket: int) -> str:
    """Return how sysbench prints the latency of its bucket."""
    return f"{math.exp(bucket * _STEP + math.log(_LEAST_MS)):.3f}"
