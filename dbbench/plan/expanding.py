"""What a plan expands to: complete cells, and every cell once in each block in random order."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from dbbench.catalog import Catalog, dataset_of, defaults, parameters
from dbbench.model import (
    Arm,
    Cell,
    Dataset,
    FsSetup,
    Plan,
    TrialSpec,
    Window,
    Workload,
    WorkloadSpec,
    plain,
)
from dbbench.plan.checks import engines_of
from dbbench.plan.sizes import sized
from dbbench.plan.sources import dataset_of as dataset_from
from dbbench.plan.sources import own_values
from dbbench.plan.variants import Variant, variants


class Expanded(NamedTuple):
    """The cells of a plan and the order of its trials."""

    cells: tuple[Cell, ...]
    order: tuple[TrialSpec, ...]


def expand(plan: Plan, catalog: Catalog) -> Expanded:
    """All of a plan's cells, and the trials in the order in which they are to be driven.

    A script that lies beside its workload's file is named by its whole path in the cell.
    """
    cells = tuple(_cells(plan, catalog))
    return Expanded(cells, tuple(ordered(cells, plan.blocks, plan.seed)))


def identity(plan: Plan, cells: tuple[Cell, ...]) -> str:
    """SHA-256 over all that decides what is measured: plan, setups, workloads, scripts by their content.

    Comments, the order of keys and where the files lie do not change it.
    """
    whole: dict[str, Any] = {"plan": plain(plan), "cells": plain(cells)}
    for cell in whole["cells"]:
        script = Path(cell["workload"]["script"])
        if script.is_absolute():
            cell["workload"]["script"] = hashlib.sha256(script.read_bytes()).hexdigest()
        beside = map(Path, cell["workload"]["beside"])
        cell["workload"]["beside"] = [hashlib.sha256(path.read_bytes()).hexdigest() for path in beside]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _cells(plan: Plan, catalog: Catalog) -> list[Cell]:
    setups = [(arm, catalog.setup(arm.use)) for arm in plan.fs_setups]
    log = catalog.setup(plan.device.wal.fs_setup) if plan.device.wal else None
    cells = []
    for spec in plan.workload:
        workload = catalog.workload(spec.name)
        script = catalog.script(workload)
        beside = tuple(map(str, catalog.beside(workload)))
        complete = dataclasses.replace(workload, script=str(script or workload.script), beside=beside)
        for engine in engines_of(spec, workload, plan.engine):
            loaded = dataset_from(spec, engine.name)
            for variant in variants(plan, spec, engine, parameters(workload)):
                for arm, setup in setups:
                    cell = _cell(plan, arm, setup, variant, spec, complete, loaded)
                    cells.append(dataclasses.replace(cell, wal_setup=log) if arm.wal else cell)
    return cells


def _cell(
    plan: Plan,
    arm: Arm,
    setup: FsSetup,
    variant: Variant,
    spec: WorkloadSpec,
    workload: Workload,
    loaded: Dataset | None,
) -> Cell:
    given = {**spec.parameters, **variant.parameters}
    values = {**defaults(workload), **given}
    if loaded is not None:
        values = own_values(workload, values, given)
    values = sized(str(workload.dataset["kind"]), values, variant.memory_bytes)
    name = f"{arm.label}.{variant.engine.name}.{workload.name}"
    return Cell(
        id=f"{name}.{variant.name}" if variant.name else name,
        arm=arm.label,
        setup=setup,
        engine=variant.engine,
        workload=workload,
        parameters=values,
        dataset=loaded or dataset_of(workload, values),
        window=_window(plan, spec, workload),
        memory_bytes=variant.memory_bytes,
        checkpoints=plan.checkpoints,
        variant=variant.name,
        client=plan.client,
    )


def _window(plan: Plan, spec: WorkloadSpec, workload: Workload) -> Window:
    if workload.window == "to-completion":
        return Window("to-completion", 0.0, 0.0)
    warmup_s = plan.warmup_s if spec.warmup_s is None else spec.warmup_s
    return Window("fixed", warmup_s, plan.measure_s if spec.measure_s is None else spec.measure_s)


def ordered(cells: tuple[Cell, ...], blocks: int, seed: int) -> list[TrialSpec]:
    """Blocks of all cells, each in random order.

    Cells are sorted by draws of `Random(seed).random()`, whose sequence Python promises to keep between
    versions; of `shuffle` it does not.
    """
    draw = random.Random(seed)
    order: list[TrialSpec] = []
    for block in range(1, blocks + 1):
        ranked = sorted((draw.random(), index) for index in range(len(cells)))
        for _, index in ranked:
            cell = cells[index].id
            order.append(TrialSpec(f"{cell}-b{block}-a1", cell, block, 1, len(order) + 1))
    return order
