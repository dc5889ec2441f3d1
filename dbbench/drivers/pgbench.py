"""pgbench: its built-in scripts and custom ones, every transaction from the logs of all its workers.

Latency is pgbench's: from the start of the transaction to its end, under `rate` from the scheduled start.
Parameters: clients, threads (workers of pgbench itself), rate, protocol; scale belongs to the dataset. Other
parameters of a workload with a script of its own are variables of the script (`:name`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.clock import Clock
from dbbench.drivers import pgbench_log, pgbench_output
from dbbench.drivers.port import Load, Outcome
from dbbench.drivers.scripts import located
from dbbench.drivers.tool import FAILED, Program, ToolLoad, outcome_of, same, whole_seconds, write_command
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed
from dbbench.model import Cell, Scalar
from dbbench.remote import Client
from dbbench.remote.network import ROLE

BUILT_IN: Final = ("tpcb-like", "simple-update", "select-only")
_PREFIX: Final = "pgbench_log"
_OWN: Final = {
    "clients",
    "threads",
    "rate",
    "protocol",
    "scale",
    "large_bytes",
    "during_at",
}  # what is left are variables of a custom script


def programs() -> tuple[str, ...]:
    """What `doctor` must find; pgbench comes with PostgreSQL and is taken from the server's own folder."""
    return ()


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Run pgbench against the server. See the port."""
    argv = command(server, cell, seed, scratch)
    write_command(raw / "pgbench.command", argv, {})
    begin_utc, set_by_s = clock.now_utc(), clock.slip_s()
    stdout, stderr = _printed(raw)
    with process.running(argv, stdout=stdout, stderr=stderr, role="client") as program:
        # The logs have the time of the system clock; ours is anchor + monotonic time.
        yield _load(program, server, cell, clock, begin_utc, begin_utc + set_by_s, raw, scratch)


@contextlib.contextmanager
def driving_from(
    client: Client, server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path
) -> Iterator[Load]:
    """The same, on the client's host: the logs have the time of its clock."""
    argv = command(server, cell, seed, Path(client.at), client)
    write_command(raw / "pgbench.command", argv, {})
    program = client.start(argv, client.env, "", *_printed(raw))
    yield _load(program, server, cell, clock, program.begin_utc, program.there_utc, raw, scratch)


def _printed(raw: Path) -> tuple[Path, Path]:
    return raw / "pgbench.out", raw / "pgbench.err"


def _load(
    program: Program, server: Server, cell: Cell, clock: Clock, begin_utc: float,
    begin_in_logs: float, raw: Path, scratch: Path,
) -> ToolLoad:  # fmt: skip
    return ToolLoad(
        program=program,
        server=server,
        clock=clock,
        begin_utc=begin_utc,
        seconds=sum(whole_seconds(cell.window)),
        printed=_printed(raw),
        live=pgbench_output.live,
        aborted=pgbench_output.aborted,
        judged=lambda load: _outcome(load, cell, begin_in_logs, raw, scratch),
    )


def command(server: Server, cell: Cell, seed: int, logs: Path, client: Client | None = None) -> list[str]:
    """The argv; `logs` is the folder of its logs. Prepared statements by default: what is compared is storage, not the
    parser. With `client` it is one of that host: its own program, the server's address, scripts that are sent there."""
    parameters = _parameters(cell)
    rate = parameters.get("rate") or 0
    port, placed = server.socket.name.rpartition(".")[2], client.placed if client else str
    return [
        client.tool if client else str(server.bin / "pgbench"),
        f"--host={client.spec.address if client else server.socket_dir}",
        f"--port={client.spec.port if client else port}",
        f"--username={ROLE if client else server.user}",
        "--no-vacuum",  # the golden copy is vacuumed
        f"--client={parameters.get('clients', 1)}",
        f"--jobs={_workers(parameters)}",
        f"--time={sum(whole_seconds(cell.window))}",
        f"--protocol={parameters.get('protocol', 'prepared')}",
        f"--random-seed={seed}",
        "--progress=1",
        "--log",
        f"--log-prefix={logs / _PREFIX}",
        *([f"--rate={rate}"] if rate else []),
        *_script(cell, parameters, placed),
        server.database,
    ]


def _parameters(cell: Cell) -> dict[str, Scalar]:
    """The cell's, and those of a generated dataset; what says where a user's own data lay is no script's."""
    return {**(cell.dataset.parameters if cell.dataset.kind != "source" else {}), **cell.parameters}


def _script(cell: Cell, parameters: dict[str, Scalar], placed: Callable[[Path], str]) -> list[str]:
    """One script, or several that are drawn from by their weights. `placed`: where a file is for the tool."""
    script = cell.workload.script or BUILT_IN[0]
    if script in BUILT_IN:
        return [f"--builtin={script}"]
    variables = {**cell.workload.options, **{name: parameters[name] for name in parameters.keys() - _OWN}}
    files, weights = (script, *cell.workload.beside), cell.workload.weights
    weighted = [f"{placed(located(file))}@{weight}" for file, weight in zip(files, weights, strict=False)]
    return [
        *(f"--file={file}" for file in weighted or (placed(located(script)),)),
        *([f"--scale={parameters['scale']}"] if "scale" in parameters else []),
        *(f"--define={name}={value}" for name, value in sorted(variables.items())),
    ]


def _workers(parameters: dict[str, Scalar]) -> int:
    """Threads of pgbench; it cannot have more of them than clients."""
    return min(int(parameters.get("threads", 1)), int(parameters.get("clients", 1)))


def _outcome(load: ToolLoad, cell: Cell, begin_utc: float, raw: Path, scratch: Path) -> Outcome:
    """Read the logs of all workers and hold them against pgbench's own summary."""
    logs, workers = pgbench_log.log_files(scratch, _PREFIX), _workers(_parameters(cell))
    if len(logs) != workers:
        raise DriverFailed(f"{len(logs)} logs of {workers} workers: {[log.name for log in logs]}", effect=FAILED)
    counts, skipped = pgbench_log.parse(logs, begin_utc, load.seconds)
    pgbench_log.keep(logs, raw)
    told = pgbench_output.summary(load.text())
    same("transactions", counts.all_transactions, told.processed, "pgbench")
    if told.failed is not None:
        same("failed transactions", counts.all_errors, told.failed, "pgbench")
    same("skipped transactions", skipped, told.skipped or 0, "pgbench")
    return outcome_of(load, cell.window, counts)
