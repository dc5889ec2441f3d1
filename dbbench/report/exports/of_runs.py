"""The verdicts of runs in every format."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dbbench.compare.remarks import texts
from dbbench.model import Status
from dbbench.model.expanded import titled
from dbbench.report.exports import FORMATS, ArmFigures, Report
from dbbench.report.text import json_text
from dbbench.report.verdicts import Verdicts, as_csv, as_document, as_markdown
from dbbench.results import LoadedRun


def exported(form: str, runs: Sequence[LoadedRun], verdicts: Verdicts) -> str:
    """The verdicts as "json", "csv", "markdown", or in one of FORMATS."""
    match form:
        case "json":
            return json_text(as_document(verdicts))
        case "csv":
            return as_csv(verdicts)
        case "markdown":
            return as_markdown(verdicts)
        case _:
            return FORMATS[form](report_of(runs, verdicts))


def report_of(runs: Sequence[LoadedRun], verdicts: Verdicts) -> Report:
    """Every row of the verdicts; failed trials are the report's problems."""
    entries = tuple(
        ArmFigures(row.engine, titled(row.workload, row.variant), row.fs_setup, table.metric.name, row.value, row.ratio,
                   row.lo, row.hi, row.n, row.verdict, row.durability_class, texts(row.notes))
        for table in verdicts.tables for row in table.rows
    )  # fmt: skip
    trials = [trial for run in runs for trial in run.trials]
    failed = tuple(f"{t.id}: {t.error.id} {t.error.text}" for t in trials if t.status is Status.FAILED and t.error)
    names, created = ", ".join(run.run.name for run in runs), max(run.run.created for run in runs)
    seconds = math.fsum(phase.seconds for trial in trials for phase in trial.phases)
    return Report(names, names, created, entries, "failed" if failed else "", failed, seconds)
