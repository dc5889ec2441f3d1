"""`dbbench run P`: drive a plan's trials, or go on with them; print the verdict, write the page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from dbbench import __version__, store
from dbbench.commands.checking import check
from dbbench.commands.finding import report_of
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.planning import Asked, able, asked, plan_options, precision_option, shared
from dbbench.commands.text import put, put_json
from dbbench.errors import EXIT_OK, EXIT_TRIAL_FAILED, DbbenchError, DeviceNotEmpty, Interrupted, Terminated
from dbbench.model import Status
from dbbench.store import LoadedRun


def part_given(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """ "2/8" as (2, 8)."""
    if value is None:
        return None
    index, _, of = value.partition("/")
    if not (index.isdecimal() and of.isdecimal() and 1 <= int(index) <= int(of)):
        raise click.BadParameter(f"{value} is no share; write 2/8 for the second of eight")
    return int(index), int(of)


@command_line()
@click.argument("plan_file", metavar="PLAN")
@plan_options
@results_option
@precision_option
@click.option("--new", is_flag=True, help="Start another run, also where one could be resumed.")
@click.option("--name", metavar="RUN", help="The run's name; a run of that name is resumed.")
@click.option(
    "--share",
    "part",
    metavar="K/N",
    callback=part_given,
    help="Only every N-th block, from the K-th on: N machines drive one plan, `import` merges them.",
)
@click.option(
    "--wipe", multiple=True, metavar="ID", help="This device may be erased: its identity, as doctor prints it."
)
@click.option("--progress", type=click.Choice(["auto", "plain", "json", "none"]), default="auto", show_default=True)
def command(options: Options, plan_file: str, results: str, new: bool, name: str | None, wipe: tuple[str, ...],
            progress: str, precision: float | None, part: tuple[int, int] | None, **narrowing: Any) -> int:  # fmt: skip
    """Drive the plan's trials; print the verdict and write report.html into the run's folder.

    The newest unfinished run of the same plan is resumed. Ctrl-C stops cleanly, twice kills; both can be resumed.
    The exit code is 1 where a trial failed, 2 where something is lacking (nothing was changed then).
    """
    if new and name:
        raise click.UsageError("--new and --name cannot go together")
    if part and (precision or not name):
        raise click.UsageError("--share wants --name, by which shares are merged, and no --until-precision")
    from dbbench.commands.choosing import choose, create, keep_scripts, refine

    wanted = shared(able(asked(plan_file, options.paths, **narrowing), options.paths), part)
    root = Path(results).resolve()
    folder = choose(root, wanted, new=new, name=name)
    if folder is not None and precision is not None:
        refine(folder, precision)
    if folder is not None and not store.load_run(folder, verify=False).unfinished:
        return _finished_before(options, folder, name)
    check_all(wanted, plan_file, root, folder, wipe)
    if folder is None:
        folder = create(root, wanted, name, __version__, precision)
    keep_scripts(folder, wanted)
    _drive(folder, wipe, "none" if options.quiet and progress == "auto" else progress, not options.no_color)
    return _conclude(options, folder)


def check_all(wanted: Asked, plan_file: str, root: Path, folder: Path | None, wipe: tuple[str, ...]) -> None:
    """All that can be known beforehand. The guards of a block device are passed once here, and in each trial."""
    from dbbench import devices, images
    from dbbench.journal import Journal
    from dbbench.parts import Permit

    missing = images.missing_bytes(store.load_spec(folder), folder) if folder else None
    check(wanted.plan, wanted.expanded, root, images=missing)
    if wanted.plan.device.kind == "block":
        permit = Permit(wipe, Journal((folder or root) / "journal.jsonl"))
        try:
            with devices.attached(wanted.plan.device, None, permit, most=len(wanted.plan.device.paths) or 1):
                pass
        except DeviceNotEmpty as error:
            error.remedy = (error.remedy or "").replace("run PLAN", f"run {shlex.quote(plan_file)}")
            raise


def _drive(folder: Path, wipe: tuple[str, ...], progress: str, color: bool) -> None:
    """Work the run off; being stopped says how to go on."""
    from dbbench.progress import renderer
    from dbbench.progress.events import Event
    from dbbench.runner import execute

    try:
        with renderer(progress, sys.stderr, color=color) as emit:
            for arm, reason in store.load_spec(folder).skipped.items():
                emit(Event("note", {"text": f"skipped {arm}: {reason}"}))
            execute(folder, wipe=wipe, emit=emit)
    except (KeyboardInterrupt, Interrupted, Terminated) as stop:
        kind = type(stop) if isinstance(stop, DbbenchError) else Interrupted
        raise kind(
            f"run {folder.name} was stopped",
            effect="What was finished is kept.",
            remedy=f"The same command resumes it:  dbbench {shlex.join(_again(sys.argv[1:], folder))}",
        ) from None


def _again(argv: list[str], folder: Path) -> list[str]:
    """The command line that goes on with the run in `folder`."""
    kept = [word for word in argv if word != "--new"]
    return kept if len(kept) == len(argv) else [*kept, "--name", folder.name]


def _conclude(options: Options, folder: Path) -> int:
    """Write the page, print the verdict; 1 where a trial failed."""
    from dbbench.commands.report import write

    run = store.load_run(folder)
    page = write([run], report_of(folder))
    _put(options, run, page)
    return EXIT_TRIAL_FAILED if any(trial.status is Status.FAILED for trial in run.trials) else EXIT_OK


def _finished_before(options: Options, folder: Path, name: str | None) -> int:
    """A run that is done is not driven again; that is no failure."""
    run = store.load_run(folder)
    page = report_of(folder)
    if not page.exists():
        from dbbench.commands.report import write

        write([run], page)
    _put(options, run, page)
    again = "--name ANOTHER" if name else "--new"
    click.echo(f"run {folder.name} was finished before; {again} starts another", err=True)
    return EXIT_OK


def _put(options: Options, run: LoadedRun, page: Path) -> None:
    from dbbench.commands import verdicts as made

    found = made.verdicts([run])
    counts = {status.value: sum(trial.status is status for trial in run.trials) for status in Status}
    if options.json:
        put_json({"run": run.path.name, "path": str(run.path), "report": str(page), **counts,
                  "skipped": run.run.skipped,
                  "compare": made.as_document(found)})  # fmt: skip
        return
    made.put_tables(found)
    put()
    put(f"{counts['ok']} trials ok, {counts['suspect']} suspect, {counts['failed']} failed; page: {page}")
    for arm, reason in run.run.skipped.items():
        put(f"  skipped {arm}: {reason}")
    for trial in run.trials:
        if trial.error is not None:
            put(f"  {trial.id} failed in {trial.error.phase or '?'}: {trial.error.id} {trial.error.text}")
