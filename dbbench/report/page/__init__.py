"""The report page: results in, one HTML file out, a pure function of the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dbbench.report.page.nights import Course
from dbbench.results import LoadedRun, load_run


def render(runs: Sequence[LoadedRun | Path | str], redact: Sequence[str] = (), nights: Sequence[Course] = ()) -> str:
    """Return the page of these runs (loaded, or their folders) as HTML text. `redact` removes "hosts", "paths" or
    "params" from it. `nights` are the series of a plan that runs every night (`dbbench.nightly.analysis.courses_of`).
    Raises RunMissing, ResultDamaged, and UnknownName for another word in `redact`.
    """
    from dbbench.report.page.html import build, html

    loaded = [run if isinstance(run, LoadedRun) else load_run(run) for run in runs]
    return html(build(loaded, redact, nights))
