"""PostgreSQL's counters, read in one statement for all its views, and the checkpoints in its log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench.engines.port import NAME
from dbbench.engines.settings import EVERY_VERSION, Versions, numbers_of


@dataclass(frozen=True)
class PgView:
    """Counters that some versions have in the same columns of one view."""

    view: str
    counters: str  # "counter" if its column has the same name, otherwise "counter=column"
    versions: Versions = EVERY_VERSION
    where: str = ""
    formula: str = "{}"  # an expression with the column in place of {}
    also: str = ""  # further columns that `where` and `formula` use
    setting: str = ""  # if it is off, the server does not measure them, and the view has 0

    @property
    def columns(self) -> dict[str, str]:
        pairs = (word.partition("=") for word in self.counters.split())
        return {name: column or name for name, _, column in pairs}


_WAL: Final = "object = 'wal' AND context = 'normal'"
_TABLES: Final = "object = 'relation'"
_BY_BACKENDS: Final = f"{_TABLES} AND backend_type NOT IN ('checkpointer', 'background writer')"
SOURCES: Final = (
    PgView(
        "pg_stat_database",
        "xact_commit xact_rollback blks_read blks_hit tup_inserted tup_updated tup_deleted"
        " temp_bytes deadlocks",
        where=f"datname = '{NAME}'",
        also="datname",
    ),
    PgView("pg_stat_bgwriter", "buffers_clean maxwritten_clean buffers_alloc"),
    PgView(
        "pg_stat_bgwriter",
        "buffers_checkpoint buffers_backend buffers_backend_fsync"
        " checkpointer_write_ms=checkpoint_write_time checkpointer_sync_ms=checkpoint_sync_time",
        Versions(last=(16,)),
    ),
    PgView(
        "pg_stat_checkpointer",
        "buffers_checkpoint=buffers_written checkpointer_write_ms=write_time"
        " checkpointer_sync_ms=sync_time",
        Versions((17,)),
    ),
    PgView("pg_stat_wal", "wal_records wal_fpi wal_bytes wal_buffers_full", Versions((14,))),
    PgView("pg_stat_wal", "wal_write wal_sync", Versions((14,), (17,))),
    PgView(
        "pg_stat_wal",
        "wal_write_ms=wal_write_time wal_sync_ms=wal_sync_time",
        Versions((14,), (17,)),
        setting="track_wal_io_timing",
    ),
    # Excludes the context "init", the filling of new segments with zeros, which pg_stat_wal never
    # counted.
    PgView(
        "pg_stat_io",
        "wal_write=writes wal_sync=fsyncs",
        Versions((18,)),
        _WAL,
        "sum({})",
        "object context",
    ),
    PgView(
        "pg_stat_io",
        "wal_write_ms=write_time wal_sync_ms=fsync_time",
        Versions((18,)),
        _WAL,
        "sum({})",
        "object context",
        setting="track_wal_io_timing",
    ),
    PgView("pg_stat_wal", "wal_fpi_bytes", Versions((19,))),
    # pg_stat_io counts bytes since version 18; before, operations and the size of one.
    PgView(
        "pg_stat_io",
        "data_write_bytes=writes data_extend_bytes=extends data_read_bytes=reads",
        Versions((16,), (17,)),
        _TABLES,
        "sum({} * op_bytes)",
        "object op_bytes",
    ),
    PgView(
        "pg_stat_io",
        "data_write_bytes=write_bytes data_extend_bytes=extend_bytes data_read_bytes=read_bytes",
        Versions((18,)),
        _TABLES,
        "sum({})",
        "object",
    ),
    # Pages that sessions write themselves; up to version 16 pg_stat_bgwriter counts them.
    PgView(
        "pg_stat_io",
        "buffers_backend=writes",
        Versions((17,), (17,)),
        _BY_BACKENDS,
        "sum({} + coalesce(extends, 0))",
        "object backend_type extends",
    ),
    PgView(
        "pg_stat_io",
        "buffers_backend=write_bytes",
        Versions((18,)),
        _BY_BACKENDS,
        "sum({} + coalesce(extend_bytes, 0)) / current_setting('block_size')::int",
        "object backend_type extend_bytes",
    ),
    PgView(
        "pg_stat_io",
        "buffers_backend_fsync=fsyncs",
        Versions((17,)),
        _BY_BACKENDS,
        "sum({})",
        "object backend_type",
    ),
)
VIEWS: Final = tuple(dict.fromkeys(source.view for source in SOURCES))
# Asks a server for the columns that its views have.
COLUMNS: Final = f"""SELECT view, array_agg(attname::text) FROM unnest(ARRAY{list(VIEWS)}) view
JOIN pg_attribute ON attrelid = to_regclass(view) AND attnum > 0 AND NOT attisdropped GROUP BY view"""
OFF: Final = "SELECT name FROM pg_settings WHERE setting = 'off'"
_ALWAYS: Final = (
    "(SELECT jsonb_build_object('autovacuum_workers_running', count(*) FILTER (WHERE backend_type "
    "= 'autovacuum worker'), 'sessions_connected', count(*) FILTER (WHERE backend_type = 'client "
    "backend'), 'lwlock_waits_active', count(*) FILTER (WHERE wait_event_type = 'LWLock'), "
    "'wal_lock_waits_active', count(*) FILTER (WHERE wait_event_type = 'LWLock' AND wait_event = "
    "'WALWrite')) FROM pg_stat_activity)",
    "(SELECT jsonb_build_object('xids', txid_snapshot_xmax(txid_current_snapshot())))",
)
# The application name and the latest statement of each session. Once a session is no longer listed,
# its statistics are complete.
_PRESENT: Final = """(SELECT json_object_agg(pid, left(concat_ws(': ', nullif(application_name, ''), query), 100))
FROM pg_stat_activity WHERE backend_type = 'client backend')"""
_BEGUN: Final = re.compile(r" LOG:  (?:checkpoint|restartpoint) starting:(.*)")
_ENDED: Final = re.compile(r" LOG:  (?:checkpoint|restartpoint) complete:")
_CAUSES: Final = {
    "time": "timed",
    "wal": "wal",
    "xlog": "wal",
    "shutdown": "shutdown",
    "end-of-recovery": "recovery",
}
CAUSES: Final = ("timed", "wal", "requested", "shutdown", "recovery")


@dataclass(frozen=True)
class Reading:
    """How to read the counters from one server, and which columns it lacks."""

    statement: str = ""  # one row of jsonb objects, counter -> number
    origins: Mapping[str, str] = field(default_factory=dict)  # counter -> view.column
    lacking: tuple[str, ...] = ()  # view.column that its version should have but does not

    def counters(self, row: Iterable[Mapping[str, object] | None]) -> dict[str, float]:
        """Return the numbers of a row; a counter without a value is omitted."""
        counters = {}
        for part in row:
            for name, value in (part or {}).items():
                if isinstance(value, int | float):
                    counters[name] = float(value)
        return counters

    def without_value(self, counters: Mapping[str, float]) -> tuple[str, ...]:
        return tuple(origin for name, origin in self.origins.items() if name not in counters)


def reading(
    version: str,
    columns: Mapping[str, Collection[str]],
    off: Collection[str] = (),
) -> Reading:
    """Return how to read the counters of a server of that version whose views have those columns; a
    missing column would make the whole statement fail. `off`: its settings that are off; what
    depends on them is not read.
    """
    parts = list(_ALWAYS)
    origins = {}
    lacking = []
    # A view that this version lacks, or that its settings leave empty, is not read.
    for source in SOURCES:
        if numbers_of(version) not in source.versions or source.setting in off:
            continue
        present = columns.get(source.view, ())
        also = source.also.split()
        for column in (*source.columns.values(), *also):
            if column not in present:
                lacking.append(f"{source.view}.{column}")
        if not present or not set(also) <= set(present):
            continue
        # Each counter is one value of the view, named by what it counts.
        pairs = []
        for name, column in source.columns.items():
            if column in present:
                pairs.append(f"'{name}', {source.formula.format(column)}")
                origins[name] = f"{source.view}.{column}"
        if pairs:
            where = f" WHERE {source.where}" if source.where else ""
            counters = f"jsonb_build_object({', '.join(pairs)})"
            parts.append(f"(SELECT {counters} FROM {source.view}{where})")
    return Reading("SELECT " + ", ".join(parts), origins, tuple(dict.fromkeys(lacking)))


def sessions_statement(major: int) -> str:
    """Return a statement: client sessions by pid, sessions opened (NULL below 14), time of the last
    reload.
    """
    opened = "(SELECT sum(sessions)::bigint FROM pg_stat_database)" if major >= 14 else "NULL"
    return f"SELECT {_PRESENT}, {opened}, pg_conf_load_time()::text"


class CheckpointLog:
    """Counts checkpoints by the lines of log_checkpoints, which is exact in every version. The
    statistics views count only by cause, in some versions at the beginning of a checkpoint, in
    others at its end.
    """

    def __init__(self, log: Path, offset: int) -> None:
        self._log = log
        self._offset = offset
        self._rest = b""
        self._counts: Counter[str] = Counter()

    def read(self) -> dict[str, float]:
        with self._log.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        self._counts.update(checkpoint_events(line.decode(errors="replace") for line in lines))
        names = ("begun", "ended", *CAUSES)
        return {f"checkpoints_{name}": float(self._counts[name]) for name in names}


def checkpoint_events(lines: Iterable[str]) -> list[str]:
    """Return `begun`, its cause, and `ended`, in the order of the log."""
    events = []
    for line in lines:
        begun = _BEGUN.search(line)
        if begun:
            causes = [_CAUSES[word] for word in begun[1].split() if word in _CAUSES]
            events.append("begun")
            events.append(causes[0] if causes else "requested")
        elif _ENDED.search(line):
            events.append("ended")
    return events
