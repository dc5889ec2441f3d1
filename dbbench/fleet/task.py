"""The dask task of a part, on the worker of a host: run it, report its progress, stop it when the
task is cancelled or the worker ends, and return its finished trials.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import distributed

from dbbench.errors import DbbenchError, Terminated
from dbbench.fleet import parcel
from dbbench.fleet.parts import Given
from dbbench.machine import threads
from dbbench.model import Json, Run
from dbbench.model.events import Event
from dbbench.results import merging
from dbbench.run.children import Stop

STOP_S: Final = 90.0  # a clean stop of a trial may take a minute
_LOOK_S: Final = 0.5  # between two checks whether the task is still wanted
# Events that the coordinator shows. None is sent within the window of a trial.
_REPORTED: Final = ("prepare", "trial_begin", "trial_end", "note")


@dataclass
class Here:
    """Identity of this host. A worker that dbbench did not start reads it from its environment."""

    name: str = field(
        default_factory=lambda: os.environ.get("DBBENCH_FLEET_NAME") or os.uname().nodename
    )
    results: Path = field(
        default_factory=lambda: Path(os.environ.get("DBBENCH_FLEET_RESULTS") or "results").resolve()
    )


HERE: Final = Here()


@dataclass(frozen=True)
class PartOutcome:
    """What a host returns for a part: its finished trials, or the error that kept it from running
    them.
    """

    host: str
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    error: Json | None = None


def run_part(run: Run, given: Given, topic: str) -> PartOutcome:
    """Run a part on this host; its events go to `topic`. Errors of dbbench are part of the result."""
    from dbbench.fleet.share import run_share  # what only a host needs

    worker = distributed.get_worker()
    stop = Stop()

    def emit(event: Event) -> None:
        if event.kind in _REPORTED:
            worker.log_event(topic, {"host": HERE.name, "kind": event.kind, "data": event.data})

    watch = partial(_stop_unwanted, stop, worker, worker.get_current_task())
    try:
        folder = HERE.results / merging.checked_name(run.name)
        named = dataclasses.replace(run, host={"hostname": HERE.name})
        with threads.beside("fleet task", watch):
            run_share(named, given, folder, emit, stop)
        return PartOutcome(HERE.name, parcel.pack(folder))
    except DbbenchError as error:
        return PartOutcome(HERE.name, error=error.as_data())
    except OSError as error:
        return PartOutcome(HERE.name, error=DbbenchError(f"{HERE.name}: {error}").as_data())


def _stop_unwanted(
    stop: Stop,
    worker: Any,
    key: str,
    ended: threading.Event,
) -> None:
    """Stop the trials when the scheduler no longer wants their task: dask does not end the thread of
    a cancelled one.
    """
    while not ended.wait(_LOOK_S):
        task = worker.state.tasks.get(key)
        running = worker.status in (distributed.Status.running, distributed.Status.paused)
        if not running or task is None or task.state != "executing":
            with contextlib.suppress(Terminated):
                stop(signal.SIGTERM, None)
            return
