"""From trials to rows: for each arm its value, ratio to the baseline, interval and one word."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dbbench.compare.interval import LEAST_BLOCKS, SAME, Estimate, Group, chosen, estimate, groups, holm_levels, paired
from dbbench.compare.remarks import Kind, Remark, remark, texts
from dbbench.compare.scatter import levels, shared
from dbbench.compare.unequal import limited, unequal
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Status, Trial, plain

UNKNOWN: Final = "unknown"  # every trial failed before its durability class was determined
LIMITED: Final = "device-limited"  # used instead of same and inconclusive: the device hides possible differences
WORDS: Final = {  # (words of the metric, candidate is better) -> word
    ("speed", True): "faster",
    ("speed", False): "slower",
    ("quality", True): "better",
    ("quality", False): "worse",
}
AHEAD: Final = ("faster", "better")
BEHIND: Final = ("slower", "worse")


@dataclass(frozen=True)
class Row:
    """One arm under one engine and workload. `ratio`, `lo`, `hi` are candidate ÷ baseline; the baseline's own
    row has ratio 1 and the verdict `baseline`. `level` is the confidence level that Holm gives the row."""

    fs_setup: str
    engine: str
    workload: str
    value: float | None  # mean of the trials that count, see `means`
    ratio: float | None
    lo: float | None
    hi: float | None
    verdict: str
    n: int
    wins: int  # blocks in which the candidate was better
    level: float | None
    durability_class: str
    mixed_durability: bool
    notes: tuple[Remark, ...] = ()
    variant: str = ""  # values from lists in the plan: "clients=8"
    df: float | None = None  # degrees of freedom of the interval
    df_shared: float | None = None  # the part of df that comes from other pairs of the run
    trials: int = 0  # trials that count, including those without a pair in their block


def document_of(row: Row) -> dict[str, Any]:
    """Return the row as dicts, lists and scalars, with its notes in words."""
    return {**plain(row), "notes": list(texts(row.notes))}


def word(low: float, high: float, metric: Metric) -> str:
    """Return the verdict of an interval of log ratios: different, else same within 5 %, else inconclusive."""
    if low > 0 or high < 0:
        return WORDS[metric.words, (low > 0) == (metric.better == "higher")]
    return "same" if low >= -SAME and high <= SAME else "inconclusive"


GUARD: Final = "-guard"  # suffix of the baseline's label for the baseline a second time, the A/A guard of nightly runs


def without_guard(table: Sequence[Row]) -> list[Row]:
    """Return the rows, of which the first is the baseline, without the guard, which is not a setup to choose."""
    return [row for row in table if row.fs_setup != table[0].fs_setup + GUARD]


# Metric -> the warning of trials whose step failed, so that the metric has no value.
WHY_ABSENT: Final = {"queries_per_s": "W153"}


def rows(trials: Sequence[Trial], baseline: str, metric: str | Mapping[str, str] = "tps") -> list[Row]:
    """Return the rows of every (engine, workload, variant) with the metric in any trial, or a warning that says why it
    has no value; the baseline first, then by value.

    `metric` is one for all, or one for each workload. The pairs of all groups share their variance as far as they are
    similar: pass the trials of a whole run, or those of a group to judge it separately.
    """
    table: list[Row] = []
    measured: dict[Group, tuple[Metric, list[Trial]]] = {}
    for key, group in sorted(groups(trials).items()):
        judged = METRICS[metric if isinstance(metric, str) else metric.get(key[1], "tps")]
        absent = WHY_ABSENT.get(judged.name, "")
        if any(trial.summary.get(judged.name) is not None or _has(trial, absent) for trial in group):
            measured[key] = judged, group
    estimates = {key: _estimates(group, baseline, judged) for key, (judged, group) in measured.items()}
    combined = shared({key: {arm: guess for arm, (guess, _) in of.items() if guess} for key, of in estimates.items()})
    for key, (judged, group) in measured.items():
        pairs = {arm: (combined[key].get(arm), wins) for arm, (_, wins) in estimates[key].items()}
        table += _group_rows(key, group, baseline, judged, pairs)
    return table


def _estimates(group: list[Trial], baseline: str, metric: Metric) -> dict[str, tuple[Estimate | None, int]]:
    arms = sorted({trial.fs_setup for trial in group} - {baseline})
    return {arm: _estimate(group, baseline, arm, metric) for arm in arms}


def _group_rows(
    key: Group, group: list[Trial], baseline: str, metric: Metric, found: Mapping[str, tuple[Estimate | None, int]]
) -> list[Row]:
    engine, workload, variant = key
    base_class = _class_of(group, baseline)
    enough = {arm: guess for arm, (guess, _) in found.items() if guess is not None and guess.n >= LEAST_BLOCKS}
    levels = dict(zip(enough, holm_levels([guess.p_value() for guess in enough.values()]), strict=True))
    by_arm: dict[str, list[Trial]] = {arm: [] for arm in (baseline, *found)}
    for trial in chosen(group):
        by_arm[trial.fs_setup].append(trial)
    mean_of = means({arm: [t.summary.get(metric.name) for t in counted] for arm, counted in by_arm.items()})
    table = []
    for arm, counted in by_arm.items():
        values = [v for t in counted if (v := t.summary.get(metric.name)) is not None]
        own_class = _class_of(group, arm)
        mixed = own_class != base_class and UNKNOWN not in (own_class, base_class)
        row = Row(arm, engine, workload, mean_of[arm], None, None, None, "inconclusive", 0, 0, None,
                  own_class, mixed, tuple(_notes(group, arm, counted, metric)), variant,
                  trials=len(counted))  # fmt: skip
        if arm == baseline:
            row = replace(row, ratio=1.0 if values else None, verdict="baseline", n=len(values))
        else:
            guess, wins = found[arm]
            row = replace(_judged(row, guess, levels.get(arm), metric, _block_minutes(group)), wins=wins)
            row = _conditioned(row, by_arm[baseline], counted)
        table.append(row)
    sign = -1 if metric.better == "higher" else 1
    rest = sorted(table[1:], key=lambda row: (row.value is None, sign * (row.value or 0.0), row.fs_setup))
    return table[:1] + rest


def _judged(row: Row, guess: Estimate | None, level: float | None, metric: Metric, block_minutes: float | None) -> Row:
    notes = (*row.notes, remark(Kind.OTHER_CLASS)) if row.mixed_durability else row.notes
    if guess is None:
        return replace(row, notes=(*notes, remark(Kind.NO_PAIR)))
    row = replace(row, ratio=guess.ratio, n=guess.n)
    if level is None:
        return replace(row, notes=(*notes, remark(Kind.TOO_FEW_BLOCKS)))
    half = guess.half_width(level)
    low, high = guess.mean - half, guess.mean + half
    verdict = word(low, high, metric)
    if verdict == "inconclusive":
        notes = (*notes, _price(guess, level, block_minutes))
    row = replace(row, lo=math.exp(low), hi=math.exp(high), verdict=verdict, level=level, notes=notes)
    return replace(row, df=guess.df, df_shared=guess.shared_df)


def _conditioned(row: Row, base: Sequence[Trial], own: Sequence[Trial]) -> Row:
    """Return the row with the conditions that differ from those of the baseline. If both arms were limited by the
    device, the verdict "same" would describe the device and not the filesystems."""
    row = replace(row, notes=(*row.notes, *unequal(base, own)))
    if row.verdict in ("same", "inconclusive") and limited(base) and limited(own):
        return replace(row, verdict=LIMITED, notes=(*row.notes, remark(Kind.DEVICE_LIMITED)))
    return row


def _estimate(group: list[Trial], baseline: str, arm: str, metric: Metric) -> tuple[Estimate | None, int]:
    pairs = [
        (b, c)
        for base, other in paired(group, baseline, arm)
        if (b := base.summary.get(metric.name)) is not None and (c := other.summary.get(metric.name)) is not None
    ]
    if pairs and not any(b or c for b, c in pairs):  # for example no stalls in both arms: they are equal
        return Estimate(len(pairs), 0.0, 0.0), 0
    values = [(b, c) for b, c in pairs if b > 0 and c > 0]
    wins = sum((c > b) == (metric.better == "higher") for b, c in values if c != b)
    return (estimate(values) if values else None), wins


def _notes(group: list[Trial], arm: str, counted: list[Trial], metric: Metric) -> Iterator[Remark]:
    failed = sum(t.status is Status.FAILED for t in group if t.fs_setup == arm)
    suspect = sum(t.status is Status.SUSPECT for t in counted)
    if failed:
        yield remark(Kind.FAILED, failed=failed)
    if suspect:
        yield remark(Kind.SUSPECT, suspect=suspect)
    if reports := dict.fromkeys(report for t in counted if t.filesystem for report in t.filesystem.reports):
        yield remark(Kind.REPORTED, reports=", ".join(reports))
    if metric.name in ("tps", "sustained_tps", "queries_per_s") and any(_has(t, "W002") for t in counted):
        yield remark(Kind.BURST)
    if metric.name in ("tps", "queries_per_s") and any(_has(t, "W003") for t in counted):
        yield remark(Kind.DRAIN)
    for warning, kind in (("W118", Kind.SCAN_WROTE), ("W119", Kind.ONE_DISK), ("W152", Kind.UNCOMPRESSED)):
        if any(_has(t, warning) for t in counted):
            yield remark(kind)
    if missed := sum(_has(t, "W153") for t in counted):
        yield remark(Kind.RATE_MISSED, missed=missed, trials=len(counted))
    unsteady = sum(_has(t, "W005") for t in counted)
    if metric.name in ("tps", "sustained_tps", "queries_per_s") and unsteady:
        everywhere = unsteady == len(counted)
        partly = remark(Kind.PARTLY_UNSTEADY, unsteady=unsteady, trials=len(counted))
        yield remark(Kind.UNSTEADY) if everywhere else partly
    yield from levels([v for t in counted if (v := t.summary.get(metric.name)) is not None])


def _has(trial: Trial, warning: str) -> bool:
    return any(trial_warning.id == warning for trial_warning in trial.warnings)


def _class_of(group: list[Trial], arm: str) -> str:
    classes = {t.filesystem.durability_class for t in group if t.fs_setup == arm and t.filesystem is not None
             and t.status is not Status.FAILED}  # fmt: skip
    return " / ".join(sorted(classes)) or UNKNOWN


def means(by_arm: Mapping[str, Iterable[float | None]]) -> dict[str, float | None]:
    """Return the mean of each arm's values, as everywhere in dbbench: the geometric mean, to which the ratios belong.

    It is the arithmetic mean, for all arms alike, if one of them has a value that is not positive. None without values.
    """
    measured = {arm: [value for value in values if value is not None] for arm, values in by_arm.items()}
    positive = all(value > 0 for values in measured.values() for value in values)
    mean = statistics.geometric_mean if positive else statistics.fmean
    return {arm: (values[0] if len(set(values)) == 1 else mean(values)) if values else None  # exact if all are equal
            for arm, values in measured.items()}  # fmt: skip


def _block_minutes(group: list[Trial]) -> float | None:
    per_arm: dict[str, list[float]] = {}
    for trial in group:
        per_arm.setdefault(trial.fs_setup, []).append(math.fsum(phase.seconds for phase in trial.phases))
    seconds = math.fsum(math.fsum(times) / len(times) for times in per_arm.values())
    return seconds / 60 if seconds else None


def _price(guess: Estimate, level: float, block_minutes: float | None) -> Remark:
    more = guess.more_blocks(level)
    if more is None:
        return remark(Kind.TOO_MANY_BLOCKS)
    if block_minutes is None:
        return remark(Kind.MORE_BLOCKS, blocks=more)
    return remark(Kind.MORE_BLOCKS_MINUTES, blocks=more, minutes=max(1, round(more * block_minutes)))


_OWN = ""  # stands for the primary metric of each workload


class Comparison:
    """The trials of a run, compared with one baseline. `primary` has the primary metric of each workload.

    With the primary metrics, the pairs of all workloads share their variance; with any other metric they share it too.
    """

    def __init__(self, trials: Sequence[Trial], baseline: str, primary: Mapping[str, str]) -> None:
        self._trials = trials
        self._baseline = baseline
        self._primary = primary
        self._tables: dict[str, dict[Group, list[Row]]] = {}

    def rows(self, group: Group, metric: str | None = None) -> list[Row]:
        """Return the rows of one engine, workload and variant, by default for the workload's primary metric; [] if no
        trial has the metric."""
        by_primary = metric is None or metric == self._primary.get(group[1], "tps")
        return self._table(_OWN if by_primary or metric is None else metric).get(group, [])

    def _table(self, metric: str) -> dict[Group, list[Row]]:
        if metric not in self._tables:
            table = self._tables[metric] = {}
            for row in rows(self._trials, self._baseline, metric or self._primary):
                table.setdefault((row.engine, row.workload, row.variant), []).append(row)
        return self._tables[metric]
