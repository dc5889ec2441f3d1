"""What the command line changes in a plan."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.compare.sizing import find_disorder
from dbbench.errors import PlanInvalid, UnknownName, UsageInvalid
from dbbench.errors.similar_names import did_you_mean
from dbbench.model import Arm, Json, Plan
from dbbench.model.plan import MOST_TRIALS
from dbbench.model.times import QUICK_MEASURE_S, QUICK_WARMUP_S
from dbbench.plan.catalog import Catalog
from dbbench.plan.labels import default_label, label_of, split_fs
from dbbench.storage.filesystems.added_options import merge
from dbbench.units import seconds_of


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
    """Return `plan` with these changes. Raises UnknownName, UsageInvalid, PlanInvalid. `fs` selects arms, and
    adds one with these mount options for "ext4:commit=60,data=writeback". If it excludes the
    baseline, the first remaining arm replaces it. The first blocks of a budget are the fewest
    that give an interval.
    """
    # Options that contradict each other are refused before anything is changed.
    blocks = to.blocks
    if to.budget is not None and (to.quick or blocks is not None):
        other = "--quick" if to.quick else "--blocks"
        raise UsageInvalid(
            f"--budget and {other} cannot be combined: both decide the number of blocks"
        )
    if blocks is not None and not 1 <= blocks <= MOST_TRIALS:
        raise UsageInvalid(f"invalid --blocks {blocks}: must be from 1 to {MOST_TRIALS}")
    # The filesystems are chosen first, since the rest applies to those that remain.
    if to.fs:
        plan = _only(plan, to.fs)
    # A quick look is one block of short windows, whatever the plan says.
    if to.quick:
        windows: Json = {"warmup_s": QUICK_WARMUP_S, "measure_s": QUICK_MEASURE_S}
        workloads = tuple(replace(workload, **windows) for workload in plan.workload)
        plan = replace(plan, workload=workloads, **windows)
        plan = replace(
            plan,
            blocks=1,
            budget_s=None,
            repeat_suspect=False,
        )
    # A budget begins with the fewest blocks; it adds more while time is left.
    if to.budget is not None:
        plan = replace(
            plan,
            budget_s=seconds_of(to.budget),
            blocks=LEAST_BLOCKS,
        )
    if blocks is not None:
        plan = replace(plan, blocks=blocks, budget_s=None)
    if to.seed is None:
        return plan
    return replace(plan, seed=to.seed)


def at_rate(plan: Plan, available: Catalog, rate: int) -> Plan:
    """Return the plan with this rate of every workload, and without a budget and repeated blocks.
    Raises PlanInvalid if its levels are not ordered, or a workload has no rate.
    """
    levels = plan.device.limit.levels if plan.device.limit else ()
    if len(levels) < 2:
        raise PlanInvalid(
            "the plan has no levels to choose from",
            remedy="List at least two in [device], for example: limit = { iops = [3000, 16000] }",
        )
    if pair := find_disorder(levels):
        smaller, larger, why = pair
        raise PlanInvalid(
            f"the levels {smaller.name} and {larger.name} of `limit` are not ordered: {why}",
            remedy="Begin with the smallest volume; each level must be at least as fast as the one before.",
        )
    workloads = []
    for workload in plan.workload:
        if "rate" not in available.workload(workload.name).parameters:
            raise PlanInvalid(
                f"workload {workload.name} has no parameter `rate`",
                remedy="Use one of pgbench, sysbench or tpcc; list their parameters with dbbench workload NAME.",
            )
        sweeps = {name: values for name, values in workload.sweeps.items() if name != "rate"}
        parameters = {**workload.parameters, "rate": rate}
        workloads.append(replace(workload, parameters=parameters, sweeps=sweeps))
    return replace(plan, workload=tuple(workloads), budget_s=None, repeat_suspect=False)


def _only(plan: Plan, entries: Sequence[str]) -> Plan:
    arms = {arm.label: arm for arm in plan.fs_setups}
    kept = set()
    added = dict[str, Arm]()
    # Each entry keeps an arm of the plan, or adds one with more options.
    for word, options in split_fs(entries, lambda word: label_of(word, arms.values()) is not None):
        label = label_of(word, arms.values())
        if label is None:
            hint = did_you_mean(word, arms)
            raise UnknownName(f'--fs: "{word}" is not listed in fs_setups of the plan{hint}')
        if not options:
            kept.add(label)
            continue
        arm = _with_options(plan, arms[label], word, options)
        if arm.label in arms:
            kept.add(arm.label)
        else:
            added[arm.label] = arm

    # The arms in the order of the plan, then the added ones.
    chosen = [arm for arm in plan.fs_setups if arm.label in kept]
    chosen += added.values()
    device = plan.device
    # Directories of arms that were excluded are not used.
    if isinstance(device.paths, dict):
        paths = {label: path for label, path in device.paths.items() if label in kept}
        device = replace(device, paths=paths)
    baseline = plan.baseline if plan.baseline in kept else chosen[0].label
    return replace(
        plan,
        fs_setups=tuple(chosen),
        baseline=baseline,
        device=device,
    )


def _with_options(
    plan: Plan,
    base: Arm,
    word: str,
    options: tuple[str, ...],
) -> Arm:
    """Return the arm with these mount options. Raises UnknownName for a misspelled setup, which
    looks like another option; PlanInvalid.
    """
    for option in options:
        alike = [arm.use for arm in plan.fs_setups if abs(len(arm.use) - len(option)) <= 1]
        hints = difflib.get_close_matches(option, alike, 1)
        if hints:
            raise UnknownName(
                f'--fs: "{option}" is not listed in fs_setups of the plan; did you mean '
                f'"{hints[0]}"?'
            )
    if plan.device.existing:
        raise PlanInvalid(f'--fs: options of "{word}" have no effect with kind = "dir"')
    arm = replace(base, label="", mount=merge(base.mount, options))
    return replace(arm, label=default_label(arm, plan.device))
