"""`dbbench powercut PLAN`: the power-loss lab."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import click

from dbbench import results
from dbbench.commands.finding import REPORT
from dbbench.commands.options import (
    OneOf,
    Options,
    Whole,
    command_line,
    fs_option,
    plan_argument,
    progress_option,
    results_option,
)
from dbbench.commands.report import write
from dbbench.errors import (
    EXIT_OK,
    DeadlinePassed,
    LabContradicts,
    RunMissing,
    RunNameTaken,
    UsageInvalid,
)
from dbbench.labs.faults import parse
from dbbench.labs.powercut import Order, check, examine
from dbbench.labs.powercut.disk_images import UNITS
from dbbench.model import Conclusion, Json, LabFacts, plain
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.request import PlanRequest, able, load_request
from dbbench.report.harm_table import HarmTable
from dbbench.report.progress import renderer
from dbbench.report.text import put, put_json, put_paragraph, put_table
from dbbench.run.create import create, free_name, must_be_of

CUTS = 30  # for each setup and engine, unless --cuts or --minutes is given


@command_line("dbbench powercut plan.toml --minutes 30", statuses=(0, 1, 2, 130, 143))
@plan_argument
@click.option(
    "--cuts",
    type=Whole(2),
    metavar="N",
    help=f"Number of power losses for each setup and engine [default: {CUTS}].",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="M",
    help="Stop after this many minutes in total.",
)
@click.option(
    "--rounds",
    type=Whole(0),
    default=0,
    metavar="N",
    help="Also harm copies of the disks in other ways, such as filling them, N times for each "
    "setup and engine.",
)
@click.option(
    "--fault",
    default="",
    metavar="TEXT",
    help="Only give the disks this fault under load, --rounds times, and cut no power; for example "
    '"fail flush 3", or the text that a result names.',
)
@click.option(
    "--unit",
    type=OneOf([str(unit) for unit in UNITS]),
    help="Size in bytes of what the disks write completely or not at all, aligned "
    "[default: all of these, also shifted].",
)
@fs_option
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Random seed for the cut points.",
)
@click.option(
    "--name",
    metavar="RUN",
    help="Name of the results; if it is that of a run of the same plan, the page shows both.",
)
@progress_option
@results_option
def command(
    options: Options,
    plan_file: str,
    cuts: int | None,
    minutes: float | None,
    rounds: int,
    fault: str,
    unit: str | None,
    fs: tuple[str, ...],
    seed: int | None,
    name: str | None,
) -> int:
    """Power-loss test: do acknowledged commits survive?

    Runs each filesystem setup with each engine on simulated disks in memory, cuts their power,
    recovers the server and looks for every acknowledged commit. The plan's device is not used.

    Controls that must lose data run first; if they lose none, the lab draws no conclusion and
    reports this. Exit status 1: the result contradicts a setup's durability class.
    """
    try:
        parse(fault)
    except ValueError as error:
        raise UsageInvalid(f"--fault: {error}") from None
    request = able(load_request(plan_file, options.paths, Narrowing(fs, seed=seed)), options.paths)
    cuts = CUTS if cuts is None and minutes is None else cuts
    return conclude(
        options,
        run_lab(
            options,
            request,
            name,
            Order(
                request.plan.seed,
                0 if fault else cuts,
                minutes,
                controls=() if fault else None,
                rounds=max(1, rounds) if fault else rounds,
                fault=fault,
                unit=None if unit is None else int(unit),
            ),
        ),
    )


def conclude(
    options: Options,
    folder: Path,
    trials: Json | None = None,
) -> int:
    """Write the page of a run with results of the lab and print them; with --json, after the
    document of its trials. Raises LabContradicts.
    """
    run = results.load_run(folder)
    assert run.lab is not None
    # The page exists before the verdict, which may end the command.
    page = write([run], folder / REPORT)
    table = HarmTable(run, run.lab)
    if options.json:
        lab: Json = plain(run.lab)
        put_json(
            {
                **(trials or {}),
                "run": folder.name,
                "path": str(folder),
                "report": str(page),
                **lab,
                "blind": list(run.lab.blind),
                "table": table.document(),
            }
        )
    else:
        put_lab(table, page)
    _judge(run.lab)
    return EXIT_OK


def run_lab(
    options: Options,
    request: PlanRequest,
    name: str | None,
    order: Order,
) -> Path:
    """Carry out the order for the request; return the folder with the results. Raises
    NotRoot, LabUnavailable, ProgramMissing, PlanInvalid, KernelLacks, RunNameTaken, and
    DeadlinePassed after the results so far were printed.
    """
    # Not above: the list of studies needs neither servers nor drivers.
    from dbbench.run.preflight import check_for_lab

    check()
    check_for_lab(request)
    folder = folder_of_lab(options.results_folder.resolve(), request, name)
    with concluding(options, folder), options.shown(renderer) as emit, results.lock(folder):
        examine(folder, request.sha256, order, emit)
    return folder


@contextlib.contextmanager
def concluding(options: Options, folder: Path) -> Iterator[None]:
    """Print the results so far if the block raises DeadlinePassed."""
    try:
        yield
    except DeadlinePassed:
        with contextlib.suppress(LabContradicts):
            if results.load_lab(folder) is not None:
                conclude(options, folder)
        raise


def folder_of_lab(
    results_folder: Path,
    request: PlanRequest,
    name: str | None,
) -> Path:
    """Return a new directory, or that of a run of the same plan, or of a lab that was stopped
    before its first cut. Raises RunNameTaken, RunLocked.
    """
    # Not the hash of the plan itself: `run` would see this directory as a finished run of the plan.
    alone = dataclasses.replace(
        request,
        sha256=f"powercut-{request.sha256}",
        expanded=request.expanded._replace(order=()),
    )
    if name is None or not (results_folder / name).exists():
        return create(
            results_folder,
            alone,
            name or free_name(results_folder, f"{request.plan.name}-powercut"),
        )
    # A lab of this plan without any cut yet goes on.
    folder = results_folder / name
    with contextlib.suppress(RunMissing):
        run = results.RunFolder(folder)
        lab = results.load_lab(folder, verify=False)
        holds_cuts = lab is not None and (lab.complete or lab.rows)
        if run.run.plan_sha256 in (request.sha256, alone.sha256) and not holds_cuts:
            must_be_of(run, request)
            return folder
    raise RunNameTaken(
        f"{folder} belongs to another plan, or already has results of the lab",
        remedy="Give another --name.",
    )


def put_lab(table: HarmTable, page: Path) -> None:
    """Print what the lab found, what it could have seen, and where everything is."""
    lab = table.lab
    folder = page.parent
    # Each setup with its statement, its outcomes, and what its durability costs.
    for line in table.lines:
        put_paragraph(
            f"{line.row.fs_setup} with {line.server}, class {line.durability}: {line.row.statement}"
        )
        sections = {
            title: [
                (column, "; ".join(text for text, _, _ in line.cells(column))) for column in columns
            ]
            for title, columns in table.halves
        }
        prices = map(line.price_text, table.prices)
        sections["price"] = list(zip(table.price_headings, prices, strict=True))
        for title, rows in sections.items():
            if rows:
                put_table((f"  {title}:", ""), [(f"    {name}", text) for name, text in rows])
        put()
    for text in filter(None, (table.unit, *table.published)):
        put_paragraph(text)
    # Whether the lab could have seen a loss.
    for control in lab.controls:
        verdict = (
            ": too few, so the test cannot detect a loss" if control.blind else ", as expected"
        )
        note = f": {control.note}" if control.note else ""
        put_paragraph(
            f"control {control.name} ({control.engine}): {control.harmed} of {control.valid} cuts "
            f"damaged data{verdict}{note}"
        )
    # What does not count, and why.
    for row in lab.rows:
        for cut in row.cuts:
            if cut.invalid:
                where = f"cut {cut.number} of {row.fs_setup} with {row.engine} ({cut.aim})"
                put_paragraph(f"invalid {where}: {cut.invalid.splitlines()[0]}")
    for text in table.exclusions:
        put_paragraph(f"not tested: {text}")
    valid = sum(row.valid for row in lab.rows)
    # whole paths, for scripts
    put(f"{valid} valid cuts in {lab.seconds:.0f} s; results: {folder}; page: {page}")


def _judge(lab: LabFacts) -> None:
    # A setup that lost more than its class allows, seen by a lab that can see it.
    kept = "The results are kept."
    wrong = [
        f"{row.fs_setup} with {row.engine}, class {row.durability_class}: {row.contradiction}"
        for row in lab.rows
        if row.contradiction
    ]
    if wrong and not lab.blind:
        raise LabContradicts(
            "\n  ".join(wrong),
            effect=kept,
            remedy="Image and log of the cut are in the results folder; please report them.",
        )
    # A lab that cannot see losses proves nothing, whatever it counted.
    if lab.blind:
        names = [
            f"{control.name} ({'; '.join(filter(None, (control.engine, control.note)))})"
            for control in lab.controls
            if control.blind
        ]
        raise LabContradicts(
            f"controls lost data in too few cuts: {', '.join(names)}",
            effect=kept + " Without them, the lab cannot draw a conclusion.",
        )
    if few := [row.fs_setup for row in lab.rows if row.conclusion is Conclusion.NONE]:
        raise LabContradicts(f"too few valid cuts for {', '.join(few)}", effect=kept)
