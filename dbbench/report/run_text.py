"""Finished runs on the terminal: the verdict, how many trials count, and what disturbed the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dbbench.errors import warning_kinds
from dbbench.model import Status, Trial
from dbbench.plan.conditions import PLANNED
from dbbench.report.text import put, put_paragraph, put_table
from dbbench.report.verdict_table import put_tables
from dbbench.report.verdicts import Verdicts

MOST_FAILED: Final = 3  # failed trials that are listed; `dbbench show` lists all


def put_runs(verdicts: Verdicts, page: Path, details: bool) -> None:
    """Print the verdict of the runs, the number of trials, the path of the page, and a table of the warnings."""
    put_tables(verdicts, details)
    trials = [trial for run in verdicts.runs for trial in run.trials]
    counts = [(status.value, sum(trial.status is status for trial in trials)) for status in Status]
    put()
    put_paragraph(f"{len(trials)} trials: {', '.join(f'{n} {word}' for word, n in counts if n)}. Page: {page}")
    _put_failed([trial for trial in trials if trial.error is not None])
    rows = _warnings(trials)
    if rows:
        put()
        put_table(("warning", "trials", "what to do"), rows, right=("trials",))


def _put_failed(failed: Sequence[Trial]) -> None:
    for trial in failed[:MOST_FAILED]:
        assert trial.error is not None
        put_paragraph(f"  {trial.id} failed in {trial.error.phase or '?'}: {trial.error.id} {trial.error.text}")
    if len(failed) > MOST_FAILED:
        put(f"  and {len(failed) - MOST_FAILED} more:  dbbench show {failed[0].run}")


def _warnings(trials: Sequence[Trial]) -> list[tuple[str, int, str]]:
    """Return (ID, trials, what it is and what to do), most trials first, without what the plan said before the run."""
    counts = Counter(ident for trial in trials for ident in {warning.id for warning in trial.warnings} - set(PLANNED))
    kinds = warning_kinds()
    texts = {ident: f"{kinds[ident].title}. {kinds[ident].remedy}" for ident in counts if ident in kinds}
    return sorted(((ident, n, texts.get(ident, "")) for ident, n in counts.items()), key=lambda row: (-row[1], row[0]))
