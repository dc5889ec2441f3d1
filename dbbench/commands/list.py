"""`dbbench list`: the runs of the results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dbbench import __version__, nightly, store
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json, put_table
from dbbench.errors import ResultDamaged
from dbbench.model import Status, plain
from dbbench.store import index


@command_line()
@click.option("--regressions", is_flag=True, help="Instead: every regression that nights have confirmed, newest first.")
@results_option
def command(options: Options, results: str, regressions: bool) -> None:
    """The runs of the results folder, with how far each has come. Checksums are not looked at here."""
    folder = Path(results)
    if regressions:
        _put_regressions(options, folder)
        return
    rows = index.rows(folder, store.runs(folder), _row, __version__) if folder.is_dir() else []
    if options.json:
        put_json(rows)
    elif not rows:
        put(f"{folder} holds no run. dbbench init writes a plan, dbbench run plan.toml drives it.")
    else:
        header = ("run", "created", "state", "trials", "ok", "suspect", "failed", "filesystems")
        put_table(header, [_words(row) for row in rows], right="---rrrr")


def _put_regressions(options: Options, folder: Path) -> None:
    """A row for each run of nights on which a series stood confirmed as a regression."""
    found = nightly.regressions(folder)
    if options.json:
        put_json([plain(one) for one in found])
    elif not found:
        put(f"No night in {folder} has confirmed a regression.")
    else:
        rows = [(one.since, one.plan, one.series, f"{one.ratio:.3f}", one.until or "still", one.run) for one in found]
        put_table(("since", "plan", "series", "ratio", "until", "run"), rows, right="---r")


def _row(path: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": path.name, "path": str(path), "state": "damaged"}
    empty = ("created", "plan", "trials", "done", "ok", "suspect", "failed", "fs_setups", "engines", "workloads")
    try:
        run = store.load_run(path, verify=False)
    except ResultDamaged as error:
        return {**row, **dict.fromkeys(empty), "error": error.evidence}
    counts = {status.value: sum(trial.status is status for trial in run.trials) for status in Status}
    cells = run.run.cells
    return {
        **row,
        "state": "unfinished" if run.unfinished else "finished",
        "created": run.run.created,
        "plan": run.run.plan.name,
        "trials": len(run.run.order),
        "done": len(run.trials),
        **counts,
        "fs_setups": [arm.label for arm in run.run.plan.fs_setups],
        "engines": list(dict.fromkeys(cell.engine.name for cell in cells)),
        "workloads": list(dict.fromkeys(cell.workload.name for cell in cells)),
        "error": None,
    }


def _words(row: dict[str, Any]) -> tuple[object, ...]:
    if row["error"]:
        return (row["name"], None, "damaged", None, None, None, None, row["error"])
    created = row["created"][:16].replace("T", " ")
    trials = f"{row['done']}/{row['trials']}"
    return (row["name"], created, row["state"], trials, row["ok"], row["suspect"], row["failed"],
            " ".join(row["fs_setups"]))  # fmt: skip
