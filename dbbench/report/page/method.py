"""Section "Method": how the run was measured, its plan, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dbbench.compare.verdict import GUARD
from dbbench.errors import ResultDamaged, ResultNotRegular
from dbbench.model import Run, Scalar
from dbbench.plan.forecast import budget_text
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.trial_facts import fact_text
from dbbench.results.fileio import read_bytes
from dbbench.units import count, duration_text, size_text


class Repeat(NamedTuple):
    """A run, the command that repeats it, and its plan file (empty if it is not shown)."""

    run: Run
    command: str
    plan: str
    budget: str


class MethodSection(NamedTuple):
    """The section. `levels` are those of the confidence intervals."""

    levels: list[str]
    workloads: list[tuple[Group, str]]
    repeats: list[Repeat]


def method(groups: Sequence[Group], redact: Sequence[str] = ()) -> MethodSection:
    """Return the section on how the figures were made, with the command and the plan of each run;
    without the plan if hosts, paths or parameters are redacted.
    """
    levels = sorted({row.level for group in groups for row in group.rows if row.level is not None})

    # The command that repeats each run.
    repeats = []
    for loaded in loaded_runs(groups):
        run = loaded.run
        plan = loaded.path / "plan.toml"
        where = "plan.toml" if redact else str(plan)
        words = ["run", where, "--new"] if run.order else ["powercut", where]
        text = "" if redact else _plan_text(plan)
        repeats.append(
            Repeat(
                run,
                shlex.join(["dbbench", *words]),
                text,
                budget_text(run),
            )
        )
    workloads = [(group, _workload(group)) for group in groups]
    return MethodSection([f"{level:.4g}" for level in levels], workloads, repeats)


def _plan_text(plan: Path) -> str:
    """Return the plan file as given. It has no checksum and the page shows it literally, so a hard
    link is not read: it may lead to a file that only the user of this process may read. Raises
    ResultDamaged, which names the run.
    """
    try:
        if plan.lstat().st_nlink > 1:
            raise ResultNotRegular(
                f"{plan}: it is a hard link to a file with another name", effect="It was not read."
            )
        return read_bytes(plan, plan.parents[1]).decode("utf-8", errors="replace")
    except OSError:
        return ""
    except ResultDamaged as error:
        error.run = str(plan.parent)
        raise


def _workload(group: Group) -> str:
    cell = group.cells[0]
    if cell.window.kind == "fixed":
        warmup = duration_text(cell.window.warmup_s)
        window = f"{warmup} of warm-up, {duration_text(cell.window.measure_s)} measured"
    else:
        window = "runs to completion, without warm-up"

    # A parameter of the dataset is named with the dataset only.
    of_dataset = _parameters(cell.dataset.parameters)
    others = {
        key: cell.parameters[key] for key in cell.parameters if key not in cell.dataset.parameters
    }
    parts = [
        f"{cell.workload.title} ({cell.workload.driver})",
        window,
        " ".join(["dataset", cell.dataset.kind, *of_dataset]),
        ", ".join(_parameters(others)),
    ]
    return "; ".join(filter(None, parts))


def _parameters(values: Mapping[str, Scalar]) -> list[str]:
    return [f"{key}={fact_text(value, key)}" for key, value in values.items()]


def subtitle(groups: Sequence[Group]) -> str:
    """Return the line under the run's name: date, host, disk, engines, setups × blocks, kernel,
    plan.
    """
    runs = [loaded.run for loaded in loaded_runs(groups)]
    blocks = max((run.blocks for run in runs), default=0)
    devices = []
    for group in groups:
        for trial in group.trials:
            if device := trial.device:
                model = device.model or f"{device.kind} device"
                devices.append(f"{model}, {size_text(device.size_bytes)}")

    # A guard is the baseline a second time, not a setup.
    guards = {group.baseline + GUARD for group in groups}
    setups = [arm for arm in all_arms(groups) if arm not in guards]
    engines = dict.fromkeys(group.engine_title for group in groups)
    compared = count(len(setups), "setup")
    if any(run.order for run in runs):  # the power-loss lab runs no blocks
        compared += f" × {count(blocks, 'block')}"
    facts = [
        *dict.fromkeys(run.created[:10] for run in runs),
        *dict.fromkeys(str(run.host["hostname"]) for run in runs if run.host.get("hostname")),
        *dict.fromkeys(devices),
        ", ".join(engines),
        compared,
        *dict.fromkeys(f"kernel {run.host['kernel']}" for run in runs if run.host.get("kernel")),
        *dict.fromkeys(f"plan {run.plan.name} ({run.plan_sha256[:12]})" for run in runs),
    ]
    return " · ".join(filter(None, facts))
