"""From trials to rows: for each arm its value, ratio to the baseline, interval and one word."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from dbbench.compare.conditions import device_limits, unequal
from dbbench.compare.interval import LEAST_BLOCKS, LEVEL, SETTLED_LEVEL, Estimate, holm_levels
from dbbench.compare.pairing import Group, Pairs, chosen, estimate_of, groups, values_of
from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.compare.scatter import share_variance
from dbbench.compare.two_levels import two_levels_remark
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Status, Trial
from dbbench.model.plan import MARGIN
from dbbench.units import grouped

UNKNOWN: Final = "unknown"  # every trial failed before its durability class was determined
# used instead of same and inconclusive: the device hides possible differences
LIMITED: Final = "device-limited"
# suffix of the baseline's label for the baseline a second time, the A/A guard of nightly runs
GUARD: Final = "-guard"
WORDS: Final = {  # (words of the metric, candidate is better) -> word
    ("speed", True): "faster",
    ("speed", False): "slower",
    ("quality", True): "better",
    ("quality", False): "worse",
}
AHEAD: Final = ("faster", "better")
BEHIND: Final = ("slower", "worse")
THROUGHPUT: Final = ("tps", "queries_per_s")
# Metric -> the warning of trials whose step failed, so that the metric has no value.
WHY_ABSENT: Final = {"queries_per_s": "W153"}
WARNED: Final = {
    "W118": RemarkKind.SCAN_WROTE,
    "W119": RemarkKind.ONE_DISK,
    "W152": RemarkKind.UNCOMPRESSED,
}


@dataclass(frozen=True)
class Row:
    """One arm under one engine and workload. `ratio`, `lo`, `hi` are candidate ÷ baseline; the
    baseline's own row has ratio 1 and the verdict `baseline`. `level` is the confidence level
    that Holm gives the row.
    """

    fs_setup: str
    engine: str
    workload: str
    value: float | None = None  # mean of the trials that count, see `means`
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    verdict: str = "inconclusive"
    n: int = 0
    wins: int = 0  # blocks in which the candidate was better
    level: float | None = None
    durability_class: str = UNKNOWN
    mixed_durability: bool = False
    notes: tuple[Remark, ...] = ()
    variant: str = ""  # values from lists in the plan: "clients=8"
    df: float | None = None  # degrees of freedom of the interval
    df_shared: float | None = None  # the part of df that comes from other pairs of the run
    trials: int = 0  # trials that count, including those without a pair in their block
    margin: float = MARGIN  # "same": the interval is within this share in both directions


def word(low: float, high: float, metric: Metric, margin: float = MARGIN) -> str:
    """Return the verdict of an interval of log ratios: different, else same within the margin, else
    inconclusive.
    """
    if low > 0 or high < 0:
        return WORDS[metric.words, (low > 0) == (metric.better == "higher")]
    return "same" if max(-low, high) <= math.log1p(margin) else "inconclusive"


def without_guard(table: Sequence[Row]) -> list[Row]:
    """Return the rows, of which the first is the baseline, without the guard, which is not a setup
    to choose.
    """
    return [row for row in table if row.fs_setup != table[0].fs_setup + GUARD]


class GroupPairs(NamedTuple):
    """The pairs of one engine, workload and variant, by arm, and what is known of them."""

    metric: Metric
    trials: list[Trial]
    pairs: dict[str, Pairs]
    estimates: dict[str, Estimate]


def pair_groups(
    trials: Sequence[Trial], baseline: str, metric: str | Mapping[str, str]
) -> dict[Group, GroupPairs]:
    """Return the pairs of every group with the metric in any trial, or a warning that says why it
    has no value.
    """
    measured: dict[Group, GroupPairs] = {}
    for key, group in sorted(groups(trials).items()):
        judged = METRICS[metric if isinstance(metric, str) else metric.get(key[1], "tps")]
        absent = WHY_ABSENT.get(judged.name, "")
        if any(
            trial.summary.get(judged.name) is not None or _has(trial, absent) for trial in group
        ):
            arms = sorted({trial.fs_setup for trial in group} - {baseline})
            pairs = {arm: values_of(group, baseline, arm, judged.name) for arm in arms}
            estimates = {
                arm: guess for arm, of_arm in pairs.items() if (guess := _estimate(of_arm))
            }
            measured[key] = GroupPairs(judged, group, pairs, estimates)
    shared = share_variance({key: about.estimates for key, about in measured.items()})
    return {key: about._replace(estimates=shared[key]) for key, about in measured.items()}


def _estimate(pairs: Pairs) -> Estimate | None:
    if pairs and not any(map(any, pairs)):  # for example no stalls in both arms: they are equal
        return Estimate(len(pairs), 0.0, 0.0)
    return estimate_of(pairs)


def rows(
    trials: Sequence[Trial],
    baseline: str,
    metric: str | Mapping[str, str] = "tps",
    margin: float = MARGIN,
    settled: Collection[Group] = (),
) -> list[Row]:
    """Return the rows of each of these groups; the baseline first, then by value. `metric` is one
    for all, or one for each workload. The pairs of all groups share their variance as far as
    they are similar: pass the trials of a whole run, or those of a group to judge it separately.
    `settled`: the groups in which a narrow interval ended a pair.
    """
    by_group = pair_groups(trials, baseline, metric)
    levels = {group: SETTLED_LEVEL if group in settled else LEVEL for group in by_group}
    return [
        row
        for group, about in by_group.items()
        for row in _group_rows(about, baseline, margin, levels[group])
    ]


def _group_rows(about: GroupPairs, baseline: str, margin: float, level: float) -> list[Row]:
    metric, group, pairs, estimates = about
    enough = {arm: guess for arm, guess in estimates.items() if guess.n >= LEAST_BLOCKS}
    levels = dict(
        zip(
            enough,
            holm_levels([guess.p_value() for guess in enough.values()], 1 - level),
            strict=True,
        )
    )
    counted = chosen(group)
    first = group[0]
    by_arm = {
        arm: [trial for trial in counted if trial.fs_setup == arm] for arm in (baseline, *pairs)
    }
    mean_of = means({arm: [t.summary.get(metric.name) for t in own] for arm, own in by_arm.items()})
    base_class = _class_of(group, baseline)
    table = []
    for arm, own in by_arm.items():
        own_class = _class_of(group, arm)
        values = [t.summary.get(metric.name) for t in own]
        mixed = own_class != base_class and UNKNOWN not in (own_class, base_class)
        row = Row(
            arm,
            first.engine,
            first.workload,
            mean_of[arm],
            durability_class=own_class,
            mixed_durability=mixed,
            notes=tuple(_notes(group, arm, own, metric)),
            variant=first.variant,
            trials=len(own),
            margin=margin,
        )
        if arm == baseline:
            n = sum(value is not None for value in values)
            table.append(replace(row, ratio=1.0 if n else None, verdict="baseline", n=n))
            continue
        row = _judge(row, estimates.get(arm), levels.get(arm), metric, _block_minutes(group))
        wins = sum(
            (c > b) == (metric.better == "higher")
            for b, c in pairs[arm]
            if b > 0 and c > 0 and c != b
        )
        table.append(_with_conditions(replace(row, wins=wins), by_arm[baseline], own))
    sign = -1 if metric.better == "higher" else 1
    rest = sorted(
        table[1:], key=lambda row: (row.value is None, sign * (row.value or 0.0), row.fs_setup)
    )
    return table[:1] + rest


def _judge(
    row: Row,
    guess: Estimate | None,
    level: float | None,
    metric: Metric,
    block_minutes: float | None,
) -> Row:
    notes = (*row.notes, remark(RemarkKind.OTHER_CLASS)) if row.mixed_durability else row.notes
    if guess is None:
        return replace(row, notes=(*notes, remark(RemarkKind.NO_PAIR)))
    row = replace(row, ratio=guess.ratio, n=guess.n)
    if level is None:
        return replace(row, notes=(*notes, remark(RemarkKind.TOO_FEW_BLOCKS)))
    low, high = guess.bounds(level)
    verdict = word(low, high, metric, row.margin)
    if verdict == "inconclusive":
        # it excludes 1, or fits the margin
        decisive = max(abs(guess.mean), math.log1p(row.margin) - abs(guess.mean))
        notes = (*notes, _price(guess.blocks_to(decisive, level), block_minutes))
    return replace(
        row,
        lo=math.exp(low),
        hi=math.exp(high),
        verdict=verdict,
        level=level,
        notes=notes,
        df=guess.df,
        df_shared=guess.shared_df,
    )


def _with_conditions(row: Row, base: Sequence[Trial], own: Sequence[Trial]) -> Row:
    """If the device limited both arms, "same" would describe the device and not the filesystems."""
    row = replace(row, notes=(*row.notes, *unequal(base, own)))
    if row.verdict in ("same", "inconclusive") and device_limits(base) and device_limits(own):
        return replace(row, verdict=LIMITED, notes=(*row.notes, remark(RemarkKind.DEVICE_LIMITED)))
    return row


def _notes(group: list[Trial], arm: str, counted: list[Trial], metric: Metric) -> Iterator[Remark]:
    def warned(warning: str) -> int:
        return sum(_has(trial, warning) for trial in counted)

    if failed := sum(t.status is Status.FAILED for t in group if t.fs_setup == arm):
        yield remark(RemarkKind.FAILED, failed=failed)
    if suspect := sum(t.status is Status.SUSPECT for t in counted):
        yield remark(RemarkKind.SUSPECT, suspect=suspect)
    if reports := dict.fromkeys(
        report for t in counted if t.filesystem for report in t.filesystem.reports
    ):
        yield remark(RemarkKind.REPORTED, reports=", ".join(reports))
    if metric.name in (*THROUGHPUT, "sustained_tps") and warned("W002"):
        yield remark(RemarkKind.BURST)
    if metric.name in THROUGHPUT and warned("W003"):
        yield remark(RemarkKind.DRAIN)
    yield from (remark(kind) for warning, kind in WARNED.items() if warned(warning))
    if missed := warned("W153"):
        yield remark(RemarkKind.RATE_MISSED, missed=missed, trials=len(counted))
    if metric.name in (*THROUGHPUT, "sustained_tps") and (unsteady := warned("W005")):
        partly = remark(RemarkKind.PARTLY_UNSTEADY, unsteady=unsteady, trials=len(counted))
        yield remark(RemarkKind.UNSTEADY) if unsteady == len(counted) else partly
    yield from two_levels_remark(
        [v for t in counted if (v := t.summary.get(metric.name)) is not None]
    )


def _has(trial: Trial, warning: str) -> bool:
    return any(trial_warning.id == warning for trial_warning in trial.warnings)


def _class_of(group: list[Trial], arm: str) -> str:
    classes = {
        t.filesystem.durability_class
        for t in group
        if t.fs_setup == arm and t.filesystem is not None and t.status is not Status.FAILED
    }
    return " / ".join(sorted(classes)) or UNKNOWN


def means(by_arm: Mapping[str, Iterable[float | None]]) -> dict[str, float | None]:
    """Return the mean of each arm's values, as everywhere in dbbench: geometric, to which the
    ratios belong, but arithmetic for all arms alike if one of them has a value that is not
    positive. None without values.
    """
    measured = {
        arm: [value for value in values if value is not None] for arm, values in by_arm.items()
    }
    positive = all(value > 0 for values in measured.values() for value in values)
    mean = statistics.geometric_mean if positive else statistics.fmean
    # exact if all are equal
    return {
        arm: (values[0] if len(set(values)) == 1 else mean(values)) if values else None
        for arm, values in measured.items()
    }


def _block_minutes(group: list[Trial]) -> float | None:
    seconds = math.fsum(
        math.fsum(math.fsum(phase.seconds for phase in trial.phases) for trial in trials)
        / len(trials)
        for trials in grouped(group, lambda trial: trial.fs_setup).values()
    )
    return seconds / 60 if seconds else None


def _price(more: int | None, block_minutes: float | None) -> Remark:
    if more is None:
        return remark(RemarkKind.TOO_MANY_BLOCKS)
    if block_minutes is None:
        return remark(RemarkKind.MORE_BLOCKS, blocks=more)
    return remark(
        RemarkKind.MORE_BLOCKS_MINUTES, blocks=more, minutes=max(1, round(more * block_minutes))
    )


class Comparison:
    """The trials of a run, compared with one baseline. `primary` has the primary metric of each
    workload, `stopped` why a (group, arm) is not measured again; its row has this remark if the
    baseline was. With the primary metrics, the pairs of all workloads share their variance; with
    any other metric they share it too.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        baseline: str,
        primary: Mapping[str, str],
        margin: float = MARGIN,
        stopped: Mapping[tuple[Group, str], Remark] = MappingProxyType({}),
    ) -> None:
        self._trials = trials
        self._baseline = baseline
        self._primary = primary
        self._margin = margin
        self._stopped = stopped
        self._settled = {
            group for (group, _), why in stopped.items() if why.kind is RemarkKind.SETTLED
        }
        # "": the primary metric of each workload
        self._tables: dict[str, dict[Group, list[Row]]] = {}

    def rows(self, group: Group, metric: str) -> list[Row]:
        name = "" if metric == self._primary.get(group[1], "tps") else metric
        if name not in self._tables:
            table = self._tables[name] = {}
            for row in rows(
                self._trials, self._baseline, name or self._primary, self._margin, self._settled
            ):
                key = row.engine, row.workload, row.variant
                of_group = table.setdefault(key, [])
                if (why := self._stopped.get((key, row.fs_setup))) and row.n < of_group[0].n:
                    row = replace(row, notes=(*row.notes, why))
                of_group.append(row)
        return self._tables[name].get(group, [])
