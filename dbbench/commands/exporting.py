"""From runs and nights to what the formats are made from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dbbench.commands.verdicts import verdicts
from dbbench.exports import Entry, Report
from dbbench.model import Status
from dbbench.model.expanded import titled
from dbbench.nightly import GUARD, ITSELF, Finding, Night
from dbbench.store import LoadedRun


def report_of_run(loaded: LoadedRun, metric: str | None = None) -> Report:
    """Each arm by its workload's metric, or by `metric`."""
    entries = [
        Entry(row.engine, titled(row.workload, row.variant), row.fs_setup, table.metric.name, row.value, row.ratio,
              row.lo, row.hi, row.n, row.verdict, row.durability_class, row.notes)
        for table in verdicts([loaded], None, metric).tables for row in table.rows
    ]  # fmt: skip
    failed = [f"{t.id}: {t.error.id} {t.error.text}" for t in loaded.trials if t.status is Status.FAILED and t.error]
    seconds = math.fsum(phase.seconds for trial in loaded.trials for phase in trial.phases)
    return Report(loaded.run.name, loaded.run.name, loaded.run.created, tuple(entries), "failed" if failed else "",
                  tuple(failed), seconds)  # fmt: skip


def report_of_night(
    loaded: LoadedRun, night: Night, word: str, findings: Sequence[Finding], missing: Sequence[str]
) -> Report:
    """The same with the findings as states; reasons and missing nights are the problems of the whole."""
    base, found = report_of_run(loaded), {finding.key: finding for finding in findings}
    entries = []
    for entry in base.entries:
        finding = found.get(entry.name) or found.get(entry.name + ITSELF)
        if finding is None:
            entries.append(_with(entry, "guard" if entry.fs_setup.endswith(GUARD) else "reference", entry.notes))
        else:
            level = () if finding.change is None else (f"{finding.change - 1:+.1%} against the accepted nights",)
            entries.append(_with(entry, finding.state, (*level, *finding.notes)))
    problems = (*base.problems, *night.reasons, *(f"no night on {date}" for date in missing))
    return Report(f"{loaded.run.plan.name}, night of {night.night}", loaded.run.name, loaded.run.created,
                  tuple(entries), word, problems, base.seconds)  # fmt: skip


def _with(entry: Entry, state: str, notes: tuple[str, ...]) -> Entry:
    return Entry(entry.engine, entry.workload, entry.fs_setup, entry.metric, entry.value, entry.ratio, entry.lo,
                 entry.hi, entry.n, state, entry.durability_class, notes)  # fmt: skip
