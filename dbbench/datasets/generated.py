"""Generated datasets: their parameters, so that equal datasets have equal keys, their size, and how
they are loaded.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dbbench import process
from dbbench.datasets import tpcc
from dbbench.drivers import statements
from dbbench.drivers.protocol import client_account
from dbbench.engines import profile_of, sql_of
from dbbench.engines.port import Server
from dbbench.engines.sql import cursor_of, execute
from dbbench.errors import CommandFailed, DatasetBuildFailed, DeadlinePassed, PlanInvalid
from dbbench.model import Dataset, Scalar, Scalars
from dbbench.model.base import PACKED
from dbbench.model.run import COPIED
from dbbench.units import bytes_of

TABLESPACE: Final = "tablespace"  # a parameter: puts only the tables on the filesystem under test

PARAMETERS: Final[dict[str, Scalars]] = {
    # `rows` of clone-tables: 0 means as many as fill `table_bytes`. `large_bytes`: size of a table
    # that no load uses.
    "pgbench": {"scale": 1, "fillfactor": 100, "large_bytes": 0},
    "sysbench": {"tables": 1, "table_size": 10000, "seed": 1, "large_bytes": 0},
    "clone-tables": {"tables": 1, "table_bytes": 64 * 2**20, "rows": 0, "seed": 1, TABLESPACE: ""},
    "tpcc": tpcc.PARAMETERS,
    # includes the parameters of the engine's generated kind: `scale` of pgbench, `tables` and
    # `table_size` of sysbench
    "archive": {"scale": 1, "tables": 1, "table_size": 10000, "seed": 1, "log_bytes": 64 * 2**20},
    "none": {},
}

# Bytes on disk, measured on PostgreSQL 15, MariaDB 10.11 and MySQL 9.7: one unit of pgbench's scale
# with indexes at fillfactor 100; a row of sysbench with both indexes on InnoDB (PostgreSQL needs
# 255); a row of a clone table on PostgreSQL (15 % more on InnoDB, whose pages are not full).
SCALE_BYTES: Final = 15_700_000
SYSBENCH_ROW_BYTES: Final = 305
CLONE_ROW_BYTES: Final = 256

# A program that loads fewer bytes per second than this is stuck; slow disks and machines load ten
# times as many.
STUCK_RATE: Final = 500_000
STUCK_S: Final = 600.0

# 7919 is a prime, so that neighbouring rows use different texts of the pool; the hash makes every
# row unique.
_ROW: Final = "n, n * 48271 % 10000, concat(p.body, ' ', left({hash}, 32))"
_JOIN: Final = f"JOIN clone_pool p ON p.id = (n * 7919) % {statements.POOL_ROWS}"
_READ_LOG: Final = "Read the server log. Frequent causes are a full disk and too little memory."
LARGE: Final = "large_table"
NAME: Final = "compressibility"
# Rows with a given compressibility consist of incompressible noise and a compressible constant.
# `share` is 1 - compressed / whole for a table's file under zlib level 1. Page headers compress
# well and indexes less so, which `Profile.compressed` has measured; the manifest contains the value
# achieved.
# bytes in `body` of a clone table; with 48 others on PostgreSQL a row has CLONE_ROW_BYTES
BODY: Final = 208
COLUMNS: Final = (119, 59)  # characters in sysbench's columns c and pad


def fill_in(dataset: Dataset, engine: str) -> Dataset:
    """Return the dataset with all parameters of its kind, sizes in bytes. Raises PlanInvalid for
    one that is unknown, impossible, or not supported by this engine.
    """
    kind = dataset.kind
    profile = profile_of(engine)
    if kind == "source":
        return dataset
    if kind not in profile.datasets:
        raise PlanInvalid(f"a dataset of kind {kind} cannot be loaded into {engine}")
    # The defaults of the kind, with what the plan or the workload says.
    parameters = {
        **PARAMETERS[kind],
        **{name: _value(kind, name, value) for name, value in dataset.parameters.items()},
    }
    space = str(parameters.get(TABLESPACE, ""))
    if space:
        if not profile.tablespaces:
            raise PlanInvalid(f'{engine} does not support "tablespace"')
        if space.startswith("pg_") or not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", space):
            raise PlanInvalid(
                f'"{space}" is not a name for a tablespace: use lower-case letters, digits and _'
            )
    # Nothing at all cannot be loaded or measured.
    for name in ("scale", "tables", "warehouses", "districts", "customers", "items"):
        if parameters.get(name, 1) == 0:
            raise PlanInvalid(f'"{name}" of the dataset must be 1 or more')

    # What has no effect does not belong to the key of the copy.
    without_effect = {name for name in ("large_bytes", TABLESPACE) if not parameters.get(name)}
    if kind == "clone-tables":
        rows = int(parameters["table_bytes"]) // CLONE_ROW_BYTES
        parameters["rows"] = parameters["rows"] or max(1, rows)
        without_effect.add("table_bytes")
    if kind == "archive":
        without_effect |= {"scale", "tables", "table_size"} - PARAMETERS[profile.generated].keys()
    names = sorted(parameters.keys() - without_effect)
    return Dataset(kind, {name: parameters[name] for name in names})


def _value(kind: str, name: str, value: Scalar) -> Scalar:
    defaults = PARAMETERS[kind]
    if name == NAME and kind in PACKED:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise PlanInvalid(f'"{NAME}" of the dataset must be between 0 and 1, not {value!r}')
        return float(value)
    if name not in defaults:
        raise PlanInvalid(
            f'a dataset of kind {kind} has no parameter "{name}" (parameters: '
            f"{', '.join(defaults)})"
        )
    if name == TABLESPACE:
        return str(value)
    try:
        return bytes_of(value)
    except ValueError as error:
        raise PlanInvalid(f'"{name}" of the dataset is invalid: {error}') from None


def size_bytes(dataset: Dataset, engine: str) -> int:
    """Estimate the size of its data directory in bytes, rather too large."""
    parameters = fill_in(dataset, engine).parameters
    loaded = int(parameters.get("large_bytes", 0)) * 115 // 100
    match dataset.kind:
        case "pgbench":
            scale_bytes = int(parameters["scale"]) * SCALE_BYTES
            loaded += scale_bytes * 100 // max(10, int(parameters["fillfactor"]))
        case "sysbench":
            rows = int(parameters["tables"]) * int(parameters["table_size"])
            loaded += rows * SYSBENCH_ROW_BYTES
        case "clone-tables":
            rows = int(parameters["tables"]) * int(parameters["rows"])
            loaded += rows * CLONE_ROW_BYTES * 115 // 100
        case "tpcc":
            loaded += tpcc.loaded_bytes(parameters)
        # the standby's size at the end: rows added by the log are smaller than the log
        case "archive":
            base = _base(fill_in(dataset, engine), engine)
            return size_bytes(base, engine) + int(parameters["log_bytes"])
        case "source" if COPIED in parameters:
            return int(parameters[COPIED])
        case "source":
            loaded = int(parameters["bytes"])
    return profile_of(engine).empty_bytes + loaded * 11 // 10


def building_bytes(dataset: Dataset, engine: str) -> int:
    """Estimate the cache space for building it; for an archive with primary, base copy, and the log
    twice.
    """
    complete = fill_in(dataset, engine)
    more = int(complete.parameters["log_bytes"]) if complete.kind == "archive" else 0
    return size_bytes(dataset, engine) * (2 if more else 1) + more


def build(server: Server, dataset: Dataset) -> None:
    """Load the dataset into the server's database and vacuum, freeze and analyse it. Raises
    DatasetBuildFailed.
    """
    dataset = fill_in(dataset, server.engine)
    try:
        # Of an archive the primary's dataset is loaded; `archive.record` then makes its log.
        base = _base(dataset, server.engine) if dataset.kind == "archive" else dataset
        if base.kind in BUILDERS:
            BUILDERS[base.kind](server, base)
        large_bytes = int(dataset.parameters.get("large_bytes", 0))
        if large_bytes:
            _fill(server, [LARGE], max(1, large_bytes // CLONE_ROW_BYTES), seed=1)
        if profile_of(server.engine).has_server:
            sql = sql_of(server)
            with contextlib.closing(server.connect()) as connection:
                tables = [sql.quote(table.name) for table in sql.tables(connection)]
            execute(server, *sql.finish(*tables))
    except Exception as error:
        # By PEP 249, the errors of every database module descend from a class named Error.
        of_server = any(kind.__name__ == "Error" for kind in type(error).__mro__)
        if not of_server and not isinstance(error, CommandFailed | DeadlinePassed):
            raise
        parameters = ", ".join(f"{name} {value}" for name, value in dataset.parameters.items())
        raise DatasetBuildFailed(
            f"the dataset {dataset.kind} ({parameters}): {str(error).strip()}",
            remedy=error.remedy if isinstance(error, DeadlinePassed) else _READ_LOG,
        ) from error


def _run(server: Server, dataset: Dataset, *argv: object) -> None:
    limit_s = STUCK_S + size_bytes(dataset, server.engine) / STUCK_RATE
    process.run(
        list(map(str, argv)),
        timeout_s=limit_s,
        as_user=client_account(server),
    )


def _pgbench(server: Server, dataset: Dataset) -> None:
    # Step "g" sends rows with COPY FREEZE, which writes each page once and, with wal_level =
    # minimal, no WAL.
    parameters = dataset.parameters
    _run(
        server,
        dataset,
        server.bin / "pgbench",
        "--initialize",
        "--init-steps=dtgvp",
        "--quiet",
        f"--scale={parameters['scale']}",
        f"--fillfactor={parameters['fillfactor']}",
        f"--host={server.socket_dir}",
        f"--username={server.user}",
        server.database,
    )


def _sysbench(server: Server, dataset: Dataset) -> None:
    parameters = dataset.parameters
    sql = sql_of(server)
    # sysbench fills the tables itself unless their compressibility is chosen.
    share = parameters.get(NAME)
    tables = int(parameters["tables"])
    size = parameters["table_size"]
    threads = _threads(tables)
    _run(
        server,
        dataset,
        "sysbench",
        "oltp_read_write",
        *sql.login(server),
        f"--tables={tables}",
        f"--table-size={size if share is None else 0}",
        f"--rand-seed={parameters['seed']}",
        f"--threads={threads}",
        "prepare",
    )
    if share is None:
        return

    # sysbench made empty tables, which get rows of the requested compressibility.
    noise_share = noise("sysbench", server.engine, float(share))
    columns = ["n", f"n * 48271 % {size} + 1"]
    for salt, length in enumerate(COLUMNS):
        part = round(length * noise_share)
        columns.append(sql.noisy_text(part, length - part, salt))
    row = ", ".join(columns)
    for number in range(1, tables + 1):
        table = f"sbtest{number}"
        execute(
            server,
            *sql.fill(table, "id, k, c, pad", row, int(size)),
            *sql.set_number(table, int(size)),
        )


def _base(dataset: Dataset, engine: str) -> Dataset:
    kind = profile_of(engine).generated
    names = PARAMETERS[kind].keys() & dataset.parameters.keys()
    return fill_in(Dataset(kind, {name: dataset.parameters[name] for name in names}), engine)


def _clone_tables(server: Server, dataset: Dataset) -> None:
    parameters = dataset.parameters
    sql = sql_of(server)
    tables = [f"clone_{number}" for number in range(1, int(parameters["tables"]) + 1)]
    rows = int(parameters["rows"])
    with _in_tablespace(server, str(parameters.get(TABLESPACE, ""))):
        if NAME in parameters:
            size = round(BODY * noise("clone-tables", server.engine, float(parameters[NAME])))
            row = f"n, n * 48271 % 10000, {sql.noisy_bytes(size, BODY - size)}"
            for table in tables:
                execute(server, *sql.clone(table, row, rows, packed=True))
        else:
            _fill(server, tables, rows, int(parameters["seed"]))


@contextlib.contextmanager
def _in_tablespace(server: Server, name: str) -> Iterator[None]:
    """Create PostgreSQL's tablespace within the data directory; tables that the block creates are
    in it.
    """
    if not name:
        yield
        return
    execute(
        server,
        "SET allow_in_place_tablespaces = on",
        f"CREATE TABLESPACE {name} LOCATION ''",
        f"ALTER DATABASE {server.database} SET default_tablespace = {name}",
    )
    yield
    execute(server, f"ALTER DATABASE {server.database} RESET default_tablespace")


def _fill(server: Server, tables: Sequence[str], rows: int, seed: int) -> None:
    """Make these tables. dbbench sends a pool of distinct texts, from which the server generates
    all rows.
    """
    execute(server, "CREATE TABLE clone_pool (id integer PRIMARY KEY, body varchar(400) NOT NULL)")
    with cursor_of(server) as cursor:
        for number, text in enumerate(statements.pool(seed)):
            cursor.execute("INSERT INTO clone_pool VALUES (%s, %s)", (number, text))
    sql = sql_of(server)
    execute(server, *sql.analyse("clone_pool"))
    row = _ROW.format(hash=sql.row_hash)

    def make(table: str) -> None:
        execute(server, *sql.clone(table, row, rows, _JOIN))

    with ThreadPoolExecutor(_threads(len(tables))) as pool:
        list(pool.map(make, tables))
    execute(server, "DROP TABLE clone_pool")


def _threads(tables: int) -> int:
    return max(1, min(len(os.sched_getaffinity(0)), tables))


BUILDERS: Final[dict[str, Callable[[Server, Dataset], None]]] = {
    "pgbench": _pgbench,
    "sysbench": _sysbench,
    "clone-tables": _clone_tables,
    "tpcc": tpcc.build,
}


def noise(kind: str, engine: str, share: float) -> float:
    """Return which share of the columns, 0 to 1, must be noise for the nearest possible
    compressibility to `share`.
    """
    all_noise, no_noise = profile_of(engine).compressed[kind]
    return min(1.0, max(0.0, (no_noise - share) / (no_noise - all_noise)))
