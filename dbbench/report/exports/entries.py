"""What the export formats have in common: a run or a night as entries, one for each setup."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.remarks import texts
from dbbench.metrics.table import Metric
from dbbench.model import Status
from dbbench.model.run import title_of
from dbbench.report.trial_counts import trial_counts
from dbbench.report.verdicts import Verdicts, is_expected

FAILS: Final = ("regression", "slower", "worse")
UNDECIDED: Final = ("inconclusive", "suspect", "learning", "device-limited")


class ArmFigures(NamedTuple):
    """One metric of a setup with one engine and workload. `state` is a verdict, or the finding of a
    night.
    """

    row: Row
    metric: Metric
    state: str
    notes: tuple[str, ...] = ()

    @property
    def workload(self) -> str:
        return title_of(self.row.workload, self.row.variant)

    @property
    def name(self) -> str:
        """Return "postgres pgbench-tpcb, clients=8: xfs"."""
        return f"{self.row.engine} {self.workload}: {self.row.fs_setup}"


class Report(NamedTuple):
    """A run or a night. `problems` are sentences about the whole of it; `trials` says how many
    count.
    """

    title: str
    run: str
    created: str
    entries: tuple[ArmFigures, ...]
    state: str = ""
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    host: str = ""
    trials: str = ""


def report_of(verdicts: Verdicts) -> Report:
    """Return every row of the verdicts; failed trials are the report's problems."""
    entries = []
    # A lower limit is expected to lose; that is no failure.
    for table in verdicts.tables:
        for row in table.rows:
            state: str = row.verdict
            if state in FAILS and is_expected(row, verdicts):
                state += ", as expected"
            entries.append(
                ArmFigures(
                    row,
                    table.metric,
                    state,
                    texts(row.notes),
                )
            )

    runs = [loaded.run for loaded in verdicts.runs]
    trials = [trial for loaded in verdicts.runs for trial in loaded.trials]
    problems = [
        f"{trial.id}: {trial.error.id} {trial.error.text}"
        for trial in trials
        if trial.status is Status.FAILED and trial.error
    ]
    names = ", ".join(run.name for run in runs)
    return Report(
        title=names,
        run=names,
        created=max(run.created for run in runs),
        entries=tuple(entries),
        state="failed" if problems else "",
        problems=tuple(problems),
        seconds=math.fsum(phase.seconds for trial in trials for phase in trial.phases),
        trials=trial_counts(verdicts.runs).text,
        host=", ".join(dict.fromkeys(str(run.host.get("hostname", "")) for run in runs)),
    )
