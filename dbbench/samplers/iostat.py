"""iostat: time per read, write and flush of the disk under test, which sar does not separate; read
by key.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.samplers.sampler import Sampled, Sampling
from dbbench.samplers.sysstat import (
    Interval,
    Recorder,
    SysstatDocument,
    Table,
    missing_keys,
    numbers,
    statistics,
)

PROGRAMS: Final = ("iostat",)
_COLUMNS: Final[Table] = {
    "r/s": ("r_per_s", 1),
    "w/s": ("w_per_s", 1),
    "f/s": ("f_per_s", 1),
    "d/s": ("d_per_s", 1),
    "rkB/s": ("r_kb_per_s", 1),
    "wkB/s": ("w_kb_per_s", 1),
    "aqu-sz": ("aqu_sz", 1),
    "util": ("util_pct", 1),
    "r_await": ("r_await_ms", 1),
    "w_await": ("w_await_ms", 1),
    "f_await": ("f_await_ms", 1),
}
_PER_REQUEST: Final = {"r_await": "r/s", "w_await": "w/s", "f_await": "f/s"}


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling | None]:
    """Record the target's disk, if known, into `raw/iostat.json`; columns of the log's own disk
    begin with `log_`.
    """
    if target.disk is None:
        yield None
        return
    disks = (target.disk, target.log) if target.log else (target.disk,)
    document = raw / "iostat.json"
    log = raw / "iostat.log"
    # LC_ALL=C: decimal points. ISO: times with their zone. -y: without the first report, of the
    # time since boot.
    env = {"LC_ALL": "C", "S_TIME_FORMAT": "ISO", "TZ": "UTC"}
    argv = ["iostat", "-x", "-t", "-y", "-o", "JSON", "1", *disks]
    # On SIGINT iostat completes the JSON document.
    with process.running(
        argv,
        stdout=document,
        stderr=log,
        env=env,
        stop_with=signal.SIGINT,
    ) as program:
        recording = Recorder(
            "iostat",
            "util_pct",
            time.time(),
            lambda: _read(document, *disks),
        )
        try:
            yield recording
        finally:
            recording.note_end(program, log)


def _read(document: Path, disk: str, log: str = "") -> SysstatDocument:
    try:
        text = document.read_text(errors="replace")
    except OSError as error:
        return SysstatDocument(fault=str(error))
    rows = parse(text, disk, log)
    if rows.whole:
        return rows
    return rows._replace(fault=f"{document.name} is truncated")


def _stamp(report: Mapping[str, Any]) -> int | None:
    try:
        end = datetime.fromisoformat(report["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    # a local format does not contain a zone
    if end.tzinfo is None:
        return None
    return int(end.timestamp())


@process.understood("iostat")
def parse(text: str, disk: str, log: str = "") -> SysstatDocument:
    """Return the entries of `disk` in order, with the columns of `log`. Intervals without `disk`
    are omitted.
    """
    prefixes = {disk: "", log: "log_"} if log else {disk: ""}
    reports, whole = statistics(text)
    entries = list[Interval]()
    strange = list[object]()
    rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in prefixes}
    printed = dict[str, None]()  # names of all disks
    # An interval whose time cannot be read is left out, and counted as strange.
    for report in reports:
        stamp = _stamp(report)
        if stamp is None:
            strange.append(report.get("timestamp"))
            continue
        # One row for each disk, by sysstat's name of it.
        named = {row.get("disk_device"): row for row in report.get("disk", [])}
        values: dict[str, float | None] = {}
        for name, prefix in prefixes.items():
            row = named.get(name)
            if not row:
                continue
            rows[name].append(row)
            for column, value in numbers(row, _COLUMNS, _PER_REQUEST):
                values[prefix + column] = value
        if disk in named:
            interval = stamp - entries[-1].stamp if entries else 1
            entries.append(Interval(stamp, interval, values))
        printed.update(dict.fromkeys(map(str, named)))

    # What is not as expected: a disk without a row, or a row without a key.
    texts = []
    for name, of_disk in rows.items():
        text = f"expected the disk {name}, read {', '.join(printed) or 'no disk'}"
        if of_disk:
            text = missing_keys(name, of_disk, _COLUMNS)
        texts.append(text)
    unexpected = "; ".join(filter(None, texts)) if reports else ""
    return SysstatDocument.of(
        entries,
        whole,
        strange,
        "an ISO time with its zone",
        unexpected,
    )
