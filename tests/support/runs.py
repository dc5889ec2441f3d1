"""A small run, which no test drives."""

import dataclasses
from typing import Any

from dbbench import model


def small_run(name: str = "r") -> model.Run:
    """Return a run of one cell in two blocks."""
    setup = model.FsSetup("ext4", model.Mkfs("ext4"), name="ext4", mount=("noatime",))
    workload = model.Workload("TPC-B", "pgbench", ("postgres",), {"kind": "pgbench"}, name="w")
    window = model.Window("fixed", 1, 2)
    engine = model.EngineSpec("postgres")
    dataset = model.Dataset("pgbench", {"scale": 1})
    cell = model.Cell(
        "ext4.postgres.w",
        "ext4",
        setup,
        engine,
        workload,
        {"clients": 4},
        dataset,
        window,
    )
    order = tuple(model.TrialSpec(f"{cell.id}-b{b}-a1", cell.id, b, 1, b) for b in (1, 2))
    plan = model.Plan(
        "p",
        (model.Arm("ext4", "ext4"),),
        (engine,),
        (model.WorkloadSpec("w"),),
        blocks=2,
    )
    return model.Run(name, "2026-01-01T00:00:00Z", plan, "cafe", (cell,), order)


def changed(noun: Any, path: str, value: Any) -> Any:
    """Return a copy with another value at a path of fields as errors name it: cells[0].engine.bins.
    The path within a dictionary is its key.
    """
    if isinstance(noun, dict):
        return {**noun, path: value}
    step, _, rest = path.partition(".")
    name, _, index = step.rstrip("]").partition("[")
    part = getattr(noun, name)
    if index:
        new = tuple(
            changed(each, rest, value) if at == int(index) else each for at, each in enumerate(part)
        )
    else:
        new = changed(part, rest, value) if rest else value
    return dataclasses.replace(noun, **{name: new})
