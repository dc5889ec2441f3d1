"""`dbbench run PLAN`: run a plan or resume it, print the verdict, write the page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbbench.commands.options import (
    Options,
    command_line,
    plan_argument,
    plan_options,
    precision_option,
    program_of_notify,
    progress_option,
    results_option,
)
from dbbench.errors import DbbenchError, Interrupted, Terminated, TrialDied
from dbbench.units import duration_text

if TYPE_CHECKING:  # these take most of a second, which `--help` does not need
    from dbbench.results import RunFolder


def parse_part(
    _ctx: click.Context,
    _param: click.Parameter,
    value: str | None,
) -> tuple[int, int] | None:
    """Return "2/8" as (2, 8)."""
    if value is None:
        return None
    index, _, of = value.partition("/")
    if not (index.isdecimal() and of.isdecimal() and 1 <= int(index) <= int(of)):
        raise click.BadParameter(f"expected K/N, for example 2/8, not {value}")
    return int(index), int(of)


def _identities(
    _ctx: click.Context,
    _param: click.Parameter,
    value: tuple[str, ...],
) -> tuple[str, ...]:
    for word in value:
        if not word or word.endswith(".toml"):
            raise click.BadParameter(
                f"expected the identity of a disk, as `dbbench doctor` lists it, not {word!r}"
            )
    return value


wipe_option = click.option(
    "--wipe",
    multiple=True,
    metavar="ID",
    callback=_identities,
    help="Allow this device to be erased; ID as `dbbench doctor` prints it.",
)


@command_line(
    "dbbench run                                     run plan.toml",
    "dbbench run --quick --fs ext4,xfs               a smoke test of two setups",
    "dbbench run --only '*.postgres.*' --budget 8h   PostgreSQL only, in a night",
    statuses=(0, 1, 2, 5, 130, 143),
)
@plan_argument
@plan_options
@results_option
@precision_option
@click.option(
    "--new",
    is_flag=True,
    help="Start a new run even if one can be resumed.",
)
@click.option(
    "--name",
    metavar="RUN",
    help="Name of the run; a run of that name is resumed.",
)
@click.option(
    "--share",
    "part",
    metavar="K/N",
    callback=parse_part,
    help="Run every N-th block, beginning with the K-th; `dbbench import` merges the shares of N "
    "machines.",
)
@wipe_option
@click.option(
    "--notify",
    metavar="CMD",
    callback=program_of_notify,
    help="Start CMD when the run ends or stops, as the user that dbbench runs as, "
    "with its state as JSON on stdin.",
)
@progress_option
def command(
    options: Options,
    plan_file: str,
    new: bool,
    name: str | None,
    wipe: tuple[str, ...],
    notify: str | None,
    precision: float | None,
    part: tuple[int, int] | None,
    **narrowing: Any,
) -> int:
    """Run a plan, print the verdict and write report.html into the run's folder.

    The newest unfinished run of the same plan is resumed. Ctrl-C stops cleanly, a second Ctrl-C
    kills; both can be resumed. Trials whose process died (E348) are run again.
    """
    if new and name:
        raise click.UsageError("--new and --name cannot be combined")
    if part and (precision or not name):
        raise click.UsageError(
            "--share requires --name and cannot be combined with --until-precision"
        )
    from dbbench.commands.resuming import resumable, resume_command
    from dbbench.plan.forecast import apply_budget, forecast, recall
    from dbbench.plan.narrowing import Narrowing
    from dbbench.plan.request import able, load_request, take_share
    from dbbench.run.create import choose, create, is_complete, must_be_of, refine
    from dbbench.run.preflight import check_run
    from dbbench.run.queue import begin

    # The part of the plan that this machine and these options leave.
    whole = able(load_request(plan_file, options.paths, Narrowing(**narrowing)), options.paths)
    root = options.results_folder.resolve()
    request = recall(take_share(whole, part), root)
    within_budget, allowance = apply_budget(request)

    # A run of the same plan is resumed.
    folder = choose(root, request, new=new, name=name)
    if folder is not None:
        other_margin = folder.run.plan.margin != request.plan.margin
        changes = precision is not None or request.plan.budget_s is not None or other_margin
        if changes or not is_complete(folder):
            must_be_of(folder, request)
        refine(folder, precision, request.plan)
        if is_complete(folder):
            status = _conclude(options, folder.path, before=not other_margin)
            other = "--name ANOTHER" if name else "--new"
            click.echo(
                f"run {folder.path.name} is already finished; {other} starts another", err=True
            )
            return status

    # Everything that can refuse the run does so before it has a folder.
    check_run(within_budget, plan_file, root, folder, wipe)
    make = partial(create, root, request, name, precision)
    with begin(folder, root, request, make) as folder:
        notes = []
        if allowance is not None:
            notes.append(allowance.text)
            expected = forecast(within_budget, root)
            # An assumed scatter would be corrected by the run itself.
            if expected.runs and expected.difference is not None:
                notes.append(expected.text)
        path = folder.path
        notes += notes_of(folder)
        with (
            notifying(notify, path, request.plan.name),
            resumable(resume_command(options, path.name), f"run {path.name}"),
        ):
            drive(options, folder, request.sha256, wipe, notes)
            return _conclude(options, path)


def notes_of(folder: RunFolder) -> Iterator[str]:
    """Yield what a person should know of the run before its first trial."""
    from dbbench.machine.ownership import other_writer

    if folder.run.budget is not None and folder.run.budget.used_s:
        yield f"{duration_text(folder.run.budget.used_s)} of the budget is already used"
    if writer := other_writer([folder.path.absolute().parent]):
        yield f"{writer}, so the results folder could be exchanged while root uses it"


@contextlib.contextmanager
def notifying(words: str | None, path: Path, plan: str) -> Iterator[None]:
    """Start the command of --notify after the block, whatever ends it. The state is "ok", "failed"
    or "stopped".
    """
    from dbbench.nightly.tonight import notify
    from dbbench.results import load_run

    error: DbbenchError | None = None
    # The command is told of every end, also of an error.
    try:
        yield
    except DbbenchError as raised:
        error = raised
        raise
    finally:
        if words is not None:
            # How it ended, for a program: a state, and the numbers of trials.
            statuses = [trial.status.value for trial in load_run(path).trials]
            state = "ok"
            if isinstance(error, Interrupted | Terminated):
                state = "stopped"
            elif error is not None or "failed" in statuses:
                state = "failed"
            notify(
                words,
                {
                    "state": state,
                    "plan": plan,
                    "run": path.name,
                    "path": str(path),
                    "ok": statuses.count("ok"),
                    "suspect": statuses.count("suspect"),
                    "failed": statuses.count("failed"),
                    "error": None
                    if error is None
                    else {
                        "id": error.id,
                        "text": error.evidence,
                    },
                },
            )


def drive(
    options: Options,
    folder: RunFolder,
    sha256: str,
    wipe: tuple[str, ...],
    notes: Sequence[str],
) -> None:
    """Run what is left of a run, with progress. Raises Interrupted, Terminated."""
    from dbbench.model.events import Event
    from dbbench.plan.planned_conditions import limits
    from dbbench.report.progress import renderer
    from dbbench.run.create import set_killed_aside
    from dbbench.run.queue import execute

    # What the user should know before the first trial.
    run = folder.run
    texts = [*notes, *filter(None, [limits(run.plan, run.cells)])]
    texts += [f"skipped {arm}: {reason}" for arm, reason in run.skipped.items()]
    with options.shown(renderer) as emit:
        # Trials that died with their process are not results.
        for trial in set_killed_aside(folder):
            texts.append(f"running {trial} again because its process died ({TrialDied.id})")
        for text in texts:
            emit(Event("note", {"text": text}))
        execute(folder.path, sha256, wipe=wipe, emit=emit)


def _conclude(options: Options, folder: Path, before: bool = False) -> int:
    """Print the verdict; return 1 if a trial failed, else 0. `before`: the run was finished before;
    its page stays.
    """
    from dbbench.commands.finding import REPORT
    from dbbench.commands.report import put_verdict, write
    from dbbench.model import plain
    from dbbench.plan.forecast import budget_text
    from dbbench.report.text import put
    from dbbench.results import load_run

    # A page that exists is kept if nothing was measured.
    loaded = load_run(folder)
    page = folder / REPORT
    if not before or not page.exists():
        write([loaded], page)
    run = loaded.run
    # Programs get the budget and the reasons, people a sentence.
    budget = None if run.budget is None else {"budget_s": run.plan.budget_s, **plain(run.budget)}
    names = {"run": loaded.path.name, "path": str(loaded.path)}
    status = put_verdict(
        options,
        [loaded],
        page,
        names,
        skipped=run.skipped,
        budget=budget,
    )
    text = budget_text(run)
    if text and not options.json:
        put(f"  {text}")
    return status
