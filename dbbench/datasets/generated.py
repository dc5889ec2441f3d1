"""Datasets that are made by a rule: pgbench's and sysbench's tables, and equal tables to be scanned.

`completed` gives a dataset all its parameters, so that equal datasets have equal keys; `BUILDERS` load one into a
server that runs; `size_bytes` says about how large it will be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dbbench import process, texts
from dbbench.datasets import packed, tpcc
from dbbench.engines.asking import cursor_of, execute
from dbbench.engines.port import Server
from dbbench.errors import CommandFailed, DatasetBuildFailed, DeadlinePassed, PlanInvalid
from dbbench.model import Dataset, Scalar
from dbbench.units import bytes_of

PARAMETERS: Final[dict[str, dict[str, Scalar]]] = {
    # `rows` of clone-tables: 0 = as many as make `table_bytes`; `large_bytes`: of one more table that no load uses
    "pgbench": {"scale": 1, "fillfactor": 100, "large_bytes": 0},
    "sysbench": {"tables": 1, "table_size": 10000, "seed": 1, "large_bytes": 0},
    "clone-tables": {"tables": 1, "table_bytes": 64 * 2**20, "rows": 0, "seed": 1},
    "tpcc": tpcc.PARAMETERS,
    # `scale` is of pgbench (postgres), `tables` and `table_size` of sysbench (mariadb, mysql)
    "archive": {"scale": 1, "tables": 1, "table_size": 10000, "seed": 1, "log_bytes": 64 * 2**20},
    "none": {},
}
ENGINES_OF: Final = {  # kinds that not every engine can hold
    "pgbench": ("postgres",),
    "sysbench": ("postgres", "mariadb", "mysql"),
    "clone-tables": ("postgres", "mariadb", "mysql"),
    "archive": ("postgres", "mariadb", "mysql"),
}

# Bytes on disk, measured on PostgreSQL 15, MariaDB 10.11 and MySQL 9.7: a scale of pgbench with its indexes at
# fillfactor 100; a row of sysbench with both indexes (InnoDB; PostgreSQL needs 255); a row of a clone table
# (PostgreSQL; on InnoDB 15 % more, for its pages are not full); an empty server with the most log that a build keeps.
SCALE_BYTES: Final = 15_700_000
SYSBENCH_ROW_BYTES: Final = 305
CLONE_ROW_BYTES: Final = 256
SERVER_BYTES: Final = {"postgres": 200_000_000, "mariadb": 130_000_000, "mysql": 220_000_000, "files": 0}

# A program that loads less than this is stuck. Bytes a second; slow disks and machines reach ten times as much.
STUCK_RATE: Final = 500_000
STUCK_S: Final = 600.0

LARGE: Final = "large_table"
CHUNK_ROWS: Final = 20_000  # InnoDB: rows of a transaction, so that undo and temporary tables stay in memory


def completed(dataset: Dataset, engine: str) -> Dataset:
    """The dataset with all parameters of its kind, sizes in bytes. PlanInvalid: unknown, impossible, or not for
    this engine."""
    if dataset.kind == "source":
        return dataset
    known = PARAMETERS[dataset.kind]
    if engine not in ENGINES_OF.get(dataset.kind, (engine,)):
        raise PlanInvalid(f"a dataset of kind {dataset.kind} cannot be loaded into {engine}")
    parameters = dict(known)
    for name, value in dataset.parameters.items():
        if name == packed.NAME and dataset.kind in packed.KINDS:
            parameters[name] = packed.share_of(value)
            continue
        if name not in known:
            raise PlanInvalid(f'a dataset of kind {dataset.kind} has no parameter "{name}"; it has {", ".join(known)}')
        try:
            parameters[name] = bytes_of(value)
        except ValueError as error:
            raise PlanInvalid(f'"{name}" of the dataset: {error}') from None
    for name in ("scale", "tables", "warehouses", "districts", "customers", "items"):
        if parameters.get(name, 1) == 0:
            raise PlanInvalid(f'"{name}" of the dataset should be 1 or more')
    if dataset.kind == "clone-tables":
        parameters["rows"] = parameters["rows"] or max(1, _int(parameters, "table_bytes") // CLONE_ROW_BYTES)
    meaningless = _meaningless(dataset.kind, parameters, engine)
    return Dataset(dataset.kind, {name: parameters[name] for name in sorted(parameters.keys() - meaningless)})


def _meaningless(kind: str, parameters: dict[str, Scalar], engine: str) -> set[str]:
    """Parameters that say nothing here: they are no part of what is loaded."""
    found = {"large_bytes"} if not parameters.get("large_bytes") else set()
    if kind == "archive":
        found |= {"tables", "table_size"} if engine == "postgres" else {"scale"}
    return found | ({"table_bytes"} if kind == "clone-tables" else set())


def size_bytes(dataset: Dataset, engine: str) -> int:
    """About how many bytes its data directory will have, rather too many."""
    own = completed(dataset, engine).parameters
    match dataset.kind:
        case "pgbench":
            loaded = _int(own, "scale") * SCALE_BYTES * 100 // max(10, _int(own, "fillfactor"))
        case "sysbench":
            loaded = _int(own, "tables") * _int(own, "table_size") * SYSBENCH_ROW_BYTES
        case "clone-tables":
            loaded = _int(own, "tables") * _int(own, "rows") * CLONE_ROW_BYTES * 115 // 100
        case "tpcc":
            loaded = tpcc.loaded_bytes(own)
        case "archive":  # what a standby is in the end: rows that the log adds are smaller than the log
            return size_bytes(_base(completed(dataset, engine), engine), engine) + _int(own, "log_bytes")
        case "source":
            loaded = _int(own, "bytes")
        case _:
            loaded = 0
    loaded += _int(own, "large_bytes") * 115 // 100 if "large_bytes" in own else 0
    return SERVER_BYTES[engine] + loaded * 11 // 10


def building_bytes(dataset: Dataset, engine: str) -> int:
    """What building it takes in the cache: of an archive the primary beside the base copy, and the log twice."""
    own = completed(dataset, engine)
    more = _int(own.parameters, "log_bytes") if own.kind == "archive" else 0
    return size_bytes(dataset, engine) * (2 if more else 1) + more


def clone_table(number: int) -> str:
    """The name of the clone table `number`, from 1."""
    return f"clone_{number}"


def build(server: Server, dataset: Dataset) -> None:
    """Load the dataset into the server's database, vacuumed, frozen and analysed. DatasetBuildFailed."""
    dataset = completed(dataset, server.engine)
    with _building(dataset):
        BUILDERS[dataset.kind](server, dataset)
        if large := _int(dataset.parameters, "large_bytes") if "large_bytes" in dataset.parameters else 0:
            _fill(server, [LARGE], max(1, large // CLONE_ROW_BYTES), seed=1)
        if server.engine == "postgres":
            execute(server, "VACUUM (FREEZE, ANALYZE)")


def _none(_server: Server, _dataset: Dataset) -> None:
    """The server's own database, empty."""


def _pgbench(server: Server, dataset: Dataset) -> None:
    # Client-side generation ("g"): its COPY FREEZE writes each page once and, with wal_level = minimal, no WAL.
    own = dataset.parameters
    process.run(
        [server.bin / "pgbench", "--initialize", "--init-steps=dtgvp", "--quiet", f"--scale={own['scale']}",
         f"--fillfactor={own['fillfactor']}", f"--host={server.socket_dir}", f"--username={server.user}",
         server.database],
        timeout_s=_deadline(server, dataset),
    )  # fmt: skip


def _sysbench(server: Server, dataset: Dataset) -> None:
    own = dataset.parameters
    share = own.get(packed.NAME)
    size = own["table_size"] if share is None else 0
    if server.engine == "postgres":
        where = ["--db-driver=pgsql", f"--pgsql-host={server.socket_dir}", f"--pgsql-user={server.user}",
                 f"--pgsql-db={server.database}"]  # fmt: skip
    else:
        where = ["--db-driver=mysql", f"--mysql-socket={server.socket}", f"--mysql-user={server.user}",
                 f"--mysql-db={server.database}"]  # fmt: skip
    process.run(
        ["sysbench", "oltp_read_write", *where, f"--tables={own['tables']}", f"--table-size={size}",
         f"--rand-seed={own['seed']}", f"--threads={_threads(dataset)}", "prepare"],
        timeout_s=_deadline(server, dataset),
    )  # fmt: skip
    if share is not None:
        packed.fill_sysbench(server, _int(own, "tables"), _int(own, "table_size"), float(share))
    if server.engine != "postgres":
        execute(server, *(f"ANALYZE TABLE sbtest{number}" for number in range(1, _int(own, "tables") + 1)))


def _archive(server: Server, dataset: Dataset) -> None:
    """What the primary begins with; `archive.record` then makes its log."""
    base = _base(dataset, server.engine)
    BUILDERS[base.kind](server, base)


def _base(dataset: Dataset, engine: str) -> Dataset:
    """The dataset below an archive."""
    known = dataset.parameters
    base = Dataset("pgbench" if engine == "postgres" else "sysbench")
    return completed(
        dataclasses.replace(base, parameters={n: known[n] for n in PARAMETERS[base.kind] if n in known}), engine
    )


def _clone_tables(server: Server, dataset: Dataset) -> None:
    """Equal tables of text-like rows."""
    own = dataset.parameters
    tables = [clone_table(number) for number in range(1, _int(own, "tables") + 1)]
    if packed.NAME in own:
        packed.fill_clones(server, tables, _int(own, "rows"), float(own[packed.NAME]))
        return
    _fill(server, tables, _int(own, "rows"), _int(own, "seed"))


def _fill(server: Server, tables: Sequence[str], rows: int, seed: int) -> None:
    """Make these tables. The different texts come from here, all rows are made within the server."""
    execute(server, "CREATE TABLE clone_pool (id integer PRIMARY KEY, body varchar(400) NOT NULL)")
    with cursor_of(server) as cursor:
        for number, text in enumerate(texts.pool(seed)):
            cursor.execute("INSERT INTO clone_pool VALUES (%s, %s)", (number, text))
    execute(server, "ANALYZE clone_pool" if server.engine == "postgres" else "ANALYZE TABLE clone_pool")
    fill = _fill_postgres if server.engine == "postgres" else _fill_innodb
    with ThreadPoolExecutor(max(1, min(len(os.sched_getaffinity(0)), len(tables)))) as pool:
        list(pool.map(lambda table: fill(server, table, rows), tables))
    execute(server, "DROP TABLE clone_pool")


# 7919 is a prime, so that neighbouring rows have different texts; the hash makes each row different from all others.
_ROW: Final = "n, n * 48271 % 10000, concat(p.body, ' ', left({hash}, 32))"
_JOIN: Final = f"JOIN clone_pool p ON p.id = (n * 7919) % {texts.POOL_ROWS}"


def _fill_postgres(server: Server, table: str, rows: int) -> None:
    row = _ROW.format(hash="encode(sha256(n::text::bytea), 'hex')")
    execute(
        server,
        "BEGIN",  # with wal_level = minimal, rows of a table made in the same transaction are not logged
        f"CREATE TABLE {table} (id bigint NOT NULL, k integer NOT NULL, body varchar(400) NOT NULL)",
        f"INSERT INTO {table} SELECT {row} FROM generate_series(1::bigint, {rows}) AS n {_JOIN}",
        "COMMIT",
    )


def _fill_innodb(server: Server, table: str, rows: int) -> None:
    depth = "max_recursive_iterations" if server.engine == "mariadb" else "cte_max_recursion_depth"
    row = _ROW.format(hash="sha2(n, 256)")  # MySQL 9.6 and later have no md5
    chunks = [
        f"INSERT INTO {table} WITH RECURSIVE numbers AS (SELECT CAST({first} AS SIGNED) AS n UNION ALL "
        f"SELECT n + 1 FROM numbers WHERE n < {min(first + CHUNK_ROWS - 1, rows)}) "
        f"SELECT STRAIGHT_JOIN {row} FROM numbers {_JOIN}"
        for first in range(1, rows + 1, CHUNK_ROWS)
    ]
    execute(
        server,
        f"CREATE TABLE {table} (id bigint NOT NULL PRIMARY KEY, k integer NOT NULL, body varchar(400) NOT NULL) "
        "ENGINE=InnoDB",
        f"SET SESSION {depth} = {CHUNK_ROWS + 1}",
        *chunks,
        f"ANALYZE TABLE {table}",
    )


@contextlib.contextmanager
def _building(dataset: Dataset) -> Iterator[None]:
    remedy = "See the server's log; free disk space and memory are the usual reasons."
    what = f"the dataset {dataset.kind} ({', '.join(f'{k} {v}' for k, v in dataset.parameters.items())})"
    try:
        yield
    except (CommandFailed, DeadlinePassed) as error:
        raise DatasetBuildFailed(f"{what}: {error.evidence}", remedy=remedy) from error
    except Exception as error:
        # PEP 249: the errors of every database module descend from a class called Error.
        if not any(kind.__name__ == "Error" for kind in type(error).__mro__):
            raise
        raise DatasetBuildFailed(f"{what}: {str(error).strip()}", remedy=remedy) from error


def _threads(dataset: Dataset) -> int:
    return max(1, min(len(os.sched_getaffinity(0)), _int(dataset.parameters, "tables")))


def _deadline(server: Server, dataset: Dataset) -> float:
    return STUCK_S + size_bytes(dataset, server.engine) / STUCK_RATE


def _int(parameters: dict[str, Scalar], name: str) -> int:
    return int(parameters[name])


BUILDERS: Final[dict[str, Callable[[Server, Dataset], None]]] = {
    "pgbench": _pgbench,
    "sysbench": _sysbench,
    "clone-tables": _clone_tables,
    "tpcc": tpcc.build,
    "archive": _archive,
    "none": _none,
}

# What must hold of a dataset after any load, by kind: what was checked, or DataInconsistent.
CONSISTENCY: Final[dict[str, Callable[[Server], str]]] = {"tpcc": tpcc.consistency}
