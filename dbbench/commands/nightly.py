"""`dbbench nightly P`: tonight's run with its reference and guard, what it says, and who is told."""

from __future__ import annotations

import dataclasses
import datetime
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from dbbench import __version__, nightly, store
from dbbench.commands.exporting import report_of_night
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.planning import Asked
from dbbench.commands.text import put, put_json, put_table
from dbbench.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    EXIT_REGRESSION,
    EXIT_TRIAL_FAILED,
    DbbenchError,
    NightMissing,
)
from dbbench.model import plain
from dbbench.nightly import Finding, Night
from dbbench.store import LoadedRun

CONFIRM_BLOCKS: Final = 7  # of a suspect's second run: finds 10 % at a trial CV of 5 %
MOST_AGE_H: Final = 30.0  # of the newest night: a day, and what a night may take longer
EXITS: Final = {"regression": EXIT_REGRESSION, "failed": EXIT_TRIAL_FAILED, "inconclusive": EXIT_INCONCLUSIVE}


@command_line()
@click.argument("plan_file", metavar="PLAN")
@results_option
@click.option("--blocks", type=int, metavar="N", help="Other than the plan's; 7 tell 10 % at a trial CV of 5 %.")
@click.option("--window", type=click.IntRange(6), default=60, show_default=True, help="So many nights make the level.")
@click.option("--junit", metavar="FILE", help="Write JUnit XML.")
@click.option("--openmetrics", metavar="FILE", help="Write OpenMetrics text.")
@click.option("--markdown", metavar="FILE", help="Write GitHub Markdown.")
@click.option("--bencher", metavar="FILE", help="Write Bencher JSON.")
@click.option("--notify", metavar="CMD", help="Started when the state changes, with the night as JSON on its stdin.")
@click.option("--wipe", multiple=True, metavar="ID", help="As of `dbbench run`.")
@click.option("--progress", type=click.Choice(["auto", "plain", "json", "none"]), default="auto", show_default=True)
@click.option("--check", is_flag=True, help="Drive nothing: fail where the newest night is older than 30 hours.")
def command(options: Options, plan_file: str, results: str, blocks: int | None, window: int, notify: str | None,
            wipe: tuple[str, ...], progress: str, check: bool, **files: str | None) -> int:  # fmt: skip
    """Drive the plan with its baseline as the pinned reference and an A/A guard, and hold the ratios of tonight
    against the nights before. A suspect is confirmed at once by a second run of it and the reference alone.

    Exit code: 0 as it was, 3 a confirmed regression, 1 a trial failed, 4 the night tells nothing (the guard moved,
    nights are missing, a suspect without an answer).
    """
    wanted = _asked(plan_file, options.paths, blocks)
    root, name = Path(results).resolve(), wanted.plan.name
    if check:
        return _check(root, name)
    with nightly.one_at_a_time(root, name):
        shown = "none" if options.quiet and progress == "auto" else progress

        def drive(what: Asked, run_name: str) -> LoadedRun:
            return _driven(what, root, run_name, wipe, shown, not options.no_color)

        night, findings = _night(wanted, root, window, drive)
        missing = _newly_missing(nightly.known(root, name), night)
        nightly.append(root, name, night)
        word = nightly.overall(night, findings, missing)
        told = nightly.changed(root, name, word, findings)
        pruned = nightly.prune(root, nightly.known(root, name), datetime.datetime.now(datetime.UTC).date())
    document = _document(name, word, night, findings, missing, pruned)
    _export(root, night, word, findings, missing, files)
    if told and notify:
        _notify(notify, document)
    _put(options, document, findings)
    return EXITS.get(word, EXIT_OK)


def _asked(plan_file: str, paths: list[str], blocks: int | None) -> Asked:
    """The plan with its guard, in tonight's order."""
    from dbbench.catalog import catalog
    from dbbench.plan import expand, identity, load, narrowed

    known = catalog(paths)
    plan = narrowed(load(Path(plan_file), known), blocks=blocks, seed=int(_today().replace("-", "")))
    plan = nightly.guarded(plan)
    expanded = expand(plan, known)
    return Asked(Path(plan_file).read_text(encoding="utf-8"), plan, expanded, identity(plan, expanded.cells))


def _night(
    wanted: Asked, root: Path, window: int, drive: Callable[[Asked, str], LoadedRun]
) -> tuple[Night, list[Finding]]:
    """Drive tonight, judge it, and confirm what is suspect."""
    name = wanted.plan.name
    before = nightly.known(root, name)
    loaded = drive(wanted, f"{name}-night")
    others = [night for night in before if night.run != loaded.path.name]
    night = nightly.night_of(loaded, others[-1] if others else None)
    findings = nightly.judge(others, night, nightly.accepted(root, name), window)
    if any(finding.state == "suspect" for finding in findings):
        again = nightly.night_of(drive(_second(wanted, findings), f"{name}-confirm"))
        findings = [_answered(finding, again) if finding.state == "suspect" else finding for finding in findings]
        night = dataclasses.replace(night, confirmations=again.ratios)
    return dataclasses.replace(night, states={f.key: f.state for f in findings}), findings


def _answered(finding: Finding, again: Night) -> Finding:
    """The suspect after its second run; one that is not good itself answers nothing."""
    if again.good:
        return nightly.confirmed(finding, again.ratios.get(finding.key))
    note = f"its second run told nothing: {'; '.join(again.reasons)}"
    return dataclasses.replace(finding, notes=(*finding.notes, note))


def _second(wanted: Asked, findings: Sequence[Finding]) -> Asked:
    """The reference, its guard and the suspects alone, with blocks enough, in another order."""
    from dbbench.plan import Expanded, identity, ordered

    keys = [finding.key for finding in findings if finding.state == "suspect"]
    plan = wanted.plan
    arms = {key.rpartition(": ")[2] for key in keys} | {plan.baseline, plan.baseline + nightly.GUARD}
    titles = {key.rpartition(": ")[0] for key in keys}
    cells = tuple(c for c in wanted.expanded.cells if c.arm in arms and f"{c.engine.name} {c.title}" in titles)
    plan = dataclasses.replace(plan, blocks=max(CONFIRM_BLOCKS, plan.blocks), seed=plan.seed + 1,
                               fs_setups=tuple(arm for arm in plan.fs_setups if arm.label in arms))  # fmt: skip
    expanded = Expanded(cells, tuple(ordered(cells, plan.blocks, plan.seed)))
    return Asked(wanted.text, plan, expanded, identity(plan, cells))


def _driven(wanted: Asked, root: Path, name: str, wipe: tuple[str, ...], progress: str, color: bool) -> LoadedRun:
    """The finished run; one of the same night that was stopped is gone on with."""
    from dbbench import images
    from dbbench.commands.checking import check
    from dbbench.commands.choosing import create, free_name, keep_scripts
    from dbbench.progress import renderer
    from dbbench.runner import execute

    folder = store.find_unfinished(root, wanted.sha256) if root.is_dir() else None
    missing = images.missing_bytes(store.load_spec(folder), folder) if folder else None
    check(wanted.plan, wanted.expanded, root, images=missing)
    if folder is None:
        folder = create(root, wanted, free_name(root, name, _today()), __version__)
    keep_scripts(folder, wanted)
    with renderer(progress, sys.stderr, color=color) as emit:
        execute(folder, wipe=wipe, emit=emit)
    return store.load_run(folder)


def _check(root: Path, name: str) -> int:
    """Whether there was a night lately. NightMissing is the alarm."""
    nights = nightly.known(root, name)
    if not nights:
        raise NightMissing(f"{name} has no night in {root}", remedy="Is the timer on? systemctl list-timers")
    last = datetime.datetime.fromisoformat(nights[-1].created)
    age_h = (datetime.datetime.now(datetime.UTC) - last).total_seconds() / 3600
    if age_h > MOST_AGE_H:
        raise NightMissing(
            f"the newest night of {name} is {age_h:.0f} hours old ({nights[-1].run})",
            remedy="See why it did not run:  systemctl status 'dbbench-nightly@*'",
        )
    put(f"the newest night of {name} is {age_h:.0f} hours old: {nights[-1].run}")
    return EXIT_OK


def _newly_missing(before: Sequence[Night], night: Night) -> list[str]:
    """Dates without a night since the last one."""
    others = [known for known in before if known.run != night.run]
    return nightly.missing_dates(others[-1:], night.night)


def _document(name: str, word: str, night: Night, findings: Sequence[Finding], missing: list[str],
              pruned: list[str]) -> dict[str, Any]:  # fmt: skip
    return {"schema": 1, "plan": name, "state": word, "night": plain(night), "missing_nights": missing,
            "findings": [{**plain(finding), "change": finding.change} for finding in findings],
            "pruned": pruned}  # fmt: skip


def _export(root: Path, night: Night, word: str, findings: Sequence[Finding], missing: list[str],
            files: dict[str, str | None]) -> None:  # fmt: skip
    from dbbench.exports import FORMATS
    from dbbench.store.files import write_text

    if not any(files.values()):
        return
    report = report_of_night(store.load_run(root / night.run, verify=False), night, word, findings, missing)
    for form, path in files.items():
        if path is not None:
            write_text(Path(path).resolve(), FORMATS[form](report))


def _notify(words: str, document: dict[str, Any]) -> None:
    """Start the command; that it failed is told and changes nothing else."""
    from dbbench import process

    try:
        process.run(shlex.split(words), stdin=json.dumps(document, ensure_ascii=False), timeout_s=60.0,
                    env={"DBBENCH_STATE": document["state"], "DBBENCH_PLAN": document["plan"]})  # fmt: skip
    except (DbbenchError, ValueError) as error:
        click.echo(f"--notify failed: {error}", err=True)


def _put(options: Options, document: dict[str, Any], findings: Sequence[Finding]) -> None:
    if options.json:
        put_json(document)
        return
    night = document["night"]
    put(f"{document['plan']}, night of {night['night']}: {document['state']}")
    for text in (*night["reasons"], *(f"no night on {date}" for date in document["missing_nights"])):
        put(f"  {text}")
    rows = [(f.key, f"{f.ratio:.3f}", None if f.level is None else f"{f.level:.3f}",
             None if f.change is None else f"{f.change - 1:+.1%}", f.state, f.since) for f in findings]  # fmt: skip
    put_table(("series", "ratio", "level", "change", "state", "since"), rows, right="-rrr")
    for finding in findings:
        for note in finding.notes:
            put(f"  {finding.key}: {note}")
    if night["breaks"]:
        put(f"  changed since the night before: {'; '.join(night['breaks'])}")
    put(f"  run {night['run']}")
    if any(finding.state in ("regression", "improvement") for finding in findings):
        put(f"  If it is as it should be:  dbbench baseline accept {night['run']} --reason TEXT")


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
