"""The A/A guard: the reference a second time in every block. Where the two differ, the night tells nothing."""

from __future__ import annotations

import dataclasses
from typing import Final

from dbbench.model import Plan

GUARD: Final = "-guard"  # after the reference's label


def guarded(plan: Plan) -> Plan:
    """The plan with the guard among its arms; the reference is its baseline.

    Of kind `dir` with a directory for each arm, the guard would need one of its own: it is left out there unless
    the plan has it.
    """
    reference = next(arm for arm in plan.fs_setups if arm.label == (plan.baseline or plan.fs_setups[0].label))
    label = reference.label + GUARD
    if label in {arm.label for arm in plan.fs_setups} or (plan.device.paths and isinstance(plan.device.paths, dict)):
        return plan
    arms = (*plan.fs_setups, dataclasses.replace(reference, label=label))
    return dataclasses.replace(plan, fs_setups=arms, baseline=reference.label)
