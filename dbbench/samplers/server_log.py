"""server_log: lines logged per second: `server_log_errors`, on PostgreSQL ended `autovacuum_runs`.
It has no gaps.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dbbench.engines.serving import log_size
from dbbench.metrics.series import Column, Series
from dbbench.model import TrialWarning
from dbbench.samplers.sampler import Sampled, Sampling

# Begins with PostgreSQL's `%m [%p] ` in UTC, MySQL's ISO time, or MariaDB's local time (servers run
# with TZ=UTC).
_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T]+(\d{1,2}:\d\d:\d\d(?:\.\d+)?)(?: UTC|Z)? (.*)")
_BAD: Final = re.compile(r"\b(?:ERROR|FATAL|PANIC):  |\[ERROR\]")
_VACUUM: Final = re.compile(r"LOG:  automatic (?:aggressive )?(?:vacuum|analyze)")
PROGRAMS: Final = ()
_SHOWN: Final = 160  # characters of a line that a warning quotes


@dataclass(frozen=True)
class LogEvent:
    """A relevant line of the log."""

    utc: float
    kind: str  # "error", "autovacuum"
    text: str


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling | None]:
    """Read what is appended to the log within the block; the log is kept with the server's other
    files.
    """
    del raw
    if target.server is None:
        yield None
        return
    recording = ServerLog(target.server.log, log_size(target.server.log))
    try:
        yield recording
    finally:
        recording.stop()


@dataclass
class ServerLog:
    """The part of a log that belongs to the load."""

    log: Path
    offset: int
    events: list[LogEvent] = field(default_factory=list)

    def stop(self) -> None:
        """Read the log before the server's shutdown adds to it."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(self.offset)
            self.events = events(file.read().decode(errors="replace"))

    def read(self, begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        # The seconds of the load in which something was logged.
        errors = []
        vacuums = []
        text = ""  # of the first error
        for event in self.events:
            second = math.floor(event.utc - begin_utc)
            if not 0 <= second < seconds:
                continue
            if event.kind == "autovacuum":
                vacuums.append(second)
            else:
                errors.append(second)
                text = text or event.text[:_SHOWN]
        # One warning for all errors, with the text of the first.
        warnings = []
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            warnings.append(TrialWarning("W025", text + more, second=errors[0]))
        columns = {"server_log_errors": _count(seconds, errors)}
        if vacuums:
            columns["autovacuum_runs"] = _count(seconds, vacuums)
        return Series(seconds, columns), warnings


def events(text: str) -> list[LogEvent]:
    """Return the relevant lines of a server's log in order; continuation lines have no time."""
    log_events = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        date, moment, message = match.groups()
        if _BAD.search(message):
            kind = "error"
        elif _VACUUM.search(message):
            kind = "autovacuum"
        else:
            continue
        utc = _utc(date, moment)
        if utc is not None:
            log_events.append(LogEvent(utc, kind, message.strip()))
    return log_events


def _utc(date: str, time: str) -> float | None:
    """Return epoch seconds, or None for a damaged line."""
    try:
        moment = datetime.fromisoformat(f"{date}T{time.zfill(8) if '.' not in time else time}")
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC).timestamp()


def _count(seconds: int, hits: list[int]) -> Column:
    return [float(hits.count(second)) for second in range(seconds)]
