"""pgbench: its built-in scripts and custom ones, with every transaction from the logs of all its
workers. Latency is pgbench's: from the start of the transaction to its end, with `rate` from the
scheduled start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench.drivers import tool
from dbbench.drivers.protocol import Live, Load, LoadTask, client_account, locate, path_for_client
from dbbench.drivers.tool import ToolLoad
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Claim, Outcome, kinds, pages_of
from dbbench.model import Cell, Scalar
from dbbench.remote import Client
from dbbench.remote.network import ROLE

BUILT_IN: Final = ("tpcb-like", "simple-update", "select-only")
_CHANGING: Final = ("tpcb-like", "simple-update")  # each transaction inserts a row
# Rows that a transaction of a built-in script works on. One of them is in pgbench_accounts, chosen
# uniformly.
_ROWS: Final[dict[str, dict[str, int]]] = {
    "tpcb-like": {"read": 4, "updated": 3, "rows": 1},
    "simple-update": {"read": 2, "updated": 1, "rows": 1},
    "select-only": {"read": 1},
}
_PAGES: Final = 1600  # of pgbench_accounts, for each unit of scale
_PREFIX: Final = "pgbench_log"
# All other parameters are variables of a custom script.
_OWN: Final = {"clients", "threads", "rate", "protocol", "scale", "large_bytes", "during_at"}
_PROGRESS: Final = re.compile(r"progress: (\d+(?:\.\d+)?) s, (\d+(?:\.\d+)?) tps")
# "client 3 script 0 aborted in command 2 query 0: ERROR: ..."
_ABORTED: Final = re.compile(r"client \d+ (?:script \d+ )?aborted|Run was aborted")
COUNTS: Final = {
    "processed": re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE),
    "failed": re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE),
    "skipped": re.compile(r"^number of transactions skipped: (\d+)", re.MULTILINE),
}


def driving(task: LoadTask) -> AbstractContextManager[Load]:
    """Run pgbench against the server. See `protocol.Driver`."""
    task.scratch.chmod(0o777)  # pgbench runs under another account and writes its logs there
    load = _load(task, command(task.server, task.cell, task.seed, task.scratch))
    return load.running("client", client_account(task.server))


def driving_from(client: Client, task: LoadTask) -> AbstractContextManager[Load]:
    """Run pgbench on the client's host."""
    load = _load(task, command(task.server, task.cell, task.seed, Path(client.at), client))
    return load.running_from(client, client.env)


def _load(task: LoadTask, argv: list[str]) -> ToolLoad:
    return ToolLoad(task, "pgbench", argv, _outcome, live=live, aborted=is_abort)


def command(
    server: Server, cell: Cell, seed: int, logs: Path, client: Client | None = None
) -> list[str]:
    """Return the argv; `logs` is the directory of its logs. Built-in scripts use prepared
    statements by default: the comparison is about storage, not the parser. A user's own script
    may have statements that cannot be prepared. With `client` the argv is for that host: its own
    program, the server's address, and scripts that are sent there.
    """
    parameters = _parameters(cell)
    protocol = parameters.get(
        "protocol", "prepared" if (cell.workload.script or BUILT_IN[0]) in BUILT_IN else ""
    )
    rate = parameters.get("rate") or 0
    port = server.socket.name.rpartition(".")[2]
    placed = client.place if client else path_for_client
    return [
        client.tool if client else str(server.bin / "pgbench"),
        f"--host={client.spec.address if client else server.socket_dir}",
        f"--port={client.spec.port if client else port}",
        f"--username={ROLE if client else server.user}",
        "--no-vacuum",  # the golden copy is already vacuumed
        f"--client={parameters.get('clients', 1)}",
        f"--jobs={_workers(parameters)}",
        f"--time={sum(tool.whole_seconds(cell.window))}",
        *([f"--protocol={protocol}"] if protocol else []),
        f"--random-seed={seed}",
        "--progress=1",
        "--log",
        f"--log-prefix={logs / _PREFIX}",
        *([f"--rate={rate}"] if rate else []),
        *_script(cell, parameters, placed),
        server.database,
    ]


def _parameters(cell: Cell) -> dict[str, Scalar]:
    """Return the parameters of the cell and of a generated dataset, without the location of a
    user's own data.
    """
    return {**(cell.dataset.parameters if cell.dataset.kind != "source" else {}), **cell.parameters}


def _script(cell: Cell, parameters: dict[str, Scalar], placed: Callable[[Path], str]) -> list[str]:
    """Return one script, or several with their weights. `placed`: the path of a file for the tool."""
    script = cell.workload.script or BUILT_IN[0]
    if script in BUILT_IN:
        return [f"--builtin={script}"]
    variables = {
        **cell.workload.options,
        **{name: parameters[name] for name in parameters.keys() - _OWN},
    }
    files = (script, *cell.workload.beside)
    weights = cell.workload.weights
    # Always with a weight: pgbench takes what follows the last @ of an argument for one.
    weighted = zip(files, weights or [1], strict=False)
    return [
        *(f"--file={placed(locate(file))}@{weight}" for file, weight in weighted),
        *([f"--scale={parameters['scale']}"] if "scale" in parameters else []),
        *(f"--define={name}={value}" for name, value in sorted(variables.items())),
    ]


def _workers(parameters: dict[str, Scalar]) -> int:
    return min(int(parameters.get("threads", 1)), int(parameters.get("clients", 1)))


def _outcome(load: ToolLoad) -> Outcome:
    from dbbench.drivers.pgbench_log import log_files, parse

    cell = load.task.cell
    logs = log_files(load.task.scratch, _PREFIX)
    workers = _workers(_parameters(cell))
    if len(logs) != workers:
        raise DriverFailed(
            f"{len(logs)} logs of {workers} workers: {[log.name for log in logs]}",
            effect=tool.FAILED,
        )
    counts, skipped = parse(logs, load.begin_utc + load.slip_s, load.seconds)
    for log in logs:
        tool.pack([log], load.task.raw / f"{log.name}.gz")
    printed = tool.read_counts(COUNTS, load.text())
    tool.same("transactions", counts.all_transactions, printed["processed"], "pgbench")
    if printed["failed"] is not None:
        tool.same("failed transactions", counts.all_errors, printed["failed"], "pgbench")
    tool.same("skipped transactions", skipped, printed["skipped"] or 0, "pgbench")
    script = cell.workload.script or BUILT_IN[0]
    events = counts.all_transactions
    claim = Claim(
        "transactions", events, custom=script not in BUILT_IN, changes=script in _CHANGING
    )
    work = kinds(events, **_ROWS.get(script, {}))
    pages = (
        pages_of(events, int(_parameters(cell).get("scale", 0)) * _PAGES) if script in _ROWS else ()
    )
    generated = cell.dataset.kind != "source"  # a user's tables may have triggers
    return replace(
        tool.outcome_of(load, counts), claims=(claim, *((*work, *pages) if generated else ()))
    )


def live(line: str) -> Live | None:
    """Parse a line of `--progress=1`: the second that ended and its tps; None for other lines."""
    match = _PROGRESS.match(line)
    return Live(round(float(match[1])), float(match[2]), None) if match else None


def is_abort(line: str) -> bool:
    """Whether a client gave up: pgbench continues without it, with a smaller load than requested."""
    return _ABORTED.search(line) is not None
