"""The rehearsal of a run within the second kernel: `python -m dbbench.labs.second_kernel.driving RUN`.

Runs the trials like `dbbench run`. A setup that fails must not prevent the others from being tried: its trials are
marked as failed with the reason, and the run continues. stdout carries progress events.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from dbbench import results
from dbbench.errors import EXIT_OK, DbbenchError, Interrupted, KernelLacks, Terminated
from dbbench.labs.second_kernel.small import PLACE
from dbbench.machine import host
from dbbench.model import Run, TrialSpec
from dbbench.report.progress.event import Emit
from dbbench.results import Draft, pending
from dbbench.run.queue import execute
from dbbench.run.record import Record
from dbbench.run.worker import events_to
from dbbench.storage import filesystems


def main(argv: list[str]) -> int:
    """Exit status 0: every trial has a result."""
    folder, emit = Path(argv[0]), events_to(1)
    run = results.load_spec(folder)
    run = dataclasses.replace(run, host={**host.facts(), "state": host.state()}, versions=host.versions())
    results.save_spec(folder, run)
    PLACE.mkdir(parents=True, exist_ok=True)
    for spec in pending(folder, run):
        if reason := filesystems.works(run.cell(spec.cell).setup):
            lacks = KernelLacks(f"the second kernel cannot do it either: {reason}")
            _failed(folder, run, spec, lacks, emit)
    while left := pending(folder, run):
        try:
            execute(folder, emit=emit)
        except (Interrupted, Terminated):
            raise
        except DbbenchError as error:  # the trial could not begin: it was refused, or its dataset failed
            _failed(folder, run, left_first(folder, run, left), error, emit)
    return EXIT_OK


def left_first(folder: Path, run: Run, before: list[TrialSpec]) -> TrialSpec:
    """Return the trial at which the run stopped: the first of the order without a result."""
    return next(iter(pending(folder, run)), before[0])


def _failed(folder: Path, run: Run, spec: TrialSpec, error: DbbenchError, emit: Emit) -> None:
    record = Record(run, spec, run.cell(spec.cell), Draft(folder, spec.id), emit)
    record.fail(error)
    record.publish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
