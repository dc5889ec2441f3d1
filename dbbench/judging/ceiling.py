"""How near a trial came to what its bare device can do, and whether the device was what held it."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from dbbench.engines import SERVERLESS
from dbbench.model import CeilingFacts, CeilingRow, Cell
from dbbench.series import Series
from dbbench.summary import measured_seconds

# A limit that somebody set is met second after second: writes capped at 300 a second stood at 260 to 312 in each, and
# their mean within 3 % of it; those of a loop file without a cap scattered by 80 % of their median.
FLAT: Final = 0.10  # middle half of the seconds ÷ median: on a busy machine iostat's own seconds scatter by 10 %
NEAR: Final = 0.90  # mean ÷ ceiling
BEYOND: Final = 1.08  # above, the ceiling was not one
LEAST_SECONDS: Final = 3
COMMON: Final = 0.10  # ceilings of reads and writes that differ by less than that are one for both together
_KB: Final = 1.024e-3  # iostat's kB in 10^6 bytes


def beside(ceiling: CeilingFacts, series: Series | None, cell: Cell, tps: float | None) -> CeilingFacts:
    """The ceiling with the trial's share of it, and what of the device stood flat at it."""
    page = "16k" if cell.engine.name != "postgres" else "8k"
    single = next((row.iops for row in ceiling.rows if row.name == f"write_{page}_fdatasync"), None)
    return dataclasses.replace(
        ceiling,
        tps_share=tps / single if tps and single and cell.engine.name not in SERVERLESS else None,
        limited="; ".join(_limits(ceiling.rows, series, cell)) if series is not None else "",
    )


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
        if both and min(most) > (1 - COMMON) * max(most) and (said := _at(both, max(most), unit)):
            yield f"reads and writes {said}"
            continue
        for side, values, limit in zip(("reads", "writes"), seconds, most, strict=True):
            if said := _at(values, limit, unit):
                yield f"{side} {said}"


def _at(values: Sequence[float], limit: float, unit: str) -> str:
    """What is said where these seconds stood flat at the limit; "" where they did not."""
    if len(values) < LEAST_SECONDS or limit <= 0:
        return ""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    mean = statistics.fmean(values)
    if not NEAR * limit <= mean <= BEYOND * limit or high - low > FLAT * median:
        return ""
    return f"stood at {mean:.4g} {unit} second after second; the bare device gives {limit:.4g}"


def _window(series: Series, cell: Cell, name: str, factor: float) -> list[float]:
    if name not in series:
        return []
    return [value * factor for value in measured_seconds(cell.window, series[name]) if value is not None]
