"""A mergeable histogram of latencies: log-spaced buckets of 1 % width.

Bucket b holds latencies of e^(b/100) .. e^((b+1)/100) microseconds, so a percentile read from it is within
0.5 % of the exact one. The sysbench wrapper counts in the same buckets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PER_E: Final = 100  # buckets a factor of e; 1 % wide each


def bucket_of(latency_us: float) -> int:
    """The bucket of a latency; everything below 1 µs is in bucket 0."""
    return int(PER_E * math.log(latency_us)) if latency_us > 1.0 else 0


@dataclass
class Histogram:
    """Counts by bucket."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, bucket: int, count: int = 1) -> None:
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def merge(self, other: Mapping[int, int]) -> None:
        """Add another histogram's counts to this one."""
        for bucket, count in other.items():
            self.add(bucket, count)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def percentile_ms(self, percent: float) -> float | None:
        """The latency in ms that `percent` of all events did not exceed (nearest rank); None if it is empty."""
        rank = math.ceil(self.total * percent / 100)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank and seen:
                return math.exp((bucket + 0.5) / PER_E) / 1000
        return None
