"""How close a trial came to what its bare device can do, and whether the device was the limit."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from dbbench.engines import SERVERLESS, profile_of
from dbbench.metrics.series import Column, Series
from dbbench.metrics.summary import measured_seconds
from dbbench.model import CeilingFacts, CeilingRow, Cell, TrialWarning

# A configured limit is reached in every second: writes capped at 300 per second stayed between 260 and 312, and their
# median within 3 % of the cap; those of a loop file without a cap scattered by 80 % of their median. It is the median,
# because a second in which another process had the CPU says nothing about the device.
FLAT: Final = 0.10  # middle half of the seconds ÷ median: on a busy machine iostat's own seconds scatter by 10 %
NEAR: Final = 0.90  # median ÷ ceiling
BEYOND: Final = 1.08  # above, the ceiling was not one
LEAST_SECONDS: Final = 3
COMMON: Final = 0.10  # ceilings of reads and writes that differ by less than that are one for both together
BUSY_PCT: Final = 90.0  # of a second in which a request waits from its begin to its end
SLOW: Final = 0.5  # of the rate before the run
_RATES: Final = (("util_pct",), ("r_per_s", "w_per_s"), ("r_kb_per_s", "w_kb_per_s"))
_KB: Final = 1.024e-3  # iostat's kB in 10^6 bytes


def with_share(ceiling: CeilingFacts, series: Series | None, cell: Cell, tps: float | None) -> CeilingFacts:
    """Return the ceiling with the trial's share of it, and which metric of the device stayed at the limit."""
    page = f"{profile_of(cell.engine.name).page_bytes // 1024}k"
    single = next((row.iops for row in ceiling.rows if row.name == f"write_{page}_fdatasync"), None)
    return dataclasses.replace(
        ceiling,
        tps_share=tps / single if tps and single and cell.engine.name not in SERVERLESS else None,
        limited="; ".join(_limits(ceiling.rows, series, cell)) if series is not None else "",
    )


def slower(ceiling: CeilingFacts, series: Series, cell: Cell) -> Iterator[TrialWarning]:
    """Yield W136 if the device was busy and yet gave less than half of its slowest rate before the run.

    Both rates, requests and bytes, must be that low for LEAST_SECONDS seconds of the window.
    """
    if not ceiling.rows or any(name not in series for names in _RATES for name in names):
        return  # a load shorter than iostat's first interval has the lead column alone
    iops, rate = (min(getattr(row, name) for row in ceiling.rows) for name in ("iops", "mb_per_s"))
    slow = [
        (second, requests)
        for second, (busy, requests, kb) in enumerate(
            zip(*(_summed(series, cell, names) for names in _RATES), strict=True)
        )
        if busy is not None and requests is not None and kb is not None
        and busy >= BUSY_PCT and 0 < requests < SLOW * iops and kb * _KB < SLOW * rate
    ]  # fmt: skip
    if len(slow) >= LEAST_SECONDS:
        text = f"always busy, but only {statistics.median(value for _, value in slow):.4g} IOPS in {len(slow)} seconds"
        comparison = f"{text}; before the run its slowest rate was {iops:.4g} IOPS"
        yield TrialWarning("W136", comparison, round(cell.window.warmup_s) + slow[0][0], suspect=True)


def _summed(series: Series, cell: Cell, names: Sequence[str]) -> Column:
    """Return the seconds of the window with the columns added; a gap if one of them has a gap."""
    columns = [measured_seconds(cell.window, series[name]) for name in names if name in series]
    return [sum(row) if None not in row else None for row in zip(*columns, strict=True)]


def _limits(rows: Sequence[CeilingRow], series: Series, cell: Cell) -> Iterator[str]:
    if not rows:
        return
    reads, writes = ([row for row in rows if row.name.startswith(side)] for side in ("read", "write"))
    for unit, columns, factor in (
        ("IOPS", ("r_per_s", "w_per_s"), 1.0),
        ("MB/s", ("r_kb_per_s", "w_kb_per_s"), _KB),
    ):
        most = [max((row.iops if unit == "IOPS" else row.mb_per_s for row in side), default=0.0)
                for side in (reads, writes)]  # fmt: skip
        seconds = [_window(series, cell, name, factor) for name in columns]
        both = [r + w for r, w in zip(*seconds, strict=True)] if len(seconds[0]) == len(seconds[1]) else []
        if both and min(most) > (1 - COMMON) * max(most) and (limit_text := _at(both, max(most), unit)):
            yield f"reads and writes {limit_text}"
            continue
        for side, values, limit in zip(("reads", "writes"), seconds, most, strict=True):
            if limit_text := _at(values, limit, unit):
                yield f"{side} {limit_text}"


def _at(values: Sequence[float], limit: float, unit: str) -> str:
    """Return the description if these seconds stayed at the limit, otherwise ""."""
    if len(values) < LEAST_SECONDS or limit <= 0:
        return ""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    if not NEAR * limit <= median <= BEYOND * limit or high - low > FLAT * median:
        return ""
    return f"constant at {median:.4g} {unit}; the bare device delivers {limit:.4g}"


def _window(series: Series, cell: Cell, name: str, factor: float) -> list[float]:
    if name not in series:
        return []
    return [value * factor for value in measured_seconds(cell.window, series[name]) if value is not None]
