"""One night: run the plan with its reference and guard, judge it, confirm suspects, record it."""

from __future__ import annotations

import dataclasses
import datetime
import json
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from dbbench import process, results
from dbbench.compare.verdict import GUARD
from dbbench.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    EXIT_REGRESSION,
    EXIT_TRIAL_FAILED,
    DbbenchError,
)
from dbbench.model import Json, plain
from dbbench.model.events import Emit, Event
from dbbench.nightly import history
from dbbench.nightly.analysis import differs, overall
from dbbench.nightly.judging import MOVED, NightFinding, confirm, guard_cautions, judge
from dbbench.nightly.night import ITSELF, Night, add_guard, document_of, local_date, night_of
from dbbench.plan.request import PlanRequest
from dbbench.report.exports.entries import ArmFigures
from dbbench.results import LoadedRun
from dbbench.units import change, iso

# Blocks of the second run after a suspected regression: they detect 10 % at a trial CV of 5 %.
CONFIRM_BLOCKS: Final = 7
_EXITS: Final = {
    "regression": EXIT_REGRESSION,
    "failed": EXIT_TRIAL_FAILED,
    "inconclusive": EXIT_INCONCLUSIVE,
}

RunPlan = Callable[[PlanRequest, str], LoadedRun]  # takes the plan to run and the name of the run


class NightOutcome(NamedTuple):
    """A night and its findings."""

    plan: str
    state: str  # state of the whole night, see `overall`
    night: Night
    findings: list[NightFinding]
    missing: list[str]  # dates without a run since the previous night
    pruned: list[str]  # names of the runs whose raw data was removed
    news: bool  # whether the state differs from the last notified one
    cautions: dict[str, str]  # engine and workload -> why their guard proves nothing

    @property
    def exit_status(self) -> int:
        """Return 3 after a regression, 1 after a failed trial, 4 if no conclusion is possible, else
        0.
        """
        return _EXITS.get(self.state, EXIT_OK)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return sentences about the whole night, one for each gap in the dates."""
        gaps = [f"no night {dates}" for dates in history.spans(self.missing)]
        return (*self.night.reasons, *gaps)

    @property
    def document(self) -> Json:
        findings = [{**plain(finding), "change": finding.change} for finding in self.findings]
        return {
            "schema": 1,
            "plan": self.plan,
            "state": self.state,
            "night": document_of(self.night),
            "missing_nights": self.missing,
            "findings": findings,
            "guard_cautions": self.cautions,
            "pruned": self.pruned,
        }


def tonights_request(
    plan_file: str,
    paths: list[str],
    blocks: int | None,
) -> PlanRequest:
    """Return the plan with its guard, in tonight's order."""
    from dbbench.plan.narrowing import Narrowing
    from dbbench.plan.request import load_request

    narrowing = Narrowing(blocks=blocks, seed=int(f"{today():%Y%m%d}"))
    return load_request(plan_file, paths, narrowing, add_guard)


def run_night(
    request: PlanRequest,
    root: Path,
    window: int,
    run_plan: RunPlan,
) -> NightOutcome:
    """Run, judge and record this night. `window`: the number of earlier nights that it is compared
    with.
    """
    name = request.plan.name
    with history.one_at_a_time(root, name):
        night, findings = _judge(request, root, window, run_plan)
        before = [other for other in history.all_nights(root, name) if other.run != night.run][-1:]
        missing = history.missing_dates([*before, night])
        history.append(root, name, night)
        state = overall(night, findings, missing)
        news = differs(root, name, state, findings)
        # A clock that is wrong tonight removes nothing.
        dates = [datetime.date.fromisoformat(night.night) for night in before]
        pruned = history.prune(root, history.all_nights(root, name), min([today(), *dates]))
    return NightOutcome(
        name,
        state,
        night,
        findings,
        missing,
        pruned,
        news,
        guard_cautions(night, findings),
    )


def _judge(
    request: PlanRequest,
    root: Path,
    window: int,
    run_plan: RunPlan,
) -> tuple[Night, list[NightFinding]]:
    """Return the night and its findings; a second run decides about suspects."""
    name = request.plan.name
    before = history.all_nights(root, name)
    loaded = run_plan(request, f"{name}-night")
    others = [night for night in before if night.run != loaded.path.name]
    night = night_of(loaded, others[-1] if others else None)
    findings = judge(others, night, history.acceptance(root, name), window)
    # A suspect is confirmed at once, because tomorrow the cause may be gone.
    if any(finding.state == "suspect" for finding in findings):
        again = night_of(run_plan(_second(request, findings), f"{name}-confirm"))
        findings = [
            _answer(finding, again) if finding.state == "suspect" else finding
            for finding in findings
        ]
        night = dataclasses.replace(night, confirmations=again.ratios)
    night = dataclasses.replace(
        night,
        states={f.key: f.state for f in findings},
        levels={f.key: f.level for f in findings if f.level is not None},
        since={f.key: f.since for f in findings if f.since is not None and f.state in MOVED},
    )
    return night, findings


def _answer(finding: NightFinding, again: Night) -> NightFinding:
    """Return the suspect finding after its second run; a second run that is not good confirms
    nothing.
    """
    if again.good:
        return confirm(finding, again.ratios.get(finding.key))
    note = f"the second run was inconclusive: {'; '.join(again.reasons)}"
    return dataclasses.replace(finding, notes=(*finding.notes, note))


def _second(request: PlanRequest, findings: Sequence[NightFinding]) -> PlanRequest:
    """Return the second run's plan: reference, guard and suspects only, with enough blocks, in
    another order.
    """
    from dbbench.plan import Expanded, identity, make_order

    # Only what is suspect is measured again, with the reference and its guard.
    keys = [finding.key for finding in findings if finding.state == "suspect"]
    plan = request.plan
    arms = {key.rpartition(": ")[2] for key in keys} | {plan.baseline, plan.baseline + GUARD}
    titles = {key.rpartition(": ")[0] for key in keys}
    cells = tuple(
        cell
        for cell in request.expanded.cells
        if cell.arm in arms and f"{cell.engine.name} {cell.title}" in titles
    )
    # Another order, so that what disturbed the first run meets other trials.
    plan = dataclasses.replace(
        plan,
        budget_s=None,
        blocks=max(CONFIRM_BLOCKS, plan.blocks),
        seed=plan.seed + 1,
        fs_setups=tuple(arm for arm in plan.fs_setups if arm.label in arms),
    )
    expanded = Expanded(cells, tuple(make_order(cells, plan.blocks, plan.seed)))
    return PlanRequest(
        request.text,
        plan,
        expanded,
        identity(plan, cells),
    )


def run_to_end(
    request: PlanRequest,
    root: Path,
    name: str,
    wipe: tuple[str, ...],
    emit: Emit,
) -> LoadedRun:
    """Return the finished run of this plan. A stopped run of the same night is resumed."""
    from dbbench.plan.forecast import recall
    from dbbench.plan.planned_conditions import limits
    from dbbench.run.create import create, free_name, must_be_of
    from dbbench.run.preflight import check_run
    from dbbench.run.queue import begin, execute

    # A run of this night that was stopped goes on.
    folder = results.find_open(root, request.sha256) if root.is_dir() else None
    if folder is not None:
        must_be_of(folder, request)
    check_run(request, "PLAN", root, folder, wipe)

    def make() -> Path:
        return create(root, recall(request, root), free_name(root, name, today().isoformat()))

    with begin(folder, root, request, make) as folder:
        if text := limits(request.plan, request.expanded.cells):
            emit(Event("note", {"text": text}))
        execute(folder.path, request.sha256, wipe=wipe, emit=emit)
    return results.load_run(folder.path)


def export(
    outcome: NightOutcome,
    root: Path,
    files: dict[str, str | None],
) -> None:
    """Write the night in the formats of other programs. `files` has a path or None for each format."""
    from dbbench.report.exports import FORMATS
    from dbbench.report.exports.entries import report_of
    from dbbench.report.verdicts import verdicts
    from dbbench.results.fileio import write_text

    if not any(files.values()):
        return
    # The run's own table, of which the verdicts are replaced.
    loaded = results.load_run(root / outcome.night.run, verify=False)
    base = report_of(verdicts([loaded]))
    findings = {finding.key: finding for finding in outcome.findings}

    # The verdict of the run becomes the finding of the night.
    entries = []
    for entry in base.entries:
        finding = findings.get(entry.name) or findings.get(entry.name + ITSELF)
        if finding is not None:
            entries.append(_with_finding(entry, finding))
        else:
            title = entry.name.rpartition(": ")[0]
            caution = outcome.cautions.get(title, "")
            if entry.row.fs_setup != loaded.run.baseline + GUARD:
                state = "reference"
            elif caution:
                state = "inconclusive"
                entry = entry._replace(notes=(caution, *entry.notes))
            else:
                state = "guard"
            entries.append(entry._replace(state=state))
    title = f"{outcome.plan}, night of {outcome.night.night}"
    report = base._replace(
        title=title,
        entries=tuple(entries),
        state=outcome.state,
        problems=(*base.problems, *outcome.problems),
    )
    for form, path in files.items():
        if path is not None:
            write_text(Path(path), FORMATS[form](report))


def _with_finding(entry: ArmFigures, finding: NightFinding) -> ArmFigures:
    notes = finding.notes
    if finding.change is not None:
        level = f"{change(finding.change)} compared with the accepted nights"
        notes = (level, *notes)
    return entry._replace(state=finding.state, notes=notes)


def notify(command: str, document: Json) -> None:
    """Run the command with the night as JSON on stdin. If it fails, print that; nothing else
    changes.
    """
    try:
        process.run(
            shlex.split(command),
            stdin=json.dumps(document, ensure_ascii=False),
            timeout_s=60.0,
            env={
                "DBBENCH_STATE": document["state"],
                "DBBENCH_PLAN": document["plan"],
            },
        )
    except (DbbenchError, ValueError) as error:
        click.echo(f"--notify failed: {error}", err=True)


def today() -> datetime.date:
    """Return the date of this night."""
    return local_date(iso(time.time()))
