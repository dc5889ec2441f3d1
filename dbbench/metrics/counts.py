"""Transactions and latencies per second, as arrays: what a load generator's logs are counted into."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbbench.metrics.histogram import PER_E, Histogram
from dbbench.metrics.outcome import Measured
from dbbench.metrics.series import Column, Series

BUCKETS: Final = 2400  # the last begins at e^24 us: no transaction takes seven hours

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def buckets_of(latency_us: Floats) -> Ints:
    """Return `histogram.bucket_of` for many latencies; the last bucket also holds all longer ones."""
    buckets = (PER_E * np.log(np.maximum(latency_us, 1.0))).astype(np.int64)
    return np.minimum(buckets, BUCKETS - 1)


def _histogram(latencies: Ints) -> Histogram:
    """Return the histogram of all rows (seconds) together."""
    merged = latencies.sum(axis=0)
    counts = {}
    for bucket in np.flatnonzero(merged):
        counts[int(bucket)] = int(merged[bucket])
    return Histogram(counts)


class Counts:
    """Transactions of each second from the start of the load, by the time at which they ended;
    `outside`: those that ended in none of them. `transactions` is separate from
    `latencies[second, bucket]`: sysbench with a rate reports them from different sources.
    """

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.transactions: Ints = np.zeros(seconds, np.int64)
        self.errors: Ints = np.zeros(seconds, np.int64)
        self.latencies: Ints = np.zeros((seconds, BUCKETS), np.int64)
        self.longest_us: Ints = np.zeros(seconds, np.int64)
        self.kinds: dict[int, Ints] = {}  # transactions by kind, where a script has several
        self.kind_latencies: dict[int, Ints] = {}  # `latencies` of each kind
        self.outside = 0  # transactions
        self.errors_outside = 0

    @property
    def all_transactions(self) -> int:
        """Return the number of all finished transactions, including those before second 0 and after
        the last second.
        """
        return int(self.transactions.sum()) + self.outside

    @property
    def all_errors(self) -> int:
        return int(self.errors.sum()) + self.errors_outside

    def series(self, lived_s: float) -> Series:
        """Return tps, p50_ms, p95_ms, p99_ms, errors of a tool that ran for `lived_s` seconds; a
        second after that is a gap, one without a transaction is a zero without latencies.
        """
        lived = min(self.seconds, math.ceil(lived_s))
        tps: Column = [float(n) for n in self.transactions[:lived]]
        series = Series(self.seconds, {"tps": tps})
        for percent in (50, 95, 99):
            series.set(f"p{percent}_ms", self._percentiles(percent)[:lived])
        series.set("errors", [float(n) for n in self.errors[:lived]])
        return series

    def measure(self, first: int, last: int) -> Measured:
        """Merge the seconds from `first` up to, but not including, `last`."""
        seconds = slice(first, last)
        longest_us = int(self.longest_us[seconds].max(initial=0))

        # The same for each kind of transaction, where a script has several.
        kinds = {}
        for kind, transactions in sorted(self.kinds.items()):
            kinds[kind] = int(transactions[seconds].sum())
        kind_histograms = {}
        for kind, latencies in sorted(self.kind_latencies.items()):
            kind_histograms[kind] = _histogram(latencies[seconds])
        return Measured(
            transactions=int(self.transactions[seconds].sum()),
            errors=int(self.errors[seconds].sum()),
            histogram=_histogram(self.latencies[seconds]),
            longest_ms=longest_us / 1000 if longest_us > 0 else None,
            kinds=kinds,
            kind_histograms=kind_histograms,
        )

    def _percentiles(self, percent: int) -> Column:
        # By second, the first bucket up to which the percentage of its transactions is reached.
        up_to_bucket = self.latencies.cumsum(axis=1)
        total = up_to_bucket[:, -1]
        rank = np.ceil(total * percent / 100)
        bucket = (up_to_bucket >= rank[:, None]).argmax(axis=1)

        # The middle of a bucket; a second without transactions has no latency.
        middle_ms = np.exp((bucket + 0.5) / PER_E) / 1000
        column: Column = []
        for ms, transactions in zip(middle_ms, total, strict=True):
            column.append(float(ms) if transactions else None)
        return column
