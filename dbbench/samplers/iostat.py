"""iostat: time per read, write and flush of the disk under test, which sar does not separate.

Values are read by key, never by column.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.metrics.series import Series
from dbbench.model import TrialWarning
from dbbench.process import running
from dbbench.samplers.sampler import Sampled, Sampling
from dbbench.samplers.sysstat import Interval, Recorder, SysstatDocument, missing_keys, statistics, unread


def programs() -> tuple[str, ...]:
    """Return iostat, which is part of sysstat."""
    return ("iostat",)


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling]:
    """Record the target's disk into `raw/iostat.json`; do nothing if the disk is not known.

    Columns of a separate disk for the log begin with `log_`.
    """
    if target.disk is None:
        yield _Nothing()
        return
    disk, document, log = target.disk, raw / "iostat.json", raw / "iostat.log"
    # LC_ALL=C: decimal points. ISO: times with their zone. -y: without the first report, of the time since boot.
    env = {"LC_ALL": "C", "S_TIME_FORMAT": "ISO", "TZ": "UTC"}
    argv = ["iostat", "-x", "-t", "-y", "-o", "JSON", "1", disk, *([target.log] if target.log else [])]
    # On SIGINT iostat completes the JSON document.
    with running(argv, stdout=document, stderr=log, env=env, stop_with=signal.SIGINT) as program:
        began = time.time()
        recording = Recorder("iostat", "util_pct", began, lambda: _read(document, disk))
        log_of = target.log and Recorder("iostat", "util_pct", began, lambda: _read(document, target.log or ""))
        try:
            yield _WithLog(recording, log_of) if log_of else recording
        finally:
            recording.note_end(program, log)


def _read(document: Path, disk: str) -> SysstatDocument:
    try:
        text = document.read_text(errors="replace")
    except OSError as error:
        return SysstatDocument(fault=str(error))
    disk_rows = parse(text, disk)
    return disk_rows if disk_rows.whole else disk_rows._replace(fault=f"{document.name} is truncated")


class _WithLog:
    """The disk under test and that of the log. If the recorder ends, both have gaps, and it is reported once."""

    def __init__(self, disk: Recorder, log: Recorder) -> None:
        self._disk, self._log = disk, log

    def series(self, begin_utc: float, seconds: int) -> Series:
        disk_series, log = self._disk.series(begin_utc, seconds), self._log.series(begin_utc, seconds)
        disk_series.update(Series(seconds, {f"log_{name}": values for name, values in log.columns.items()}))
        return disk_series

    def warnings(self) -> tuple[TrialWarning, ...]:
        return (*self._disk.warnings(), *(warning for warning in self._log.warnings() if warning.id == "W140"))


class _Nothing:
    """Without a known disk there are no columns, so no data is missing."""

    def series(self, begin_utc: float, seconds: int) -> Series:
        return Series(seconds)

    def warnings(self) -> tuple[TrialWarning, ...]:
        return ()


_RATES: Final = {
    "r/s": "r_per_s", "w/s": "w_per_s", "f/s": "f_per_s", "d/s": "d_per_s",
    "rkB/s": "r_kb_per_s", "wkB/s": "w_kb_per_s", "aqu-sz": "aqu_sz", "util": "util_pct",
}  # fmt: skip
# Key of a time per request, which exists only if there were requests -> (key of their rate, column).
_AWAITS: Final = {
    "r_await": ("r/s", "r_await_ms"),
    "w_await": ("w/s", "w_await_ms"),
    "f_await": ("f/s", "f_await_ms"),
}

_STAMP: Final = "an ISO time with its zone"


@process.understood("iostat")
def parse(text: str, disk: str) -> SysstatDocument:
    """Return the entries of `disk` in order. Intervals without it are omitted."""
    disk_rows, whole = statistics(text)
    entries: list[Interval] = []
    strange, rows = [], []
    for raw in disk_rows:
        stamp = _stamp(raw)
        row = next((row for row in raw.get("disk", []) if row.get("disk_device") == disk), None)
        if stamp is None:
            strange.append(raw.get("timestamp"))
        elif row is not None:
            interval = stamp - entries[-1].stamp if entries else 1
            entries.append(Interval(stamp, interval, dict(_values(row))))
            rows.append(row)
    return SysstatDocument(entries, whole, unread(strange, _STAMP) or _unexpected(disk_rows, rows, disk))


def _unexpected(found: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], disk: str) -> str:
    if rows:
        return missing_keys(disk, rows, (*_RATES, *_AWAITS))
    listed = dict.fromkeys(str(row.get("disk_device")) for raw in found for row in raw.get("disk", []))
    return f"expected the disk {disk}, read {', '.join(listed) or 'no disk'}" if found else ""


def _stamp(raw: dict[str, Any]) -> int | None:
    """Return epoch seconds of an ISO time with its zone, or None for local formats, which do not contain a zone."""
    try:
        end = datetime.fromisoformat(raw["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return int(end.timestamp()) if end.tzinfo is not None else None


def _values(row: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    for key, column in _RATES.items():
        yield column, _number(row.get(key))
    for key, (rate, column) in _AWAITS.items():
        yield column, _number(row.get(key)) if row.get(rate) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
