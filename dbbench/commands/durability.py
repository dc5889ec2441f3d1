"""`dbbench durability PLAN`: the power-cut lab."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from dbbench import __version__, store
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.planning import Asked, able, asked
from dbbench.commands.text import put, put_json, put_table
from dbbench.errors import EXIT_OK, LabBlind, LabContradicts, LabInvalid, RunMissing, RunNameTaken
from dbbench.model import LabFacts, LabRow, plain

CUTS = 30  # of each setup and engine, where neither --cuts nor --minutes says otherwise


@command_line()
@click.argument("plan_file", metavar="PLAN")
@click.option("--cuts", type=click.IntRange(2), metavar="N", help=f"Of each setup under each engine [default: {CUTS}].")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), metavar="M", help="Of all; ends what is left.")
@click.option("--fs", metavar="A,B", help="Only these of the plan's fs_setups.")
@click.option("--seed", type=int, metavar="N", help="Other cuts.")
@click.option("--name", metavar="RUN", help="The run's name; of a run of the same plan: its page shows both.")
@click.option("--progress", type=click.Choice(["auto", "plain", "json", "none"]), default="auto", show_default=True)
@results_option
def command(options: Options, plan_file: str, cuts: int | None, minutes: float | None, fs: str | None,
            seed: int | None, name: str | None, progress: str, results: str) -> int:  # fmt: skip
    """Cut the power below the plan's filesystems, recover, and look up every acknowledged commit.

    Each fs setup under each engine works on disks of the lab's own, in memory; the plan's device is not touched.
    Controls that must lose are tried first: where they do not, the lab is blind and says nothing. The exit code is 1
    where a computed durability class is contradicted.
    """
    wanted = able(asked(plan_file, options.paths, fs=fs, blocks=None, quick=False, seed=seed), options.paths)
    shown = "none" if options.quiet and progress == "auto" else progress
    cuts = CUTS if cuts is None and minutes is None else cuts
    folder = _examined(options, wanted, Path(results).resolve(), name, cuts, minutes, shown)
    run = store.load_run(folder)
    assert run.lab is not None
    from dbbench.commands.finding import report_of
    from dbbench.commands.report import write

    page = write([run], report_of(folder))
    if options.json:
        put_json({"run": folder.name, "path": str(folder), "report": str(page), **document(run.lab)})
    else:
        _put(run.lab, folder, page)
    _judge(run.lab)
    return EXIT_OK


def _examined(options: Options, wanted: Asked, results: Path, name: str | None, cuts: int | None,
              minutes: float | None, progress: str) -> Path:  # fmt: skip
    from dbbench.errors import LabUnavailable
    from dbbench.powercut import Order, examined, unavailable
    from dbbench.progress import renderer

    if why := unavailable():
        raise LabUnavailable(why, effect="Nothing was changed.")
    folder = folder_of_lab(results, wanted, name)
    with renderer(progress, sys.stderr, color=not options.no_color) as emit, store.locked(folder):
        examined(folder, Order(wanted.plan.seed, cuts, minutes), emit)
    return folder


def folder_of_lab(results: Path, wanted: Asked, name: str | None) -> Path:
    """A new folder for the lab alone, or one of the same plan in which no lab has found anything yet: that of a run, or
    that of a lab which was stopped before its first cut. RunNameTaken."""
    from dbbench.commands.choosing import create, free_name

    # Not the plan's own hash: `run` would take this folder for a run of the plan that is done.
    alone = dataclasses.replace(wanted, sha256=f"powercut-{wanted.sha256}",
                                expanded=wanted.expanded._replace(order=()))  # fmt: skip
    if name is None or not (results / name).exists():
        return create(results, alone, name or free_name(results, f"{wanted.plan.name}-powercut"), __version__)
    folder = results / name
    with contextlib.suppress(RunMissing):
        if store.load_spec(folder).plan_sha256 in (wanted.sha256, alone.sha256) and _holds_no_cut(folder):
            return folder
    raise RunNameTaken(
        f"{folder} holds another plan, or what a lab has found",
        effect="Nothing was changed.",
        remedy="Give another --name.",
    )


def _holds_no_cut(folder: Path) -> bool:
    lab = store.load_lab(folder, verify=False)
    return lab is None or not (lab.complete or lab.rows)


def document(lab: LabFacts) -> dict[str, Any]:
    """What --json prints of a lab."""
    found: dict[str, Any] = plain(lab)
    return {**found, "blind": list(lab.blind)}


def settings_text(row: LabRow) -> str:
    """The settings of a row in words; "" for the engine's default."""
    return ", ".join(f"{name}={value}" for name, value in row.settings.items())


def _put(lab: LabFacts, folder: Path, page: Path) -> None:
    heads = ("filesystem", "engine", "settings", "class", "cuts", "commits", "lost", "torn", "failed", "flushes/commit",
             "what may be said")  # fmt: skip
    rows = [
        (row.fs_setup, f"{row.engine} {row.engine_version}".strip(), settings_text(row) or "–", row.durability_class,
         row.valid, row.acknowledged, row.lost, row.torn, row.failed_recoveries,
         "–" if row.flushes_per_commit is None else f"{row.flushes_per_commit:.2f}", row.statement)
        for row in lab.rows
    ]  # fmt: skip
    put_table(heads, rows, right="----rrrrrr-")
    put()
    for one in lab.controls:
        verdict = "did not lose: blind" if one.blind else "lost as it must"
        put(f"control {one.name} ({one.engine}): {one.harmed} of {one.valid} cuts harmed, {verdict}"
            + (f": {one.note}" if one.note else ""))  # fmt: skip
    for row in lab.rows:
        for cut in row.cuts:
            if cut.invalid:
                put(f"invalid: {row.fs_setup} {row.engine} cut {cut.number} ({cut.aim}): {cut.invalid.splitlines()[0]}")
    for arm, reason in lab.skipped.items():
        put(f"not examined: {arm}: {reason}")
    valid = sum(row.valid for row in lab.rows)
    put(f"{valid} valid cuts in {lab.seconds:.0f} s; results: {folder}; page: {page}")


def _judge(lab: LabFacts) -> None:
    """The gravest of what is wrong, as an error."""
    kept = "What was found is in the results folder."
    wrong = [f"{row.fs_setup} under {row.engine}, class {row.durability_class}: {row.contradiction}"
             for row in lab.rows if row.contradiction]  # fmt: skip
    if wrong and not lab.blind:
        raise LabContradicts("\n  ".join(wrong), effect=kept, remedy="Image and log of the cut are kept: report them.")
    if lab.blind:
        names = [f"{one.name} ({one.engine})" for one in lab.controls if one.blind]
        raise LabBlind(f"{', '.join(names)} did not lose often enough", effect=kept + " It confirms nothing.")
    if few := [row.fs_setup for row in lab.rows if row.statement.startswith("no statement")]:
        raise LabInvalid(f"nothing can be said of {', '.join(few)}", effect=kept)
