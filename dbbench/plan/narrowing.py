"""What the command line changes in a plan."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Arm, Plan
from dbbench.model.plan import MOST_TRIALS
from dbbench.plan.labels import default_label, label_of, split_fs
from dbbench.plan.tomlfile import did_you_mean
from dbbench.storage.filesystems.options import merge
from dbbench.units import seconds_of

# --quick: long enough for every sampler to record some seconds, and short enough for a person to
#   wait.
QUICK_WARMUP_S: Final = 2.0
QUICK_MEASURE_S: Final = 5.0


@dataclass(frozen=True)
class Narrowing:
    """The options of the command line for a plan."""

    fs: Sequence[str] = ()  # only these arms
    blocks: int | None = None
    budget: str | None = None  # a time such as "8h", from which the number of blocks follows
    seed: int | None = None
    quick: bool = False  # one block of the shortest windows
    only: Sequence[str] = ()  # only the cells with these IDs; * matches any text


def narrow(plan: Plan, to: Narrowing) -> Plan:
    """Return `plan` with these changes. Raises UnknownName, PlanInvalid. `fs` selects arms, and
    adds one with these mount options for "ext4:commit=60,data=writeback". If it excludes the
    baseline, the first remaining arm replaces it. The first blocks of a budget are the fewest
    that give an interval.
    """
    blocks = to.blocks
    if to.budget is not None and (to.quick or blocks is not None):
        other = "--quick" if to.quick else "--blocks"
        raise PlanInvalid(
            f"--budget and {other} cannot be combined: both decide the number of blocks"
        )
    if blocks is not None and not 1 <= blocks <= MOST_TRIALS:
        raise PlanInvalid(f"invalid --blocks {blocks}: must be from 1 to {MOST_TRIALS}")
    if to.fs:
        plan = _only(plan, to.fs)
    if to.quick:
        workloads = tuple(
            replace(w, warmup_s=QUICK_WARMUP_S, measure_s=QUICK_MEASURE_S) for w in plan.workload
        )
        plan = replace(plan, workload=workloads, blocks=1, budget_s=None, repeat_suspect=False)
        plan = replace(plan, warmup_s=QUICK_WARMUP_S, measure_s=QUICK_MEASURE_S)
    if to.budget is not None:
        plan = replace(plan, budget_s=_budget(to.budget), blocks=LEAST_BLOCKS)
    if blocks is not None:
        plan = replace(plan, blocks=blocks, budget_s=None)
    return plan if to.seed is None else replace(plan, seed=to.seed)


def _budget(written: str) -> float:
    try:
        if (seconds := seconds_of(written)) > 0:
            return seconds
        reason = "must be more than 0 s"
    except ValueError as error:
        reason = str(error)
    raise PlanInvalid(
        f"invalid --budget {written}: {reason}", remedy="Give a time such as 90min or 8h."
    )


def _only(plan: Plan, labels: Sequence[str]) -> Plan:
    of_label = {arm.label: arm for arm in plan.fs_setups}
    kept = set()
    added = dict[str, Arm]()
    for word, options in split_fs(labels, lambda word: label_of(word, plan.fs_setups) is not None):
        if (label := label_of(word, plan.fs_setups)) is None:
            raise UnknownName(
                f'--fs: "{word}" is not listed in fs_setups of the '
                f"plan{did_you_mean(word, of_label)}"
            )
        if not options:
            kept.add(label)
            continue
        for option in options:  # a misspelled setup after options looks like another option
            alike = [arm.use for arm in plan.fs_setups if abs(len(arm.use) - len(option)) <= 1]
            if alike and (hint := difflib.get_close_matches(option, alike, 1)):
                raise UnknownName(
                    f'--fs: "{option}" is not listed in fs_setups of the plan; did you mean '
                    f'"{hint[0]}"?'
                )
        if plan.device.existing:
            raise PlanInvalid(f'--fs: options of "{word}" have no effect with kind = "dir"')
        base = of_label[label]
        arm = replace(base, label="", mount=merge(base.mount, options))
        arm = replace(arm, label=default_label(arm, plan.device))
        if arm.label in of_label:
            kept.add(arm.label)
        else:
            added[arm.label] = arm
    arms = (*(arm for arm in plan.fs_setups if arm.label in kept), *added.values())
    device = plan.device
    if isinstance(device.paths, dict):
        paths = {label: path for label, path in device.paths.items() if label in kept}
        device = replace(device, paths=paths)
    baseline = plan.baseline if plan.baseline in kept else arms[0].label
    return replace(plan, fs_setups=arms, baseline=baseline, device=device)
