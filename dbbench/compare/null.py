"""(nights of one level, threshold): made by `benchmarks/changepoint_null.py`, not by hand."""

from __future__ import annotations

from typing import Final

THRESHOLDS: Final = (
    (6, 19.14),
    (7, 15.2),
    (8, 13.35),
    (9, 11.65),
    (10, 10.67),
    (12, 8.54),
    (14, 7.48),
    (17, 6.58),
    (20, 6.1),
    (25, 5.51),
    (30, 5.11),
    (40, 4.48),
    (50, 4.06),
    (60, 3.79),
    (80, 3.44),
    (100, 3.32),
)
