"""A mergeable latency histogram with logarithmic buckets that are 1 % wide.

Bucket b holds latencies from e^(b/100) to e^((b+1)/100) microseconds, so that a percentile is within 0.5 % of the exact
value. The sysbench wrapper uses the same buckets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

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
