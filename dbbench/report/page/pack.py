"""Columns of numbers as short text inside the page: 16-bit scaled integers, little-endian, in base64."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

MISSING: Final = 65535  # no data; 0 .. 65534 are lo + n × step
Values = NDArray[np.float64]
Packed = tuple[float, float, str]  # lo, step, base64


def packed(rows: Sequence[Values], length: int) -> Packed:
    """`rows` one after the other, each padded with gaps (NaN) to `length`. The error is at most half a step, which
    is 1/131068 of the range; the smallest value (a zero, say) comes back exactly."""
    table = np.full((len(rows), length), np.nan)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    known = np.isfinite(table)
    low = float(table[known].min()) if known.any() else 0.0
    high = float(table[known].max()) if known.any() else 0.0
    step = float(f"{(high - low) / (MISSING - 1) * 1.000001:.6g}")  # a short number, never below the exact one
    cells = np.full(table.shape, MISSING, "<u2")
    cells[known] = np.minimum(MISSING - 1, np.rint((table[known] - low) / step)) if step else 0
    return low, step, base64.b64encode(cells.tobytes()).decode("ascii")


def unpacked(content: Packed, length: int) -> list[list[float | None]]:
    """The rows again, as the page's script reads them."""
    low, step, text = content
    cells = np.frombuffer(base64.b64decode(text), "<u2")
    flat = [None if cell == MISSING else low + int(cell) * step for cell in cells]
    return [flat[i : i + length] for i in range(0, len(flat), length)] if length else []
