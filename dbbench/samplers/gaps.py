"""Seconds without data: counted, named, never filled."""

from __future__ import annotations

from collections.abc import Sequence

from dbbench.model import TrialWarning


def gap_warning(sampler: str, column: Sequence[float | None]) -> TrialWarning | None:
    """W014 where `column`, one that has a value in every good second, has holes; None where it has none.

    The very last second alone is no hole: the sampler's interval that ends in it may end after the block.
    """
    missing = [second for second, value in enumerate(column) if value is None]
    if not missing or missing == [len(column) - 1]:
        return None
    text = f"{sampler}: {len(missing)} of {len(column)} seconds without data (second {ranges(missing)})"
    return TrialWarning("W014", text, missing[0])


def ranges(seconds: Sequence[int]) -> str:
    """ "3-5, 9" of [3, 4, 5, 9]; at most five ranges are written out."""
    spans: list[list[int]] = []
    for second in seconds:
        if spans and second == spans[-1][1] + 1:
            spans[-1][1] = second
        else:
            spans.append([second, second])
    written = [f"{first}-{last}" if last > first else f"{first}" for first, last in spans[:5]]
    return ", ".join(written) + (f" and {len(spans) - 5} more" if len(spans) > 5 else "")
