"""OpenMetrics text, for a textfile collector or a push gateway of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.metrics.table import Metric
from dbbench.report.exports.entries import FAILS, ArmFigures, Report
from dbbench.units import epoch

# Abbreviated unit in the name of a metric -> its base unit in the plural, and the factor.
_BASE_UNITS: Final = {
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "h": ("hours", 1.0),
    "pct": ("ratio", 0.01),
    "kb": ("bytes", 1e3),
    "mb": ("bytes", 1e6),
    "gib": ("gibibytes", 1.0),
}
_LONG_NAMES: Final = {
    "mb_per_s": "processed_mb_per_s",
    "kb_per_s": "applied_kb_per_s",
}


class Gauge(NamedTuple):
    """A gauge of each setup. `value` is None where there is none."""

    name: str
    about: str
    value: Callable[[ArmFigures], float | None]
    factor: float = 1.0


def openmetrics(report: Report) -> str:
    """Return gauges for each metric, its ratio with both bounds, and whether the state is bad.
    Names and values are in base units, as Prometheus asks for.
    """
    lines: list[str] = []
    whole = {"run": report.run, "host": report.host}
    for metric in dict.fromkeys(entry.metric for entry in report.entries):
        entries = [entry for entry in report.entries if entry.metric == metric]
        for gauge in _gauges(metric):
            lines += _gauge_lines(gauge, entries, whole)
    lines += [
        "# TYPE dbbench_last_run_timestamp_seconds gauge",
        "# HELP dbbench_last_run_timestamp_seconds start of the run; alert on its age",
        f"dbbench_last_run_timestamp_seconds{_labels(whole)} {epoch(report.created)}",
        "# EOF",
    ]
    return "\n".join(lines) + "\n"


def _gauges(metric: Metric) -> tuple[Gauge, ...]:
    base, factor = _in_base_units(metric.name)
    name = f"dbbench_{base}"
    ratio = f"{metric.label}, candidate divided by baseline"
    return (
        Gauge(
            name,
            metric.label,
            lambda entry: entry.row.value,
            factor,
        ),
        Gauge(f"{name}_ratio", ratio, lambda entry: entry.row.ratio),
        Gauge(f"{name}_ratio_lower", "lower bound of the ratio", lambda entry: entry.row.lo),
        Gauge(f"{name}_ratio_upper", "upper bound of the ratio", lambda entry: entry.row.hi),
        Gauge(f"{name}_bad", "1 for a regression, else 0", lambda entry: entry.state in FAILS),
    )


def _in_base_units(name: str) -> tuple[str, float]:
    """Return a metric's name without abbreviated units, and the factor of its values."""
    factor = 1.0
    words = list[str]()
    for word in _LONG_NAMES.get(name, name).split("_"):
        unit, scale = _BASE_UNITS.get(word, (word, 1.0))
        if words[-1:] == ["per"]:
            unit = unit.removesuffix("s")
            scale = 1 / scale
        factor *= scale
        words.append(unit)
    return "_".join(words), factor


def _gauge_lines(
    gauge: Gauge,
    entries: Sequence[ArmFigures],
    whole: dict[str, str],
) -> Iterator[str]:
    measured = [(entry, gauge.value(entry)) for entry in entries]
    amounts = [(entry, value) for entry, value in measured if value is not None]
    if amounts:
        yield f"# TYPE {gauge.name} gauge"
        yield f"# HELP {gauge.name} {_escape(gauge.about)}"
    for entry, value in amounts:
        labels = {
            "engine": entry.row.engine,
            "workload": entry.workload,
            "fs_setup": entry.row.fs_setup,
            **whole,
        }
        # 15 digits hide what the factor adds: 0.1 × 3.
        amount = float(f"{value * gauge.factor:.15g}")
        yield f"{gauge.name}{_labels(labels)} {amount!r}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escape(word)}"' for key, word in labels.items()) + "}"


def _escape(words: str) -> str:
    return words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
