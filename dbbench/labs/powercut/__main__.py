"""The lab's own process, in private namespaces, which is started with the run's folder and the
order. If it or its parent is killed, the kernel ends every server, mount, loop device and disk;
images and logs are in memory and disappear. stdout carries progress events, one JSON object per
line.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import __version__, results
from dbbench.errors import DbbenchError
from dbbench.labs.harm import attempts_of, count_harms
from dbbench.labs.powercut import Order, disk_images
from dbbench.labs.powercut.base_images import Lab
from dbbench.labs.powercut.lab import Tally, examine, try_control
from dbbench.labs.powercut.phases import STEP_S
from dbbench.labs.powercut.targets import controls_of, how_often, targets
from dbbench.machine import namespaces
from dbbench.model import ControlFacts, Json, LabFacts, Run
from dbbench.model.events import Event
from dbbench.run.children import serve
from dbbench.run.workdir import WorkDir
from dbbench.run.worker import events_to, guard, private, report
from dbbench.units import iso

CONTROLS_SHARE: Final = 0.5  # most of the time that controls may use, so that setups have the rest
CUTS_SHARE: Final = 0.5  # of a target's time, if it is also to be harmed otherwise
_DISK: Final[dict[str, int | float | str | bool]] = {
    "destage_s": disk_images.DESTAGE_S,
    "cache_bytes": disk_images.CACHE_BYTES,
    "shift_bytes": disk_images.SHIFT,
}


def main(request: Json) -> int:
    """Exit status 0: the results are in the run's directory; otherwise an `error` event explains
    why not.
    """
    folder = Path(request["folder"])
    order = Order(**request["order"])
    os.umask(0o022)
    emit = events_to(os.dup(1))

    def work(workdir: WorkDir) -> None:
        run = private(results.load_spec(folder), workdir, request["sha256"])
        _examine(
            run,
            order,
            Lab(workdir, folder, order.seed, tell, order.lies, units=_units(order)),
        )

    def tell(what: str) -> None:
        emit(Event("prepare", {"what": what, "deadline_s": STEP_S}))

    guarded = partial(guard, work, WorkDir(namespaces.RUNTIME), emit)
    try:
        return namespaces.isolate(guarded, keep=[folder])
    except DbbenchError as error:
        return report(error, emit)


def _units(order: Order) -> tuple[int, ...]:
    return disk_images.UNITS if order.unit is None else (order.unit,)


def _examine(run: Run, order: Order, lab: Lab) -> None:
    """Try the controls once on each engine, then every target; save the results after each."""
    began = time.monotonic()
    created = iso(time.time())
    lab_targets, skipped = targets(run.cells, run.plan.device.device_count)
    controls: list[ControlFacts] = []
    tallies: list[Tally] = []

    def share_time(share: float) -> None:
        """Bound the next part to a share of the time that is left."""
        if order.minutes is not None:
            left_s = began + order.minutes * 60 - time.monotonic()
            lab.until = time.monotonic() + max(0.0, left_s) * share

    def save(complete: bool = False) -> None:
        blind = {facts.engine for facts in controls if facts.blind}
        rows = tuple(
            tally.row(tally.target.engine.name in blind, cut=order.cuts != 0) for tally in tallies
        )
        facts = LabFacts(
            created,
            order.seed,
            rows,
            tuple(controls),
            skipped,
            {**_DISK, "units": ", ".join(map(str, _units(order)))},
            seconds=round(time.monotonic() - began, 1),
            complete=complete,
            dbbench_version=__version__,
        )
        results.save_lab(lab.folder, facts)

    # Controls first: without them no result of the lab means anything.
    share_time(CONTROLS_SHARE)
    first_of_engine = {target.engine.name: target for target in reversed(lab_targets)}
    for engine in reversed(first_of_engine.values()):
        for control in controls_of(engine.engine.name, order.controls):
            controls.append(try_control(lab, control, engine, *how_often(order.cuts)))
            save()
    # Then each target, with its share of the time that is left.
    for number, target in enumerate(lab_targets):
        share = 1 / (len(lab_targets) - number)
        share_time(CUTS_SHARE * share if order.rounds else share)
        tallies.append(examine(lab, target, order.cuts))
        save()
        share_time(share)
        base = tallies[-1].base
        if order.rounds and base is not None:
            for count in count_harms(lab, base, order.rounds, attempts_of(order.fault)):
                tallies[-1].counts.append(count)
                save()
    save(complete=True)


if __name__ == "__main__":
    serve(main)
