"""What PostgreSQL counts: one statement for all its views, and the checkpoints of its log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

DATABASE: Final = "dbbench"

_BEGUN: Final = re.compile(r" LOG:  (?:checkpoint|restartpoint) starting:(.*)")
_ENDED: Final = re.compile(r" LOG:  (?:checkpoint|restartpoint) complete:")
_CAUSES: Final = {"time": "timed", "wal": "wal", "xlog": "wal", "shutdown": "shutdown", "end-of-recovery": "recovery"}
CAUSES: Final = ("timed", "wal", "requested", "shutdown", "recovery")
_DATABASE: Final = ("xact_commit", "xact_rollback", "blks_read", "blks_hit", "tup_inserted", "tup_updated",
                    "tup_deleted", "temp_bytes", "deadlocks")  # fmt: skip
RENAMED: Final = {"wal_write_time": "wal_write_ms", "wal_sync_time": "wal_sync_ms",
                   "checkpointer_write_time": "checkpointer_write_ms",
                   "checkpointer_sync_time": "checkpointer_sync_ms"}  # fmt: skip

# pg_stat_io has bytes since 18, operations and their size before.
_IO_16: Final = {
    "data_write_bytes": "writes * op_bytes",
    "data_extend_bytes": "extends * op_bytes",
    "data_read_bytes": "reads * op_bytes",
}
_IO_18: Final = {name: name.removeprefix("data_") for name in _IO_16}
_BGWRITER: Final = ("buffers_clean", "maxwritten_clean", "buffers_alloc")
_BGWRITER_TO_16: Final = {  # from 17 on in pg_stat_checkpointer, pg_stat_io
    "buffers_checkpoint": "buffers_checkpoint",
    "buffers_backend": "buffers_backend",
    "buffers_backend_fsync": "buffers_backend_fsync",
    "checkpointer_write_time": "checkpoint_write_time",
    "checkpointer_sync_time": "checkpoint_sync_time",
}
_CHECKPOINTER: Final = {
    "buffers_checkpoint": "buffers_written",
    "checkpointer_write_time": "write_time",
    "checkpointer_sync_time": "sync_time",
}


def statement(major: int) -> str:
    """One row of jsonb objects, name -> number, from the views that this version has."""
    parts = [
        _object({name: name for name in _DATABASE}, f"pg_stat_database WHERE datname = '{DATABASE}'"),
        _object(
            {"autovacuum_workers_running": "count(*)"},
            "pg_stat_activity WHERE backend_type = 'autovacuum worker'",
        ),
        _object({name: name for name in _BGWRITER}, "pg_stat_bgwriter"),
        _object(_CHECKPOINTER, "pg_stat_checkpointer") if major >= 17 else _object(_BGWRITER_TO_16, "pg_stat_bgwriter"),
    ]
    if major >= 14:
        parts.append("(SELECT to_jsonb(w) FROM pg_stat_wal w)")
    if major >= 16:
        sums = {name: f"coalesce(sum({what}), 0)" for name, what in (_IO_16 if major < 18 else _IO_18).items()}
        parts.append(_object(sums, "pg_stat_io WHERE object = 'relation'"))
    return "SELECT " + ", ".join(parts)


def _object(columns: dict[str, str], source: str) -> str:
    pairs = ", ".join(f"'{name}', {what}" for name, what in columns.items())
    return f"(SELECT jsonb_build_object({pairs}) FROM {source})"


class CheckpointLog:
    """Counts checkpoints by the lines that log_checkpoints writes. Exact in every version; the statistics views
    count by cause only, and some versions count at the begin, some at the end."""

    def __init__(self, log: Path, offset: int) -> None:
        self._log = log
        self._offset = offset
        self._rest = b""
        self._counts: Counter[str] = Counter()

    def read(self) -> dict[str, float]:
        """Cumulative counts since the server's start."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        self._counts.update(checkpoint_events(line.decode(errors="replace") for line in lines))
        names = ("begun", "ended", *CAUSES)
        return {f"checkpoints_{name}": float(self._counts[name]) for name in names}


def checkpoint_events(lines: Iterable[str]) -> list[str]:
    """`begun`, its cause, and `ended`, in the order of the log."""
    found = []
    for line in lines:
        if begun := _BEGUN.search(line):
            causes = (_CAUSES[word] for word in begun[1].split() if word in _CAUSES)
            found += ["begun", next(causes, "requested")]
        elif _ENDED.search(line):
            found.append("ended")
    return found


def grown_between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """By how much each counter grew."""
    return {name: value - before[name] for name, value in after.items() if name in before}
