"""What all private servers share: start and wait, a clean stop, detection of a crash. The server
lives as long as its block: one that raises kills it at once, because its data is discarded. Its
processes are identified by program and working directory (the data directory), never by name, so
that other servers are never affected.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from dbbench import errors, process
from dbbench.engines.port import NAME, Place
from dbbench.machine.libc import syncfs
from dbbench.results.fileio import own_file

START_S: Final = 300.0  # enough for crash recovery, which replays at most the redo log of one trial
STOP_S: Final = 600.0  # a clean stop writes every dirty page; on a slow disk that is gigabytes
POLL_S: Final = 0.01  # short compared with MariaDB's start, which takes 100 ms
LOG_LINES: Final = 12
CORRUPT_LINES: Final = 8
# twice of what MariaDB requests with 2000 tables in 8 instances of its cache
_OPEN_FILES: Final = 2**16
_WAITS_FOR_SPACE: Final = b"Waiting for someone to free space"  # MariaDB and MySQL, mysys/errors.c
_ERROR: Final = "[error]"  # MariaDB and MySQL; a crash adds hundreds of lines about the process
_TIME: Final = " 0123456789-:.TZ"  # what a line begins with that is repeated
# in the data directory, so that every copy of it contains this file
_DATABASE_FILE: Final = "dbbench.database"

Answer = TypeVar("Answer")
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Launch:
    """How to start and stop a server."""

    name: str  # "PostgreSQL 15.18", for messages
    argv: tuple[str, ...]
    datadir: Path
    log: Path
    account: process.User
    stop: signal.Signals  # stops the server cleanly
    abort: signal.Signals  # stops the server and its children at once
    remedy: str | None = None  # remedy of the error if the server does not start
    open_files: int = 0  # how many files it must be able to open
    offset: int = 0  # size of the log before the start

    def tail(self, containing: str = "") -> str:
        return tail(self.log, self.offset, containing=containing)


def own(path: Path, account: process.User) -> Path:
    """Create the directory if it is missing, and make it accessible only to the account."""
    path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid)
    path.chmod(0o700)
    return path


def log_size(log: Path) -> int:
    """Return the size of a server's log, 0 before its first line."""
    if log.exists():
        return log.stat().st_size
    return 0


def forget(sockets: Path, pattern: str) -> None:
    """Remove socket and lock files of a killed server: a new one would mistake a process with a
    reused pid for it.
    """
    for left in sockets.glob(pattern):
        left.unlink(missing_ok=True)


def put(
    text: str,
    name: str,
    place: Place,
    account: process.User,
    shown: str | None = None,
) -> Path:
    """Write a configuration file for the account (returned), and next to the log `shown`, the text
    without secrets.
    """
    place.logs.mkdir(parents=True, exist_ok=True)
    (place.logs / name).write_text(text if shown is None else shown)
    return put_aside(text, name, place.sockets, account)


def put_aside(
    text: str,
    name: str,
    sockets: Path,
    account: process.User | None = None,
) -> Path:
    """Write a file that only the account can read; None: this process's, not the server's."""
    used = sockets / name
    used.unlink(missing_ok=True)
    # O_EXCL: do not follow a link that a process of the server's account may have created.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(used, flags, 0o600), "w") as file:
        file.write(text)
        if account is not None and os.geteuid() == 0:
            os.fchown(file.fileno(), account.uid, account.gid)
    return used


def tail(
    log: Path,
    offset: int = 0,
    lines: int = LOG_LINES,
    containing: str = "",
    better: str = _ERROR,
) -> str:
    """Return the last lines of a server's log since `offset` that contain a word in any case,
    indented, and a line once that is repeated. `better`: if any of them contain this word too,
    only those.
    """
    try:
        with log.open("rb") as file:
            file.seek(offset)
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"  ({log}: {error.strerror})"
    matching = [f"  {line}" for line in text.splitlines() if containing in line.lower()]
    preferred = [line for line in matching if better in line.lower()]
    by_text = {line.lstrip(_TIME): line for line in preferred or matching}
    last = list(by_text.values())[-lines:]
    return "\n".join(last) or f"  (its log has no {containing or 'line'})"


@contextlib.contextmanager
def serving_program(
    launch: Launch, answer: Callable[[process.Running], Answer | None]
) -> Iterator[Answer]:
    """Start the server, call `answer` until it returns something, and keep the server running
    within the block. Raises EngineStartFailed, and EngineDied also in place of the error that
    the death caused, with the log's last lines.
    """
    # The log exists before the server does, so that its last lines can be quoted.
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    raise_open_files(launch.open_files)
    try:
        with process.running(
            launch.argv,
            stdout=launch.log,
            as_user=launch.account,
            stop_with=launch.abort,
            role="server",
        ) as program:
            server = _await(launch, program, answer)
            try:
                # An error in the block is often the server's death.
                yield server
            except Exception as error:
                if program.poll() is not None:
                    raise _death(launch, program, seen_as=error) from error
                raise
            _stop(launch, program)
    finally:
        _end_orphans(launch)


def raise_open_files(needed: int) -> None:
    """Raise the soft limit of open files, not beyond what servers need: some allocate memory for
    each possible file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(most_files(), max(needed, _OPEN_FILES))
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def most_files() -> int:
    """Return the hard limit of open files."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _await(
    launch: Launch,
    program: process.Running,
    answer: Callable[[process.Running], Answer | None],
) -> Answer:
    server = _wait_for_answer(launch, program, answer, START_S)
    if server is not None:
        return server
    limit_s = process.allowed_s(START_S)
    server = _wait_for_answer(launch, program, answer, limit_s - START_S)
    if server is not None:
        return server
    raise errors.EngineStartFailed(
        f"{launch.name} did not answer within {limit_s:.0f} s:\n{launch.tail()}",
        remedy=f"The whole log: {launch.log}",
    )


def _wait_for_answer(
    launch: Launch,
    program: process.Running,
    answer: Callable[[process.Running], Answer | None],
    within_s: float,
) -> Answer | None:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        # A server that ended will never answer.
        status = program.poll()
        _has_room(launch)
        if status is not None:
            raise errors.EngineStartFailed(
                f"{launch.name} ended with {process.ending(status)}:\n{launch.tail()}",
                effect="Nothing was measured.",
                remedy=launch.remedy or f"The whole log: {launch.log}",
            )
        try:
            # None: it is not ready yet. An error of the server itself is not waited out.
            server = answer(program)
        except errors.DbbenchError:
            raise
        except Exception as error:
            raise errors.EngineStartFailed(
                f"{launch.name} is running but refuses connections: {error}\n{launch.tail()}"
            ) from error
        if server is not None:
            return server
        time.sleep(POLL_S)
    return None


def _has_room(launch: Launch) -> None:
    """Raise FilesystemFull if the log says that the server waits for space: MariaDB does so
    forever, and so does a server that could not allocate its log while it shuts down.
    """
    with contextlib.suppress(OSError), launch.log.open("rb") as file:
        file.seek(launch.offset)
        if _WAITS_FOR_SPACE in file.read():
            raise errors.FilesystemFull(
                f"{launch.name} waits for space on the filesystem of {launch.datadir}:\n"
                + launch.tail(_WAITS_FOR_SPACE.decode().lower()),
                effect="It was killed; nothing was measured.",
                remedy="Use a larger device, or smaller logs (innodb_log_file_size) in the engine's "
                "settings.",
            )


def _stop(launch: Launch, program: process.Running) -> None:
    if program.poll() is None:
        program.popen.send_signal(launch.stop)
        try:
            if program.wait(STOP_S) == 0:
                return
        except errors.DeadlinePassed as late:
            program.stop(launch.abort)
            raise errors.EngineDied(
                f"{launch.name} was asked to stop and killed, because {late.evidence}:\n"
                f"{launch.tail()}",
                effect="Unwritten data is lost. The trial is marked failed.",
                remedy=late.remedy,
            ) from None
    raise _death(launch, program)


def _death(
    launch: Launch,
    program: process.Running,
    seen_as: object = "",
) -> errors.DbbenchError:
    seen = f"\n  first symptom: {str(seen_as).splitlines()[0]}" if str(seen_as) else ""
    return errors.EngineDied(
        f"{launch.name} (pid {program.pid}) ended with {process.ending(program.popen.wait())}:\n"
        f"{launch.tail()}{seen}",
        effect="The trial is marked failed.",
        remedy=f"The whole log: {launch.log}",
    )


def _end_orphans(launch: Launch) -> None:
    """Kill the backends of a killed postmaster: they keep the filesystem busy until they notice its
    death.
    """
    program = str(Path(launch.argv[0]).resolve())
    datadir = launch.datadir.resolve()

    def kill() -> bool:
        killed = False
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if (entry / "cwd").readlink() != datadir:
                    continue
                # A process that is ending has no program any more, but it may still be attached
                # to the shared memory, with which the next server would not start.
                exe = program
                with contextlib.suppress(FileNotFoundError):
                    exe = str((entry / "exe").readlink()).removesuffix(" (deleted)")
                if exe == program:
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed = True
        return killed

    process.wait_while(kill, 2.0, POLL_S)


def remember_database(datadir: Path, name: str) -> None:
    """Record that servers of that data directory, and of copies of it, use the database `name`."""
    with os.fdopen(
        own_file(datadir / _DATABASE_FILE, os.O_WRONLY | os.O_TRUNC, 0o644), "w"
    ) as file:
        file.write(name + "\n")


def database_of(datadir: Path) -> str:
    """Return the database for drivers: the user's own if one is recorded, otherwise `dbbench`."""
    try:
        return (datadir / _DATABASE_FILE).read_text().strip()
    except OSError:
        return NAME


def move(sources: Iterable[Path], to: Path, account: process.User) -> None:
    """Move files into a directory of the account, by plain writes, as a golden copy is restored,
    and sync them.
    """
    own(to, account)
    for source in sources:
        target = to / source.name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
            shutil.rmtree(source)
        else:
            shutil.copy2(source, target)
            source.unlink()
        for path in (target, *(target.rglob("*") if target.is_dir() else ())):
            if os.geteuid() == 0:
                os.lchown(path, account.uid, account.gid)
    syncfs(to)


def refuse_corrupt(tool: str, lines: Iterable[str]) -> None:
    """Raise DataCorrupt with what a check printed about damage, if it printed something."""
    shown = [f"  {line.strip()}" for line in lines if line.strip()]
    if len(shown) > CORRUPT_LINES:
        shown[CORRUPT_LINES:] = [f"  ({len(shown) - CORRUPT_LINES} more lines)"]
    if shown:
        raise errors.DataCorrupt(f"{tool} found corrupt data:\n" + "\n".join(shown))


def grown_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the increase of each counter that both readings have."""
    return {name: value - before[name] for name, value in after.items() if name in before}


def total(grown: Mapping[str, Number], *names: str) -> Number | None:
    """Return the sum of the counters, or None if one of them is missing."""
    first, *others = (grown.get(name) for name in names)
    for value in others:
        first = None if first is None or value is None else first + value
    return first
