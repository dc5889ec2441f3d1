"""Percentiles of latencies, from the histograms of trials: for the page and for `dbbench show`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dbbench.metrics.histogram import Histogram

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
