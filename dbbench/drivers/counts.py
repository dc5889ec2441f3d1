"""What a load did, counted by second and by latency: the form in which all parsers hand over their numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbbench.histogram import PER_E, Histogram
from dbbench.series import Column, Series

BUCKETS: Final = 2400  # of histogram.py; the last begins at e^24 us: no transaction takes seven hours
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def buckets_of(latency_us: Floats) -> Ints:
    """`histogram.bucket_of` for many latencies, the last bucket taking all that is longer."""
    found = (PER_E * np.log(np.maximum(latency_us, 1.0))).astype(np.int64)
    return np.minimum(found, BUCKETS - 1)


@dataclass(frozen=True)
class Measured:
    """A stretch of whole seconds, merged. `longest_ms` is None where nothing was finished."""

    transactions: int
    errors: int
    histogram: Histogram
    longest_ms: float | None
    kinds: dict[int, int]  # transactions by the kind that the script gave them


class Counts:
    """Transactions of each second from the start of the load, by the time of their end.

    `latencies[second, bucket]` counts them by latency; `transactions[second]` is kept apart because under a rate
    sysbench gives the two from different sources. What ended outside these seconds is only in `outside`.
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
        """Everything that was finished, also before second 0 and after the last."""
        return int(self.transactions.sum()) + self.outside

    @property
    def all_errors(self) -> int:
        return int(self.errors.sum()) + self.errors_outside

    def series(self, lived_s: float) -> Series:
        """Columns tps, p50_ms, p95_ms, p99_ms, errors of a tool that lived for `lived_s` seconds.

        A second in which it lived and finished nothing is a zero without latencies; a second after its end is a gap.
        """
        lived = min(self.seconds, math.ceil(lived_s))
        series = Series(self.seconds, {"tps": [float(n) for n in self.transactions[:lived]]})
        for percent in (50, 95, 99):
            series.set(f"p{percent}_ms", self._percentiles(percent)[:lived])
        series.set("errors", [float(n) for n in self.errors[:lived]])
        return series

    def measured(self, first: int, last: int) -> Measured:
        """The seconds from `first` up to `last`, which is no longer part of it."""
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
