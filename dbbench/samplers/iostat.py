"""iostat: time per read, write and flush of the disk under test, which sar does not tell apart."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from dbbench.model import TrialWarning
from dbbench.process import running
from dbbench.samplers.iostat_parse import parse
from dbbench.samplers.port import Sampling, Target
from dbbench.samplers.sysstat import Entry, Recording
from dbbench.series import Series


def programs() -> tuple[str, ...]:
    """iostat, of sysstat."""
    return ("iostat",)


@contextlib.contextmanager
def beside(target: Target, raw: Path) -> Iterator[Sampling]:
    """Record the target's disk into `raw/iostat.json`; nothing where the disk is not known.

    Columns of the log's own disk have `log_` before their names.
    """
    if target.disk is None:
        yield _Nothing()
        return
    disk, document, log = target.disk, raw / "iostat.json", raw / "iostat.log"
    # LC_ALL=C: decimal points. ISO time with its zone. -y: no first report of the time since boot.
    env = {"LC_ALL": "C", "S_TIME_FORMAT": "ISO", "TZ": "UTC"}
    argv = ["iostat", "-x", "-t", "-y", "-o", "JSON", "1", disk, *([target.log] if target.log else [])]
    # SIGINT: iostat closes the JSON document.
    with running(argv, stdout=document, stderr=log, env=env, stop_with=signal.SIGINT) as program:
        began = time.time()
        recording = Recording("iostat", "util_pct", began, lambda: _read(document, disk))
        log_of = target.log and Recording("iostat", "util_pct", began, lambda: _read(document, target.log or ""))
        try:
            yield _WithLog(recording, log_of) if log_of else recording
        finally:
            recording.note_end(program, log)


def _read(document: Path, disk: str) -> tuple[list[Entry], str | None]:
    try:
        text = document.read_text(errors="replace")
    except OSError as error:
        return [], f"iostat: {error}"
    entries, whole = parse(text, disk)
    if not entries:
        return [], f"iostat: {document.name} has no entry of {disk}"
    return entries, None if whole else f"iostat: {document.name} is cut off"


class _WithLog:
    """The disk under test, and the log's own beside it. What is missing is missing of both: it is told once."""

    def __init__(self, disk: Recording, log: Recording) -> None:
        self._disk, self._log = disk, log

    def series(self, begin_utc: float, seconds: int) -> Series:
        found, log = self._disk.series(begin_utc, seconds), self._log.series(begin_utc, seconds)
        found.update(Series(seconds, {f"log_{name}": values for name, values in log.columns.items()}))
        return found

    def warnings(self) -> tuple[TrialWarning, ...]:
        return self._disk.warnings()


class _Nothing:
    """No disk is known: nothing is promised, so nothing is missing."""

    def series(self, begin_utc: float, seconds: int) -> Series:
        return Series(seconds)

    def warnings(self) -> tuple[TrialWarning, ...]:
        return ()
