"""sysbench: its own scripts and custom ones, through a wrapper that counts each event. Latency is
from the first call of the event to its success; with `rate` it includes the wait in sysbench's
queue (in buckets of 1.8 %).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dbbench.drivers import tool
from dbbench.drivers.protocol import Live, Load, LoadTask, client_account, locate, path_for_client
from dbbench.drivers.tool import ToolLoad
from dbbench.engines import sql_of
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed
from dbbench.metrics.histogram import percentile_ms
from dbbench.metrics.outcome import Claim, Outcome, kinds, pages_of
from dbbench.metrics.table import TPCC
from dbbench.model import Cell, Figures, Scalar, Scalars, TrialWarning
from dbbench.model.base import data_folder
from dbbench.remote import Client
from dbbench.remote.network import ROLE

if TYPE_CHECKING:
    from dbbench.metrics.counts import Counts

# The scripts of sysbench 1.0 that use the tables of `oltp_* prepare`; bulk_insert creates other
# tables.
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
# Of these, the scripts whose events are transactions of several statements, unless skip_trx is set.
_EXPLICIT: Final = ("oltp_read_only", "oltp_read_write", "oltp_write_only")
# What the wrapper counts of such a transaction, by kind.
_PARTS: Final = {1: "reads", 2: "writes", 3: "commits"}
_CHANGING: Final = (
    "oltp_insert",
    "oltp_read_write",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_write_only",
)
# with updates, and rows that are deleted and inserted again
_UPDATING: Final = ("oltp_read_write", "oltp_write_only")
# with one query for each event
_SINGLE: Final = ("oltp_point_select", "select_random_points", "select_random_ranges")
_ROWS_PER_PAGE: Final = 100  # at most: 40 in PostgreSQL's pages of 8 KiB, 75 in InnoDB's of 16 KiB
_WRAPPER: Final = "dbbench_events.lua"
_OWN_SCRIPTS: Final = ("bulk_insert.lua", "tpcc.lua")  # shipped with dbbench
_OWN: Final = {
    "clients",
    "rate",
    "script",
    "large_bytes",
    "during_at",
    "compressibility",
}
# parameters of the dataset that every script has as options
_OF_DATASET: Final = {"tables", "table_size"}
_NEW_ORDER: Final = 1  # the kind of a new-order transaction in workloads/tpcc.lua
_LARGEST_SEED: Final = 2**31 - 1  # the seed is a C int; 0 would seed from the current time
# [ 1s ] thds: 4 tps: 1273.01 qps: ... lat (ms,95%): 4.82 err/s: 0.00 reconn/s: 0.00
_SECOND: Final = re.compile(
    r"\[ (\d+)s \] thds: \d+ tps: (\d+(?:\.\d+)?) .*lat \(ms,95%\): (\d+(?:\.\d+)?)"
)
COUNTS: Final = {
    "transactions": re.compile(r"^ +transactions: +(\d+) ", re.MULTILINE),
    "errors": re.compile(r"^ +ignored errors: +(\d+) ", re.MULTILINE),
    "queries": re.compile(r"^ +queries: +(\d+) ", re.MULTILINE),
    "reconnects": re.compile(r"^ +reconnects: +(\d+) ", re.MULTILINE),
}
_BAR: Final = re.compile(r"^ *(\d+(?:\.\d+)?) \|[* ]* (\d+)$", re.MULTILINE)


def driving(task: LoadTask) -> AbstractContextManager[Load]:
    """Run sysbench against the server. See `protocol.Driver`."""
    script = _place_script(task.cell, path_for_client)
    task.scratch.chmod(0o777)  # sysbench runs under another account and writes its counts there
    argv = command(task.server, task.cell, task.seed)
    env = _environment(task.cell, script, str(task.scratch))
    load = _load(task, argv, env)
    begin = load.begin_utc - task.clock.utc + task.clock.monotonic
    load.env = {"DBBENCH_BEGIN": f"{begin:.6f}", **env}
    return load.running("client", client_account(task.server))


def driving_from(client: Client, task: LoadTask) -> AbstractContextManager[Load]:
    """The clock of the client's host sets DBBENCH_BEGIN. The password is on stdin: others could
    read an option.
    """
    script = _place_script(task.cell, client.place)
    argv = command(task.server, task.cell, task.seed, client)
    env = _environment(task.cell, script, client.at)
    load = _load(task, argv, env)
    sql = sql_of(task.server)
    secrets = {} if sql.sysbench_tls else client.env
    password = f'{sql.sysbench}-password="{client.secret}"\n'
    return load.running_from(client, secrets, password)


def _place_script(cell: Cell, place: Callable[[Path], str]) -> str:
    """Return the path of the script for the tool. Files that the script loads must be beside it."""
    script = _script(cell)
    if "/" not in script:
        return script
    placed = place(Path(script))
    for path in cell.workload.beside:
        place(Path(path))
    return placed


def _environment(
    cell: Cell,
    script: str,
    out: str,
) -> dict[str, str]:
    """Return the wrapper's environment, except for DBBENCH_BEGIN."""
    env = {"DBBENCH_SCRIPT": script, "DBBENCH_OUT": out}
    options = _words(_implicit_parameters(cell))
    if options:
        env["DBBENCH_OPTIONS"] = " ".join(options)
    if cell.parameters.get("rate"):
        env["DBBENCH_QUEUE"] = "1"
    if script in _EXPLICIT:
        env["DBBENCH_PARTS"] = "1"
    return env


def _load(
    task: LoadTask,
    argv: list[str],
    env: dict[str, str],
) -> ToolLoad:
    # Without `aborted`: sysbench ends as a whole when one thread fails.
    return ToolLoad(task, "sysbench", argv, _outcome, env, live, counts_seconds=True)


def command(
    server: Server,
    cell: Cell,
    seed: int,
    client: Client | None = None,
) -> list[str]:
    """Return the argv; the environment has the script. With `client` it is for that host, which
    gets the wrapper.
    """
    wrapper = data_folder().resolve() / "workloads" / _WRAPPER
    if client:
        argv = [client.tool, *connection_from(client, server)]
        script = client.place(wrapper)
    else:
        argv = ["sysbench", *sql_of(server).login(server)]
        script = path_for_client(wrapper)
    argv += [
        f"--threads={cell.parameters.get('clients', 1)}",
        f"--time={sum(tool.whole_seconds(cell.window))}",
        f"--rand-seed={seed % _LARGEST_SEED or _LARGEST_SEED}",
        "--report-interval=1",
        "--percentile=95",
    ]
    rate = cell.parameters.get("rate")
    if rate:
        argv += [f"--rate={rate}", "--histogram=on"]
    options = [f"--{word}" for word in _words(_script_options(cell))]
    return [*argv, *options, script, "run"]


def connection_from(client: Client, server: Server) -> list[str]:
    """Return the options for the server's address. With --mysql-ssl sysbench 1.0 uses the
    certificates in its current directory; for PostgreSQL libpq takes TLS from the environment.
    """
    address = client.spec
    sql = sql_of(server)
    kind = sql.sysbench
    return [
        "--config-file=/dev/stdin",
        f"--db-driver={kind}",
        f"--{kind}-host={address.address}",
        f"--{kind}-port={address.port}",
        f"--{kind}-user={ROLE}",
        f"--{kind}-db={server.database}",
        *sql.sysbench_tls,
    ]


def one_session_each(cell: Cell) -> bool:
    """Whether each thread of the script opens one session; this is not known for a user's own
    script.
    """
    return _script_name(cell) in (*BUNDLED, *_OWN_SCRIPTS)


def _script_name(cell: Cell) -> str:
    return str(cell.parameters.get("script") or cell.workload.script)


def _script(cell: Cell) -> str:
    script = _script_name(cell)
    if script in BUNDLED:
        return script
    return str(locate(script))


def _script_options(cell: Cell) -> Scalars:
    options = dict(cell.values)
    for name in _OF_DATASET & cell.dataset.parameters.keys():
        options.setdefault(name, cell.dataset.parameters[name])
    names = options.keys() - _OWN - _implicit_parameters(cell).keys()
    return {name: options[name] for name in sorted(names)}


def _implicit_parameters(cell: Cell) -> Scalars:
    """Return the parameters of the dataset that a user's own script gets only if it has options of
    these names.
    """
    if one_session_each(cell):
        return {}
    values = {**cell.dataset.parameters, **cell.parameters}
    workload = cell.workload
    of_dataset = {*_OF_DATASET, *workload.dataset} & values.keys()
    explicit = {*workload.options, *workload.parameters}
    names = of_dataset - _OWN - explicit
    return {name: values[name] for name in sorted(names)}


def _words(options: Mapping[str, Scalar]) -> list[str]:
    return [f"{name}={_option_text(value)}" for name, value in options.items()]


def _option_text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _outcome(load: ToolLoad) -> Outcome:
    from dbbench.drivers.sysbench_events import QUEUE, event_files, parse, put_queued_latencies

    # Each thread has a file; a missing one would be events that nobody counts.
    cell = load.task.cell
    raw = load.task.raw
    scratch = load.task.scratch
    files = event_files(scratch)
    threads = int(cell.parameters.get("clients", 1))
    if len(files) != threads:
        raise DriverFailed(f"{len(files)} result files for {threads} threads", effect=tool.FAILED)

    # The wrapper's counts must be those of sysbench itself, but for the threads' last attempts.
    printed = load.text()
    totals = tool.read_counts(COUNTS, printed)
    counts = parse(files, load.seconds, load.late_s)
    events = counts.all_transactions
    tool.same(
        "transactions",
        events,
        totals["transactions"],
        "sysbench",
    )
    tool.same(
        "ignored errors",
        counts.all_errors,
        totals["errors"],
        "sysbench",
        slack=threads,
    )
    if totals["reconnects"]:
        raise DriverFailed(f"sysbench reconnected {totals['reconnects']} times", effect=tool.FAILED)
    tool.pack(files, raw / "sysbench_events.txt.gz")

    # With `rate`, latencies include the wait in sysbench's queue.
    if cell.parameters.get("rate"):
        queue = scratch / QUEUE
        written = tool.read_output(queue) if os.path.lexists(queue) else ""
        (raw / "sysbench_queue.txt").write_text(written)
        lived_s = load.lived_s or float(load.seconds)
        put_queued_latencies(counts, written, histogram(printed), lived_s, load.late_s)

    # The outcome, with what a script of dbbench's counts in addition.
    # The wait in the queue is not known by transaction.
    types = _PARTS if _script(cell) in _EXPLICIT else {}
    if cell.dataset.kind == "tpcc" and not cell.parameters.get("rate"):
        types = dict(enumerate(TPCC, _NEW_ORDER))
    outcome = tool.outcome_of(
        load,
        counts,
        types,
        reconnects=0.0,
        **_tpcc(cell, counts),
    )
    if cell.workload.primary == "rows_per_s":  # an event is a statement that inserts `rows` rows
        rows = outcome.transactions * int(cell.parameters["rows"])
        outcome.figures["rows_per_s"] = rows / outcome.window_s
    statements = (totals["queries"] or 0) / max(1, totals["transactions"] or 0)

    # Of dbbench_recorded.lua; each thread finds it out for itself.
    left_out: dict[str, TrialWarning] = {}
    for line in printed.splitlines():
        if line.startswith("left out: "):
            statement = line.partition("): ")[0]
            left_out[statement] = TrialWarning("W019", line)
    return replace(
        outcome,
        warnings=(*outcome.warnings, *left_out.values()),
        claims=claims(cell, events, statements),
    )


def claims(
    cell: Cell,
    events: int,
    statements: float,
) -> tuple[Claim, ...]:
    """Return the work of all events in the server's units. `statements`: per event, as sysbench
    counted them.
    """
    script = _script(cell)
    options = _script_options(cell)
    generated = cell.dataset.kind != "source"  # then the rows that a script changes exist
    if cell.workload.primary == "rows_per_s":
        rows = events * int(cell.parameters["rows"])
        return (Claim("statements", events, changes=True), Claim("rows", rows))
    if cell.dataset.kind == "tpcc":
        return (Claim("transactions", events, changes=True),)
    if script not in BUNDLED:
        return (Claim("statements", events, custom=True),)
    changes = script in _CHANGING and generated
    transactions = script in _EXPLICIT
    if transactions and _option_text(_option(options, "skip_trx", "off")) in ("on", "1", "true"):
        # statements, most of which only read
        claim = Claim("statements", events * max(1.0, statements))
    elif transactions:
        claim = Claim("transactions", events, changes=changes)
    else:
        claim = Claim("statements", events, changes=changes)
    if generated:
        return (claim, *_kinds(script, options, events))
    return (claim,)


def _option(
    options: Mapping[str, Scalar],
    name: str,
    usual: Scalar,
) -> Scalar:
    return options.get(name, options.get(name.replace("_", "-"), usual))


def _kinds(
    script: str,
    options: Mapping[str, Scalar],
    events: int,
) -> Iterator[Claim]:
    """Yield the rows that the events of a bundled script read and change, and the pages that they
    are on.
    """

    def times(name: str, usual: int, *scripts: str) -> int:
        if script in scripts:
            return int(_option(options, name, usual))
        return 0

    points = times("point_selects", 10, "oltp_read_only", "oltp_read_write")
    indexed = times("index_updates", 1, "oltp_update_index", *_UPDATING)
    plain = times("non_index_updates", 1, "oltp_update_non_index", *_UPDATING)
    replaced = times("delete_inserts", 1, *_UPDATING)
    single = int(script in _SINGLE)
    read = points + indexed + plain + replaced + single
    yield from kinds(
        events,
        read=read,
        updated=indexed + plain,
        deleted=replaced,
        rows=replaced or int(script == "oltp_insert"),
    )
    if options.get("rand_type") == "uniform" and script != "oltp_insert":
        rows = int(options.get("tables", 1)) * int(options.get("table_size", 0))
        yield from pages_of(events * read, rows / _ROWS_PER_PAGE)


def _tpcc(cell: Cell, counts: Counts) -> Figures:
    """Return new orders of the window per minute, including those rolled back (TPC-C 5.4.2), and
    percentiles of each transaction; with `rate` none, because the wait in the queue is not known
    by transaction.
    """
    if cell.dataset.kind != "tpcc":
        return {}
    warmup, measure = tool.whole_seconds(cell.window)
    measured = counts.measure(warmup, warmup + measure)
    new_orders = measured.kinds.get(_NEW_ORDER, 0)
    figures: Figures = {"tpmc": new_orders * 60 / measure}
    histograms = {} if cell.parameters.get("rate") else measured.kind_histograms
    for kind, name in enumerate(TPCC, _NEW_ORDER):
        latencies = histograms.get(kind)
        for percent in (50, 95, 99):
            if latencies:
                figures[f"{name}_p{percent}_ms"] = percentile_ms(latencies, percent)
    return figures


def live(line: str) -> Live | None:
    """Parse a line of `--report-interval=1`; None for other lines."""
    match = _SECOND.match(line)
    if match is None:
        return None
    second, tps, p95_ms = match.groups()
    return Live(int(second), float(tps), float(p95_ms))


def histogram(stdout: str) -> Counter[str]:
    """Parse `--histogram`: counts of the whole run by the latency in ms as printed ("0.797")."""
    begin = stdout.find("Latency histogram")
    end = stdout.find("SQL statistics")
    if not 0 <= begin < end:
        return Counter()
    bars = _BAR.findall(stdout[begin:end])
    return Counter({ms: int(count) for ms, count in bars})
