"""The dask task of a part, on the worker of a host: start its process, report its progress, stop it
when the task is cancelled or the worker ends, and return its finished trials.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import distributed

from dbbench import process
from dbbench.errors import DbbenchError, DeadlinePassed, from_data
from dbbench.fleet import parcel
from dbbench.machine import namespaces, threads
from dbbench.model.events import Event, parse
from dbbench.results import merging
from dbbench.results.fileio import own_file

STOP_S: Final = 90.0  # a clean stop of a trial may take a minute
_LOOK_S: Final = 0.5  # between two checks whether the task is still wanted
LOG: Final = "fleet.log"
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
    share: tuple[str, ...] = (sys.executable, "-m", "dbbench.fleet.share")


HERE: Final = Here()


@dataclass(frozen=True)
class PartWork:
    """A part as it is sent to a host."""

    run: str  # name of the run on the host
    spec: str  # run.json with the order of the part
    plan: str
    scripts: dict[str, str]
    wipe: tuple[str, ...]  # devices that may be erased
    topic: str  # of the events


@dataclass(frozen=True)
class PartOutcome:
    """What a host returns for a part: its finished trials, or the error that kept it from running
    them.
    """

    host: str
    parcel: bytes = field(default=b"", repr=False)
    error: dict[str, Any] | None = None


class Cancelled(Exception):
    """No coordinator waits for the result of this task any more."""


def run_part(work: PartWork) -> PartOutcome:
    """Run a part on this host. Errors of dbbench are part of the result."""
    try:
        merging.checked_name(work.run)
        _run_share(work)
        return PartOutcome(HERE.name, parcel.pack(HERE.results / work.run))
    except DbbenchError as error:
        return PartOutcome(HERE.name, error=error.as_data())
    except OSError as error:
        return PartOutcome(HERE.name, error=DbbenchError(f"{HERE.name}: {error}").as_data())


def _run_share(work: PartWork) -> None:
    """Run the process of the part to its end. Raises Cancelled, and the error that it reports."""
    worker = distributed.get_worker()
    is_wanted = partial(_is_wanted, worker, worker.get_current_task())
    # The trials run in a process of their own, which ends with this worker.
    argv = [*HERE.share, str(HERE.results), HERE.name]
    env = {**process.kept_environment(), namespaces.PARENT: str(os.getpid())}
    errors = list[DbbenchError]()
    with contextlib.ExitStack() as stack:
        log = own_file(HERE.results / LOG, os.O_WRONLY | os.O_APPEND, 0o600)
        stack.callback(os.close, log)
        share = stack.enter_context(
            process.running(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                grace_s=STOP_S,
                note=False,
                own_session=True,
            )
        )
        stdin = share.popen.stdin
        stdout = share.popen.stdout
        assert stdin is not None and stdout is not None
        report = partial(worker.log_event, work.topic)
        # Its events go to the scheduler while the work is sent to it.
        reader = threads.Helper("fleet events", _read_events, stdout, report, errors)
        reader.start()
        with stdin:
            stdin.write(json.dumps(dataclasses.asdict(work)).encode())
        # It is stopped if the scheduler no longer wants this part.
        status = _wait(share, is_wanted)
        reader.join(_LOOK_S)
    if errors:
        raise errors[0]
    if status:
        raise DbbenchError(
            f"{HERE.name}: the process that runs the trials ended with status {status}",
            remedy=f"See {HERE.results / LOG} on {HERE.name}.",
        )


def _is_wanted(worker: Any, key: str) -> bool:
    """Whether the scheduler still has this task: dask does not end the thread of a cancelled one."""
    state = worker.state.tasks.get(key)
    running = worker.status in (distributed.Status.running, distributed.Status.paused)
    return running and state is not None and state.state == "executing"


def _wait(share: process.Running, is_wanted: Callable[[], bool]) -> int:
    while is_wanted():
        with contextlib.suppress(DeadlinePassed):
            return share.wait(_LOOK_S)
    raise Cancelled


def _read_events(
    stdout: IO[bytes],
    report: Callable[[dict[str, Any]], None],
    errors: list[DbbenchError],
) -> None:
    """Report the events that the process prints; its error goes to `errors`."""
    for line in stdout:
        event = parse(line) or Event("")
        if event.kind == "error":
            errors.append(from_data(event.data))
        elif event.kind in _REPORTED:
            report({"host": HERE.name, "kind": event.kind, "data": event.data})
