"""What is kept of a night: the ratio of each arm to the reference, whether the night was good, and its
conditions, as far as they changed: versions, host, plan, setups and settings. The A/A guard is
the reference a second time in every block. If the two differ, the night is not valid.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dbbench import compare
from dbbench.compare.interval import estimate
from dbbench.compare.pairing import estimate_of, pairs_of, values_of
from dbbench.compare.verdict import GUARD
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Cell, Json, Plan, Status, Trial, plain
from dbbench.model.run import title_of
from dbbench.results import LoadedRun, fileio
from dbbench.units import change, count

ITSELF: Final = " itself"  # suffix of the reference's label for its own value, which is not a ratio
# strict, because users would switch off a guard that calls one quiet night in twenty bad
GUARD_P: Final = 0.005
GUARD_SHIFT: Final = 0.03  # the same least shift as of a change point
# suffix of the engine's name for the fact that records its profile
PROFILE: Final = " settings profile"
NOT_SET: Final = "not set"
# Of the plan: what judges, orders or names a run, and what the cells say in more detail.
_ELSEWHERE: Final = (
    "name",
    "seed",
    "margin",
    "expect",
    "fs_setups",
    "engine",
    "workload",
    "factors",
    "warmup_s",
    "measure_s",
)
# Of a setup or an engine: the title is prose; settings and profile are those that the trials had.
_DESCRIBED: Final = ("name", "title", "tuning", "settings", "profile", "sweeps")
_SHORT: Final = 12  # digits of a script's SHA-256


@dataclass(frozen=True)
class Change:
    """A fact that differs from the night before: a version, the host, or a key of the plan."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


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
        if self.good and ratio is not None and not ratio.disturbed:
            return ratio
        return None


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
            itself = _own(group, baseline, metric)
            if itself is not None:
                yield baseline + ITSELF, itself
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
            f"the guard is {change(guess.ratio)} from the reference that it is: the host was "
            "not quiet"
        )


def facts_of(loaded: LoadedRun) -> dict[str, str]:
    """Return the host and the versions of a run."""
    host = {"host": str(loaded.run.host["hostname"])} if loaded.run.host.get("hostname") else {}
    profiles = {
        f"{trial.engine}{PROFILE}": trial.profile for trial in loaded.trials if trial.profile
    }
    return {**host, **loaded.versions, **profiles}


def plan_of(loaded: LoadedRun) -> dict[str, str]:
    """Return the plan of a run with its setups, key by key: what a person can change in files."""
    plan = plain(loaded.run.plan)
    # The plan's own keys, those of its cells, and its scripts.
    keys = {f"plan {key}": text for key, text in _flat(plan, _ELSEWHERE)}
    keys["plan baseline"] = loaded.run.baseline
    collected: dict[str, dict[str, None]] = {}
    for cell in loaded.run.cells:
        if not cell.arm.endswith(GUARD):
            for name, text in _cell_keys(cell.without_measurements):
                collected.setdefault(name, {})[text] = None
    for name, texts in collected.items():
        keys[name] = " and ".join(texts)
    for path in sorted((loaded.path / "scripts").glob("*")):
        digest = fileio.sha256(path, loaded.path)
        keys[f"script {path.name}"] = f"SHA-256 {digest[:_SHORT]}"
    return keys


def settings_of(loaded: LoadedRun) -> dict[str, str]:
    """Return the servers' settings. One that differs between setups is "on (ext4), off (xfs)"."""
    # Of each setting its values, and the setups that have them.
    by_name: dict[str, dict[str, list[str]]] = {}
    for trial in loaded.trials:
        if trial.fs_setup.endswith(GUARD):
            continue
        for name, setting in trial.settings.items():
            arms = by_name.setdefault(f"{trial.engine} {name}", {})
            arms_of_value = arms.setdefault(_text(setting.value), [])
            if trial.fs_setup not in arms_of_value:
                arms_of_value.append(trial.fs_setup)
    texts = {}
    for name, arms in by_name.items():
        parts = [f"{value} ({', '.join(sorted(with_it))})" for value, with_it in arms.items()]
        texts[name] = ", ".join(sorted(parts)) if len(parts) > 1 else next(iter(arms))
    return texts


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Return what differs. Nothing is known of a night without any of these facts."""
    if not before or not after:
        return []
    differing = []
    for name in dict.fromkeys((*after, *before)):
        old = before.get(name, NOT_SET)
        new = after.get(name, NOT_SET)
        if old != new:
            differing.append(Change(name, old, new))
    return differing


def known_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Return what differs of the facts that both nights have recorded."""
    both = before.keys() & after.keys()
    return changes(
        {name: fact for name, fact in before.items() if name in both},
        {name: fact for name, fact in after.items() if name in both},
    )


def _cell_keys(cell: Cell) -> Iterator[tuple[str, str]]:
    whole = plain(cell)
    work = f"{cell.engine.name} {title_of(cell.workload.name, cell.variant)}"
    workload = {"driver": cell.workload.driver, "options": cell.workload.options}
    parts = {
        f"setup {cell.arm}": whole["setup"],
        f"setup {cell.arm} log": whole["wal_setup"] or {},
        cell.engine.name: whole["engine"],
        work: {
            **workload,
            "parameters": whole["parameters"],
            "dataset": whole["dataset"],
            "window": whole["window"],
        },
    }
    for part, keys in parts.items():
        for key, text in _flat(keys, _DESCRIBED):
            yield f"{part} {key}", text


def _flat(
    keys: Mapping[str, Any],
    left_out: tuple[str, ...] = (),
) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, text) of what is set."""
    for key, value in keys.items():
        if key in left_out or value is None or value in ("", [], {}):
            continue
        if isinstance(value, dict):
            for inner, text in _flat(value):
                yield f"{key}.{inner}", text
        else:
            yield key, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return " ".join(_text(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in _flat(value))
    return str(value)


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
    reference = next(arm for arm in plan.fs_setups if arm.label == plan.baseline_label)
    label = reference.label + GUARD
    if label in {arm.label for arm in plan.fs_setups} or plan.device.directories:
        return plan
    arms = (*plan.fs_setups, dataclasses.replace(reference, label=label))
    return dataclasses.replace(
        plan,
        fs_setups=arms,
        baseline=reference.label,
    )


def document_of(night: Night) -> Json:
    """Return the line of a night; `breaks` are its changes as text."""
    return {**plain(night), "breaks": [change.text for change in night.changes]}
