"""Who applies the log on each engine: PostgreSQL's own recovery; binary logs decoded and piped into a client."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

from dbbench import process
from dbbench.drivers.archive import ARCHIVE, INBOX, Archive, Log, lsn
from dbbench.engines import mysqld
from dbbench.engines.port import Server
from dbbench.engines.serving import tail
from dbbench.errors import CommandFailed, EngineDied, ProgramMissing

# A record may go on in the next segment, and what is decoded lies in a pipe for a moment.
CLOSE_BYTES: Final = 2**20
SEGMENT: Final = 16 * 2**20  # as `engines.postgres.create` asks for
_CHUNK: Final = 256 * 2**10
_AT: Final = re.compile(rb"^# at (\d+)\n", re.MULTILINE)
_END_S: Final = 600.0  # what the client still has to do when all is written to it


class Applier(Protocol):
    """Applies what it is offered, in order."""

    @property
    def pids(self) -> tuple[int, ...]: ...
    def offer(self, logs: Sequence[Log], last: bool) -> None: ...
    def applied(self) -> int: ...  # bytes of log so far
    def caught_up(self) -> bool: ...  # with what was offered; after the last: to the very end
    def fault(self) -> str: ...  # why it goes on no more; "": it does
    def left(self) -> str: ...  # what it waits for, for an error


@contextlib.contextmanager
def applying(server: Server, archive: Archive, scratch: Path, raw: Path, bin: Path | None) -> Iterator[Applier]:
    """The one for this server; at the end of the block none of its programs runs. ProgramMissing."""
    if server.engine == "postgres":
        with contextlib.closing(server.connect()) as connection:
            yield Recovery(connection, archive, scratch)
        return
    with Replay.running(server, archive, scratch, raw, bin) as replay:
        yield replay


class Recovery:
    """A standby: a segment is handed over by a link in its inbox."""

    pids: tuple[int, ...] = ()  # the server's own process applies it

    def __init__(self, connection: Any, archive: Archive, scratch: Path) -> None:
        self._connection, self._archive, self._scratch = connection, archive, scratch
        self._begin = self._replayed()
        self._target = self._begin
        self._last = False
        self._fault = ""

    def offer(self, logs: Sequence[Log], last: bool) -> None:
        """Each appears at once, and whole."""
        for log in logs:
            (self._scratch / INBOX / log.name).symlink_to(self._scratch / ARCHIVE / log.name)
            self._target = (int(log.name[8:16], 16) * 256 + int(log.name[16:], 16) + 1) * SEGMENT
        self._last = last

    def applied(self) -> int:
        """The end of the last segment is empty: it counts to where it was closed."""
        return max(0, min(self._replayed(), self._archive.end) - self._begin)

    def caught_up(self) -> bool:
        replayed = self._replayed()
        return replayed >= self._archive.end if self._last else replayed >= self._target - CLOSE_BYTES

    def fault(self) -> str:
        return self._fault

    def left(self) -> str:
        return f"it replayed up to byte {self._replayed()} of the log, which ends at {self._archive.end}"

    def _replayed(self) -> int:
        import psycopg2

        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT pg_last_wal_replay_lsn()")
                found = cursor.fetchone()[0]
        except psycopg2.Error as error:
            raise EngineDied(f"it could not be asked how far it is: {str(error).strip()}") from error
        return lsn(found) if found else 0


class Replay:
    """The binary logs decoded one after the other, each by a program of its own, all into one client."""

    def __init__(self, client: process.Running, decoder: tuple[str, ...], archive: Archive, scratch: Path, raw: Path
                 ) -> None:  # fmt: skip
        self._client, self._decoder, self._scratch, self._raw = client, decoder, scratch, raw
        self._offered: queue.SimpleQueue[Log | None] = queue.SimpleQueue()
        self._target, self._last = 0, False
        self._done, self._at, self._ended, self._fault = 0, 0, False, ""
        context = contextvars.copy_context()  # its programs are noted, and have the client's cores
        self.thread = threading.Thread(target=context.run, args=(self._work,), name="replay", daemon=True)
        self.thread.start()

    @classmethod
    @contextlib.contextmanager
    def running(cls, server: Server, archive: Archive, scratch: Path, raw: Path, bin: Path | None) -> Iterator[Replay]:
        """The client, connected and waiting, and who fills it."""
        kind = mysqld.found("mariadb" if server.engine == "mariadb" else "mysql", bin)
        decoder = _tool(kind, "mariadb-binlog", "mysqlbinlog")
        client = _tool(kind, "mariadb", "mysql")
        argv = [*client, "--no-defaults", f"--socket={server.socket}", f"--user={server.user}", "--binary-mode",
                "--max-allowed-packet=1G", server.database]  # fmt: skip
        out = raw / "client.out"
        with process.running(argv, stdin=subprocess.PIPE, stdout=out, role="client") as program:
            replay = cls(program, decoder, archive, scratch, raw)
            try:
                yield replay
            finally:
                program.stop()  # one that still has to do is ended, and its decoder by that
                replay._offered.put(None)
                replay.thread.join(_END_S)

    @property
    def pids(self) -> tuple[int, ...]:
        return (self._client.pid,)

    def offer(self, logs: Sequence[Log], last: bool) -> None:
        for log in logs:
            self._target += log.size
            self._offered.put(log)
        self._last = last
        if last:
            self._offered.put(None)

    def applied(self) -> int:
        return self._done + self._at

    def caught_up(self) -> bool:
        return self._ended if self._last else self.applied() >= self._target - CLOSE_BYTES

    def fault(self) -> str:
        return self._fault

    def left(self) -> str:
        return f"of {self._target} bytes of binary logs"

    def _work(self) -> None:
        try:
            assert self._client.popen.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # its status and its last words say why
                while (log := self._offered.get()) is not None:
                    self._decoded(log, self._client.popen.stdin)
                self._client.popen.stdin.close()
            if self._client.wait(_END_S) != 0:
                said = tail(self._raw / "client.out", lines=4).strip()
                self._fault = self._fault or f"the client ended with status {self._client.poll()}: {said}"
            self._ended = True
        except BaseException as error:  # told by who watches
            self._fault = self._fault or str(error)

    def _decoded(self, log: Log, into: IO[bytes]) -> None:
        """Pipe one file; each event begins with its place in the file."""
        argv = [*self._decoder, "--no-defaults", str(self._scratch / ARCHIVE / log.name)]
        errors = self._raw / "binlog.err"
        rest = b""
        with process.running(argv, stdout=subprocess.PIPE, stderr=errors, role="client") as reader:
            assert reader.popen.stdout is not None
            while chunk := reader.popen.stdout.read(_CHUNK):
                into.write(chunk)
                seen = rest + chunk
                self._at = position(seen, self._at)
                rest = seen[seen.rfind(b"\n") + 1 :]
            into.flush()
            if reader.wait(_END_S) != 0:
                raise CommandFailed(f"{argv[0]} could not read {log.name}: {tail(errors, lines=4).strip()}")
        self._done, self._at = self._done + log.size, 0


def position(decoded: bytes, before: int) -> int:
    """The place in its file of the last event that begins in this text; `before` where none does."""
    found = _AT.findall(decoded)
    return int(found[-1]) if found else before


def _tool(kind: mysqld.Mysqld, *names: str) -> tuple[str, ...]:
    """How a program that comes with the server is started: from its own system, or this one."""
    if kind.root is not None:
        hits = [kind.root / "usr/bin" / name for name in names if (kind.root / "usr/bin" / name).is_file()]
        if hits:
            return (*kind.loader, str(hits[0]))
    beside = [kind.path.parent / name for name in names] + [kind.path.parent.parent / "bin" / name for name in names]
    found = next((path for path in beside if path.is_file()), None) or next(
        filter(None, map(process.find, names)), None
    )
    if found is None:
        raise ProgramMissing(
            f"neither {' nor '.join(names)} is installed",
            effect="Nothing was measured.",
            remedy="Install the server's client programs: mariadb-client, or mysql-client-core.",
        )
    return (str(found),)
