"""The supervisor of a host with simulated trials, which sleep and are published. The workers of `fleet.py` start it.

Small, because sixteen of them start at once on the cores of one machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dbbench import process, results
from dbbench.fleet import supervisor
from dbbench.fleet.room import Room
from dbbench.model import Run, Status, Trial
from dbbench.model.events import Emit, Event


def simulated(folder: Path, *, emit: Emit, between: Callable[[Run], Run]) -> None:
    """Replace `run.queue.execute`: a trial sleeps for its window and is published."""
    run = results.load_spec(folder)
    while left := results.pending(folder, run := between(run)):
        spec = left[0]
        emit(Event("trial_begin", {"id": spec.id}))
        emit(Event("phase_begin", {"phase": "measure"}))
        time.sleep(run.cells[0].window.measure_s)
        draft = results.Draft(folder, spec.id)
        (draft.raw / "pgbench.out").write_text("x" * 20_000)
        trial = Trial(spec.id, run.name, str(run.host["hostname"]), spec.cell.partition(".")[0], "postgres", "w",
                      spec.block, 1, spec.position, Status.OK, summary={"tps": 9.5})  # fmt: skip
        draft.publish(trial, None, [], None)
        emit(Event("trial_end", {"id": spec.id}))


def supervise(folder: Path) -> None:
    """Run a supervisor with a simulated disk and simulated trials."""
    supervisor.lock_of = lambda _run, own: own / "disk.lock"
    with supervisor.alone(folder) as ours:
        if ours:
            process.become_daemon(os.open(Room(folder).path / "supervisor.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT))
            Room(folder).sign()
            supervisor.supervise(folder, simulated, lambda run: run)


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
