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
from dbbench.model import Cell, Scalars
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
_OWN: Final = {
    "clients",
    "threads",
    "rate",
    "protocol",
    "scale",
    "large_bytes",
    "during_at",
}
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
    return _load(task, task.scratch).running("client", client_account(task.server))


def driving_from(client: Client, task: LoadTask) -> AbstractContextManager[Load]:
    """Run pgbench on the client's host."""
    return _load(task, Path(client.at), client).running_from(client, client.env)


def _load(
    task: LoadTask,
    logs: Path,
    client: Client | None = None,
) -> ToolLoad:
    argv = command(
        task.server,
        task.cell,
        task.seed,
        logs,
        client,
    )
    return ToolLoad(
        task,
        "pgbench",
        argv,
        _outcome,
        live=live,
        aborted=is_abort,
        counts_seconds=True,
    )


def command(
    server: Server,
    cell: Cell,
    seed: int,
    logs: Path,
    client: Client | None = None,
) -> list[str]:
    """Return the argv; `logs` is the directory of its logs. Built-in scripts use prepared
    statements by default: the comparison is about storage, not the parser. A user's own script
    may have statements that cannot be prepared. With `client` the argv is for that host: its own
    program, the server's address, and scripts that are sent there.
    """
    # Where pgbench runs decides how it reaches the server.
    parameters = _parameters(cell)
    if client:
        argv = [
            client.tool,
            f"--host={client.spec.address}",
            f"--port={client.spec.port}",
            f"--username={ROLE}",
        ]
    else:
        argv = [
            str(server.bin / "pgbench"),
            f"--host={server.socket_dir}",
            f"--port={server.socket.suffix[1:]}",
            f"--username={server.user}",
        ]
    # What is the same for every script.
    argv += [
        "--no-vacuum",  # the golden copy is already vacuumed
        f"--client={parameters.get('clients', 1)}",
        f"--jobs={_workers(parameters)}",
        f"--time={sum(tool.whole_seconds(cell.window))}",
    ]
    # Options that the plan may leave to pgbench.
    usual_protocol = "prepared" if _script(cell) in BUILT_IN else ""
    protocol = parameters.get("protocol", usual_protocol)
    if protocol:
        argv.append(f"--protocol={protocol}")
    argv += [
        f"--random-seed={seed}",
        "--progress=1",
        "--log",
        f"--log-prefix={logs / _PREFIX}",
    ]
    if parameters.get("rate"):
        argv.append(f"--rate={parameters['rate']}")
    argv += _script_words(cell, client.place if client else path_for_client)
    return [*argv, server.database]


def _script(cell: Cell) -> str:
    return cell.workload.script or BUILT_IN[0]


def _scripts(cell: Cell) -> tuple[str, ...]:
    files = (_script(cell), *cell.workload.beside)
    return files[: len(cell.workload.weights) or 1]


def _parameters(cell: Cell) -> Scalars:
    """Return the parameters of the cell and of a generated dataset, without the location of a
    user's own data.
    """
    if cell.dataset.kind == "source":
        return dict(cell.parameters)
    return {**cell.dataset.parameters, **cell.parameters}


def _script_words(cell: Cell, place: Callable[[Path], str]) -> list[str]:
    """Return one script, or several with their weights. `place` returns a file's path for the tool."""
    script = _script(cell)
    if script in BUILT_IN:
        return [f"--builtin={script}"]
    # Always with a weight: pgbench takes what follows the last @ of an argument for one.
    weights = cell.workload.weights or [1]
    words = []
    for file, weight in zip(_scripts(cell), weights, strict=True):
        words.append(f"--file={place(locate(file))}@{weight}")
    parameters = _parameters(cell)
    if "scale" in parameters:
        words.append(f"--scale={parameters['scale']}")
    variables = dict(cell.workload.options)
    for name in parameters.keys() - _OWN:
        variables[name] = parameters[name]
    for name, value in sorted(variables.items()):
        words.append(f"--define={name}={value}")
    return words


def _workers(parameters: Scalars) -> int:
    threads = int(parameters.get("threads", 1))
    clients = int(parameters.get("clients", 1))
    return min(threads, clients)


def _outcome(load: ToolLoad) -> Outcome:
    from dbbench.drivers.pgbench_log import log_files, parse

    cell = load.task.cell
    parameters = _parameters(cell)
    # Each worker has a log; a missing one would be transactions that nobody counts.
    logs = log_files(load.task.scratch, _PREFIX)
    workers = _workers(parameters)
    if len(logs) != workers:
        names = [log.name for log in logs]
        raise DriverFailed(f"{len(logs)} logs of {workers} workers: {names}", effect=tool.FAILED)
    counts, skipped = parse(
        logs,
        load.begin_utc + load.slip_s,
        load.seconds,
        len(_scripts(cell)),
    )
    for log in logs:
        tool.pack([log], load.task.raw / f"{log.name}.gz")

    # The logs must have as many transactions as pgbench itself counted.
    events = counts.all_transactions
    printed = tool.read_counts(COUNTS, load.text())
    tool.same(
        "transactions",
        events,
        printed["processed"],
        "pgbench",
    )
    if printed["failed"] is not None:
        tool.same(
            "failed transactions",
            counts.all_errors,
            printed["failed"],
            "pgbench",
        )
    tool.same(
        "skipped transactions",
        skipped,
        printed["skipped"] or 0,
        "pgbench",
    )

    # What dbbench knows of its own scripts, the server must confirm.
    script = _script(cell)
    custom = script not in BUILT_IN
    claims = [Claim("transactions", events, custom=custom, changes=script in _CHANGING)]
    if not custom and cell.dataset.kind != "source":  # a user's tables may have triggers
        claims += kinds(events, **_ROWS[script])
        claims += pages_of(events, int(parameters.get("scale", 0)) * _PAGES)
    names = [Path(script).stem for script in _scripts(cell)]
    outcome = tool.outcome_of(load, counts, dict(enumerate(names)))
    return replace(outcome, claims=tuple(claims))


def live(line: str) -> Live | None:
    """Parse a line of `--progress=1`: the second that ended and its tps; None for other lines."""
    match = _PROGRESS.match(line)
    if match is None:
        return None
    return Live(float(match[1]), float(match[2]), None)


def is_abort(line: str) -> bool:
    """Whether a client gave up: pgbench continues without it, with a smaller load than requested."""
    return _ABORTED.search(line) is not None
