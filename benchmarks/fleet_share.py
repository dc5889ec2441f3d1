"""The share of a host with simulated trials, which sleep and are published. The workers of
`fleet.py` start it.

Small, because sixteen of them start at once on the cores of one machine.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dbbench import results
from dbbench.fleet import share
from dbbench.fleet.share import Share, become_share
from dbbench.model import Status, Trial
from dbbench.model.events import Event


def simulate(share: Share) -> None:
    """Replace `run.queue.execute`: a trial sleeps for its window and is published."""
    folder = share.host.folder
    emit = share.emit
    run = results.load_spec(folder)
    while left := results.pending(folder, run := share.between(run)):
        spec = left[0]
        emit(Event("trial_begin", {"id": spec.id}))
        emit(Event("phase_begin", {"phase": "measure"}))
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
        emit(Event("trial_end", {"id": spec.id}))


if __name__ == "__main__":
    share.lock_of = lambda _run, folder: folder / "disk.lock"
    become_share(Path(sys.argv[1]), simulate)
