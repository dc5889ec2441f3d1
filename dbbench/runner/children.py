"""Trials as processes of their own: start one, pass its events on, stop it when we are asked to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from dbbench import errors, process
from dbbench.errors import DbbenchError, Interrupted, Terminated, TrialStuck
from dbbench.progress.events import Emit, Event, parsed
from dbbench.runner.overdue import Overdue
from dbbench.store.files import writing

STOP_GRACE_S: Final = 60.0  # a clean stop: a server's shutdown, an umount; then it is killed and the kernel cleans up


class Stop:
    """The first SIGINT or SIGTERM asks the child to stop cleanly, the second kills it."""

    def __init__(self) -> None:
        self.child: process.Running | None = None
        self.signal: int | None = None
        self.starting = False  # there may be a child that nobody knows yet: an exception would lose it

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        again, self.signal = self.signal is not None, number
        if self.child is not None:
            self.child.popen.send_signal(signal.SIGKILL if again else number)
        elif not self.starting:
            raise self.error()

    @contextmanager
    def launching(self) -> Iterator[None]:
        """A child is started in the block, told by `started`, and has ended with it."""
        self.starting = True
        try:
            yield
        finally:
            self.child, self.starting = None, False

    def started(self, child: process.Running) -> None:
        """From here on signals are the child's; one that came while it was started is passed on."""
        self.child, self.starting = child, False
        if self.signal is not None:
            child.popen.send_signal(self.signal)

    def error(self) -> DbbenchError:
        """What being stopped is to the caller."""
        kind = Interrupted if self.signal == signal.SIGINT else Terminated
        return kind("stopped on request", effect="What is finished is kept; the trial that was going on is not.")


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Take SIGINT and SIGTERM while the block runs (main thread only)."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def launch(argv: list[str], log: Path, emit: Emit, stop: Stop, env: Mapping[str, str],
           module: str = "dbbench.launcher", overdue: Overdue | None = None) -> int:  # fmt: skip
    """Run the module with `argv` as a process; its exit status. Raises the error that it tells, being stopped, and
    TrialStuck where it is over its deadlines (it is killed then); FilesystemFull, ResultsUnwritable.

    `log` takes its stderr. It is a session of its own: Ctrl-C is ours to pass on, the servers must not get it
    from the terminal. When this process is killed, the launcher and all below it go with it.
    """
    told, overdue = list[DbbenchError](), overdue or Overdue()
    with writing(log):
        output = log.open("ab")
    with (
        output,
        stop.launching(),
        process.running(
            [sys.executable, "-m", module, *argv],
            stdout=subprocess.PIPE,
            stderr=output.fileno(),
            env={
                **process.kept_environment(),
                **env,
                "PYTHONDONTWRITEBYTECODE": "1",
                "DBBENCH_PARENT": str(os.getpid()),
            },
            grace_s=STOP_GRACE_S,
            own_session=True,
        ) as child,
    ):
        stop.started(child)
        assert child.popen.stdout is not None
        try:
            for line in overdue.lines(child.pid, child.popen.stdout.fileno()):
                event = parsed(line)
                if event is not None and event.kind == "error":
                    told.append(_error(event))
                elif event is not None:
                    overdue.hear(event)
                    emit(event)
        except TrialStuck:
            child.popen.kill()  # it heeds nothing else
            raise
        status = child.wait(STOP_GRACE_S)
    if stop.signal is not None:
        raise stop.error()
    if told:
        raise told[0]
    return status


def _error(event: Event) -> DbbenchError:
    data = event.data
    kind = getattr(errors, str(data.get("class")), DbbenchError)
    error: DbbenchError = kind(data["evidence"], where=data["where"], effect=data["effect"], remedy=data["remedy"])
    return error
