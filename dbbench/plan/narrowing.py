"""A plan with what the command line says over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Plan
from dbbench.plan.labels import label_of
from dbbench.tomlfile import did_you_mean

# Long enough for every part to say something, short enough to wait for.
QUICK_WARMUP_S: Final = 2.0
QUICK_MEASURE_S: Final = 5.0


def narrowed(
    plan: Plan,
    *,
    fs: Sequence[str] = (),
    blocks: int | None = None,
    seed: int | None = None,
    quick: bool = False,
) -> Plan:
    """`plan` with only the arms `fs`, and other blocks or seed; `quick`: one block of the shortest windows.

    Where `fs` leaves the baseline out, the first arm that is left takes its place. UnknownName, PlanInvalid.
    """
    if blocks is not None and blocks < 1:
        raise PlanInvalid(f"--blocks should be 1 or more, not {blocks}", effect="Nothing was changed.")
    if fs:
        plan = _only(plan, fs)
    if quick:
        short = tuple(
            dataclasses.replace(spec, warmup_s=QUICK_WARMUP_S, measure_s=QUICK_MEASURE_S) for spec in plan.workload
        )
        plan = dataclasses.replace(
            plan, warmup_s=QUICK_WARMUP_S, measure_s=QUICK_MEASURE_S, workload=short, blocks=1, repeat_suspect=False
        )
    return dataclasses.replace(
        plan,
        blocks=plan.blocks if blocks is None else blocks,
        seed=plan.seed if seed is None else seed,
    )


def _only(plan: Plan, labels: Sequence[str]) -> Plan:
    known, kept = [arm.label for arm in plan.fs_setups], set()
    for word in labels:
        if (label := label_of(word, plan.fs_setups)) is None:
            raise UnknownName(
                f'--fs: "{word}" is none of the plan\'s fs_setups{did_you_mean(word, known)}',
                effect="Nothing was changed.",
            )
        kept.add(label)
    arms = tuple(arm for arm in plan.fs_setups if arm.label in kept)
    device = plan.device
    if isinstance(device.paths, dict):
        paths = {label: path for label, path in device.paths.items() if label in kept}
        device = dataclasses.replace(device, paths=paths)
    baseline = plan.baseline if plan.baseline in kept else arms[0].label
    return dataclasses.replace(plan, fs_setups=arms, baseline=baseline, device=device)
