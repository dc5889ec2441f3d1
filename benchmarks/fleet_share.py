"""Simulated trials of a part on a host, which sleep and are published. The workers of `fleet.py` run
them.
"""

from __future__ import annotations

import time
from pathlib import Path

from dbbench import results
from dbbench.fleet import task
from dbbench.fleet.parts import Given
from dbbench.model import Run, Status, Trial
from dbbench.model.events import Emit, Event
from dbbench.run.children import Stop


def simulate(
    run: Run,
    given: Given,
    folder: Path,
    emit: Emit,
    stop: Stop,
) -> None:
    """Replace `task.run_share`: a trial sleeps for its window and is published."""
    task.make_run(run, given, folder)
    for spec in results.pending(folder, run):
        if stop.signal is not None:
            raise stop.error()
        emit(Event("trial_begin", {"id": spec.id}))
        time.sleep(run.cells[0].window.measure_s)
        draft = results.Draft(folder, spec.id)
        (draft.raw / "pgbench.out").write_text("x" * 20_000)
        trial = Trial(
            spec.id,
            run.name,
            str(run.host["hostname"]),
            spec.cell.partition(".")[0],
            "postgres",
            "w",
            spec.block,
            1,
            spec.position,
            Status.OK,
            summary={"tps": 9.5},
        )
        draft.publish(trial, None, [], None)
        end = {"trial": spec.id, "arm": trial.fs_setup, "engine": "postgres", "workload": "w"}
        emit(Event("trial_end", end))
