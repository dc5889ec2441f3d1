"""Section "Method": how the run was measured, its plan, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dbbench.errors import ResultDamaged, ResultNotRegular
from dbbench.report.page.environment import shown
from dbbench.report.page.groups import Group
from dbbench.report.sentences import budget_text
from dbbench.results.fileio import read_bytes
from dbbench.units import count, duration_text


@dataclass(frozen=True)
class WorkloadFacts:
    """What one workload does, with its parameters."""

    group: Group
    title: str
    driver: str
    window: str
    dataset: str
    parameters: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Repeat:
    """One run: its command and its plan ("" if the file no longer exists)."""

    name: str
    created: str
    command: str
    plan: str
    seed: int
    blocks: int
    plan_sha256: str
    budget: str  # the blocks that its budget gave, in words; "" without a budget


@dataclass(frozen=True)
class Method:
    """The section on the method."""

    levels: tuple[str, ...]
    workloads: tuple[WorkloadFacts, ...]
    repeats: tuple[Repeat, ...]


def method(groups: Sequence[Group], redact: Sequence[str] = ()) -> Method:
    """Return the section on how the figures were made. The plan contains hosts, paths and parameters: if one of these
    is redacted, the plan is omitted.
    """
    levels = sorted({row.level for group in groups for row in group.rows if row.level is not None})
    runs = {group.loaded.path: group.loaded for group in groups}.values()
    repeats = []
    for loaded in runs:
        plan = loaded.path / "plan.toml"
        run = loaded.run
        where = "plan.toml" if redact else str(plan)
        argv = ["dbbench", "run", where, "--new"] if run.order else ["dbbench", "powercut", where]
        text = "" if redact else _plan_text(plan)
        repeats.append(
            Repeat(run.name, run.created, shlex.join(argv), text,
                   run.plan.seed, run.blocks, run.plan_sha256, budget_text(run))
        )  # fmt: skip
    return Method(
        tuple(f"{level:.4g}" for level in levels), tuple(_workload(group) for group in groups), tuple(repeats)
    )


def _plan_text(plan: Path) -> str:
    """Return the plan file as it was given. It has no checksum and the page shows it literally, so a hard link is not
    read: it may lead to a file that only the user of this process may read. Raises ResultDamaged, which names the
    run."""
    try:
        if plan.lstat().st_nlink > 1:
            raise ResultNotRegular(f"{plan}: it is a hard link to a file with another name", effect="It was not read.")
        return read_bytes(plan, plan.parents[1]).decode("utf-8", errors="replace")
    except OSError:
        return ""
    except ResultDamaged as error:
        error.run = str(plan.parent)
        raise


def _workload(group: Group) -> WorkloadFacts:
    cell = group.cells[0]
    if cell.window.kind == "fixed":
        window = f"{duration_text(cell.window.warmup_s)} of warm-up, {duration_text(cell.window.measure_s)} measured"
    else:
        window = "runs to completion, without warm-up"
    of_dataset = cell.dataset.parameters
    dataset = " ".join([cell.dataset.kind, *(f"{key}={shown(value, key)}" for key, value in of_dataset.items())])
    parameters = tuple((key, shown(value, key)) for key, value in cell.parameters.items() if key not in of_dataset)
    return WorkloadFacts(group, cell.workload.title, cell.workload.driver, window, dataset, parameters)


def subtitle(groups: Sequence[Group]) -> str:
    """Return the line under the run's name: engines, arms × blocks, disk, kernel."""
    arms = list(dict.fromkeys(arm for group in groups for arm in group.arms))
    runs = {group.loaded.path: group.loaded.run for group in groups}.values()
    blocks = max((run.blocks for run in runs), default=0)
    engines = list(dict.fromkeys(group.engine_title for group in groups))
    devices = dict.fromkeys(
        t.device.model or t.device.kind for group in groups for t in group.trials if t.device is not None
    )
    kernels = dict.fromkeys(f"kernel {run.host['kernel']}" for run in runs if run.host.get("kernel"))
    hosts = dict.fromkeys(str(run.host["hostname"]) for run in runs if run.host.get("hostname"))
    facts = [
        ", ".join(engines),
        f"{count(len(arms), 'setup')} × {count(blocks, 'block')}",
        *devices,
        *kernels,
        *hosts,
    ]
    return " · ".join(fact for fact in facts if fact)
