"""Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}."""

from __future__ import annotations

import json
from typing import Any

from dbbench.report.exports.exported import Report


def text(report: Report) -> str:
    """Every measured value, and the ratio with its bounds if it has an interval."""
    found: dict[str, dict[str, Any]] = {}
    for entry in report.entries:
        measures = found.setdefault(entry.name, {})
        if entry.value is not None:
            measures[entry.metric.replace("_", "-")] = {"value": entry.value}
        if entry.ratio is not None and entry.lo is not None and entry.hi is not None:
            bounds = {"value": entry.ratio, "lower_value": entry.lo, "upper_value": entry.hi}
            measures[f"{entry.metric.replace('_', '-')}-ratio"] = bounds
    return (
        json.dumps({name: measures for name, measures in found.items() if measures}, indent=1, allow_nan=False) + "\n"
    )
