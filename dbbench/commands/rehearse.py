"""`dbbench rehearse PLAN`: try the setups that this kernel lacks in a second one, at a small scale."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from dbbench import __version__, store
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.planning import Asked, asked
from dbbench.commands.text import put, put_json, put_table
from dbbench.errors import EXIT_OK, EXIT_TRIAL_FAILED, RunNameTaken
from dbbench.model import Status, Trial
from dbbench.store import LoadedRun


class Tried(NamedTuple):
    """An fs setup of the plan, and what came of it."""

    fs_setup: str  # the arm's label
    lacks: str | None  # why it does not work under this machine's own kernel
    worked: bool
    trials: tuple[Trial, ...]


@command_line()
@click.argument("plan_file", metavar="PLAN")
@click.option("--fs", metavar="A,B", help="Only these of the plan's fs_setups.")
@click.option("--all", "every", is_flag=True, help="Also those that work under this machine's own kernel.")
@click.option("--name", metavar="RUN", help="The new run's name.")
@click.option("--progress", type=click.Choice(["auto", "plain", "json", "none"]), default="auto", show_default=True)
@results_option
def command(options: Options, plan_file: str, fs: str | None, every: bool, name: str | None, progress: str,
            results: str) -> int:  # fmt: skip
    """Try the plan's setups that this kernel lacks in a second kernel, at a small scale.

    One block of windows of seconds, small datasets, loop files of 1 GiB: it shows that each setup can be made,
    filled, measured and removed before the plan goes to the server. Its figures are not comparable. The second
    kernel (user-mode Linux with OpenZFS, md, LVM, f2fs, nilfs2) is built once, in some minutes.
    """
    wanted = asked(plan_file, options.paths, fs=fs, blocks=None, quick=False, seed=None)
    if name and (Path(results) / name).exists():
        raise RunNameTaken(f"a run {name} exists", effect="Nothing was changed.", remedy="Give another --name.")
    lacks = lacking(wanted)
    arms = [arm for arm, reason in lacks.items() if reason is not None or every]
    if not arms:
        _nothing_to_do(options, lacks)
        return EXIT_OK
    folder, faults, kernel = _rehearsed(options, wanted, arms, Path(results).resolve(), name, progress)
    run = store.load_run(folder)
    tried = [_tried(arm, lacks[arm], run) for arm in arms]
    _put(options, run, tried, kernel, faults)
    return EXIT_OK if all(one.worked for one in tried) and not faults else EXIT_TRIAL_FAILED


def lacking(wanted: Asked) -> dict[str, str | None]:
    """By arm: why its setup does not work under this machine's own kernel; None where it does."""
    from dbbench import filesystems

    return {cell.arm: filesystems.works(cell.setup) for cell in wanted.expanded.cells}


def _rehearsed(options: Options, wanted: Asked, arms: list[str], results: Path, name: str | None, progress: str
               ) -> tuple[Path, tuple[str, ...], str]:  # fmt: skip
    """Drive the small plan inside; the run's folder, faults of the second kernel, and its version."""
    from dbbench.commands.choosing import create, free_name, keep_scripts
    from dbbench.plan import identity
    from dbbench.progress import renderer
    from dbbench.progress.events import Event
    from dbbench.rehearsal import rehearsed
    from dbbench.rehearsal.kept import small_root
    from dbbench.rehearsal.small import PLACE, small

    with renderer("none" if options.quiet and progress == "auto" else progress, sys.stderr,
                  color=not options.no_color) as emit:  # fmt: skip
        small_root(lambda what: emit(Event("prepare", {"what": what})))  # before the run's folder is made
        plan, expanded = small(wanted.plan, wanted.expanded, arms, PLACE)
        less = dataclasses.replace(wanted, plan=plan, expanded=expanded, sha256=identity(plan, expanded.cells))
        folder = create(results, less, name or free_name(results, f"{plan.name}-rehearsal"), __version__)
        keep_scripts(folder, less)
        done = rehearsed(folder, emit)
    return folder, done.faults, done.kernel


def _tried(arm: str, lacks: str | None, run: LoadedRun) -> Tried:
    trials = tuple(trial for trial in run.trials if trial.fs_setup == arm)
    planned = sum(cell.arm == arm for cell in run.run.cells)
    worked = len(trials) == planned and all(trial.status is not Status.FAILED for trial in trials)
    return Tried(arm, lacks, worked, trials)


def _nothing_to_do(options: Options, lacks: dict[str, str | None]) -> None:
    if options.json:
        put_json({"run": None, "path": None, "kernel": None, "comparable": False, "setups": [], "faults": []})
        return
    put(f"This machine's own kernel has all that {', '.join(lacks)} needs. With --all they are rehearsed anyway.")


def _put(options: Options, run: LoadedRun, tried: list[Tried], kernel: str, faults: tuple[str, ...]) -> None:
    if options.json:
        put_json({"run": run.path.name, "path": str(run.path), "kernel": kernel, "comparable": False,
                  "setups": [_document(one) for one in tried], "faults": list(faults)})  # fmt: skip
        return
    rows = []
    for one in tried:
        bad = next((trial for trial in one.trials if trial.error is not None), None)
        why = f"{bad.error.phase or '?'}: {bad.error.id} {bad.error.text}" if bad and bad.error else ""
        rows.append((one.fs_setup, "worked" if one.worked else "failed", len(one.trials), why or one.lacks or ""))
    put(f"Rehearsed under Linux {kernel} (user-mode Linux): that it works, not how fast. Figures are not comparable.")
    put_table(("filesystem", "outcome", "trials", "why"), rows, right="--r-")
    for line in faults:
        put(f"the second kernel told of a fault of its own: {line}")
    put(f"results: {run.path}")


def _document(one: Tried) -> dict[str, Any]:
    errors = [{"trial": trial.id, "id": trial.error.id, "phase": trial.error.phase, "text": trial.error.text}
              for trial in one.trials if trial.error is not None]  # fmt: skip
    return {"fs_setup": one.fs_setup, "lacks": one.lacks, "worked": one.worked,
            "trials": [trial.id for trial in one.trials], "errors": errors}  # fmt: skip
