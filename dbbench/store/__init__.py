"""The results folder: written once, read back, never changed afterwards.

RUN/run.json plan.toml journal.jsonl    the question, the order, what was taken
RUN/trials/ID/                          one finished trial: trial.json, series.csv.gz, histogram.json, raw/, SHA256SUMS
RUN/powercut.json powercut/ SHA256SUMS  what the power-cut lab found
RUN/trials/.partial-ID/                 a trial that is being driven, or was cut off: never read as a result
"""

from __future__ import annotations

from dbbench.store.lab import load_lab, save_lab
from dbbench.store.reading import LoadedRun, load_run, load_trial, runs
from dbbench.store.runs import (
    create_run,
    drivable,
    find_unfinished,
    finished,
    load_ceiling,
    load_spec,
    locked,
    parsed_spec,
    pending,
    save_ceiling,
    save_spec,
    written_spec,
)
from dbbench.store.trials import Draft

__all__ = [
    "Draft",
    "LoadedRun",
    "create_run",
    "drivable",
    "find_unfinished",
    "finished",
    "load_ceiling",
    "load_lab",
    "load_run",
    "load_spec",
    "load_trial",
    "locked",
    "parsed_spec",
    "pending",
    "runs",
    "save_ceiling",
    "save_lab",
    "save_spec",
    "written_spec",
]
