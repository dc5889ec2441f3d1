"""Expand a plan: complete cells, each once per block in random order, and the blocks of one host."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dbbench import model
from dbbench.errors import PlanInvalid
from dbbench.model.base import NAME
from dbbench.model.plan import MOST_TRIALS, READ_AHEAD
from dbbench.plan.catalog import MOST_SCRIPT, Catalog, dataset_of, defaults, parameters
from dbbench.plan.checks import too_many
from dbbench.plan.draft import engines_of
from dbbench.plan.server_settings import equal_setup, without_effect
from dbbench.plan.variants import Variant, variants
from dbbench.plan.workloads import dataset_of as dataset_from
from dbbench.plan.workloads import own_values, place_tables, resize
from dbbench.results.fileio import read_input


class Expanded(NamedTuple):
    """The cells of a plan, the order of its trials, and why arms have no cell with an engine."""

    cells: tuple[model.Cell, ...]
    order: tuple[model.TrialSpec, ...]
    skipped: Mapping[str, str] = MappingProxyType({})  # arm -> why it has no cell with an engine


def expand(plan: model.Plan, catalog: Catalog) -> Expanded:
    """Return all cells of a plan, and its trials in the order in which they run. A script next to
    its workload's file is named by its absolute path in the cell. An arm that is the same as
    another setup with an engine has no cells with it. Raises PlanInvalid if there are more cells
    or trials than a run can have, or if the baseline is such an arm.
    """
    workloads = [(spec, catalog.workload(spec.name)) for spec in plan.workload]
    if reason := too_many(plan, workloads):
        raise PlanInvalid(reason)
    cells, skipped = _distinct(plan, _cells(plan, catalog), catalog)
    # The folder of a trial has its name.
    for cell in cells:
        if not NAME.fullmatch(f"{cell.id}-b{MOST_TRIALS}-a99"):  # a trial's directory has this name
            raise PlanInvalid(
                f'"{cell.id[:300]}" is too long for the name of a trial; use shorter labels and '
                "names"
            )
    return Expanded(cells, tuple(make_order(cells, plan.blocks, plan.seed)), skipped)


def identity(plan: model.Plan, cells: tuple[model.Cell, ...]) -> str:
    """Return a SHA-256 over everything that determines the measurement: plan, setups, workloads,
    contents of scripts. Comments, the order of keys and the location of files do not change it,
    nor do earlier trials, nor how large a budget is: a larger one continues the same run. Nor
    does `margin`, which judges what was measured.
    """
    whole: dict[str, Any] = {
        "plan": model.plain(plan),
        "cells": [model.plain(cell.without_measurements) for cell in cells],
    }
    # What does not change a measurement is no part of it.
    del whole["plan"]["margin"]
    if whole["plan"].pop("budget_s") is not None:
        whole["budget"] = True
    # Scripts count by their content, wherever they are.
    for cell in whole["cells"]:
        workload = cell["workload"]
        if Path(workload["script"]).is_absolute():
            workload["script"] = _sha256_of(workload["script"])
        workload["beside"] = [_sha256_of(path) for path in workload["beside"]]
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256_of(script: str) -> str:
    return hashlib.sha256(read_input(Path(script), MOST_SCRIPT)).hexdigest()


def _cells(plan: model.Plan, catalog: Catalog) -> list[model.Cell]:
    # What is the same for every cell is resolved once.
    setups = [(arm, catalog.setup_of(arm)) for arm in plan.fs_setups]
    log = catalog.setup(plan.device.wal.fs_setup) if plan.device.wal else None
    size = plan.equal_readahead_bytes
    equal = {} if size is None else {READ_AHEAD: size // 1024}
    cells = []
    for spec in plan.workload:
        workload = catalog.workload(spec.name)
        complete = dataclasses.replace(
            workload,
            script=str(catalog.script(workload) or workload.script),
            beside=tuple(map(str, catalog.beside(workload))),
        )
        # Each engine that the workload can use, with each choice of the plan's lists.
        for engine in engines_of(spec, workload, plan.engine):
            for variant in variants(plan, spec, engine, parameters(workload)):
                values, dataset = _load(spec, complete, variant)
                title = ".".join(filter(None, (engine.name, workload.name, variant.name)))
                # The filesystem changes fastest, so that the cells to be compared follow each
                # other.
                for arm, setup in setups:
                    cell = model.Cell(
                        id=f"{arm.label}.{title}",
                        arm=arm.label,
                        setup=setup,
                        engine=variant.engine,
                        workload=complete,
                        parameters=values,
                        dataset=dataset,
                        window=_window(plan, spec, workload),
                        memory_bytes=variant.memory_bytes,
                        limit=variant.limit,
                        queue={**equal, **variant.queue},
                        checkpoints=plan.checkpoints,
                        variant=variant.name,
                        client=plan.client,
                        levels=variant.levels,
                        wal_setup=log if arm.wal else None,
                    )
                    cells.append(cell)
    return cells


def _distinct(
    plan: model.Plan,
    cells: list[model.Cell],
    catalog: Catalog,
) -> tuple[tuple[model.Cell, ...], dict[str, str]]:
    """Return the cells without those that repeat another setup under a different name, and why, by
    arm.
    """
    # Only a setup with its own tuning can be equal to another one.
    if not any(cell.setup.tuning for cell in cells):
        return tuple(cells), {}
    baseline = plan.baseline_label
    repeated = _repeated_setups(sorted(cells, key=lambda cell: cell.arm != baseline), catalog)
    kept = tuple(cell for cell in cells if cell.id not in repeated)

    # The reasons of each arm, without repetition and in the order of the cells.
    partly = {(cell.arm, cell.engine.name) for cell in kept}
    reasons: dict[str, str] = {}
    for cell in cells:
        if cell.id in repeated:
            further = f" and {cell.title}" if (cell.arm, cell.engine.name) in partly else ""
            reason = (
                f"with {cell.engine.name}{further} it is the same as {repeated[cell.id]}: "
                "filesystem and server settings are equal"
            )
            earlier = reasons.get(cell.arm, "")
            if reason not in earlier:
                reasons[cell.arm] = f"{earlier}; {reason}" if earlier else reason
    # Without a baseline there would be nothing to compare with.
    if baseline in reasons:
        raise PlanInvalid(
            f'baseline "{baseline}": {reasons[baseline]}',
            remedy="Use that setup as the baseline, or an engine that the tuning is for.",
        )
    return kept, reasons


def _repeated_setups(cells: Sequence[model.Cell], catalog: Catalog) -> dict[str, str]:
    """Return the setup that a cell repeats, by the cell's ID. A cell is compared with the earlier
    cells of its engine, workload and variant. If its setup's tuning has no effect there, it is
    compared with the setups of the catalogue that have none.
    """
    repeated: dict[str, str] = {}
    setups: dict[tuple[object, ...], list[model.FsSetup]] = {}
    for cell in cells:
        earlier = setups.setdefault((*cell.group, cell.wal_setup is None), [])
        equal = equal_setup(cell, earlier)
        if equal is None and without_effect(cell):
            equal = equal_setup(cell, _setups_without_tuning(catalog))
        if equal is None:
            earlier.append(cell.setup)
        else:
            repeated[cell.id] = equal.name
    return repeated


def _setups_without_tuning(catalog: Catalog) -> Iterator[model.FsSetup]:
    """Yield the catalogue's setups without server settings. An invalid setup is skipped: the plan
    does not use it.
    """
    for name in catalog.setups:
        with contextlib.suppress(PlanInvalid):
            setup = catalog.setup(name)
            if not setup.tuning:
                yield setup


def _load(
    spec: model.WorkloadSpec,
    workload: model.Workload,
    variant: Variant,
) -> tuple[dict[str, model.Scalar], model.Dataset]:
    """Return the parameters of the workload and what is loaded, the same on every filesystem."""
    given = {**spec.parameters, **variant.parameters}
    values = {**defaults(workload), **given}
    # The user's own data replace the workload's dataset.
    dataset = dataset_from(spec, variant.engine.name)
    if dataset is not None:
        values = own_values(workload, values, given)
    values = resize(str(workload.dataset["kind"]), values, variant.memory_bytes)
    return values, dataset or place_tables(dataset_of(workload, values), spec)


def _window(
    plan: model.Plan,
    spec: model.WorkloadSpec,
    workload: model.Workload,
) -> model.Window:
    if workload.window == "to-completion":
        return model.Window("to-completion", 0.0, 0.0)
    warmup_s = plan.warmup_s if spec.warmup_s is None else spec.warmup_s
    measure_s = plan.measure_s if spec.measure_s is None else spec.measure_s
    return model.Window("fixed", warmup_s, measure_s)


def make_order(
    cells: tuple[model.Cell, ...],
    blocks: int,
    seed: int,
) -> list[model.TrialSpec]:
    """Return blocks of all cells, each in random order. Cells are sorted by draws of
    `Random(seed).random()`, whose sequence Python guarantees to keep between versions; it does
    not guarantee this for `shuffle`.
    """
    # Within a block the order is random, so that a drift of the host favours no arm.
    draw = random.Random(seed)
    order: list[model.TrialSpec] = []
    for block in range(1, blocks + 1):
        ranked = sorted((draw.random(), index) for index in range(len(cells)))
        for _, index in ranked:
            cell = cells[index].id
            trial = model.TrialSpec(f"{cell}-b{block}-a1", cell, block, 1, len(order) + 1)
            order.append(trial)
    return order


def deal(
    order: Sequence[model.TrialSpec],
    index: int,
    of: int,
) -> tuple[model.TrialSpec, ...]:
    """Return the trials of every `of`-th block, beginning with the `index`-th (from 1), in their
    order. The shares together are the whole order; two shares differ by at most one block.
    """
    return tuple(spec for spec in order if (spec.block - index) % of == 0)
