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
from dbbench.errors import DbbenchError, Interrupted, Terminated
from dbbench.progress.events import Emit, Event, parsed

STOP_GRACE_S: Final = 60.0  # a clean stop: a server's shutdown, an umount; then it is killed and the kernel cleans up
_KEPT: Final = ("SSH_AUTH_SOCK", "XDG_CACHE_HOME", "DBBENCH_CACHE", "DBBENCH_CACHE_LIMIT", "DBBENCH_PATH", "PYTHONPATH",
                "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_FILE")  # fmt: skip


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


def kept_environment() -> dict[str, str]:
    """What of our environment a child of this program needs."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def launch(argv: list[str], log: Path, emit: Emit, stop: Stop, env: Mapping[str, str],
           module: str = "dbbench.launcher") -> int:  # fmt: skip
    """Run the module with `argv` as a process; its exit status. Raises the error that it tells, and being stopped.

    `log` takes its stderr. It is a session of its own: Ctrl-C is ours to pass on, the servers must not get it
    from the terminal. When this process is killed, the launcher and all below it go with it.
    """
    told: list[DbbenchError] = []
    with (
        stop.launching(),
        process.running(
            [sys.executable, "-m", module, *argv],
            stdout=subprocess.PIPE,
            stderr=log,
            env={**kept_environment(), **env, "PYTHONDONTWRITEBYTECODE": "1", "DBBENCH_PARENT": str(os.getpid())},
            grace_s=STOP_GRACE_S,
            own_session=True,
        ) as child,
    ):
        stop.started(child)
        assert child.popen.stdout is not None
        for line in child.popen.stdout:
            event = parsed(line)
            if event is not None and event.kind == "error":
                told.append(_error(event))
            elif event is not None:
                emit(event)
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
