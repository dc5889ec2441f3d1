"""Trials as separate processes: start one, forward its events, stop it on request, kill it after its deadline.

A phase ends its work by an exception in the trial's process (`record.deadline`). The exception is never raised while
the process is in a call that no signal interrupts: libpq waiting for a server's answer, or the kernel (state D). The
parent is told when each phase begins, and kills the process some time after the deadline.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import psutil

from dbbench import process
from dbbench.errors import DbbenchError, Interrupted, Terminated, TrialStuck, all_errors
from dbbench.report.progress.event import Emit, Event, parsed
from dbbench.results.fileio import own_file, writing

# Seconds for a clean stop (server shutdown, umount); then the child is killed, and the kernel cleans up.
STOP_GRACE_S: Final = 60.0
GRACE_S: Final = 300.0  # seconds in which a phase that exceeded its deadline may kill its server and unmount
# Seconds between two phases, or after the last one: an umount that writes back, removing layers, writing the result.
BETWEEN_S: Final = 1800.0
_NAMED: Final = 6  # number of processes that the error names


class Stop:
    """Stopping a run: the first SIGINT or SIGTERM asks the child to stop cleanly, the second one kills it."""

    def __init__(self) -> None:
        self.child: process.Running | None = None
        self.signal: int | None = None
        # A child may be starting that `child` does not name yet; an exception now would leave it running.
        self.starting = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        again, self.signal = self.signal is not None, number
        if self.child is not None:
            self.child.popen.send_signal(signal.SIGKILL if again else number)
        elif not self.starting:
            raise self.error()

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Mark that a child starts within the block (`started` reports it) and has ended when the block ends."""
        self.starting = True
        try:
            yield
        finally:
            self.child, self.starting = None, False

    def started(self, child: process.Running) -> None:
        """Send signals to the child from now on, including one that arrived while it was starting."""
        self.child, self.starting = child, False
        if self.signal is not None:
            child.popen.send_signal(self.signal)

    def error(self) -> DbbenchError:
        """Return the error that ends the run after a stop request."""
        kind = Interrupted if self.signal == signal.SIGINT else Terminated
        return kind("stopped on request", effect="What is finished is kept; the trial that was going on is not.")


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Handle SIGINT and SIGTERM within the block (main thread only)."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Launcher:
    """Runs a module in separate processes, one at a time, and forwards their events."""

    log: Path  # file for the stderr of the processes
    emit: Emit
    stop: Stop
    env: Mapping[str, str] = field(default_factory=dict)
    module: str = "dbbench.run.worker"

    def run(self, argv: list[str], overdue: Overdue | None = None) -> int:
        """Run the module with these arguments; return its exit status.

        Raises the error that the process reports, an error if the run is stopped, TrialStuck if the process exceeds its
        deadlines (it is killed), FilesystemFull, ResultsUnwritable. It is a separate session: this process forwards
        Ctrl-C, so that the servers do not get it from the terminal. If this process is killed, the worker and
        everything below it end too.
        """
        errors, overdue = list[DbbenchError](), overdue or Overdue()
        command = [sys.executable, "-m", self.module, *argv]
        env = {**process.kept_environment(), **self.env, "PYTHONDONTWRITEBYTECODE": "1",
               "DBBENCH_PARENT": str(os.getpid())}  # fmt: skip
        with writing(self.log):
            output = os.fdopen(own_file(self.log, os.O_WRONLY | os.O_APPEND, 0o644), "ab")
        with (
            output,
            self.stop.launching(),
            process.running(command, stdout=subprocess.PIPE, stderr=output.fileno(), env=env, grace_s=STOP_GRACE_S,
                            own_session=True) as child,
        ):  # fmt: skip
            self.stop.started(child)
            assert child.popen.stdout is not None
            try:
                for line in overdue.lines(child.pid, child.popen.stdout.fileno()):
                    event = parsed(line)
                    if event is not None and event.kind == "error":
                        errors.append(_error(event))
                    elif event is not None:
                        overdue.hear(event)
                        self.emit(event)
            except TrialStuck:
                child.popen.kill()  # it does not react to other signals
                raise
            status = child.wait(STOP_GRACE_S)
        if self.stop.signal is not None:
            raise self.stop.error()
        if errors:
            raise errors[0]
        return status


def _error(event: Event) -> DbbenchError:
    data = event.data
    kind = all_errors()[data["id"]]
    return kind(data["evidence"], where=data["where"], effect=data["effect"], remedy=data["remedy"])


class Overdue:
    """When the next event of a trial is due. A process that reports no deadlines is never overdue."""

    def __init__(self, grace_s: float = GRACE_S, between_s: float = BETWEEN_S) -> None:
        self._grace_s, self._between_s = grace_s, between_s
        self._until, self._what = math.inf, ""

    def hear(self, event: Event) -> None:
        """Store the deadline of a phase that begins."""
        phase, limit_s = event.data.get("phase"), event.data.get("deadline_s")
        if event.kind == "phase_begin" and limit_s is not None:
            self._until = time.monotonic() + limit_s + self._grace_s
            self._what = (
                f"phase {phase} did not end at its deadline of {limit_s:.0f} s, nor {self._grace_s:.0f} s later"
            )
        elif event.kind == "phase_end" and self._until < math.inf:
            self._until = time.monotonic() + self._between_s
            self._what = f"nothing came for {self._between_s:.0f} s after phase {phase}"

    def lines(self, pid: int, fd: int) -> Iterator[bytes]:
        """Yield what the process prints on the pipe, line by line. Raises TrialStuck if it is overdue."""
        left = b""
        while True:
            wait_s = None if self._until == math.inf else max(0.0, self._until - time.monotonic())
            if not select.select([fd], [], [], wait_s)[0]:
                raise TrialStuck(
                    f"{self._what}: {waiting(pid)}", effect="The process was killed. The trial is marked failed."
                )
            part = os.read(fd, 65536)
            if not part:
                break
            *whole, left = (left + part).split(b"\n")
            yield from whole
        if left:
            yield left


def waiting(pid: int) -> str:
    """Return where the processes below `pid` wait: those in state D first, with the kernel function."""
    readable = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            asleep = child.status() == psutil.STATUS_DISK_SLEEP
            where = Path(f"/proc/{child.pid}/wchan").read_text()
            name = f"{child.name()} (pid {child.pid}{', state D' if asleep else ''})"
            readable.append((not asleep, f"{name} in {where}" if where not in ("", "0") else f"{name} at work"))
        except (psutil.Error, OSError):
            continue
    return "; ".join(text for _awake, text in sorted(readable)[:_NAMED]) or "no child of it is left"
