"""Section "Method": how the run was measured, its plan, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace as View

from dbbench.compare.verdict import GUARD
from dbbench.errors import ResultDamaged, ResultNotRegular
from dbbench.plan.forecast import budget_text
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.trial_facts import fact_text
from dbbench.results.fileio import read_bytes
from dbbench.units import count, duration_text, size_text


def method(groups: Sequence[Group], redact: Sequence[str] = ()) -> View:
    """Return the section on how the figures were made, with the command and the plan of each run;
    without the plan if hosts, paths or parameters are redacted.
    """
    levels = sorted({row.level for group in groups for row in group.rows if row.level is not None})
    repeats = []
    for loaded in loaded_runs(groups):
        run = loaded.run
        plan = loaded.path / "plan.toml"
        where = "plan.toml" if redact else str(plan)
        command = (
            ["dbbench", "run", where, "--new"] if run.order else ["dbbench", "powercut", where]
        )
        text = "" if redact else _plan_text(plan)
        repeats.append(
            View(run=run, command=shlex.join(command), plan=text, budget=budget_text(run))
        )
    workloads = [(group, _workload(group)) for group in groups]
    return View(levels=[f"{level:.4g}" for level in levels], workloads=workloads, repeats=repeats)


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
        window = (
            f"{duration_text(cell.window.warmup_s)} of warm-up, "
            f"{duration_text(cell.window.measure_s)} measured"
        )
    else:
        window = "runs to completion, without warm-up"
    of_dataset = cell.dataset.parameters
    dataset = " ".join(
        [
            cell.dataset.kind,
            *(f"{key}={fact_text(value, key)}" for key, value in of_dataset.items()),
        ]
    )
    own = [
        f"{key}={fact_text(value, key)}"
        for key, value in cell.parameters.items()
        if key not in of_dataset
    ]
    parts = [
        f"{cell.workload.title} ({cell.workload.driver})",
        window,
        f"dataset {dataset}",
        ", ".join(own),
    ]
    return "; ".join(filter(None, parts))


def subtitle(groups: Sequence[Group]) -> str:
    """Return the line under the run's name: date, host, disk, engines, setups × blocks, kernel,
    plan.
    """
    runs = [loaded.run for loaded in loaded_runs(groups)]
    blocks = max((run.blocks for run in runs), default=0)
    devices = [
        trial.device for group in groups for trial in group.trials if trial.device is not None
    ]
    setups = [
        arm for arm in all_arms(groups) if arm not in {group.baseline + GUARD for group in groups}
    ]
    facts = [
        *dict.fromkeys(run.created[:10] for run in runs),
        *dict.fromkeys(str(run.host["hostname"]) for run in runs if run.host.get("hostname")),
        *dict.fromkeys(
            f"{d.model or f'{d.kind} device'}, {size_text(d.size_bytes)}" for d in devices
        ),
        ", ".join(dict.fromkeys(group.engine_title for group in groups)),
        f"{count(len(setups), 'setup')} × {count(blocks, 'block')}",
        *dict.fromkeys(f"kernel {run.host['kernel']}" for run in runs if run.host.get("kernel")),
        *dict.fromkeys(f"plan {run.plan.name} ({run.plan_sha256[:12]})" for run in runs),
    ]
    return " · ".join(fact for fact in facts if fact)
