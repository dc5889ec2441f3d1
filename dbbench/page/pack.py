"""Columns of numbers as short text inside the page: 16-bit scaled integers, little-endian, in base64."""

from __future__ import annotations

import array
import base64
import math
import sys
from collections.abc import Sequence
from typing import Final

MISSING: Final = 65535  # no data; 0 .. 65534 are lo + n × step
Packed = tuple[float, float, str]  # lo, step, base64


def packed(rows: Sequence[Sequence[float | None]], length: int) -> Packed:
    """`rows` one after the other, each padded with gaps to `length`. The error is at most half a step, which
    is 1/131068 of the range; the smallest value (a zero, say) comes back exactly."""
    known = [v for row in rows for v in row if v is not None and math.isfinite(v)]
    low = min(known, default=0.0)
    step = (max(known, default=0.0) - low) / (MISSING - 1)
    step = float(f"{step * 1.000001:.6g}")  # a short number in the page, never below the exact one
    cells = array.array("H")
    for row in rows:
        cells.extend(_cell(v, low, step) for v in row)
        cells.extend([MISSING] * (length - len(row)))
    if sys.byteorder == "big":
        cells.byteswap()
    return low, step, base64.b64encode(cells.tobytes()).decode("ascii")


def _cell(value: float | None, low: float, step: float) -> int:
    if value is None or not math.isfinite(value):
        return MISSING
    return min(MISSING - 1, round((value - low) / step)) if step else 0


def unpacked(content: Packed, length: int) -> list[list[float | None]]:
    """The rows again, as the page's script reads them."""
    low, step, text = content
    cells = array.array("H")
    cells.frombytes(base64.b64decode(text))
    if sys.byteorder == "big":
        cells.byteswap()
    flat = [None if cell == MISSING else low + cell * step for cell in cells]
    return [flat[i : i + length] for i in range(0, len(flat), length)] if length else []
