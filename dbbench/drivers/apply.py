"""apply: replay the archived log of a primary on its base copy, as fast as possible or in batches.
kB/s is the log applied (10^3 bytes) divided by the seconds in which some of it was waiting.
"""

from __future__ import annotations

import contextlib
import math
import queue
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from dbbench import process
from dbbench.drivers.protocol import Live, Load, LoadTask, client_account
from dbbench.drivers.tool import DEATH_S, POLL_S, rates_of, whole_outcome
from dbbench.engines import checksums_of, mysqld, profile_of
from dbbench.engines.serving import tail
from dbbench.errors import (
    CommandFailed,
    DataCorrupt,
    DriverFailed,
    EngineDied,
    NoProgress,
    ProgramMissing,
)
from dbbench.machine import threads
from dbbench.metrics import steadiness
from dbbench.metrics.outcome import Outcome
from dbbench.model import Figures, TrialWarning, plain
from dbbench.results.fileio import parsed_as, write_json

ARCHIVE: Final = "archive"
INBOX: Final = "inbox"
DESCRIPTION: Final = "archive.json"
RATE: Final = "apply_kb_per_s"  # the column of the series
# longer than the pause of a slow disk that writes all dirty pages at a restartpoint
STUCK_S: Final = 300.0
# decay from start to end as a share of the mean rate; a smaller one does not change a verdict
FALLEN: Final = 0.05
# Log that may be missing while more files follow: a record can continue in the next segment, and
# decoded log can still be in a pipe.
CLOSE_BYTES: Final = 2**20
SEGMENT: Final = 16 * 2**20  # the segment size that `engines.postgres.create` sets
_CHUNK: Final = 256 * 2**10
_AT: Final = re.compile(rb"^# at (\d+)\n", re.MULTILINE)
_END_S: Final = 600.0  # time for the client to finish after it has received everything


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Apply the archive in `scratch`, then compare every table. Raises DataCorrupt if one differs."""
    try:
        archive = load_archive(task.scratch / ARCHIVE)
    except (OSError, ValueError) as error:
        raise DriverFailed(f"the archived log cannot be read: {error}") from error
    interval_s = float(task.cell.parameters.get("interval", 0))
    batch = int(task.cell.parameters.get("batch", 1))
    with applying(task, archive) as applier:
        yield ApplyLoad(task, archive, applier, interval_s, batch)
        checksums = checksums_of(task.server)
        both = {"primary": archive.checksums, "standby": checksums}
        write_json(task.raw / "checksums.json", both)
        differing = differences(archive.checksums, checksums)
        if differing:
            raise DataCorrupt(
                f"the standby differs from its primary: {'; '.join(differing[:5])}",
                remedy="See raw/checksums.json and the server's log of the trial.",
            )


def differences(primary: dict[str, str], standby: dict[str, str]) -> list[str]:
    """Return a description of each table that differs between the two."""
    names = sorted({*primary, *standby})
    return [
        f"{name}: {standby.get(name, 'missing')}; on the primary {primary.get(name, 'missing')}"
        for name in names
        if primary.get(name) != standby.get(name)
    ]


class ApplyLoad:
    """Offers log files and watches their progress. The first batch is offered when this is made."""

    def __init__(
        self,
        task: LoadTask,
        archive: Archive,
        applier: StandbyRecovery | Replay,
        interval_s: float,
        batch: int,
    ) -> None:
        self.server = task.server
        self.archive = archive
        self.applier = applier
        self._interval_s = interval_s
        self._batch = batch if interval_s else len(archive.logs)
        self._handed = 0
        self.begin_utc = task.clock.now_utc()
        self._began = time.monotonic()
        self._points: list[tuple[float, int]] = [(0.0, 0)]  # second, bytes applied
        self._busy_s = 0.0
        self._busy: set[int] = set()  # seconds in which some log was waiting to be applied
        self._grown_at = 0.0
        self._shown = -1  # the last second that was passed on
        self._hand_over()

    @property
    def pids(self) -> tuple[int, ...]:
        return self.applier.pids

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Return early when all is applied: the load does not fill a fixed time."""
        while self._now_s() < second and self._goes_on(watch):
            time.sleep(POLL_S)

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Raises EngineDied, DriverFailed, NoProgress."""
        self.wait_until(math.inf, watch)

    def outcome(self) -> Outcome:
        duration_s, applied = self._points[-1]
        applied_kb = applied / 1e3
        # Seconds in which nothing was offered say nothing about the rate.
        rates: list[float | None] = []
        for second, rate in enumerate(rates_of(self._points, int(duration_s))):
            rates.append(rate / 1e3 if second in self._busy else None)
        figures: Figures = {
            "duration_s": duration_s,
            "applied_bytes": float(applied),
            "kb_per_s": applied_kb / self._busy_s if self._busy_s else None,
        }
        warnings = []

        # A decay can be seen only if the standby was applying nearly all the time.
        decay = steadiness.slope_per_min(rates) if self._busy_s > 0.9 * duration_s else None
        if decay is not None:
            figures["decay_kb_per_s_min"] = decay.slope
            figures["decay_low"] = decay.low
            figures["decay_high"] = decay.high
            fall = -decay.slope * duration_s / 60 / (applied_kb / duration_s)
            if decay.high < 0 and fall > FALLEN:
                text = (
                    f"the apply rate fell by {-decay.slope:.0f} kB/s a minute "
                    f"(95 %: {-decay.high:.0f} to {-decay.low:.0f}) over {duration_s:.0f} s"
                )
                warnings.append(TrialWarning("W005", text))
        outcome = whole_outcome(
            self.begin_utc,
            duration_s,
            figures,
            warnings=tuple(warnings),
        )
        outcome.series.set(RATE, rates)
        return outcome

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _hand_over(self) -> None:
        logs = self.archive.logs[self._handed : self._handed + self._batch]
        self._handed += len(logs)
        self._waiting = True
        self.applier.offer(logs, last=self._handed == len(self.archive.logs))

    def _goes_on(self, watch: Callable[[Live], None]) -> bool:
        # Whatever stopped the applier, a dead server is the cause.
        fault = self.applier.fault
        if not process.wait_while(self.server.alive, DEATH_S if fault else 0.0, 0.02):
            raise EngineDied(
                f"the server (pid {self.server.pid}) died: {fault or 'it was applying the log'}"
            )
        if fault:
            raise DriverFailed(fault)

        # Seconds count as busy if some log was waiting since the last look.
        waiting = not self.applier.caught_up()
        now = self._now_s()
        applied = self.applier.applied_bytes()
        before_s, before = self._points[-1]
        if self._waiting:
            self._busy_s += now - before_s
            self._busy.update(range(int(before_s), int(now) + 1))
        self._waiting = waiting
        if applied > before or not waiting:
            self._grown_at = now
        elif now - self._grown_at > STUCK_S:
            whole = sum(log.size for log in self.archive.logs)
            raise NoProgress(
                f"the standby stopped after {applied} bytes of {whole}: "
                f"nothing was applied for {STUCK_S:.0f} s",
                effect="The trial is marked failed.",
                remedy="See the server's log of the trial.",
            )
        self._points.append((now, applied))
        if int(now) > self._shown:
            self._shown = int(now)
            watch(Live(self._shown, None, None))

        # The next batch is offered when it is due, even if this one is not applied yet.
        if self._handed == len(self.archive.logs):
            return waiting
        if now >= self._interval_s * math.ceil(self._handed / self._batch):
            self._hand_over()
        return True


# An applier applies log files in the order in which they are offered. `applied_bytes` of log are
# applied so far, `caught_up` whether all that was offered, except for CLOSE_BYTES before the last
# file; `fault` is why it has stopped.
@contextlib.contextmanager
def applying(task: LoadTask, archive: Archive) -> Iterator[StandbyRecovery | Replay]:
    """Yield the applier for the task's server; none of its programs outlives the block. Raises
    ProgramMissing.
    """
    server = task.server
    profile = profile_of(server.engine)
    # A standby applies the log itself; for MySQL and MariaDB two clients are joined.
    if profile.standby:
        with contextlib.closing(server.connect()) as connection:
            yield StandbyRecovery(connection, archive, task.scratch)
        return
    installation = mysqld.require(profile, task.cell.engine.bin)
    decoder = _tool(installation, "mariadb-binlog", "mysqlbinlog")
    argv = [*_tool(installation, "mariadb", "mysql"), "--no-defaults"]
    if Path(argv[-2]).name == "mariadb":
        argv.append("--skip-ssl")  # MariaDB's client requires TLS since 11.4
    argv += [
        f"--socket={server.socket}",
        f"--user={server.user}",
        "--binary-mode",
        "--max-allowed-packet=1G",
        server.database,
    ]
    # One client lives as long as the load, and gets the decoded files one after the other.
    with process.running(
        argv,
        stdin=subprocess.PIPE,
        stdout=task.raw / "client.out",
        env=server.env,
        as_user=client_account(server),
        role="client",
    ) as program:
        replay = Replay(program, decoder, task.scratch, task.raw)
        try:
            yield replay
        finally:
            program.stop()  # this also ends a decoder, because its pipe breaks
            replay.offered.put(None)
            replay.helper.join(_END_S)


class StandbyRecovery:
    """A standby: a segment is offered as a link in its inbox."""

    pids: tuple[int, ...] = ()  # the server itself applies the log
    fault = ""  # of the server itself

    def __init__(
        self,
        connection: Any,
        archive: Archive,
        scratch: Path,
    ) -> None:
        self._connection = connection
        self._archive = archive
        self._scratch = scratch
        self._begin = self._replay_position()
        self._target = self._begin
        self._last = False

    def offer(self, logs: Sequence[LogFile], last: bool) -> None:
        for log in logs:
            link = self._scratch / INBOX / log.name
            link.symlink_to(self._scratch / ARCHIVE / log.name)
            # A segment's name: timeline, high half of the LSN, number within that half.
            high = int(log.name[8:16], 16)
            number = int(log.name[16:], 16)
            self._target = (high * 256 + number + 1) * SEGMENT
        self._last = last

    def applied_bytes(self) -> int:
        """Return the bytes applied. The last segment is partly empty and counts up to the point
        where it was closed.
        """
        return max(0, min(self._replay_position(), self._archive.end) - self._begin)

    def caught_up(self) -> bool:
        needed = self._archive.end if self._last else self._target - CLOSE_BYTES
        return self._replay_position() >= needed

    def _replay_position(self) -> int:
        import psycopg2

        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT pg_last_wal_replay_lsn()")
                position = cursor.fetchone()[0]
        except psycopg2.Error as error:
            raise EngineDied(
                f"the progress of the standby could not be read: {str(error).strip()}"
            ) from error
        return lsn(position) if position else 0


class Replay:
    """Binary logs decoded one after the other, each by its own program, into one client."""

    def __init__(
        self,
        client: process.Running,
        decoder: tuple[str, ...],
        scratch: Path,
        raw: Path,
    ) -> None:
        self._client = client
        self._decoder = decoder
        self._scratch = scratch
        self._raw = raw
        self.offered: queue.SimpleQueue[LogFile | None] = queue.SimpleQueue()
        self._target = 0
        self._last = False
        self._done = 0  # bytes of the files before
        self._offset = 0  # in the file that is being decoded
        self._ended = False
        self.fault = ""
        self.helper = threads.Helper("replay", self._work)
        self.helper.start()

    @property
    def pids(self) -> tuple[int, ...]:
        return (self._client.pid,)

    def offer(self, logs: Sequence[LogFile], last: bool) -> None:
        for log in logs:
            self._target += log.size
            self.offered.put(log)
        self._last = last
        if last:
            self.offered.put(None)

    def applied_bytes(self) -> int:
        return self._done + self._offset

    def caught_up(self) -> bool:
        if self._last:
            return self._ended
        return self.applied_bytes() >= self._target - CLOSE_BYTES

    def _work(self) -> None:
        stdin = self._client.popen.stdin
        assert stdin is not None
        try:
            # the client's exit status and output give the cause
            with contextlib.suppress(BrokenPipeError):
                while (log := self.offered.get()) is not None:
                    self._decode(log, stdin)
                stdin.close()
            status = self._client.wait(_END_S)
            if status != 0:
                output = tail(self._raw / "client.out", lines=4).strip()
                self.fault = self.fault or f"the client ended with status {status}: {output}"
            self._ended = True
        except BaseException as error:  # `ApplyLoad` reads and raises it
            self.fault = self.fault or str(error)

    def _decode(self, log: LogFile, into: IO[bytes]) -> None:
        """Pipe one file; each event begins with its position in the file."""
        argv = [
            *self._decoder,
            "--no-defaults",
            str(self._scratch / ARCHIVE / log.name),
        ]
        errors = self._raw / "binlog.err"
        rest = b""
        with process.running(
            argv,
            stdout=subprocess.PIPE,
            stderr=errors,
            role="client",
        ) as reader:
            decoded = reader.popen.stdout
            assert decoded is not None
            # Each piece is passed on at once; the position in it shows how far the client is.
            while chunk := decoded.read(_CHUNK):
                into.write(chunk)
                text = rest + chunk
                self._offset = position(text, self._offset)
                rest = text[text.rfind(b"\n") + 1 :]  # a line may continue in the next chunk
            into.flush()
            if reader.wait(_END_S) != 0:
                printed = tail(errors, lines=4).strip()
                raise CommandFailed(f"{argv[0]} could not read {log.name}: {printed}")
        # The next file begins at its own first byte.
        self._done += log.size
        self._offset = 0


def position(decoded: bytes, before: int) -> int:
    """Return the position of the last event that begins in this text; `before` if none does."""
    positions = _AT.findall(decoded)
    if positions:
        return int(positions[-1])
    return before


def _tool(server: mysqld.Mysqld, *names: str) -> tuple[str, ...]:
    """Return the command of a client program: the server's own, otherwise the installed one."""
    beside = server.path.parent
    folders = [server.root / "usr/bin"] if server.root else [beside, beside.parent / "bin"]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return (*server.loader, str(folder / name))
    for name in names:
        program = process.find(name)
        if program is not None:
            return (str(program),)
    raise ProgramMissing(
        f"neither {' nor '.join(names)} is installed",
        effect="Nothing was measured.",
        remedy="Install the server's client programs: mariadb-client, or mysql-client-core.",
    )


@dataclass(frozen=True)
class LogFile:
    """One file of the archive: a WAL segment or a binary log."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True)
class Archive:
    """The content of archive.json: files in the order in which they are applied, and the expected
    result.
    """

    logs: tuple[LogFile, ...]
    # PostgreSQL: LSN at which replay ends, as a number; InnoDB: 0, because every file is applied as
    # a whole
    end: int
    checksums: dict[str, str]  # checksum of every table of the primary at that point


def load_archive(folder: Path) -> Archive:
    """Read archive.json in `folder`. Raises OSError or ValueError."""
    return parsed_as(Archive, (folder / DESCRIPTION).read_bytes())


def save_archive(folder: Path, archive: Archive) -> None:
    """Write archive.json."""
    write_json(folder / DESCRIPTION, plain(archive))


def lsn(position: str) -> int:
    """Convert PostgreSQL's "16/B374D848" to a byte position."""
    high, low = position.split("/")
    return (int(high, 16) << 32) + int(low, 16)
