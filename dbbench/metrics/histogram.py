"""A mergeable latency histogram. Bucket b holds latencies from e^(b/100) to e^((b+1)/100)
microseconds, so that a percentile is within 0.5 % of the exact value. The sysbench wrapper uses
the same buckets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

PER_E: Final = 100  # buckets a factor of e; 1 % wide each


def bucket_of(latency_us: float) -> int:
    """Return the bucket of a latency; latencies below 1 µs are in bucket 0."""
    if latency_us > 1.0:
        return int(PER_E * math.log(latency_us))
    return 0


@dataclass
class Histogram:
    """Number of events per bucket."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, bucket: int, count: int = 1) -> None:
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def mean_ms(self) -> float | None:
        """Return the mean latency, which the width of the buckets changes by less than 0.5 %."""
        if not self.total:
            return None
        sums = (count * math.exp((bucket + 0.5) / PER_E) for bucket, count in self.counts.items())
        return math.fsum(sums) / self.total / 1000

    def percentile_ms(self, percent: float) -> float | None:
        """Return the latency in ms that `percent` of all events did not exceed (nearest rank); None
        without events.
        """
        rank = math.ceil(self.total * percent / 100)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank and seen:
                return math.exp((bucket + 0.5) / PER_E) / 1000
        return None


PERCENTILES: Final[dict[str, float]] = {
    "p50": 50.0,
    "p75": 75.0,
    "p90": 90.0,
    "p95": 95.0,
    "p99": 99.0,
    "p99.9": 99.9,
    "p99.99": 99.99,
}
# a percentile that fewer latencies exceed is little more than their maximum
LEAST_ABOVE: Final = 10


def merge(histograms: Iterable[Histogram | None]) -> Histogram:
    """All of them as one; empty if there is none."""
    whole = Counter[int]()
    for histogram in filter(None, histograms):
        whole.update(histogram.counts)
    return Histogram(whole)


def percentile_ms(histogram: Histogram, percent: float) -> float | None:
    """The percentile, or None if fewer than `LEAST_ABOVE` latencies lie above it."""
    above = histogram.total * (100.0 - percent) / 100.0
    if above >= LEAST_ABOVE * (1 - 1e-9):
        return histogram.percentile_ms(percent)
    return None
