"""Start programs. This is the only module that does: argument lists, never a shell, with deadlines
and clear errors.

The file is long because it is the only place where a program is started.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import pwd
import select
import signal
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NoReturn, ParamSpec, TypeVar

from dbbench import packages
from dbbench.errors import (
    AnswerUnknown,
    CommandFailed,
    DbbenchError,
    DeadlinePassed,
    ProgramMissing,
)

P = ParamSpec("P")
T = TypeVar("T")
Argv = Sequence[str | Path]
Entering = Callable[[], contextlib.AbstractContextManager[None]]

_LONGEST_MS = 2**31 - 1  # poll(2) waits for at most 24 days
# A loop of Python that an ordinary core finishes in less; a machine that is emulated or busy takes
# many times as long.
_LOOPS = 200_000
_LOOPS_S = 0.03
_SLOWEST = 100.0
# A shorter limit is that of a question, whose answer can be missing.
_QUESTION_S = 60.0
# A killed process ends at once, unless it waits in the kernel for a device or a filesystem that does
# not answer.
_KILLED_S = 1.0
_KEPT = (
    "SSH_AUTH_SOCK",
    "XDG_CACHE_HOME",
    "DBBENCH_CACHE",
    "DBBENCH_CACHE_LIMIT",
    "DBBENCH_PATH",
    "PYTHONPATH",
    "OPENBLAS_NUM_THREADS",
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
    "COVERAGE_FILE",
)
_recorded: contextvars.ContextVar[list[list[str]] | None] = contextvars.ContextVar(
    "recorded", default=None
)
_places: contextvars.ContextVar[Mapping[str, Entering]] = contextvars.ContextVar(
    "places", default=types.MappingProxyType({})
)
# the phase of a trial, and the moment of the deadline that the plan gives it (time.monotonic)
_phase: contextvars.ContextVar[tuple[str, float | None] | None] = contextvars.ContextVar(
    "phase", default=None
)
# how many times slower than an ordinary disk the one is that programs of the block write to
_disk: contextvars.ContextVar[Callable[[], float] | None] = contextvars.ContextVar(
    "disk", default=None
)
Spawn = Callable[[Callable[[], subprocess.Popen[bytes]]], subprocess.Popen[bytes]]
_spawn: contextvars.ContextVar[Spawn | None] = contextvars.ContextVar("spawn", default=None)


@dataclass(frozen=True)
class User:
    """An account that a program is started as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Completed:
    """A program that has ended. Output is text, undecodable bytes replaced."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float


class Running:
    """A program that runs in the background."""

    def __init__(
        self,
        argv: tuple[str, ...],
        popen: subprocess.Popen[bytes],
        grace_s: float,
    ) -> None:
        self.argv = argv
        self.popen = popen
        self.grace_s = grace_s

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def pids(self) -> tuple[int, ...]:
        return (self.pid,)

    def poll(self) -> int | None:
        return self.popen.poll()

    def wait(self, timeout_s: float) -> int:
        """Return the exit status. Raises DeadlinePassed after `allowed_s(timeout_s)`."""
        limit_s = timeout_s
        try:
            return _wait(self.popen, timeout_s)
        except subprocess.TimeoutExpired:
            limit_s = allowed_s(timeout_s)
        try:
            return _wait(self.popen, limit_s - timeout_s)
        except subprocess.TimeoutExpired:
            raise too_late(f"{self.argv[0]} is still running after {limit_s:.0f} s") from None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal `how`, and SIGKILL after the grace period; return the exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(how)
            try:
                return _wait(self.popen, self.grace_s)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        return self.popen.wait()


def ending(status: int) -> str:
    """Return the exit status of a program in words; 128 + n is signal n of one that it waited for."""
    number = -status if status < 0 else status - 128
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(number).name}"
    return f"status {status}"


def _wait(popen: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Return the exit status as soon as the process ends; `Popen.wait` with a timeout may be 50 ms
    late.
    """
    if popen.poll() is None:
        try:
            pidfd = os.pidfd_open(popen.pid)
        except ProcessLookupError:  # it ended and another thread waited for it
            return popen.wait(timeout_s)
        try:
            ends = select.poll()
            ends.register(pidfd, select.POLLIN)
            if not ends.poll(min(1000 * timeout_s, _LONGEST_MS)):
                raise subprocess.TimeoutExpired(popen.args, timeout_s)
        finally:
            os.close(pidfd)
    return popen.wait()


def user(*names: str) -> User:
    """Return the first account of `names` that exists; without root, the caller's own. Raises
    ProgramMissing.
    """
    uid = os.geteuid()
    if uid == 0:
        for name in names:
            with contextlib.suppress(KeyError):
                return _user(pwd.getpwnam(name))
        raise ProgramMissing(
            f"none of the accounts {', '.join(names)} exists on this machine", effect=""
        )
    with contextlib.suppress(KeyError):
        # The process may have another group than its account, in a container with runAsGroup.
        return replace(_user(pwd.getpwuid(uid)), gid=os.getegid())
    raise ProgramMissing(
        f"user ID {uid} has no entry in /etc/passwd, which database servers require",
        effect="",  # also asked for in the middle of a trial
        remedy="Add one, in a container to its image:  useradd --uid NUMBER dbbench",
    )


def _user(entry: pwd.struct_passwd) -> User:
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def kept_environment() -> dict[str, str]:
    """Return the environment variables that a child of this program needs."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def find(program: str) -> Path | None:
    """Return the path of `program` from PATH, the system's directories, or where a release keeps it
    outside of them.
    """
    hit = packages.find(program)
    return Path(hit) if hit else None


def understood(program: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a parser of the output of `program` raise AnswerUnknown for output that it cannot parse."""

    def decorate(parse: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(parse)
        def read(*given: P.args, **named: P.kwargs) -> T:
            try:
                return parse(*given, **named)
            except (
                LookupError,
                ValueError,
                TypeError,
                AttributeError,
                ArithmeticError,
                RecursionError,
            ) as error:
                raise AnswerUnknown(
                    f"the output of {program} could not be parsed: {type(error).__name__}: {error}",
                    remedy="Run the command by hand. dbbench may not support this version of the "
                    "program.",
                ) from error

        return read

    return decorate


@contextlib.contextmanager
def _within(variable: contextvars.ContextVar[T], value: T) -> Iterator[T]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


@contextlib.contextmanager
def recording() -> Iterator[list[list[str]]]:
    """Collect the argv of every program started within the block, in order."""
    commands: list[list[str]] = []
    with _within(_recorded, commands):
        yield commands


def placing(places: Mapping[str, Entering]) -> contextlib.AbstractContextManager[object]:
    """Start programs that have a role in the block of that role, so that they inherit its CPUs and
    control group.
    """
    return _within(_places, places)


def spawning(spawn: Spawn) -> contextlib.AbstractContextManager[object]:
    """Start the programs of the block through `spawn`, which gets the function that starts one."""
    return _within(_spawn, spawn)


def in_phase(name: str, asked_s: float | None) -> contextlib.AbstractContextManager[object]:
    """Let programs of the block run for the seconds that the plan gives this phase, instead of
    their own limits.
    """
    until = None if asked_s is None else time.monotonic() + asked_s
    return _within(_phase, (name, until))


def on_disk(slowness: Callable[[], float]) -> contextlib.AbstractContextManager[object]:
    """Let programs of the block take so many times longer, because of the disk that they write to.
    `slowness` is called when a program exceeds its limit.
    """
    return _within(_disk, slowness)


def allowed_s(usual_s: float) -> float:
    """Return how long a program may run whose limit on an ordinary machine is `usual_s`: longer on
    a slow machine or disk, and as long as the plan gives the phase in [deadlines].
    """
    longest_s = usual_s * _slowness()
    phase = _phase.get()
    if phase is None or phase[1] is None or usual_s < _QUESTION_S:
        return longest_s
    return max(longest_s, usual_s + phase[1] - time.monotonic())


def overdue(began: float, usual_s: float) -> bool:
    """Whether something that began at that moment (time.monotonic) takes longer than
    `allowed_s(usual_s)`.
    """
    seconds = time.monotonic() - began
    # How slow this machine is, is measured only when it matters.
    return seconds >= usual_s and seconds >= allowed_s(usual_s)


def too_late(evidence: str) -> DbbenchError:
    """Return DeadlinePassed for a program that ran longer than it may."""
    phase = _phase.get()
    remedy = "Run the command by hand: it hangs, or this machine is too slow or too busy."
    if phase is not None:
        remedy = (
            f"Set a longer deadline in [deadlines] of the plan, for example {phase[0]} = "
            '"12h", unless the program hangs.'
        )
    return DeadlinePassed(evidence, remedy=remedy)


def _slowness() -> float:
    """Return how many times longer than on an ordinary machine with an ordinary disk work takes at
    this moment; at least 1.
    """
    began = time.perf_counter()
    for _ in range(_LOOPS):
        pass
    slowest = (time.perf_counter() - began) / _LOOPS_S
    if disk := _disk.get():
        slowest = max(slowest, disk())
    return min(_SLOWEST, max(1.0, slowest))


def run(
    argv: Argv,
    *,
    timeout_s: float = 60.0,
    ok: Sequence[int] = (0,),
    as_user: User | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | bytes = "",
    pass_fds: Sequence[int] = (),
    note: bool = True,
) -> Completed:
    """Run a program to its end. `env` is added to a small clean environment (PATH, LANG=C.UTF-8,
    TZ=UTC, HOME). Raises ProgramMissing, CommandFailed (status not in `ok`) and DeadlinePassed
    (the program is killed after `allowed_s(timeout_s)`).
    """
    # The deadline stretches on a slow machine, but only when it has passed.
    words = _resolve(argv, note)
    began = time.monotonic()
    limit_s = timeout_s
    popen = _start(
        words,
        as_user,
        env,
        cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        pass_fds=pass_fds,
    )
    try:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        try:
            stdout, stderr = popen.communicate(given, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            limit_s = allowed_s(timeout_s)
            stdout, stderr = popen.communicate(timeout=limit_s - timeout_s)
    except BaseException as error:
        # do not read its pipes to the end: a daemon that it started may keep them open
        popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            _wait(popen, _KILLED_S)
        if isinstance(error, subprocess.TimeoutExpired):
            text = f"{' '.join(words)} was still running after {limit_s:.0f} s and was killed"
            raise too_late(text) from None
        raise
    done = Completed(
        words,
        popen.returncode,
        stdout.decode(errors="replace"),
        stderr.decode(errors="replace"),
        time.monotonic() - began,
    )
    # The error quotes the end of what was printed, on either stream.
    if done.returncode not in ok:
        printed = done.stderr.strip() or done.stdout.strip() or "it printed nothing"
        # mkfs.xfs prints its usage after the reason
        last_lines = printed.partition("\nUsage:")[0].splitlines()[-8:]
        raise CommandFailed(
            f"{' '.join(words)} ended with status {done.returncode}: " + "\n  ".join(last_lines)
        )
    return done


@contextlib.contextmanager
def running(
    argv: Argv,
    *,
    stdout: Path | int = subprocess.DEVNULL,
    stderr: Path | int = subprocess.STDOUT,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    as_user: User | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    stop_with: signal.Signals = signal.SIGTERM,
    grace_s: float = 10.0,
    note: bool = True,
    own_session: bool = False,
    role: str = "",
) -> Iterator[Running]:
    """Keep a program running within the block; at the end it is asked to stop, and killed after
    `grace_s`. `role` ("server", "client") selects its place within `placing`. `own_session`
    protects it from the terminal's Ctrl-C. If this process is killed, so is the program: as root
    by the trial's namespaces, otherwise by setpriv's --pdeathsig.
    """
    # Without root, setpriv is what ends the program with this process.
    words = _resolve(argv, note)
    tie = find("setpriv") if os.geteuid() != 0 else None
    started = (str(tie), "--pdeathsig", "KILL", "--", *words) if tie else words
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(stdout.open("ab")) if isinstance(stdout, Path) else stdout
        err = stack.enter_context(stderr.open("ab")) if isinstance(stderr, Path) else stderr
        # It starts in its control group and on its cores.
        with _places.get().get(role, contextlib.nullcontext)():
            popen = _start(
                started,
                as_user,
                env,
                cwd,
                stdout=out,
                stderr=err,
                stdin=stdin,
                pass_fds=pass_fds,
                start_new_session=own_session,
            )
        # Whatever ends the block ends the program.
        program = Running(words, popen, grace_s)
        try:
            yield program
        finally:
            program.stop(stop_with)
            for pipe in (popen.stdout, popen.stdin):
                if pipe is not None:
                    # the program did not read all of its input
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def wait_while(
    busy: Callable[[], T],
    within_s: float,
    every_s: float = 0.05,
) -> T:
    """Call `busy` until it returns something false or `allowed_s(within_s)` have passed; return its
    last value.
    """
    began = time.monotonic()
    value = busy()
    while value and not overdue(began, within_s):
        time.sleep(every_s)
        value = busy()
    return value


def end_with(work: Callable[P, int], *given: P.args, **named: P.kwargs) -> NoReturn:
    """End this forked process with the status of `work`, or 1 after an exception; clean up nothing
    of its parent.
    """
    status = 1
    try:
        status = work(*given, **named)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                # the reader may be gone, or the stream closed
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        finally:
            os._exit(status)  # even if a signal raises an exception meanwhile


def _resolve(argv: Argv, note: bool) -> tuple[str, ...]:
    words = tuple(str(word) for word in argv)
    if "/" not in words[0]:
        hit = find(words[0])
        if hit is None:
            raise ProgramMissing(f"{words[0]} is not installed")
        words = (str(hit), *words[1:])
    commands = _recorded.get()
    if note and commands is not None:
        commands.append(list(words))
    return words


def _start(
    words: tuple[str, ...],
    as_user: User | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """`streams`: further arguments of Popen."""
    clean = {
        "PATH": os.environ.get("PATH", "") + ":" + packages.PATH,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HOME": "/nonexistent" if as_user else os.environ.get("HOME", "/"),
    }
    if as_user is not None and as_user.uid != os.geteuid():
        streams |= {"user": as_user.uid, "group": as_user.gid, "extra_groups": []}

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, env={**clean, **(env or {})}, cwd=cwd or "/", **streams)

    spawn = _spawn.get()
    try:
        return spawn(popen) if spawn else popen()
    except FileNotFoundError:
        raise ProgramMissing(f"{words[0]} does not exist") from None
    except OSError as error:  # no process or memory left, not executable, a mount with noexec
        raise CommandFailed(
            f"{words[0]} could not be started: {error.strerror or error}",
            remedy="Check `ulimit -u`, free memory, and mounts with `noexec`.",
        ) from error
