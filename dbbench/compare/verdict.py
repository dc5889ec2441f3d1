"""From trials to rows: for each arm its value, ratio to the baseline, interval and one word."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, NamedTuple

from dbbench.compare.conditions import device_limits, unequal
from dbbench.compare.interval import LEVEL, SETTLED_LEVEL, Estimate, LogRatio, confidences
from dbbench.compare.pairing import Group, Pairs, chosen, estimate_of, groups, values_of
from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.compare.scatter import share_variance, two_levels_remark
from dbbench.metrics.summary import is_short
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Figures, Status, Trial, Verdict
from dbbench.model.plan import MARGIN
from dbbench.units import group_by

UNKNOWN: Final = "unknown"  # every trial failed before its durability class was determined
# suffix of the baseline's label for the baseline a second time, the A/A guard of nightly runs
GUARD: Final = "-guard"
AHEAD: Final = (Verdict.FASTER, Verdict.BETTER)
BEHIND: Final = (Verdict.SLOWER, Verdict.WORSE)
WORDS: Final = {  # words of the metric -> those for a better and for a worse candidate
    "speed": (Verdict.FASTER, Verdict.SLOWER),
    "quality": (Verdict.BETTER, Verdict.WORSE),
}
THROUGHPUT: Final = ("tps", "queries_per_s")
# Metric -> the warning of trials whose step failed, so that the metric has no value.
WHY_ABSENT: Final = {"queries_per_s": "W153"}
WARNED: Final = {
    "W118": RemarkKind.SCAN_WROTE,
    "W119": RemarkKind.ONE_DISK,
    "W152": RemarkKind.UNCOMPRESSED,
    "W158": RemarkKind.WARM,
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
    verdict: Verdict = Verdict.INCONCLUSIVE
    n: int = 0
    wins: int = 0  # blocks in which the candidate was better
    level: float | None = None
    durability_class: str = UNKNOWN
    mixed_durability: bool = False
    notes: tuple[Remark, ...] = ()
    variant: str = ""  # values from lists in the plan: "clients=8"
    log_ratio: LogRatio | None = None  # the ratio's logarithm with its error; None without interval
    df_shared: float | None = None  # the part of df that comes from other pairs of the run
    trials: int = 0  # trials that count, including those without a pair in their block
    margin: float = MARGIN  # "same": the interval is within this share in both directions

    @property
    def df(self) -> float | None:
        """Return the degrees of freedom of the interval."""
        return self.log_ratio.df if self.log_ratio else None


def word(
    low: float,
    high: float,
    metric: Metric,
    margin: float = MARGIN,
) -> Verdict:
    """Return the verdict of an interval of log ratios: different, else same within the margin, else
    inconclusive.
    """
    if low > 0 or high < 0:
        better, worse = WORDS[metric.words]
        higher = low > 0
        if higher == (metric.better == "higher"):
            return better
        return worse
    if max(-low, high) <= math.log1p(margin):
        return Verdict.SAME
    return Verdict.INCONCLUSIVE


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
    trials: Sequence[Trial],
    baseline: str,
    metric: str | Mapping[str, str],
) -> dict[Group, GroupPairs]:
    """Return the pairs of every group with the metric in any trial, or a warning that says why it
    has no value.
    """
    measured: dict[Group, GroupPairs] = {}
    for key, group in sorted(groups(trials).items()):
        # A group that has neither the metric nor a reason for its absence is left out.
        name = metric if isinstance(metric, str) else metric.get(key[1], "tps")
        judged = METRICS[name]
        warned = {warning.id for trial in group for warning in trial.warnings}
        if not values_in(group, name) and WHY_ABSENT.get(name) not in warned:
            continue
        pairs: dict[str, Pairs] = {}
        estimates: dict[str, Estimate] = {}
        for arm in sorted({trial.fs_setup for trial in group} - {baseline}):
            pairs[arm] = values_of(group, baseline, arm, judged.name)
            guess = _estimate(pairs[arm])
            if guess is not None:
                estimates[arm] = guess
        measured[key] = GroupPairs(judged, group, pairs, estimates)

    # All groups of the run know more about the scatter than each pair alone.
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
    table: list[Row] = []
    for key, group in pair_groups(trials, baseline, metric).items():
        level = SETTLED_LEVEL if key in settled else LEVEL
        table += _group_rows(group, baseline, margin, level)
    return table


def _group_rows(
    group: GroupPairs,
    baseline: str,
    margin: float,
    level: float,
) -> list[Row]:
    metric = group.metric
    # Holm's levels cover all pairs of the group.
    counted = group_by(chosen(group.trials), lambda trial: trial.fs_setup)
    log_ratios = {arm: guess.log_ratio() for arm, guess in group.estimates.items()}
    levels = confidences(log_ratios, 1 - level)
    # The scatter of a smoke test says nothing about the blocks of a real run.
    price = None
    if not any(is_short(trial.window) for trial in group.trials):
        price = partial(_price, block_minutes=_block_minutes(group.trials))

    # Each arm's own facts; the baseline needs no more.
    arms = (baseline, *group.pairs)
    base_trials = counted.get(baseline, [])
    mean_of = means({arm: values_in(counted.get(arm, []), metric.name) for arm in arms})
    base_class = _class_of(group.trials, baseline)
    base_row = replace(
        _arm_row(group, baseline, base_trials, mean_of[baseline]),
        ratio=None if mean_of[baseline] is None else 1.0,
        verdict=Verdict.BASELINE,
        n=len(values_in(base_trials, metric.name)),
        durability_class=base_class,
        margin=margin,
    )

    # The other arms are compared with it, and sorted from the best to the worst; those of another
    # durability class are last.
    table = []
    for arm, pairs in group.pairs.items():
        trials = counted.get(arm, [])
        row = _arm_row(group, arm, trials, mean_of[arm])
        classes = {row.durability_class, base_class}
        mixed = len(classes) > 1 and UNKNOWN not in classes
        row = replace(
            row,
            mixed_durability=mixed,
            margin=margin,
            wins=_wins(pairs, metric),
        )
        row = _judge(row, group.estimates.get(arm), levels.get(arm), metric, price)
        table.append(_with_conditions(row, base_trials, trials))
    sign = -1 if metric.better == "higher" else 1

    def place(row: Row) -> tuple[bool, bool, float, str]:
        value = sign * (row.value or 0.0)
        return row.mixed_durability, row.value is None, value, row.fs_setup

    table.sort(key=place)
    return [base_row, *table]


def _arm_row(
    group: GroupPairs,
    arm: str,
    trials: list[Trial],
    value: float | None,
) -> Row:
    """Return what is known of an arm without the baseline; `trials` are those that count."""
    first = group.trials[0]
    return Row(
        arm,
        first.engine,
        first.workload,
        value,
        durability_class=_class_of(group.trials, arm),
        notes=tuple(_notes(group.trials, arm, trials, group.metric)),
        variant=first.variant,
        trials=len(trials),
    )


def _wins(pairs: Pairs, metric: Metric) -> int:
    wins = 0
    for base, candidate in pairs:
        if base > 0 and candidate > 0 and base != candidate:
            wins += (candidate > base) == (metric.better == "higher")
    return wins


def _judge(
    row: Row,
    guess: Estimate | None,
    level: float | None,
    metric: Metric,
    price: Callable[[int | None], Remark] | None,
) -> Row:
    notes = (*row.notes, remark(RemarkKind.OTHER_CLASS)) if row.mixed_durability else row.notes
    if guess is None:
        return replace(row, notes=(*notes, remark(RemarkKind.NO_PAIR)))
    row = replace(row, ratio=guess.ratio, n=guess.n)
    if level is None:
        return replace(row, notes=(*notes, remark(RemarkKind.TOO_FEW_BLOCKS)))
    row = with_interval(row, guess.log_ratio(), level, metric)
    if row.verdict is Verdict.INCONCLUSIVE and price is not None:
        # it excludes 1, or fits the margin
        from_same = abs(guess.mean)
        decisive = max(from_same, math.log1p(row.margin) - from_same)
        notes = (*notes, price(guess.blocks_to(decisive, level)))
    return replace(row, notes=notes, df_shared=guess.shared_df)


def with_interval(
    row: Row,
    log_ratio: LogRatio,
    level: float,
    metric: Metric,
) -> Row:
    """Return the row with its interval at that confidence, and the verdict of it."""
    low, high = log_ratio.bounds(level)
    return replace(
        row,
        lo=math.exp(low),
        hi=math.exp(high),
        level=level,
        verdict=word(low, high, metric, row.margin),
        log_ratio=log_ratio,
    )


def _with_conditions(
    row: Row,
    base: Sequence[Trial],
    candidate: Sequence[Trial],
) -> Row:
    """If the device limited both arms, "same" would describe the device and not the filesystems."""
    row = replace(row, notes=(*row.notes, *unequal(base, candidate)))
    undecided = row.verdict in (Verdict.SAME, Verdict.INCONCLUSIVE)
    if undecided and device_limits(base) and device_limits(candidate):
        notes = (*row.notes, remark(RemarkKind.DEVICE_LIMITED))
        return replace(row, verdict=Verdict.LIMITED, notes=notes)
    return row


def _notes(
    group: list[Trial],
    arm: str,
    counted: list[Trial],
    metric: Metric,
) -> Iterator[Remark]:
    # Failed and suspect trials, reports of losses, warnings, and two levels.
    statuses = Counter(trial.status for trial in group if trial.fs_setup == arm)
    if failed := statuses[Status.FAILED]:
        yield remark(RemarkKind.FAILED, failed=failed)
    if suspect := sum(trial.status is Status.SUSPECT for trial in counted):
        yield remark(RemarkKind.SUSPECT, suspect=suspect)
    reports = dict[str, None]()
    for trial in counted:
        if trial.filesystem is not None:
            reports |= dict.fromkeys(trial.filesystem.reports)
    if reports:
        yield remark(RemarkKind.REPORTED, reports=", ".join(reports))
    yield from _meanings_of_warnings(counted, metric.name)
    yield from two_levels_remark(values_in(counted, metric.name))


def _meanings_of_warnings(trials: list[Trial], metric: str) -> Iterator[Remark]:
    warned = Counter[str]()  # ID of a warning -> trials that have it
    for trial in trials:
        warned.update({warning.id for warning in trial.warnings})
    # What a warning means depends on the metric that is compared.
    if warned["W002"] and metric in (*THROUGHPUT, "sustained_tps"):
        yield remark(RemarkKind.BURST)
    if warned["W003"] and metric in THROUGHPUT:
        yield remark(RemarkKind.DRAIN)
    for warning, kind in WARNED.items():
        if warned[warning]:
            yield remark(kind)
    if missed := warned["W153"]:
        yield remark(
            RemarkKind.RATE_MISSED,
            missed=missed,
            trials=len(trials),
        )
    # A decline matters to throughput, and less if only some trials show it.
    unsteady = warned["W005"]
    if unsteady and metric in (*THROUGHPUT, "sustained_tps"):
        if unsteady == len(trials):
            yield remark(RemarkKind.UNSTEADY)
        else:
            yield remark(
                RemarkKind.PARTLY_UNSTEADY,
                unsteady=unsteady,
                trials=len(trials),
            )


def values_in(trials: Iterable[Trial], metric: str) -> list[float]:
    """Return the values of the trials that have the metric."""
    values = (trial.summary.get(metric) for trial in trials)
    return [value for value in values if value is not None]


def _class_of(group: list[Trial], arm: str) -> str:
    classes = {
        trial.filesystem.durability_class
        for trial in group
        if trial.fs_setup == arm and trial.filesystem and trial.status is not Status.FAILED
    }
    return " / ".join(sorted(classes)) or UNKNOWN


def means(by_arm: Mapping[str, Iterable[float | None]]) -> Figures:
    """Return the mean of each arm's values, as everywhere in dbbench: geometric, to which the
    ratios belong, but arithmetic for all arms alike if one of them has a value that is not
    positive. None without values.
    """
    measured: dict[str, list[float]] = {}
    positive = True
    for arm, values in by_arm.items():
        measured[arm] = [value for value in values if value is not None]
        positive = positive and all(value > 0 for value in measured[arm])
    mean = statistics.geometric_mean if positive else statistics.fmean
    mean_of: Figures = {}
    for arm, numbers in measured.items():
        if len(set(numbers)) == 1:
            mean_of[arm] = numbers[0]  # exact
        else:
            mean_of[arm] = mean(numbers) if numbers else None
    return mean_of


def _block_minutes(group: list[Trial]) -> float | None:
    """Return the time of a block: the sum of each arm's mean time of a trial."""
    seconds = 0.0
    for trials in group_by(group, lambda trial: trial.fs_setup).values():
        phases = [phase.seconds for trial in trials for phase in trial.phases]
        seconds += math.fsum(phases) / len(trials)
    return seconds / 60 if seconds else None


def _price(more: int | None, block_minutes: float | None) -> Remark:
    if more is None:
        return remark(RemarkKind.TOO_MANY_BLOCKS)
    if block_minutes is None:
        return remark(RemarkKind.MORE_BLOCKS, blocks=more)
    return remark(
        RemarkKind.MORE_BLOCKS_MINUTES,
        blocks=more,
        minutes=max(1, round(more * block_minutes)),
    )


@dataclass(frozen=True, eq=False)
class Comparison:
    """The trials of a run, compared with one baseline. `primary` has the primary metric of each
    workload, `stopped` why a (group, arm) is not measured again; its row has this remark if the
    baseline was. With the primary metrics, the pairs of all workloads share their variance; with
    any other metric they share it too.
    """

    trials: Sequence[Trial]
    baseline: str
    primary: Mapping[str, str]
    margin: float = MARGIN
    stopped: Mapping[tuple[Group, str], Remark] = field(default_factory=dict)
    # "": of the primary metric of each workload
    _tables: dict[str, dict[Group, list[Row]]] = field(default_factory=dict, init=False)

    @cached_property
    def _settled_groups(self) -> set[Group]:
        return {group for (group, _), why in self.stopped.items() if why.kind is RemarkKind.SETTLED}

    def rows(self, group: Group, metric: str) -> list[Row]:
        name = "" if metric == self.primary.get(group[1], "tps") else metric
        if name not in self._tables:
            self._tables[name] = self._judge(name or self.primary)
        return self._tables[name].get(group, [])

    def _judge(self, metric: str | Mapping[str, str]) -> dict[Group, list[Row]]:
        tables: dict[Group, list[Row]] = {}
        for row in rows(self.trials, self.baseline, metric, self.margin, self._settled_groups):
            key = (row.engine, row.workload, row.variant)
            table = tables.setdefault(key, [])
            reason = self.stopped.get((key, row.fs_setup))
            # The baseline, which is the first row, was measured further.
            if reason is not None and row.n < table[0].n:
                row = replace(row, notes=(*row.notes, reason))
            table.append(row)
        return tables
