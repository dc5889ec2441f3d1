"""What is kept of a night: the ratio of each arm to the reference, and whether the night was good.
The A/A guard is the reference a second time in every block. If the two differ, the night is not
valid.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dbbench import compare
from dbbench.compare.interval import estimate
from dbbench.compare.pairing import estimate_of, pairs_of, values_of
from dbbench.compare.verdict import GUARD
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Plan, Status, Trial, plain
from dbbench.model.run import title_of
from dbbench.nightly.facts import Change, changes, facts_of, known_changes, plan_of, settings_of
from dbbench.results import LoadedRun
from dbbench.units import count

ITSELF: Final = " itself"  # suffix of the reference's label for its own value, which is not a ratio
# strict, because users would switch off a guard that calls one quiet night in twenty bad
GUARD_P: Final = 0.005
GUARD_SHIFT: Final = 0.03  # the same least shift as of a change point


@dataclass(frozen=True)
class Ratio:
    """Candidate ÷ reference of a night's blocks, with an interval if they suffice; for the
    reference, its value. `suspect` of `trials` were disturbed, by `warnings`, the most frequent
    first.
    """

    ratio: float
    lo: float | None
    hi: float | None
    n: int
    better: str = "higher"
    metric: str = "tps"
    trials: int = 0
    suspect: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def disturbed(self) -> bool:
        """Return whether more than half of the trials are suspect: then it is no level."""
        return 2 * self.suspect > self.trials

    @property
    def half(self) -> float:
        """Return half the interval on the log scale; infinity without an interval."""
        if self.lo is None or self.hi is None:
            return math.inf
        return math.log(self.hi / self.lo) / 2


@dataclass(frozen=True)
class Night:
    """What is kept of a night. Keys of `ratios` and `states` are "ENGINE WORKLOAD, VARIANT: ARM",
    those of `guards` "ENGINE WORKLOAD, VARIANT".
    """

    night: str  # YYYY-MM-DD, in the local time zone of the machine
    run: str
    created: str
    good: bool = True  # accepted: nothing failed, and the guard was equal to the reference
    reasons: tuple[str, ...] = ()  # why the night was not accepted
    failed: int = 0
    ratios: dict[str, Ratio] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)  # kernel, server and package versions
    changes: tuple[Change, ...] = ()  # what differs from the previous night
    states: dict[str, str] = field(default_factory=dict)
    # levels with which the ratios were compared
    levels: dict[str, float] = field(default_factory=dict)
    # for a regression or improvement: the night of the change
    since: dict[str, str] = field(default_factory=dict)
    confirmations: dict[str, Ratio] = field(default_factory=dict)
    guards: dict[str, Ratio] = field(default_factory=dict)  # guard ÷ reference
    plan: dict[str, str] = field(default_factory=dict)  # keys of the plan and its setups
    settings: dict[str, str] = field(default_factory=dict)  # of the servers

    def level_of(self, key: str) -> Ratio | None:
        """Return the ratio if it can be part of a level: of a good night, and not disturbed."""
        ratio = self.ratios.get(key)
        return ratio if self.good and ratio is not None and not ratio.disturbed else None


@dataclass(frozen=True)
class Accepted:
    """An accepted run: nights are compared with its level from then on."""

    run: str
    created: str  # time at which the run was created
    reason: str
    at: str  # time at which it was accepted
    ratios: dict[str, Ratio]


def night_of(loaded: LoadedRun, before: Night | None = None) -> Night:
    """Return the line of a run; not `good` with a failed trial, a guard that differs from the
    reference, or a clock that went back since the night `before`.
    """
    # Why the night is not good: what failed, what is missing, what its guards say.
    failed = sum(trial.status is Status.FAILED for trial in loaded.trials)
    reasons = [f"{count(failed, 'trial')} failed"] if failed else []
    if loaded.remaining:
        reasons.append(f"{count(len(loaded.remaining), 'trial')} did not run")
    created = loaded.run.created
    if before is not None and before.created > created:
        reasons.append(
            f"the clock went back: {before.run} began at {before.created}, this night at {created}"
        )
    baseline = loaded.run.baseline
    ratios: dict[str, Ratio] = {}
    guards: dict[str, Ratio] = {}
    for (engine, workload, variant), group in compare.groups(loaded.trials).items():
        title = f"{engine} {title_of(workload, variant)}"
        metric = METRICS[loaded.run.primary.get(workload, "tps")]
        reasons += [f"{sentence} ({title})" for sentence in _guard_says(group, baseline, metric)]
        for arm, ratio in _ratios(group, baseline, metric):
            if arm == baseline + GUARD:
                guards[title] = ratio
            else:
                ratios[f"{title}: {arm}"] = ratio

    # A night without a trial that ended has the settings of the night before.
    earlier = before or Night("", "", "")
    settings = settings_of(loaded) or earlier.settings
    facts = facts_of(loaded)
    plan = plan_of(loaded)
    return Night(
        night=local_date(created).isoformat(),
        run=loaded.path.name,
        created=created,
        good=not reasons,
        reasons=tuple(reasons),
        failed=failed,
        ratios=ratios,
        facts=facts,
        changes=(
            *known_changes(earlier.facts, facts),
            *changes(earlier.plan, plan),
            *changes(earlier.settings, settings),
        ),
        guards=guards,
        plan=plan,
        settings=settings,
    )


def _ratios(
    group: Sequence[Trial],
    baseline: str,
    metric: Metric,
) -> Iterator[tuple[str, Ratio]]:
    """Yield (arm, ratio); the reference's own value shows changes that affect all arms."""
    guard = estimate_of(values_of(group, baseline, baseline + GUARD, metric.name))
    for row in compare.rows(group, baseline, metric.name):
        if row.verdict == "baseline":
            own = _own(group, baseline, metric)
            if own is not None:
                yield baseline + ITSELF, own
            continue
        if row.ratio is None:
            continue
        ratio = Ratio(row.ratio, row.lo, row.hi, row.n, metric.better, metric.name)
        if row.fs_setup == baseline + GUARD and guard is not None:
            # Its interval is its own: the level of the rows depends on how many arms there are.
            lo, hi = guard.interval()
            ratio = dataclasses.replace(ratio, lo=lo, hi=hi)
        pairs = pairs_of(group, baseline, row.fs_setup)
        yield row.fs_setup, _disturbed_by(ratio, [trial for pair in pairs for trial in pair])


def _own(group: Sequence[Trial], arm: str, metric: Metric) -> Ratio | None:
    """Return the geometric mean of the arm's valid trials, with the t interval of their logarithms."""
    trials = [trial for trial in compare.chosen(group) if trial.fs_setup == arm]
    values = [trial.summary.get(metric.name) for trial in trials]
    positive = [(1.0, value) for value in values if value]
    if not positive:
        return None
    guess = estimate(positive)
    ratio = Ratio(guess.ratio, *guess.interval(), guess.n, metric.better, metric.name)
    return _disturbed_by(ratio, trials)


def _disturbed_by(ratio: Ratio, trials: Sequence[Trial]) -> Ratio:
    """Return the ratio with the number of its suspect trials, and the warnings that made them so."""
    # A warning counts once for each trial.
    suspect = [trial for trial in trials if trial.status is Status.SUSPECT]
    warnings = Counter[str]()
    for trial in suspect:
        warnings.update({warning.id for warning in trial.warnings if warning.suspect})
    return dataclasses.replace(
        ratio,
        trials=len(trials),
        suspect=len(suspect),
        warnings=tuple(name for name, _ in warnings.most_common()),
    )


def _guard_says(
    group: Sequence[Trial],
    baseline: str,
    metric: Metric,
) -> Iterator[str]:
    """Yield a line if the guard differs from the reference."""
    guess = estimate_of(values_of(group, baseline, baseline + GUARD, metric.name))
    if (
        guess is not None
        and guess.log_ratio().p_value() < GUARD_P
        and abs(guess.mean) >= GUARD_SHIFT
    ):
        yield (
            f"the guard is {guess.ratio - 1:+.1%} from the reference that it is: the host was "
            "not quiet"
        )


def local_date(utc: str) -> datetime.date:
    """Return the date of a time in the local time zone, in which the schedule of the nights is. By
    UTC, two nights at 01:30 in Central Europe would be two dates apart at the end of summer
    time.
    """
    return datetime.datetime.fromisoformat(utc).astimezone().date()


def add_guard(plan: Plan) -> Plan:
    """Return the plan with the guard among its arms; the reference is its baseline. With kind `dir`
    and one directory per arm, the guard needs a separate directory; without one in the plan,
    there is no guard.
    """
    reference = next(
        arm for arm in plan.fs_setups if arm.label == (plan.baseline or plan.fs_setups[0].label)
    )
    label = reference.label + GUARD
    if label in {arm.label for arm in plan.fs_setups} or plan.device.directories:
        return plan
    arms = (*plan.fs_setups, dataclasses.replace(reference, label=label))
    return dataclasses.replace(
        plan,
        fs_setups=arms,
        baseline=reference.label,
    )


def document_of(night: Night) -> dict[str, Any]:
    """Return the line of a night; `breaks` are its changes as text."""
    return {**plain(night), "breaks": [change.text for change in night.changes]}
