"""OpenMetrics text, for a textfile collector or a push gateway of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.metrics.table import Metric
from dbbench.report.exports.entries import FAILS, UNDECIDED, ArmFigures, Report
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


# For every workload under one name; the label `metric` says what was measured.
_OF_EVERY_WORKLOAD: Final = (
    Gauge(
        "dbbench_performance_ratio",
        "setup compared with the baseline; above 1 is better, also if the metric is a duration",
        lambda entry: _performance(entry, entry.row.ratio),
    ),
    Gauge(
        "dbbench_performance_ratio_lower",
        "lower end of the interval of dbbench_performance_ratio",
        lambda entry: _bounds(entry)[0],
    ),
    Gauge(
        "dbbench_performance_ratio_upper",
        "upper end of the interval of dbbench_performance_ratio",
        lambda entry: _bounds(entry)[1],
    ),
    Gauge(
        "dbbench_bad",
        "1 if the setup is worse than the baseline or, in a night, has regressed; else 0",
        lambda entry: entry.state in FAILS,
    ),
    Gauge(
        "dbbench_undecided",
        "1 if the data do not support an answer for this setup; else 0",
        lambda entry: entry.state in UNDECIDED,
    ),
)


def openmetrics(report: Report) -> str:
    """Return gauges for every workload under one name, and for each metric its value and ratio with
    both bounds. Names and values are in base units, as Prometheus asks for. No label changes from
    run to run: that would make a new time series of each.
    """
    lines: list[str] = []
    whole = {"host": report.host}
    for gauge in _OF_EVERY_WORKLOAD:
        lines += _gauge_lines(gauge, report.entries, whole, with_metric=True)
    for metric in dict.fromkeys(entry.metric for entry in report.entries):
        entries = [entry for entry in report.entries if entry.metric == metric]
        for gauge in _gauges(metric):
            lines += _gauge_lines(gauge, entries, whole)
    # Gauges of the run as a whole.
    for name, about, value in (
        (
            "dbbench_run_bad",
            "1 if a trial failed or a regression was found; else 0",
            float(report.state in ("failed", "regression")),
        ),
        (
            "dbbench_run_undecided",
            "1 if a night has no answer, or nights are missing before it; else 0",
            float(report.state == "inconclusive"),
        ),
        (
            "dbbench_last_run_timestamp_seconds",
            "start of the run; alert on its age",
            epoch(report.created),
        ),
    ):
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {about}"]
        lines.append(f"{name}{_labels(whole)} {value}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _performance(entry: ArmFigures, ratio: float | None) -> float | None:
    """Return a ratio above 1 where the setup is better."""
    if not ratio or entry.metric.better == "higher":
        return ratio
    return 1 / ratio


def _bounds(entry: ArmFigures) -> list[float | None]:
    """Return both ends of the interval of the performance, the lower first."""
    ends = [_performance(entry, bound) for bound in (entry.row.lo, entry.row.hi)]
    if entry.metric.better == "higher":
        return ends
    return ends[::-1]


def _gauges(metric: Metric) -> tuple[Gauge, ...]:
    # Prometheus expects base units in names and values.
    base, factor = _in_base_units(metric.name)
    name = f"dbbench_{base}"
    about = f"{metric.label}: {metric.help}" if metric.help else metric.label
    return (
        Gauge(
            name,
            about,
            lambda entry: entry.row.value,
            factor,
        ),
        Gauge(
            f"{name}_ratio",
            f"{metric.label}, setup divided by baseline; {metric.better} is better",
            lambda entry: entry.row.ratio,
        ),
        Gauge(
            f"{name}_ratio_lower",
            f"{metric.label}: lower end of the ratio's interval",
            lambda entry: entry.row.lo,
        ),
        Gauge(
            f"{name}_ratio_upper",
            f"{metric.label}: upper end of the ratio's interval",
            lambda entry: entry.row.hi,
        ),
        Gauge(
            f"{name}_bad",
            f"{metric.label}: 1 if the setup is worse or has regressed, else 0",
            lambda entry: entry.state in FAILS,
        ),
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
    with_metric: bool = False,
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
            **({"metric": entry.metric.name} if with_metric else {}),
            **whole,
        }
        # 15 digits hide what the factor adds: 0.1 × 3.
        amount = float(f"{value * gauge.factor:.15g}")
        yield f"{gauge.name}{_labels(labels)} {amount!r}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escape(word)}"' for key, word in labels.items()) + "}"


def _escape(words: str) -> str:
    return words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
