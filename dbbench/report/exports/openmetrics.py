"""OpenMetrics text: gauges with labels for a textfile collector or a push gateway."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Final

from dbbench.metrics.table import METRICS
from dbbench.report.exports.exported import ArmFigures, Report

BAD: Final = ("regression", "slower", "worse")


def text(report: Report) -> str:
    """One family for each metric, for its ratio with both bounds, and for whether the state is bad."""
    lines: list[str] = []
    for metric in dict.fromkeys(entry.metric for entry in report.entries):
        mine = [entry for entry in report.entries if entry.metric == metric]
        label = METRICS[metric].label if metric in METRICS else metric
        unit = f" in {METRICS[metric].unit}" if metric in METRICS and METRICS[metric].unit else ""
        lines += _family(f"dbbench_{metric}", f"{label}{unit}", mine, lambda entry: entry.value)
        lines += _family(
            f"dbbench_{metric}_ratio", f"{label}, candidate divided by baseline", mine, lambda entry: entry.ratio
        )
        lines += _family(f"dbbench_{metric}_ratio_lower", "lower bound of the ratio", mine, lambda entry: entry.lo)
        lines += _family(f"dbbench_{metric}_ratio_upper", "upper bound of the ratio", mine, lambda entry: entry.hi)
        lines += _family(f"dbbench_{metric}_bad", "1 for a regression, else 0", mine,
                         lambda entry: float(entry.state in BAD))  # fmt: skip
    lines += ["# TYPE dbbench_last_run_timestamp_seconds gauge",
              "# HELP dbbench_last_run_timestamp_seconds start of the run; alert on its age",
              f"dbbench_last_run_timestamp_seconds {_epoch(report.created)}"]  # fmt: skip
    return "\n".join([*lines, "# EOF"]) + "\n"


def _family(
    name: str, about: str, entries: list[ArmFigures], value: Callable[[ArmFigures], float | None]
) -> Iterator[str]:
    known = [(entry, found) for entry in entries if (found := value(entry)) is not None]
    if known:
        yield f"# TYPE {name} gauge"
        yield f"# HELP {name} {_escaped(about)}"
    for entry, found in known:
        labels = {"engine": entry.engine, "workload": entry.workload, "fs_setup": entry.fs_setup}
        inside = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
        yield f"{name}{{{inside}}} {found!r}"


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _epoch(created: str) -> float:
    return datetime.datetime.fromisoformat(created).timestamp()
