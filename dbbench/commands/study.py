"""`dbbench study list|show|run`: published comparisons as plans, their figures beside one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dbbench import studies
from dbbench.commands import run
from dbbench.commands.options import Options, command_line, global_options, results_option
from dbbench.commands.text import put, put_json, put_table
from dbbench.model import plain
from dbbench.store.files import write_text, writing
from dbbench.studies import DEFAULT, SCALES, Study

scale_option = click.option("--scale", type=click.Choice(SCALES), default=DEFAULT, show_default=True,
                            help="How large: to see that it works, to see a shape, or as it was.")  # fmt: skip


@click.group()
@global_options
def command() -> None:
    """Published comparisons of filesystems, to be run here: what was published stands beside what is measured."""


@command_line(name="list")
def list_(options: Options) -> None:
    """All studies, and why one cannot be run on this machine."""
    rows = [_row(studies.study(name)) for name in studies.names()]
    if options.json:
        put_json(rows)
        return
    put_table(("name", "engine", "runs here", "what was compared"),
              [(row["name"], row["engine"] or ", ".join(row["engines"]), row["reason"] or "yes", row["title"])
               for row in rows])  # fmt: skip


@command_line(name="show")
@click.argument("name")
@scale_option
def show(options: Options, name: str, scale: str) -> None:
    """One study: what was done, its figures, and the plan of a scale."""
    found = studies.study(name)
    text = studies.plan_text(found, scale, _installed() or found.engines)
    if options.json:
        put_json({**_row(found), "study": plain(found), "scale": scale, "plan": text})
        return
    put(f"{found.title}\n{found.address}\n\n{found.did}\n")
    rows = [(table.workload, table.metric + (f" ({table.variant})" if table.variant else ""), arm, f"{value:g}{sign}",
             "superseded" if table.superseded else table.note)
            for table in found.table
            for values, sign in ((table.then, ""), (table.ratios, " x baseline"))
            for arm, value in values.items()]  # fmt: skip
    put_table(("workload", "metric", "fs setup", "published", "note"), rows)
    for what in (*found.differs, *found.notes):
        put(f"- {what}")
    put("\nscales")
    for word in SCALES:
        put(f"  {word}: {found.scales[word].takes}")
    put(f"\n# the plan of scale {scale}\n{text.rstrip()}")


@command_line(name="run")
@click.argument("name")
@scale_option
@click.option("--name", "run_name", metavar="RUN", help="The run's name; a run of that name is resumed.")
@click.option("--new", is_flag=True, help="Start another run, also where one could be resumed.")
@click.option("--progress", type=click.Choice(["auto", "plain", "json", "none"]), default="auto", show_default=True)
@results_option
@click.pass_context
def run_(context: click.Context, /, options: Options, name: str, scale: str, run_name: str | None, results: str,
         **rest: Any) -> int:  # fmt: skip
    """Write the plan of a study at a scale into the results folder and run it.

    Arms that this machine cannot make are skipped by name. The page has the section "then and now".
    """
    del options  # the run takes them from the command line itself
    text = studies.plan_text(studies.study(name), scale, _installed())
    path = Path(results) / f"{name}-{scale}.toml"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    status: int = context.invoke(run.command, plan_file=str(path), results=results, name=run_name, wipe=(),
                                 precision=None, fs=None, blocks=None, quick=False, seed=None, **rest)  # fmt: skip
    return status


def _row(found: Study) -> dict[str, Any]:
    engine = next((name for name in found.engines if name in _installed()), None)
    reason = None if engine else f"none of its engines is installed: {', '.join(found.engines)}"
    return {"name": found.name, "title": found.title, "address": found.address, "engines": list(found.engines),
            "engine": engine, "runs": engine is not None, "reason": reason}  # fmt: skip


def _installed() -> tuple[str, ...]:
    from dbbench.engines import ENGINES

    return tuple(name for name, engine in ENGINES.items() if engine.installed() is not None)


command.add_command(list_)
command.add_command(show)
command.add_command(run_)
