"""What all private servers share: an own place, a start that is awaited, a clean stop, and a death that is told.

The server lives exactly as long as its block. A block that ends well stops it cleanly; a block that raises
takes it down at once, because the data is thrown away. Its processes are known by their program and their
working directory (the data directory), never by name: other people's servers have other ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from dbbench import process
from dbbench.errors import DbbenchError, DeadlinePassed, EngineDied, EngineStartFailed, EngineStopFailed, FilesystemFull

START_S: Final = 300.0  # recovery after a crash replays at most the redo of one trial
STOP_S: Final = 600.0  # a clean stop writes every dirty page; on a slow disk that is gigabytes
POLL_S: Final = 0.01  # MariaDB answers 100 ms after its start
LOG_LINES: Final = 12
_WAITS_FOR_SPACE: Final = b"Waiting for someone to free space"  # MariaDB and MySQL, mysys/errors.c
_DATABASE_FILE: Final = "dbbench.database"  # in the data directory, so that every copy of it has it

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Launch:
    """How a server is started and stopped."""

    name: str  # "PostgreSQL 15.18", for messages
    argv: tuple[str, ...]
    datadir: Path
    log: Path
    account: process.User
    stop: signal.Signals  # ends it cleanly
    abort: signal.Signals  # ends it at once, children included
    remedy: str | None = None  # what to look at when it does not start


def own(path: Path, account: process.User, mode: int = 0o700) -> Path:
    """Make the directory where it is missing, and give it to the account alone."""
    path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid)
    path.chmod(mode)
    return path


def forget(sockets: Path, pattern: str) -> None:
    """Remove the socket and lock files of a server that was killed. In a pid namespace numbers come again, and
    a new server would take whoever has the number now for the old one."""
    for left in sockets.glob(pattern):
        left.unlink(missing_ok=True)


def put(text: str, name: str, sockets: Path, logs: Path, account: process.User) -> Path:
    """Write a configuration file twice: where the account can read it (returned), and beside the log."""
    logs.mkdir(parents=True, exist_ok=True)
    (logs / name).write_text(text)
    used = sockets / name
    used.unlink(missing_ok=True)
    with used.open("x") as file:  # never through a link that the account left there
        file.write(text)
    if os.geteuid() == 0:
        os.chown(used, account.uid, account.gid)
    used.chmod(0o600)
    return used


def tail(log: Path, offset: int = 0, lines: int = LOG_LINES) -> str:
    """The last lines of a server's log since `offset`, indented."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            said = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"  ({log}: {error.strerror})"
    return "\n".join(f"  {line}" for line in said[-lines:]) or "  (its log is empty)"


@contextlib.contextmanager
def serving_program(launch: Launch, answer: Callable[[process.Running], Answer | None]) -> Iterator[Answer]:
    """Start the server, call `answer` until it gives something, keep the server up for the block.

    Raises EngineStartFailed, EngineDied (also in place of the error by which the block noticed the death)
    and EngineStopFailed, each with the last lines of the server's log.
    """
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    offset = launch.log.stat().st_size if launch.log.exists() else 0
    try:
        with process.running(
            launch.argv, stdout=launch.log, as_user=launch.account, stop_with=launch.abort, role="server"
        ) as program:
            answered = _await(launch, program, answer, offset)
            try:
                yield answered
            except Exception as error:
                if program.poll() is not None:
                    raise _died(launch, program, offset, seen_as=error) from error
                raise
            _stop(launch, program, offset)
    finally:
        _end_orphans(launch)


def _await(
    launch: Launch, program: process.Running, answer: Callable[[process.Running], Answer | None], offset: int
) -> Answer:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        status = program.poll()
        _has_room(launch, offset)
        if status is not None:
            raise EngineStartFailed(
                f"{launch.name} ended with {_status(status)}:\n{tail(launch.log, offset)}",
                effect="Nothing was measured.",
                remedy=launch.remedy or f"The whole log: {launch.log}",
            )
        try:
            answered = answer(program)
        except DbbenchError:
            raise
        except Exception as error:
            raise EngineStartFailed(f"{launch.name} runs and refuses: {error}\n{tail(launch.log, offset)}") from error
        if answered is not None:
            return answered
        time.sleep(POLL_S)
    raise EngineStartFailed(
        f"{launch.name} does not answer after {START_S:.0f} s:\n{tail(launch.log, offset)}",
        remedy=f"The whole log: {launch.log}",
    )


def _has_room(launch: Launch, offset: int) -> None:
    """FilesystemFull where the server's log says that it waits for space: MariaDB then waits for ever, and does nothing
    else; so does one that could not allocate its log, in the midst of its own end."""
    with contextlib.suppress(OSError), launch.log.open("rb") as file:
        file.seek(offset)
        if _WAITS_FOR_SPACE in file.read():
            raise FilesystemFull(
                f"{launch.name} waits for space on the filesystem of {launch.datadir}:\n{tail(launch.log, offset)}",
                effect="It was killed; nothing was measured.",
                remedy="A larger device, or smaller logs (innodb_log_file_size) in the engine's settings.",
            )


def _stop(launch: Launch, program: process.Running, offset: int) -> None:
    if program.poll() is not None:
        raise _died(launch, program, offset)
    began = time.monotonic()
    program.popen.send_signal(launch.stop)
    try:
        status = program.wait(STOP_S)
    except DeadlinePassed:
        program.stop(launch.abort)
        raise EngineStopFailed(
            f"{launch.name} did not stop within {time.monotonic() - began:.0f} s and was killed:\n"
            f"{tail(launch.log, offset)}",
            effect="What it had not written is lost; the trial does not count.",
        ) from None
    if status != 0:
        raise EngineStopFailed(
            f"{launch.name} stopped with {_status(status)}:\n{tail(launch.log, offset)}",
            effect="The trial does not count.",
        )


def _died(launch: Launch, program: process.Running, offset: int, seen_as: Exception | None = None) -> EngineDied:
    seen = f"\n  seen as: {str(seen_as).splitlines()[0]}" if seen_as and str(seen_as) else ""
    return EngineDied(
        f"{launch.name} (pid {program.pid}) ended with {_status(program.popen.wait())}:\n"
        f"{tail(launch.log, offset)}{seen}",
        effect="The trial does not count.",
        remedy=f"The whole log: {launch.log}",
    )


def _status(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def _end_orphans(launch: Launch) -> None:
    """A killed postmaster leaves backends that keep the filesystem busy until they notice."""
    for _ in range(200):
        left = _in_datadir(launch)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(POLL_S)


def _in_datadir(launch: Launch) -> list[int]:
    program, datadir = str(Path(launch.argv[0]).resolve()), str(launch.datadir.resolve())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                exe = str((entry / "exe").readlink()).removesuffix(" (deleted)")
                if exe == program and str((entry / "cwd").readlink()) == datadir:
                    found.append(int(entry.name))
    return found


def remember_database(datadir: Path, name: str) -> None:
    """From now on servers of that data directory, and of copies of it, have the database `name` as theirs."""
    (datadir / _DATABASE_FILE).write_text(name + "\n")


def database_of(datadir: Path) -> str:
    """The database that drivers connect to: a user's own where one is remembered, else `dbbench`."""
    try:
        return (datadir / _DATABASE_FILE).read_text().strip()
    except OSError:
        return "dbbench"


def drop_tree(path: Path) -> None:
    """Remove a directory of ours, if it is there."""
    shutil.rmtree(path, ignore_errors=True)
