"""The results folder: written once, verified when read, never changed.

RUN/run.json plan.toml journal.jsonl    the plan, the order of trials, and what was acquired from the machine
RUN/trials/ID/                          a finished trial: trial.json, series.csv.gz, histogram.json, raw/, SHA256SUMS
RUN/powercut.json powercut/ SHA256SUMS  the result of the power-loss lab
RUN/trials/.partial-ID/                 a trial in progress or interrupted: never read as a result
"""

from __future__ import annotations

from dbbench.results.loading import LoadedRun, all_of, load_run, load_trial, load_whole, runs
from dbbench.results.runs import (
    create_run,
    drivable,
    find_unfinished,
    finished,
    load_ceiling,
    load_lab,
    load_spec,
    locked,
    parsed_spec,
    pending,
    save_ceiling,
    save_lab,
    save_spec,
    written_spec,
)
from dbbench.results.trials import Draft

__all__ = [
    "Draft",
    "LoadedRun",
    "all_of",
    "create_run",
    "drivable",
    "find_unfinished",
    "finished",
    "load_ceiling",
    "load_lab",
    "load_run",
    "load_spec",
    "load_trial",
    "load_whole",
    "locked",
    "parsed_spec",
    "pending",
    "runs",
    "save_ceiling",
    "save_lab",
    "save_spec",
    "written_spec",
]
