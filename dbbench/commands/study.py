"""`dbbench study [NAME]`, `dbbench study run NAME`: published comparisons, to be run again."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from dbbench import results
from dbbench.commands import powercut, run
from dbbench.commands.options import (
    OneOf,
    Options,
    catalogue,
    command_line,
    progress_option,
    results_option,
)
from dbbench.engines import ENGINES
from dbbench.errors import EXIT_USAGE, DbbenchError, ProgramMissing
from dbbench.labs.powercut import Order, check
from dbbench.machine import namespaces
from dbbench.metrics.table import METRICS
from dbbench.model import Json, plain
from dbbench.plan import studies
from dbbench.plan.request import able, list_gaps, load_request
from dbbench.plan.studies import DEFAULT, SCALES, Study, StudyTable
from dbbench.report.claims import judged_claims, put_claims
from dbbench.report.text import put, put_json, put_paragraph, put_reasons, put_table
from dbbench.results.fileio import kept_if_used, write_text, writing
from dbbench.units import size_text

scale_option = click.option(
    "--scale",
    type=OneOf(SCALES),
    default=DEFAULT,
    show_default=True,
    help="Size: a smoke test, a laptop, or as published.",
)


@command_line(
    "dbbench study run NAME --scale tiny",
    name="run",
    statuses=(0, 1, 2, 5, 130, 143),
)
@click.argument("name")
@scale_option
@click.option(
    "--name",
    "run_name",
    metavar="RUN",
    help="Name of the run; a run of that name is resumed.",
)
@click.option(
    "--bin",
    "folders",
    metavar="DIR",
    multiple=True,
    help="Folder of a server's programs; repeat to compare versions [default: the newest "
    "installed].",
)
@click.option(
    "--new",
    is_flag=True,
    help="Start a new run even if one can be resumed.",
)
@progress_option
@results_option
@click.pass_context
def run_(
    context: click.Context,
    /,
    options: Options,
    name: str,
    scale: str,
    folders: tuple[str, ...],
    run_name: str | None,
    **rest: Any,
) -> int:
    """Run a study at a scale; its plan is written into the results folder.

    Setups that this machine does not support are skipped and listed. The page compares the
    published figures with today's.
    """
    study = studies.study(name)
    given = [str(Path(folder).absolute()) for folder in folders]
    text = studies.plan_text(study, scale, studies.servers_of(study, _find_servers(given), given))
    size = study.scales[scale]
    path = options.results_folder / f"{name}-{scale}.toml"
    if size.cuts:
        check()

    # With --json, the document of the run becomes a part of that of the lab.
    printed = io.StringIO()
    output = (
        contextlib.redirect_stdout(printed)
        if size.cuts and options.json
        else contextlib.nullcontext()
    )
    with _plan_for_a_run(path, text), output:
        status: int = context.invoke(
            run.command,
            plan_file=str(path),
            name=run_name,
            wipe=(),
            fs=(),
            only=(),
            notify=None,
            **rest,
        )

    if not size.cuts and not study.claim:
        return status
    request = able(load_request(str(path), options.paths), options.paths)
    newest = results.find_runs(options.results_folder, request.sha256)[0]
    folder = options.results_folder / (run_name or newest.path.name)
    if study.claim and not options.json:
        put()
        put_claims(judged_claims(results.load_run(folder)))
    if not size.cuts:
        return status

    # The power-loss lab of the same setups, into the folder of the run.
    lab = results.load_lab(folder)
    if lab is None or not lab.complete:
        order = Order(request.plan.seed, size.cuts, rounds=size.rounds)
        powercut.run_lab(options, request, folder.name, order)
    return max(status, powercut.conclude(options, folder, json.loads(printed.getvalue() or "{}")))


@contextlib.contextmanager
def _plan_for_a_run(path: Path, text: str) -> Iterator[None]:
    """Write the plan, which stays beside the run; a refused run removes what was made."""
    existed = path.exists()
    with kept_if_used(path.parent):
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        try:
            yield
        except DbbenchError as error:
            if error.exit_code == EXIT_USAGE and not existed:
                path.unlink()
            raise


def _put_all(options: Options) -> None:
    rows = [_row(studies.study(name)) for name in studies.names()]
    if options.json:
        put_json({"studies": rows})
        return
    cells = []
    for row in rows:
        engine = row["engine"] or ", ".join(row["engines"])
        cells.append((row["name"], engine, not row["reason"], row["title"]))
    put_table(("name", "engine", "runs here", "what was compared"), cells)
    put_reasons(rows)


@catalogue(
    studies.names,
    _put_all,
    run_,
    examples=(
        "dbbench study",
        "dbbench study percona-2012 --scale tiny",
        "dbbench study run percona-2012 --scale tiny",
    ),
)
@scale_option
def command(options: Options, name: str, scale: str) -> None:
    """List published comparisons of filesystems that can be run on this machine, or show one.

    With NAME: what was done, the published figures, and the plan at a scale.
    """
    # The plan for the servers that are installed; without any, for those of the study.
    study = studies.study(name)
    text = studies.plan_text(
        study,
        scale,
        _servers(study) or {name: [""] for name in study.engines},
    )
    if options.json:
        put_json({**_row(study), "study": plain(study), "scale": scale, "plan": text})
        return
    put(f"{study.title}\n{study.address}\n")
    put_paragraph(study.did)
    for what, then in study.then.items():
        put_paragraph(f"  {what}: {then}")
    put()
    rows = list(_rows_of_reports(study))
    if rows:
        put_table(("workload", "metric", "fs setup", "published", "note"), rows)
    for claim in study.claim:
        put_paragraph(f"  {claim.says}: {claim.arm} instead of {claim.than} ({claim.source})")
    # How this differs from the article, and what else was published.
    for what in (*study.differs, *study.notes):
        put_paragraph(f"  {what}")
    for reference in study.reference:
        put(f"\nsee also {reference.address}")
        put_paragraph(f"  {reference.did}")
        for what, values in reference.figures.items():
            figures = [f"{name} {value:g}" for name, value in values.items()]
            put_paragraph(f"  {what}: {', '.join(figures)}")
    put("\nscales")
    for word in SCALES:
        put_paragraph(f"  {word}: {study.scales[word].takes}")
    put(f"\n# the plan of scale {scale}\n{text.rstrip()}")


def _rows_of_reports(study: Study) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield (workload, metric, fs setup, value, note) of what was published."""
    for table in study.table:
        variant = studies.variant_of(table, study.scales["full"])
        metric = f"{table.metric} ({variant})" if variant else table.metric
        superseded = "superseded" if study.superseded and table.then else ""
        note = "; ".join(filter(None, (table.note, superseded)))
        for arm in (*table.then, *table.ratios):
            yield table.workload, metric, arm, _published_text(table, arm), note


def _published_text(table: StudyTable, arm: str) -> str:
    interval = studies.interval_text(table, arm)
    if arm in table.ratios:
        return f"{table.ratios[arm]:g} × baseline{interval}"
    value = table.then[arm]
    text = size_text(value) if METRICS[table.metric].unit == "bytes" else f"{value:g}"
    return f"{text}, ratio{interval}" if interval else text


def _row(study: Study) -> Json:
    servers = _servers(study)
    reason = _impossible(study, servers) if servers else f"requires {studies.servers_text(study)}"
    return {
        "name": study.name,
        "title": study.title,
        "address": study.address,
        "engines": list(study.engines),
        "engine": ", ".join(servers) or None,
        "runs": reason is None,
        "reason": reason,
    }


def _impossible(study: Study, servers: dict[str, list[str]]) -> str | None:
    """Return why this machine cannot compare the study's setups: its baseline, or all the others.
    None if it can.
    """
    with namespaces.temporary_folder() as folder:
        file = folder / "plan.toml"
        file.write_text(studies.plan_text(study, DEFAULT, servers))
        request = load_request(str(file), [])
    # A study is possible if its baseline and one other setup are.
    skipped = list_gaps(request, [])
    plan = request.plan
    baseline = plan.baseline_label
    others = [arm.label for arm in plan.fs_setups if arm.label != baseline]
    if baseline in skipped or (others and all(arm in skipped for arm in others)):
        arm = baseline if baseline in skipped else others[0]
        return f"{arm}: {skipped[arm]}"
    return None


def _servers(study: Study) -> dict[str, list[str]]:
    with contextlib.suppress(ProgramMissing):
        return studies.servers_of(study, _find_servers())
    return {}


def _find_servers(given: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Return the versions of the engines that are installed, or are in those folders, by engine and
    folder.
    """
    return {
        name: {
            folder: version
            for folder in given or ("",)
            if (version := engine.installed_version(Path(folder) if folder else None)) is not None
        }
        for name, engine in ENGINES.items()
    }
