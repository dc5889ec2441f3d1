"""What a running server is made of, as far as a plan is concerned: settings, sizes, the filesystem below it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench import mounts
from dbbench.live.connecting import Live
from dbbench.mounts import Mount

TABLES: Final = 10  # of the largest
# Paths, sources of replication and names of this one server: they would break a private server, or say nothing of I/O.
_FOREIGN: Final = re.compile(
    r"archive_.*|recovery_.*|restore_command|primary_.*|synchronous_standby_names|cluster_name|.*_(file|directory|library"
    r"|libraries|path|home_dir)|listen_.*|port|unix_socket.*|log_.*|logging_.*|ssl.*|.*_group_home_dir|innodb_data_file_path"
    r"|innodb_undo_.*|innodb_temp_.*|innodb_page_size|innodb_read_only|innodb_force_.*|innodb_version|hot_standby.*"
    r"|wal_level|.*_preload_.*|data_checksums|config_.*|server_.*|event_source|shared_memory_type|dynamic_shared_.*"
)
_POSTGRES: Final = """
SELECT name, current_setting(name) FROM pg_settings
WHERE setting IS DISTINCT FROM boot_val AND source NOT IN ('default', 'override', 'client', 'session')
AND context <> 'internal' AND split_part(category, ' / ', 1) IN
('Resource Usage', 'Write-Ahead Log', 'Query Tuning', 'Autovacuum', 'Vacuuming') ORDER BY name"""
_MARIADB: Final = """
SELECT lower(VARIABLE_NAME), GLOBAL_VALUE FROM information_schema.SYSTEM_VARIABLES
WHERE GLOBAL_VALUE_ORIGIN IN ('CONFIG', 'SQL', 'AUTO-CONFIG') AND GLOBAL_VALUE <> DEFAULT_VALUE ORDER BY 1"""
_MYSQL: Final = """
SELECT lower(i.VARIABLE_NAME), v.VARIABLE_VALUE FROM performance_schema.variables_info i
JOIN performance_schema.global_variables v USING (VARIABLE_NAME)
WHERE i.VARIABLE_SOURCE NOT IN ('COMPILED', 'COMMAND_LINE') ORDER BY 1"""
_OF_INNODB: Final = re.compile(r"innodb_.*|sync_binlog|max_connections|table_open_cache|.*_buffer_size|tmp_table_size")
_OWN_SCHEMAS: Final = "('mysql', 'sys', 'information_schema', 'performance_schema')"


@dataclass(frozen=True)
class Facts:
    """What was read. None: this role may not see it."""

    engine: str
    version: str
    settings: dict[str, str]  # other than the server's default, and of matter to storage
    data_bytes: int | None
    tables: tuple[tuple[str, int], ...]  # the largest, with indexes
    datadir: str | None
    mount: Mount | None  # below the data directory


def facts_of(live: Live) -> Facts:
    """All of it, read through the session."""
    return _postgres(live) if live.engine == "postgres" else _innodb(live)


def _postgres(live: Live) -> Facts:
    datadir = live.rows("SELECT setting FROM pg_settings WHERE name = 'data_directory'")
    sizes = live.rows(
        "SELECT c.oid::regclass::text, pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', "
        f"'information_schema') ORDER BY 2 DESC, 1 LIMIT {TABLES}"
    )
    whole = live.rows("SELECT pg_database_size(current_database())")[0][0]
    return _facts(live, live.rows(_POSTGRES), sizes, whole, datadir[0][0] if datadir else None)


def _innodb(live: Live) -> Facts:
    rows = live.rows(_MARIADB if live.engine == "mariadb" else _MYSQL)
    settings = [(name, value) for name, value in rows if _OF_INNODB.fullmatch(str(name))]
    where = f"FROM information_schema.tables WHERE table_schema NOT IN {_OWN_SCHEMAS} AND table_type = 'BASE TABLE'"
    sizes = live.rows(
        "SELECT concat(table_schema, '.', table_name), coalesce(data_length + index_length, 0) "
        f"{where} ORDER BY 2 DESC, 1 LIMIT {TABLES}"
    )
    whole = live.rows(f"SELECT sum(data_length + index_length) {where}")[0][0]
    return _facts(live, settings, sizes, whole, live.rows("SELECT @@datadir")[0][0])


def _facts(live: Live, settings: list[Any], sizes: list[Any], whole: Any, datadir: str | None) -> Facts:
    return Facts(
        engine=live.engine,
        version=live.version,
        settings={str(name): str(value) for name, value in settings if not _FOREIGN.fullmatch(str(name))},
        data_bytes=None if whole is None else int(whole),
        tables=tuple((str(name), int(size)) for name, size in sizes),
        datadir=datadir,
        mount=_mount_of(datadir),
    )


def _mount_of(datadir: str | None) -> Mount | None:
    if not datadir:
        return None
    try:
        return mounts.holding(Path(datadir).resolve(), mounts.mounts_of(Path("/proc/self")))
    except OSError:
        return None
