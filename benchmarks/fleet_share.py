"""The process of a part on a host with simulated trials, which sleep and are published. The workers
of `fleet.py` start it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dbbench import results
from dbbench.fleet import share
from dbbench.model import Status, Trial
from dbbench.model.events import Event


def simulate(results_folder: Path, host: str) -> None:
    """Replace `share.run_share`: a trial sleeps for its window and is published."""
    work = json.load(sys.stdin)
    run = results.parsed_spec(work["spec"].encode())
    folder = results_folder / run.name
    share._make_run(work, run, folder, host)
    for spec in results.pending(folder, run):
        share._emit(Event("trial_begin", {"id": spec.id}))
        time.sleep(run.cells[0].window.measure_s)
        draft = results.Draft(folder, spec.id)
        (draft.raw / "pgbench.out").write_text("x" * 20_000)
        trial = Trial(
            spec.id,
            run.name,
            host,
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
        share._emit(Event("trial_end", end))


if __name__ == "__main__":
    simulate(Path(sys.argv[1]), sys.argv[2])
