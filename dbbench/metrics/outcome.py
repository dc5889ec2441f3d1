"""The result of a load in the form that every load generator returns: counts per second and latency.

Latencies are in a mergeable histogram with logarithmic buckets that are 1 % wide.

Bucket b holds latencies from e^(b/100) to e^((b+1)/100) microseconds, so that a percentile is within 0.5 % of the exact
value. The sysbench wrapper uses the same buckets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from dbbench.metrics.series import Column, Series
from dbbench.model import TrialWarning


@dataclass(frozen=True)
class Claim:
    """Work reported by the load generator, in a unit that the server or the kernel counts too."""

    count: Literal["transactions", "statements", "rows", "table_bytes", "read_bytes", "write_bytes"]
    total: float  # from the start of the load generator to its end, warm-up included
    custom: bool = False  # a script that may do nothing, or more, in some of its transactions
    counted: bool = True  # False: done in a way that nothing else counts
    changes: bool = False  # every transaction changes a row, and so writes log


@dataclass(frozen=True)
class Outcome:
    """The result of a load.

    `series` covers warm-up and window (columns tps, p50_ms, p95_ms, p99_ms, errors; one value per second from
    `begin_utc`; a second without a finished transaction has tps 0 and no latencies). `histogram` and `transactions`
    cover only the measured window. `window_s` is the length by which transactions are divided. `figures` are further
    keys of the trial's summary (duration_s, mb_per_s, ...).
    """

    begin_utc: float
    window_s: float
    transactions: int
    errors: int
    series: Series
    histogram: Histogram | None
    figures: dict[str, float | None] = field(default_factory=dict)
    warnings: tuple[TrialWarning, ...] = ()
    between: Callable[[int, int], Measured] | None = None  # a stretch of seconds, where every transaction was counted
    claims: tuple[Claim, ...] = ()  # to compare with what the server or the kernel counted


BUCKETS: Final = 2400  # the last begins at e^24 us: no transaction takes seven hours
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def buckets_of(latency_us: Floats) -> Ints:
    """Return `histogram.bucket_of` for many latencies; the last bucket also holds all longer ones."""
    buckets = (PER_E * np.log(np.maximum(latency_us, 1.0))).astype(np.int64)
    return np.minimum(buckets, BUCKETS - 1)


@dataclass(frozen=True)
class Measured:
    """A range of whole seconds, merged. `longest_ms` is None if nothing finished."""

    transactions: int
    errors: int
    histogram: Histogram
    longest_ms: float | None
    kinds: dict[int, int]  # transactions by the kind that the script gave them


class Counts:
    """Transactions of each second from the start of the load, by the time at which they ended.

    `latencies[second, bucket]` counts them by latency; `transactions[second]` is separate because sysbench with a rate
    reports the two from different sources. Transactions that ended outside these seconds are only in `outside`.
    """

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.transactions: Ints = np.zeros(seconds, np.int64)
        self.errors: Ints = np.zeros(seconds, np.int64)
        self.latencies: Ints = np.zeros((seconds, BUCKETS), np.int64)
        self.longest_us: Ints = np.zeros(seconds, np.int64)
        self.kinds: dict[int, Ints] = {}  # transactions by kind, where a script has several
        self.outside = 0  # transactions
        self.errors_outside = 0

    @property
    def all_transactions(self) -> int:
        """Return the number of all finished transactions, including those before second 0 and after the last second."""
        return int(self.transactions.sum()) + self.outside

    @property
    def all_errors(self) -> int:
        return int(self.errors.sum()) + self.errors_outside

    def series(self, lived_s: float) -> Series:
        """Return columns tps, p50_ms, p95_ms, p99_ms, errors of a tool that ran for `lived_s` seconds.

        A second without a finished transaction is a zero without latencies; a second after the tool ended is a gap.
        """
        lived = min(self.seconds, math.ceil(lived_s))
        series = Series(self.seconds, {"tps": [float(n) for n in self.transactions[:lived]]})
        for percent in (50, 95, 99):
            series.set(f"p{percent}_ms", self._percentiles(percent)[:lived])
        series.set("errors", [float(n) for n in self.errors[:lived]])
        return series

    def measured(self, first: int, last: int) -> Measured:
        """Merge the seconds from `first` up to, but not including, `last`."""
        merged = self.latencies[first:last].sum(axis=0)
        longest_us = int(self.longest_us[first:last].max(initial=0))
        return Measured(
            transactions=int(self.transactions[first:last].sum()),
            errors=int(self.errors[first:last].sum()),
            histogram=Histogram({int(bucket): int(merged[bucket]) for bucket in np.flatnonzero(merged)}),
            longest_ms=longest_us / 1000 if longest_us > 0 else None,
            kinds={kind: int(each[first:last].sum()) for kind, each in sorted(self.kinds.items())},
        )

    def _percentiles(self, percent: int) -> Column:
        """`Histogram.percentile_ms` of every second."""
        seen = self.latencies.cumsum(axis=1)
        total = seen[:, -1]
        rank = np.ceil(total * percent / 100)
        bucket = (seen >= rank[:, None]).argmax(axis=1)
        value = np.exp((bucket + 0.5) / PER_E) / 1000
        return [float(ms) if events else None for ms, events in zip(value, total, strict=True)]


PER_E: Final = 100  # buckets a factor of e; 1 % wide each


def bucket_of(latency_us: float) -> int:
    """Return the bucket of a latency; latencies below 1 µs are in bucket 0."""
    return int(PER_E * math.log(latency_us)) if latency_us > 1.0 else 0


@dataclass
class Histogram:
    """Number of events per bucket."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, bucket: int, count: int = 1) -> None:
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def merge(self, other: Mapping[int, int]) -> None:
        """Add the counts of another histogram."""
        for bucket, count in other.items():
            self.add(bucket, count)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def percentile_ms(self, percent: float) -> float | None:
        """Return the latency in ms that `percent` of all events did not exceed (nearest rank), or None if it
        is empty."""
        rank = math.ceil(self.total * percent / 100)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank and seen:
                return math.exp((bucket + 0.5) / PER_E) / 1000
        return None


PERCENTILES: Final[dict[str, float]] = {
    "p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99,
}  # fmt: skip
LEAST_ABOVE: Final = 10  # a percentile that fewer latencies exceed is little more than their maximum


def merged(histograms: Iterable[Histogram | None]) -> Histogram:
    """All of them as one; empty if there is none."""
    whole = Histogram()
    for histogram in histograms:
        if histogram is not None:
            whole.merge(histogram.counts)
    return whole


def percentile_ms(histogram: Histogram, percent: float) -> float | None:
    """The percentile, or None if fewer than `LEAST_ABOVE` latencies lie above it."""
    above = histogram.total * (100.0 - percent) / 100.0
    return histogram.percentile_ms(percent) if above >= LEAST_ABOVE * (1 - 1e-9) else None
