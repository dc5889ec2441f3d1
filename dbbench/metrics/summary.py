"""The metrics of a trial, computed from the load, the meter and the samplers: numbers in, numbers
out.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dbbench.metrics.histogram import percentile_ms
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Column
from dbbench.model import (
    Figures,
    FilesystemFacts,
    IoFacts,
    OperationFacts,
    SpaceFacts,
    TypeLatency,
    Window,
)

# a shorter window has neither a checkpoint cycle nor the filesystem's commit intervals
SHORT_WINDOW_S: Final = 60.0
SCAN_OF_DATA: Final = "scan: data"  # steps of the operation `scan`
SCAN_OF_CLONE: Final = "scan: clone"
GIB: Final = 2**30
STALL: Final = 0.10  # a second below this share of the usual throughput is a stall


def is_short(window: Window | None) -> bool:
    """Return whether the window is that of a smoke test, whose scatter is not evidence."""
    return window is not None and window.kind == "fixed" and window.measure_s < SHORT_WINDOW_S


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return `part` ÷ `whole`; None if one of them was not measured, or if the whole is 0."""
    if part is not None and whole:
        return part / whole
    return None


def throughput(outcome: Outcome, drain_s: float | None) -> Figures:
    """Return tps over the window including stalls, and the sustained tps that includes the drain
    time.
    """
    if outcome.histogram is None:
        return {}
    sustained = None
    if drain_s is not None:
        sustained = outcome.transactions / (outcome.window_s + drain_s)
    return {
        "tps": outcome.transactions / outcome.window_s,
        "sustained_tps": sustained,
        "transactions": outcome.transactions,
        "errors": outcome.errors,
    }


def latencies(outcome: Outcome) -> Figures:
    """Return percentiles of the merged histogram of the window; never means of per-second
    percentiles.
    """
    if outcome.histogram is None:
        return {}
    percentiles = {
        "p50_ms": 50.0,
        "p95_ms": 95.0,
        "p99_ms": 99.0,
        "p999_ms": 99.9,
        "max_ms": 100.0,
    }
    return {name: outcome.histogram.percentile_ms(percent) for name, percent in percentiles.items()}


def types(outcome: Outcome) -> tuple[TypeLatency, ...]:
    """Return the percentiles of each type of transaction; the maximum is that of its bucket."""
    rows = []
    for name, latencies in outcome.types.items():
        rows.append(
            TypeLatency(
                name,
                latencies.total,
                p50_ms=percentile_ms(latencies, 50),
                p95_ms=percentile_ms(latencies, 95),
                p99_ms=percentile_ms(latencies, 99),
                max_ms=latencies.percentile_ms(100),
            )
        )
    return tuple(rows)


def measured_seconds(window: Window, column: Sequence[float | None]) -> Column:
    """Return the part of a column that belongs to the measured window."""
    begin = round(window.warmup_s)
    end = begin + round(window.measure_s) if window.kind == "fixed" else len(column)
    return list(column[begin:end])


def stalled_seconds(window: Window, tps: Column) -> float | None:
    """Return how many seconds of the window were stalls, or None without throughput per second."""
    measured = [value for value in measured_seconds(window, tps) if value is not None]
    if measured:
        return float(sum(stalls(measured, statistics.median(measured))))
    return None


def stalls(tps: Iterable[float], usual: float) -> list[bool]:
    """Return for each second whether it was a stall: below STALL × the usual tps, or without any
    transaction.
    """
    return [value < STALL * usual or value == 0 for value in tps]


def per_hour(stalled_s: float | None, seconds: float) -> float | None:
    """Return stalled seconds per hour for a window of that many seconds, or None if the window is
    too short.
    """
    if stalled_s is None or seconds < SHORT_WINDOW_S:
        return None
    return stalled_s * 3600 / seconds


def space(facts: SpaceFacts) -> Figures:
    """Return the space that the dataset occupies, and its fragmentation."""
    return {
        "disk_bytes": facts.disk_bytes,
        "compression_ratio": facts.compression_ratio,
        "metadata_share": facts.metadata_share,
        "largest_file_extents": facts.largest[0].extents if facts.largest else None,
    }


def syncs(filesystem: FilesystemFacts) -> Figures:
    """Return the mean latency of an append with fsync and with fdatasync; of the log's filesystem
    if it has one.
    """
    means = {row.call: row.mean_ms for row in filesystem.volumes.get("log", filesystem).syncs}
    return {"fsync_ms": means.get("fsync"), "fdatasync_ms": means.get("fdatasync")}


def stability(
    window: Window,
    tps: Column,
    figures: Mapping[str, float | None],
) -> Figures:
    """Return how even the window was: CV of the seconds, floor (1st percentile ÷ median, None if
    that is 0), longest stall, p99 ÷ p50.
    """
    measured = [value for value in measured_seconds(window, tps) if value is not None]
    p99_to_p50 = ratio(figures.get("p99_ms"), figures.get("p50_ms"))
    if not measured:
        return {
            "p99_to_p50": p99_to_p50,
            "tps_cv": None,
            "tps_floor": None,
            "longest_stall_s": None,
        }
    mean = statistics.fmean(measured)
    median = statistics.median(measured)
    first_percentile = sorted(measured)[max(0, math.ceil(len(measured) / 100) - 1)]
    stalled = itertools.groupby(stalls(measured, median))
    longest = max((len(list(run)) for is_stall, run in stalled if is_stall), default=0)
    return {
        "p99_to_p50": p99_to_p50,
        "tps_cv": ratio(statistics.stdev(measured), mean) if len(measured) > 1 else None,
        "tps_floor": ratio(first_percentile, median) if len(measured) > 1 else None,
        "longest_stall_s": float(longest),
    }


def scan_summary(operations: Iterable[OperationFacts]) -> Figures:
    """Return the rates of the operation `scan` (10^6 bytes per second); {} without it."""
    metrics = {SCAN_OF_DATA: "scan_mb_per_s", SCAN_OF_CLONE: "clone_scan_mb_per_s"}
    rates = Figures()
    for step in operations:
        if step.name in metrics:
            rate = step.bytes / 1e6 / step.seconds if step.bytes and step.seconds else None
            rates[metrics[step.name]] = rate
    return rates


def completion_summary(
    outcome: Outcome,
    drain_s: float | None,
    io: IoFacts,
) -> Figures:
    """Return the device rates of a workload that runs to completion (10^6 bytes per second), and
    its time until all cached data is on the device; {} without a duration.
    """
    # a scan may have several passes
    seconds = outcome.window_s
    duration_s = outcome.figures.get("duration_s")
    if not duration_s:
        return {}
    return {
        "device_read_mb_per_s": None if io.read_bytes is None else io.read_bytes / 1e6 / seconds,
        "device_write_mb_per_s": None if io.write_bytes is None else io.write_bytes / 1e6 / seconds,
        "drained_s": None if drain_s is None else duration_s + drain_s,
    }


def costs(outcome: Outcome, totals: Mapping[str, float | None]) -> Figures:
    """Return each total of the window per transaction, or of a scan per GiB that it read, under the
    key of METRICS.
    """
    scanned = outcome.scanned_bytes
    amount, unit = (scanned / GIB, "gib") if scanned else (outcome.transactions, "tx")
    return {
        f"{name}_per_{unit}": total / amount if total is not None and amount else None
        for name, total in totals.items()
    }
