"""What the coordinator and the hosts of a fleet send each other: the parts of a plan, each of which
is run by one host as a whole, because pairs are formed within a block; and their results, the files
of a run's folder by name.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dbbench import results
from dbbench.fleet.fleet_files import Fleet
from dbbench.model import Budget, Json, Run
from dbbench.plan.request import PlanRequest, take_share
from dbbench.results import merging
from dbbench.results.at_ceiling import FILE as CEILING
from dbbench.results.fileio import RAW, writing
from dbbench.run.adaptive import extend, further
from dbbench.units import group_by


@dataclass(frozen=True)
class Part:
    """What one host runs at a time."""

    name: str  # also the name of a folder
    run: Run  # as the host begins it, with the order of the part
    host: str | None = None  # the only host that may run it

    @property
    def trials(self) -> set[tuple[str, str]]:
        """Return the name of its run with each trial's id."""
        return {(self.run.name, spec.id) for spec in self.run.order}


@dataclass(frozen=True)
class Given:
    """What the command gives to all parts."""

    plan: str  # content of the plan file
    scripts: dict[str, str]
    wipe: tuple[str, ...] = ()  # devices that may be erased


@dataclass(frozen=True)
class PartOutcome:
    """What a host returns for a part: its finished trials, or the error that kept it from running
    them.
    """

    host: str
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    error: Json | None = None


def parts_of(fleet: Fleet, run: Run, wanted: PlanRequest) -> list[Part]:
    """Return the whole plan for each host (`each`), or its blocks; with a budget, which applies to
    a host, shares of the blocks.
    """
    if fleet.mode == "each":
        runs = {host: dataclasses.replace(run, name=fleet.run_of(host)) for host in fleet.hosts}
        return [Part(host, of_host, host) for host, of_host in runs.items()]
    if wanted.plan.budget_s is None:
        return blocks_of(run)
    parts = []
    hosts = len(fleet.hosts)
    for number in range(1, hosts + 1):
        order = take_share(wanted, (number, hosts)).expanded.order
        share = dataclasses.replace(run, order=order, budget=Budget(step=hosts))
        parts.append(Part(f"share-{number}", share))
    return parts


def blocks_of(run: Run) -> list[Part]:
    """Return each block of the run, and each repeat of one."""
    parts = []
    of_blocks = group_by(run.order, lambda spec: (spec.block, spec.attempt))
    for (block, attempt), order in of_blocks.items():
        name = f"block-{block}" if attempt == 1 else f"block-{block}-a{attempt}"
        # A host adds no blocks of its own, and is not itself a fleet.
        of_block = dataclasses.replace(run, order=tuple(order), precision=None, hosts={})
        parts.append(Part(name, of_block))
    return parts


def further_parts(
    folder: results.RunFolder,
    run: Run,
    hosts: int,
) -> list[Part]:
    """Return more blocks for the collected run in `folder`, and store them in its order: repeats of
    blocks with a suspect trial; if there are none, blocks of open questions, one for each host
    before the precision is checked again. Plan and cells are those of `run`.
    """
    trials = {trial.id: trial for trial in folder.trials}
    before = dataclasses.replace(folder.run, precision=run.precision)
    longer = extend(before, lambda spec: folder.trial(spec).status)
    if longer.order == before.order and longer.precision is not None:
        for _ in range(hosts):
            longer = further(longer, trials)
    folder.save(longer)
    return blocks_of(dataclasses.replace(run, order=longer.order[len(before.order) :]))


def pack(folder: Path) -> dict[str, bytes]:
    """Return the run in `folder` with its finished trials. Raises ImportRefused, ResultDamaged."""
    finished = results.list_results(folder)
    trials = [spec.id for spec in results.load_spec(folder).order if spec.id in finished]
    names = ["run.json", "plan.toml"]
    if os.path.lexists(folder / CEILING):
        names.append(CEILING)
    for part in ("scripts", *(f"trials/{trial}" for trial in trials)):
        if (folder / part).is_dir():
            names += [f"{part}/{name}" for name, _size in merging.files_of(folder / part)]
    return {name: merging.read(folder / name, folder.parent, most=RAW) for name in names}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a run to `folder`, where `merging.merge` verifies it. Raises ImportRefused for a name
    that leads out of it, NotWritable.
    """
    for name, content in files.items():
        path = folder / merging.inner(name)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
