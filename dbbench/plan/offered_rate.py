"""The plan of `dbbench size`: the plan of a user, with one offered rate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dbbench.compare.sizing import unordered
from dbbench.errors import PlanInvalid
from dbbench.model import Cell, Plan


def at_rate(plan: Plan, cells: Iterable[Cell], rate: int) -> Plan:
    """Return the plan with this rate of every workload, and without a budget and repeated blocks.
    Raises PlanInvalid if its levels are not ordered, or a workload has no rate.
    """
    levels = plan.device.limit.levels if plan.device.limit else ()
    if len(levels) < 2:
        raise PlanInvalid(
            "the plan has no levels to choose from",
            remedy="List at least two in [device], for example: limit = { iops = [3000, 16000] }",
        )
    if pair := unordered(levels):
        smaller, larger, why = pair
        raise PlanInvalid(
            f"the levels {smaller.name} and {larger.name} of `limit` are not ordered: {why}",
            remedy="Begin with the smallest volume; each level must be at least as fast as the one before.",
        )
    for cell in cells:
        if "rate" not in cell.workload.parameters:
            raise PlanInvalid(
                f"workload {cell.workload.name} has no parameter `rate`",
                remedy="Use one of pgbench, sysbench or tpcc; list their parameters with dbbench workload NAME.",
            )
    workloads = []
    for workload in plan.workload:
        sweeps = {name: values for name, values in workload.sweeps.items() if name != "rate"}
        parameters = {**workload.parameters, "rate": rate}
        workloads.append(replace(workload, parameters=parameters, sweeps=sweeps))
    return replace(plan, workload=tuple(workloads), budget_s=None, repeat_suspect=False)
