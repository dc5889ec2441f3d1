"""sysbench: every script that comes with it, and custom ones, through our wrapper that counts each event.

Parameters: clients (sysbench's threads), rate, script; every other parameter (tables, table_size, range_size,
rand_type ...) is an option of the script. Latency is from the first call of the event to its success, all attempts
included; under `rate` it has the wait in sysbench's queue too, at the width of sysbench's own buckets (1.8 %).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import catalog, process
from dbbench.clock import Clock
from dbbench.drivers import sysbench_events, sysbench_output
from dbbench.drivers.counts import Counts
from dbbench.drivers.port import Load, Outcome
from dbbench.drivers.scripts import located
from dbbench.drivers.tool import FAILED, Program, ToolLoad, outcome_of, same, whole_seconds, write_command
from dbbench.engines.port import Server
from dbbench.errors import ClientErrors, DriverFailed
from dbbench.model import Cell, Scalar
from dbbench.remote import Client
from dbbench.remote.network import ROLE

# The scripts of sysbench 1.0 that drive a dataset made by `oltp_* prepare`; bulk_insert has one of its own.
BUNDLED: Final = (
    "oltp_delete",
    "oltp_insert",
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_write_only",
    "select_random_points",
    "select_random_ranges",
)
_WRAPPER: Final = "dbbench_events.lua"
_OWN: Final = {"clients", "rate", "script", "large_bytes", "during_at", "compressibility"}
_OF_DATASET: Final = {"tables", "table_size"}  # of its parameters, those that every script knows
_NEW_ORDER: Final = 1  # the kind of workloads/tpcc.lua
_LARGEST_SEED: Final = 2**31 - 1  # an int of C; 0 would mean "take the time"


def programs() -> tuple[str, ...]:
    """What `doctor` must find."""
    return ("sysbench",)


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Run sysbench against the server. See the port."""
    argv = command(server, cell, seed)
    begin_utc = clock.now_utc()
    env = {
        "DBBENCH_BEGIN": f"{begin_utc - clock.utc + clock.monotonic:.6f}",
        **_environment(cell, _script(cell), str(scratch)),
    }
    write_command(raw / "sysbench.command", argv, env)
    stdout, stderr = _printed(raw)
    with process.running(argv, stdout=stdout, stderr=stderr, env=env, role="client") as program:
        yield _load(program, server, cell, clock, begin_utc, raw, scratch)


@contextlib.contextmanager
def driving_from(
    client: Client, server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path
) -> Iterator[Load]:
    """The same, on the client's host; DBBENCH_BEGIN is set there, by its clock. The password comes on stdin, which
    sysbench takes for its file of options: as an option itself everybody would see it."""
    script = _script(cell)
    if "/" in script:  # what it loads lies beside it
        script, *_ = [client.placed(Path(path)) for path in (script, *cell.workload.beside)]
    argv = command(server, cell, seed, client)
    env = _environment(cell, script, client.at)
    write_command(raw / "sysbench.command", argv, env)
    option = "pgsql-password" if server.engine == "postgres" else "mysql-password"
    secure = client.env if server.engine == "postgres" else {}
    program = client.start(argv, {**env, **secure}, f'{option}="{client.secret}"\n', *_printed(raw))
    yield _load(program, server, cell, clock, program.begin_utc, raw, scratch)


def _environment(cell: Cell, script: str, out: str) -> dict[str, str]:
    """What the wrapper reads, but for DBBENCH_BEGIN."""
    queue = {"DBBENCH_QUEUE": "1"} if cell.parameters.get("rate") else {}
    return {"DBBENCH_SCRIPT": script, "DBBENCH_OUT": out, **queue}


def _printed(raw: Path) -> tuple[Path, Path]:
    return raw / "sysbench.out", raw / "sysbench.err"


def _load(
    program: Program, server: Server, cell: Cell, clock: Clock, begin_utc: float, raw: Path,
    scratch: Path,
) -> ToolLoad:  # fmt: skip
    return ToolLoad(
        program=program,
        server=server,
        clock=clock,
        begin_utc=begin_utc,
        seconds=sum(whole_seconds(cell.window)),
        printed=_printed(raw),
        live=sysbench_output.live,
        aborted=lambda _line: False,  # sysbench ends as a whole when one thread fails
        judged=lambda load: _outcome(load, cell, raw, scratch),
    )


def command(server: Server, cell: Cell, seed: int, client: Client | None = None) -> list[str]:
    """The argv; the script and the counter's own settings are in the environment. With `client` it is one of that
    host, where the wrapper is sent to."""
    rate = cell.parameters.get("rate") or 0
    wrapper = catalog.shipped().resolve() / "workloads" / _WRAPPER
    return [
        client.tool if client else "sysbench",
        *(connection_from(client, server) if client else connection(server)),
        f"--threads={cell.parameters.get('clients', 1)}",
        f"--time={sum(whole_seconds(cell.window))}",
        f"--rand-seed={seed % _LARGEST_SEED or _LARGEST_SEED}",
        "--report-interval=1",
        "--percentile=95",
        *([f"--rate={rate}", "--histogram=on"] if rate else []),
        *(f"--{name}={_written(value)}" for name, value in _script_options(cell).items()),
        client.placed(wrapper) if client else str(wrapper),
        "run",
    ]


def connection(server: Server) -> list[str]:
    """Options by which sysbench reaches the server: its socket, no password."""
    if server.engine == "postgres":
        port = server.socket.name.rpartition(".")[2]
        where = [f"--pgsql-host={server.socket_dir}", f"--pgsql-port={port}"]
        return ["--db-driver=pgsql", *where, f"--pgsql-user={server.user}", f"--pgsql-db={server.database}"]
    where = [f"--mysql-socket={server.socket}", f"--mysql-user={server.user}", f"--mysql-db={server.database}"]
    return ["--db-driver=mysql", *where]


def connection_from(client: Client, server: Server) -> list[str]:
    """Options by which it reaches the server from the client's host. With --mysql-ssl sysbench 1.0 takes the
    certificates that lie in its current folder; for PostgreSQL libpq takes TLS from its environment."""
    at, tls = client.spec, ["--mysql-ssl=on"] if server.engine != "postgres" else []
    kind = "pgsql" if server.engine == "postgres" else "mysql"
    return [
        "--config-file=/dev/stdin",
        f"--db-driver={kind}",
        f"--{kind}-host={at.address}",
        f"--{kind}-port={at.port}",
        f"--{kind}-user={ROLE}",
        f"--{kind}-db={server.database}",
        *tls,
    ]


def _script(cell: Cell) -> str:
    """Name of a bundled script, or the path of a file."""
    script = str(cell.parameters.get("script") or cell.workload.script)
    return script if script in BUNDLED else str(located(script))


def _script_options(cell: Cell) -> dict[str, Scalar]:
    loaded = {name: value for name, value in cell.dataset.parameters.items() if name in _OF_DATASET}
    asked = {**loaded, **cell.workload.options, **cell.parameters}
    return {name: asked[name] for name in sorted(asked.keys() - _OWN)}


def _written(value: Scalar) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _outcome(load: ToolLoad, cell: Cell, raw: Path, scratch: Path) -> Outcome:
    """Read the counts of all threads and hold them against sysbench's own summary."""
    files, threads = sysbench_events.event_files(scratch), int(cell.parameters.get("clients", 1))
    if len(files) != threads:
        raise DriverFailed(f"{len(files)} files of counts of {threads} threads", effect=FAILED)
    printed = load.text()
    told = sysbench_output.summary(printed)
    counts = sysbench_events.parse(files, load.seconds)
    same("transactions", counts.all_transactions, told.transactions, "sysbench")
    same("ignored errors", counts.all_errors, told.errors, "sysbench", slack=threads)  # the last attempts
    if told.reconnects:
        raise ClientErrors(f"sysbench reconnected {told.reconnects} times", effect=FAILED)
    sysbench_events.keep(files, raw / "sysbench_events.txt.gz")
    if cell.parameters.get("rate"):
        queue = scratch / sysbench_events.QUEUE
        written = queue.read_text() if queue.exists() else ""
        (raw / "sysbench_queue.txt").write_text(written)
        whole_run, lived_s = sysbench_output.histogram(printed), load.lived_s or float(load.seconds)
        sysbench_events.put_queued_latencies(counts, written, whole_run, lived_s)
    outcome = outcome_of(load, cell.window, counts, reconnects=float(told.reconnects or 0), **_tpmc(cell, counts))
    if cell.workload.primary == "rows_per_s":  # an event is a statement of `rows` rows
        outcome.figures["rows_per_s"] = outcome.transactions * int(cell.parameters["rows"]) / outcome.window_s
    return outcome


def _tpmc(cell: Cell, counts: Counts) -> dict[str, float]:
    """New orders of the window a minute, those that were rolled back included (TPC-C 5.4.2)."""
    if cell.dataset.kind != "tpcc":
        return {}
    warmup, measure = whole_seconds(cell.window)
    return {"tpmc": counts.measured(warmup, warmup + measure).kinds.get(_NEW_ORDER, 0) * 60 / measure}
