"""What is kept of a night: the ratio of each arm to the reference, and whether the night was good.
The A/A guard is the reference a second time in every block. If the two differ, the night is not
valid.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dbbench import compare
from dbbench.compare.interval import estimate
from dbbench.compare.pairing import estimate_of, values_of
from dbbench.compare.verdict import GUARD
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Plan, Status, Trial, plain
from dbbench.model.run import title_of
from dbbench.results import LoadedRun

ITSELF: Final = " itself"  # suffix of the reference's label for its own value, which is not a ratio
# strict, because users would switch off a guard that calls one quiet night in twenty bad
GUARD_P: Final = 0.005
GUARD_SHIFT: Final = 0.03  # the same least shift as of a change point
# suffix of the engine's name for the fact that records its profile
PROFILE: Final = " settings profile"


@dataclass(frozen=True)
class Ratio:
    """Candidate ÷ reference of a night's blocks, with an interval if they suffice; for the
    reference, its value.
    """

    ratio: float
    lo: float | None
    hi: float | None
    n: int
    better: str = "higher"


@dataclass(frozen=True)
class Change:
    """A fact that differs from the night before: a version, or the host."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


@dataclass(frozen=True)
class Night:
    """What is kept of a night. Keys of `ratios` and `states` are "ENGINE WORKLOAD, VARIANT: ARM"."""

    night: str  # YYYY-MM-DD, in the local time zone of the machine
    run: str
    created: str
    good: bool = True  # accepted: nothing failed, and the guard was equal to the reference
    reasons: tuple[str, ...] = ()  # why the night was not accepted
    failed: int = 0
    ratios: dict[str, Ratio] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)  # kernel, server and package versions
    changes: tuple[Change, ...] = ()  # facts that differ from the previous night
    states: dict[str, str] = field(default_factory=dict)
    # levels with which the ratios were compared
    levels: dict[str, float] = field(default_factory=dict)
    # for a regression or improvement: the night of the change
    since: dict[str, str] = field(default_factory=dict)
    confirmations: dict[str, Ratio] = field(default_factory=dict)


@dataclass(frozen=True)
class Accepted:
    """An accepted run: nights are compared with its level from then on."""

    run: str
    created: str  # time at which the run was created
    reason: str
    at: str  # time at which it was accepted
    ratios: dict[str, Ratio]


def night_of(loaded: LoadedRun, before: Night | None = None) -> Night:
    """Return the line of a run; not `good` with a failed trial, or a guard that differs from the
    reference.
    """
    # Why the night is not good: what failed, what is missing, what its guards say.
    failed = sum(trial.status is Status.FAILED for trial in loaded.trials)
    reasons = [f"{failed} trials failed"] if failed else []
    if loaded.remaining:
        reasons.append(f"{len(loaded.remaining)} trials were not run")
    ratios: dict[str, Ratio] = {}
    primary = {cell.workload.name: cell.workload.primary for cell in loaded.run.cells}
    for (engine, workload, variant), group in compare.groups(loaded.trials).items():
        title = f"{engine} {title_of(workload, variant)}"
        metric = METRICS[primary.get(workload, "tps")]
        reasons += [
            f"{sentence} ({title})" for sentence in _guard_says(group, loaded.run.baseline, metric)
        ]
        ratios |= {
            f"{title}: {arm}": ratio for arm, ratio in _ratios(group, loaded.run.baseline, metric)
        }
    # What changed since the last night may explain a change of the results.
    facts = _facts(loaded)
    earlier = {} if before is None else before.facts
    changes = tuple(
        Change(name, earlier[name], fact)
        for name, fact in facts.items()
        if earlier.get(name, fact) != fact
    )
    created = loaded.run.created
    return Night(
        local_date(created).isoformat(),
        loaded.path.name,
        created,
        not reasons,
        tuple(reasons),
        failed,
        ratios,
        facts,
        changes,
    )


def _ratios(
    group: Sequence[Trial],
    baseline: str,
    metric: Metric,
) -> Iterator[tuple[str, Ratio]]:
    """Yield (arm, ratio) except for the guard; the reference's own value shows changes that affect
    all arms.
    """
    for row in compare.rows(group, baseline, metric.name):
        if row.verdict == "baseline" and row.value is not None:
            yield baseline + ITSELF, _own(group, baseline, metric)
        elif not row.fs_setup.endswith(GUARD) and row.ratio is not None:
            yield (
                row.fs_setup,
                Ratio(
                    row.ratio,
                    row.lo,
                    row.hi,
                    row.n,
                    metric.better,
                ),
            )


def _own(group: Sequence[Trial], arm: str, metric: Metric) -> Ratio:
    """Return the geometric mean of the arm's valid trials, with the t interval of their logarithms."""
    values = [
        trial.summary.get(metric.name) for trial in compare.chosen(group) if trial.fs_setup == arm
    ]
    guess = estimate([(1.0, value) for value in values if value])
    return Ratio(
        guess.ratio,
        *guess.interval(),
        guess.n,
        metric.better,
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


def _facts(loaded: LoadedRun) -> dict[str, str]:
    host = {"host": str(loaded.run.host["hostname"])} if loaded.run.host.get("hostname") else {}
    profiles = {
        f"{trial.engine}{PROFILE}": trial.profile for trial in loaded.trials if trial.profile
    }
    return {**host, **loaded.versions, **profiles}


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
