"""Trials as separate processes: start one, forward its events, stop it on request, kill it after
its deadline. A run has one fork server (`serve`), which imports what trials need once; if one of
them is killed, so is everything below. A process reports its deadlines, so that its parent can
kill it in a call that no signal interrupts (libpq, state D).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from dbbench import process
from dbbench.errors import (
    DbbenchError,
    DeadlinePassed,
    Interrupted,
    Terminated,
    TrialStuck,
    from_data,
)
from dbbench.machine import namespaces, questions
from dbbench.machine.host.proc import PROC, below, content, tasks
from dbbench.model import Json
from dbbench.model.events import Emit, Event, parse
from dbbench.results.fileio import open_log

# Seconds for a clean stop (server shutdown, umount); then the child is killed, and the kernel
# cleans up.
STOP_GRACE_S: Final = 60.0
# seconds in which a phase that exceeded its deadline may kill its server and unmount
GRACE_S: Final = 300.0
# Seconds between two phases, or after the last one: an umount that writes back, removing layers,
# writing the result.
BETWEEN_S: Final = 1800.0
# longest request to the fork server: a path, a name, the identities of some disks
_MESSAGE_BYTES: Final = 65536
_NAMED: Final = 6  # number of processes that the error names


class Stop:
    """Stopping a run: the first SIGINT or SIGTERM asks the child to stop cleanly, the second one
    kills it.
    """

    def __init__(self) -> None:
        self.child: Child | None = None
        self.signal: int | None = None
        # A child may be starting that `child` does not name yet; an exception now would leave it
        # running.
        self.starting = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        again = self.signal is not None
        self.signal = number
        if self.child is not None:
            self.child.send_signal(signal.SIGKILL if again else number)
        elif not self.starting:
            raise self.error()

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Mark that a child starts within the block (`follow` names it) and has ended when the
        block ends.
        """
        self.starting = True
        try:
            yield
        finally:
            self.child = None
            self.starting = False

    def follow(self, child: Child) -> None:
        """Send signals to the child from now on, including one that arrived while it was starting."""
        self.child = child
        self.starting = False
        if self.signal is not None:
            child.send_signal(self.signal)

    def error(self) -> DbbenchError:
        kind = Interrupted if self.signal == signal.SIGINT else Terminated
        return kind(
            "stopped on request",
            effect="Finished trials are kept. The interrupted trial is discarded.",
        )


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


class Child:
    """A process of the fork server. Its pidfd never refers to another process that got the same pid
    later.
    """

    def __init__(
        self,
        pid: int,
        pidfd: int,
        output: int,
        server: socket.socket,
    ) -> None:
        # `output`: the pipe that it writes to
        self.pid = pid
        self.output = output
        self._pidfd = pidfd
        self._server = server
        self._status: int | None = None

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout_s: float) -> int:
        """Return the exit status, -9 if the fork server was killed. Raises DeadlinePassed after
        `timeout_s`.
        """
        if self._status is None:
            self._server.settimeout(timeout_s)
            try:
                self._status = int(self._server.recv(_MESSAGE_BYTES) or -signal.SIGKILL)
            except TimeoutError:
                text = f"process {self.pid} is still running after {timeout_s:.0f} s"
                raise DeadlinePassed(text) from None
            finally:
                self._server.settimeout(None)
        return self._status

    def end(self) -> bool:
        """Ask the process to stop if it still runs, and kill it after STOP_GRACE_S; return whether
        it has ended.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._status is None:
                self.send_signal(number)
                with contextlib.suppress(DeadlinePassed):
                    self.wait(STOP_GRACE_S)
        os.close(self._pidfd)
        os.close(self.output)
        return self._status is not None


class Launcher(ExitStack):
    """Runs work in processes of the fork server `module` (see `serve`), one at a time; `log` gets
    their stderr.
    """

    def __init__(self, module: str, log: Path, emit: Emit, stop: Stop) -> None:
        super().__init__()
        self.log = log
        self.emit = emit
        self._module = module
        self._stop = stop
        self._server: tuple[process.Running, socket.socket] | None = None

    def prepare(self) -> None:
        """Start the fork server, if it does not run, and do not wait until it has imported
        everything.
        """
        if self._server is not None and self._server[0].poll() is None:
            return
        self.close()
        # The server gets one end of a pair of sockets and inherits nothing else.
        requests, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.enter_context(requests)
        env = {
            **process.kept_environment(),
            "PYTHONDONTWRITEBYTECODE": "1",
            namespaces.PARENT: str(os.getpid()),
        }
        fd = its_end.fileno()
        command = [sys.executable, "-m", self._module, str(fd), str(self.log.parent)]
        with its_end, open_log(self.log) as log:
            server = process.running(
                command,
                stdout=log.fileno(),
                env=env,
                pass_fds=(fd,),
                grace_s=STOP_GRACE_S,
                own_session=True,
            )
            self._server = (self.enter_context(server), requests)

    def run(self, request: Json, overdue: Overdue | None = None) -> int:
        """Do this work in a process; return its exit status. Raises the error that it reports, an
        error if the run is stopped, TrialStuck if the process exceeds its deadlines (it is
        killed), FilesystemFull, NotWritable.
        """
        # The process reports its own error before it ends.
        errors = list[DbbenchError]()
        overdue = overdue or Overdue()
        self.prepare()
        # A signal that arrives before the process is followed must not be lost.
        with self._stop.launching():
            child = self._fork(request)
            if isinstance(child, int):
                return child
            try:
                self._stop.follow(child)
                # Its events arrive as lines; `overdue` raises if a phase exceeds its deadline.
                for line in overdue.lines(child.pid, child.output):
                    event = parse(line)
                    if event is not None and event.kind == "error":
                        errors.append(from_data(event.data))
                    elif event is not None:
                        overdue.hear(event)
                        self.emit(event)
                status = child.wait(STOP_GRACE_S)
            except TrialStuck:
                child.send_signal(signal.SIGKILL)  # it does not react to other signals
                raise
            finally:
                if not child.end():  # the fork server waits for it, so it cannot be used again
                    self.close()
        # A request to stop is the reason of what the process reported after it.
        if self._stop.signal is not None:
            raise self._stop.error()
        if errors:
            raise errors[0]
        return status

    def _fork(self, request: Json) -> Child | int:
        assert self._server is not None
        server, requests = self._server
        # The child's events arrive through this pipe.
        output, written = os.pipe()
        try:
            with open_log(self.log) as log:
                socket.send_fds(
                    requests,
                    [json.dumps(request).encode()],
                    [written, log.fileno()],
                )
            pid, fds, _flags, _address = socket.recv_fds(requests, _MESSAGE_BYTES, 1)
        except ConnectionError:
            pid = b""
            fds = []
        finally:
            os.close(written)
        # The fork server has ended, so its status is the answer.
        if not pid:
            os.close(output)
            return server.wait(STOP_GRACE_S)
        return Child(int(pid), fds[0], output, requests)


def serve(main: Callable[[Json], int]) -> NoReturn:
    """Be a fork server: run `main` in a child process for each request of a Launcher. The command's
    arguments are the descriptor of its socket and the run's directory, for people who look for a
    run's processes. A request brings stdout and stderr; the answers are the child's pid with its
    pidfd, and later its exit status, negative after a signal.
    """
    namespaces.die_with_parent()
    # One for all trials: what does not answer is asked once.
    questions.prepare()
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, fds, _flags, _address = socket.recv_fds(requests, _MESSAGE_BYTES, 2)
        if not request:  # the run has ended
            os._exit(0)
        # The child works, and ends with this process.
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            requests.close()
            process.end_with(_work, main, json.loads(request), fds, parent)
        for fd in fds:
            os.close(fd)
        # The other side can signal the child without meaning another process.
        pidfd = os.pidfd_open(child)
        socket.send_fds(requests, [str(child).encode()], [pidfd])
        os.close(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.send(str(status).encode())


def _work(
    main: Callable[[Json], int],
    request: Json,
    fds: Sequence[int],
    parent: int,
) -> int:
    os.setsid()
    for fd, target in zip(fds, (1, 2), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    os.environ[namespaces.PARENT] = str(parent)
    return main(request)


class Overdue:
    """When the next event of a trial is due. A process that reports no deadlines is never overdue."""

    def __init__(self, grace_s: float = GRACE_S, between_s: float = BETWEEN_S) -> None:
        self._grace_s = grace_s
        self._between_s = between_s
        self._until = math.inf
        self._what = ""

    def hear(self, event: Event) -> None:
        """Store the deadline of a phase, or of a step of the power-loss lab, that begins."""
        phase = event.data.get("phase")
        limit_s = event.data.get("deadline_s")
        if limit_s is not None:
            name = f"phase {phase}" if phase else f'"{event.data.get("what")}"'
            self._until = time.monotonic() + limit_s + self._grace_s
            late = f"{self._grace_s:.0f} s after its deadline of {limit_s:.0f} s"
            self._what = f"{name} was still running {late}"
        elif event.kind == "phase_end" and self._until < math.inf:
            self._until = time.monotonic() + self._between_s
            silent = f"{self._between_s:.0f} s after phase {phase}"
            self._what = f"the trial reported nothing for {silent}"

    def lines(self, pid: int, fd: int) -> Iterator[bytes]:
        """Yield the lines that the process writes to the pipe. Raises TrialStuck if it is overdue."""
        left = b""
        while True:
            wait_s = None if self._until == math.inf else max(0.0, self._until - time.monotonic())
            if not select.select([fd], [], [], wait_s)[0]:
                raise TrialStuck(f"{self._what}: {waiting(pid)}")
            part = os.read(fd, 65536)
            if not part:
                break
            *whole, left = (left + part).split(b"\n")
            yield from whole
        if left:
            yield left


def waiting(pid: int) -> str:
    """Return what the child processes of `pid` wait for: those in state D first, each with its
    kernel function.
    """
    asleep = []  # in state D
    awake = []
    table = tasks()
    for number in below((pid,), table) - {pid}:
        child = table[number]
        where = content(PROC / f"{number}/wchan")
        if where is None:  # it is gone
            continue
        does = "running" if where in ("", "0") else f"in {where}"
        if child.state == "D":
            asleep.append(f"{child.name} (pid {number}, state D) {does}")
        else:
            awake.append(f"{child.name} (pid {number}) {does}")
    texts = sorted(asleep) + sorted(awake)
    return "; ".join(texts[:_NAMED]) or "it has no child processes"
