"""The lab's own process, in private namespaces, which is started with the run's folder and the order.

If it or its parent is killed, the kernel ends every server, mount, loop device and disk; images and logs are in memory
and disappear. stdout carries progress events, one JSON object per line.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

from dbbench import __version__, results
from dbbench.errors import DbbenchError
from dbbench.labs.powercut import Order, disk_images
from dbbench.labs.powercut.ground import DEADLINES_S, Lab
from dbbench.labs.powercut.lab import Bench, Tally, control, examine
from dbbench.labs.powercut.targets import LabTarget, controls_of, how_often, targets
from dbbench.machine import namespaces
from dbbench.model import ControlFacts, LabFacts, LabRow, Run
from dbbench.model.events import Emit, Event
from dbbench.results.journal import Journal
from dbbench.run.children import serve
from dbbench.run.workdir import WorkDir
from dbbench.run.worker import RUNTIME, events_to, guarded, private, reported
from dbbench.units import iso

# Between two reports there are at most two recoveries, or one recording with its kills. What hangs where no signal ends
# it, in the kernel or in a client library, is killed then.
STEP_S: Final = 2 * sum(DEADLINES_S.values())


def main(request: dict[str, Any]) -> int:
    """Exit status 0: the results are in the run's directory; otherwise an `error` event explains why not."""
    folder, order = Path(request["folder"]), Order(**request["order"])
    os.umask(0o022)
    emit = events_to(os.dup(1))

    def start(workdir: WorkDir) -> None:
        _work(private(results.load_spec(folder), workdir, request["sha256"]), folder, order, workdir, emit)

    try:
        work = lambda: guarded(start, WorkDir(RUNTIME), emit)  # noqa: E731
        return namespaces.isolated(work, RUNTIME, keep=[folder])
    except DbbenchError as error:
        return reported(error, emit)


def _work(run: Run, folder: Path, order: Order, workdir: WorkDir, emit: Emit) -> None:
    began, created = time.monotonic(), iso(time.time())
    lab_targets, skipped = targets(run.cells, run.plan.device.given)
    until = began + order.minutes * 60 if order.minutes else None
    lab = Lab(workdir, Journal(folder / "journal.jsonl"))
    tell = lambda what: emit(Event("prepare", {"what": what, "deadline_s": STEP_S}))  # noqa: E731
    bench = Bench(lab, folder, order.seed, tell, lying=order.lying)
    teeth: list[ControlFacts] = []
    tallies: list[Tally] = []

    def save(complete: bool) -> None:
        results.save_lab(folder, LabFacts(
            created, order.seed, _rows(tallies, teeth), tuple(teeth), skipped, _disk(),
            round(time.monotonic() - began, 1), complete, __version__,
        ))  # fmt: skip

    for engine in _one_of_each_engine(lab_targets):
        for weakened in controls_of(engine.engine.name, order.controls):
            teeth.append(control(bench, weakened, engine, *how_often(order.cuts)))
            save(False)
    for number, target in enumerate(lab_targets):
        if until is not None:  # the remaining time, divided equally
            bench.until = time.monotonic() + max(0.0, until - time.monotonic()) / (len(lab_targets) - number)
        tallies.append(examine(bench, target, order.cuts))
        save(False)
    save(True)


def _one_of_each_engine(wanted: list[LabTarget]) -> list[LabTarget]:
    return list({target.engine.name: target for target in reversed(wanted)}.values())[::-1]


def _rows(tallies: list[Tally], teeth: list[ControlFacts]) -> tuple[LabRow, ...]:
    blind = {facts.engine for facts in teeth if facts.blind}
    return tuple(tally.row(tally.target.engine.name in blind) for tally in tallies)


def _disk() -> dict[str, int | float | str | bool]:
    return {
        "destage_s": disk_images.DESTAGE_S,
        "cache_bytes": disk_images.CACHE_BYTES,
        "sector_bytes": disk_images.SECTOR,
        "block_bytes": disk_images.BLOCK,
    }


if __name__ == "__main__":
    serve(main)
