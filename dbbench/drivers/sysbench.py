"""sysbench: its own scripts and custom ones, through a wrapper that counts each event. Latency is
from the first call of the event to its success; with `rate` it includes the wait in sysbench's
queue (in buckets of 1.8 %).
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
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
from dbbench.metrics.outcome import Claim, Outcome, kinds, pages_of
from dbbench.metrics.table import TPCC
from dbbench.model import Cell, Scalar, TrialWarning
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
_CHANGING: Final = (
    "oltp_insert",
    "oltp_read_write",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_write_only",
)
# with updates, and rows that are deleted and inserted again
_UPDATING: Final = ("oltp_read_write", "oltp_write_only")
_ROWS_PER_PAGE: Final = 100  # at most: 40 in PostgreSQL's pages of 8 KiB, 75 in InnoDB's of 16 KiB
_WRAPPER: Final = "dbbench_events.lua"
_OWN_SCRIPTS: Final = ("bulk_insert.lua", "tpcc.lua")  # shipped with dbbench
_OWN: Final = {"clients", "rate", "script", "large_bytes", "during_at", "compressibility"}
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
# Histogram of sysbench.c (OPER_LOG_*): 1024 buckets; the middle of the first is 0.001 ms, that of
# the last 100 s.
_LEAST_MS: Final = 1e-3
_STEP: Final = math.log(1e8) / 1023


def driving(task: LoadTask) -> AbstractContextManager[Load]:
    """Run sysbench against the server. See `protocol.Driver`."""
    script, *_ = [
        path_for_client(Path(path)) if "/" in path else path
        for path in (_script(task.cell), *task.cell.workload.beside)
    ]
    task.scratch.chmod(0o777)  # sysbench runs under another account and writes its counts there
    load = _load(
        task,
        command(task.server, task.cell, task.seed),
        _environment(task.cell, script, str(task.scratch)),
    )
    begin = load.begin_utc - task.clock.utc + task.clock.monotonic
    load.env = {"DBBENCH_BEGIN": f"{begin:.6f}", **load.env}
    return load.running("client", client_account(task.server))


def driving_from(client: Client, task: LoadTask) -> AbstractContextManager[Load]:
    """The clock of the client's host sets DBBENCH_BEGIN. The password is on stdin: others could
    read an option.
    """
    script = _script(task.cell)
    if "/" in script:  # files that it loads must be in its directory on the client's host
        script, *_ = [client.place(Path(path)) for path in (script, *task.cell.workload.beside)]
    argv = command(task.server, task.cell, task.seed, client)
    sql = sql_of(task.server)
    load = _load(task, argv, _environment(task.cell, script, client.at))
    secrets = {} if sql.sysbench_tls else client.env
    return load.running_from(client, secrets, f'{sql.sysbench}-password="{client.secret}"\n')


def _environment(cell: Cell, script: str, out: str) -> dict[str, str]:
    """Return the wrapper's environment, except for DBBENCH_BEGIN."""
    queue = {"DBBENCH_QUEUE": "1"} if cell.parameters.get("rate") else {}
    options = " ".join(
        f"{name}={_option_text(value)}" for name, value in _implicit_parameters(cell).items()
    )
    return {
        "DBBENCH_SCRIPT": script,
        "DBBENCH_OUT": out,
        **({"DBBENCH_OPTIONS": options} if options else {}),
        **queue,
    }


def _load(task: LoadTask, argv: list[str], env: dict[str, str]) -> ToolLoad:
    # Without `aborted`: sysbench ends as a whole when one thread fails.
    return ToolLoad(task, "sysbench", argv, _outcome, env, live)


def command(server: Server, cell: Cell, seed: int, client: Client | None = None) -> list[str]:
    """Return the argv; the environment has the script. With `client` it is for that host, which
    gets the wrapper.
    """
    rate = cell.parameters.get("rate") or 0
    wrapper = data_folder().resolve() / "workloads" / _WRAPPER
    return [
        client.tool if client else "sysbench",
        *(connection_from(client, server) if client else sql_of(server).login(server)),
        f"--threads={cell.parameters.get('clients', 1)}",
        f"--time={sum(tool.whole_seconds(cell.window))}",
        f"--rand-seed={seed % _LARGEST_SEED or _LARGEST_SEED}",
        "--report-interval=1",
        "--percentile=95",
        *([f"--rate={rate}", "--histogram=on"] if rate else []),
        *(f"--{name}={_option_text(value)}" for name, value in _script_options(cell).items()),
        client.place(wrapper) if client else path_for_client(wrapper),
        "run",
    ]


def connection_from(client: Client, server: Server) -> list[str]:
    """Return the options for the server's address. With --mysql-ssl sysbench 1.0 uses the
    certificates in its current directory; for PostgreSQL libpq takes TLS from the environment.
    """
    address = client.spec
    tls = sql_of(server).sysbench_tls
    kind = sql_of(server).sysbench
    return [
        "--config-file=/dev/stdin",
        f"--db-driver={kind}",
        f"--{kind}-host={address.address}",
        f"--{kind}-port={address.port}",
        f"--{kind}-user={ROLE}",
        f"--{kind}-db={server.database}",
        *tls,
    ]


def one_session_each(cell: Cell) -> bool:
    """Whether each thread of the script opens one session; this is not known for a user's own
    script.
    """
    return str(cell.parameters.get("script") or cell.workload.script) in (*BUNDLED, *_OWN_SCRIPTS)


def _script(cell: Cell) -> str:
    script = str(cell.parameters.get("script") or cell.workload.script)
    return script if script in BUNDLED else str(locate(script))


def _script_options(cell: Cell) -> dict[str, Scalar]:
    loaded = {name: value for name, value in cell.dataset.parameters.items() if name in _OF_DATASET}
    asked = {**loaded, **cell.values}
    return {
        name: asked[name]
        for name in sorted(asked.keys() - _OWN - _implicit_parameters(cell).keys())
    }


def _implicit_parameters(cell: Cell) -> dict[str, Scalar]:
    """Return the parameters of the dataset that a user's own script gets only if it has options of
    these names.
    """
    if one_session_each(cell):
        return {}
    values = {**cell.dataset.parameters, **cell.parameters}
    workload = cell.workload
    names = (
        (values.keys() & {*_OF_DATASET, *workload.dataset})
        - _OWN
        - {*workload.options, *workload.parameters}
    )
    return {name: values[name] for name in sorted(names)}


def _option_text(value: Scalar) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _outcome(load: ToolLoad) -> Outcome:
    from dbbench.drivers.sysbench_events import QUEUE, event_files, parse, put_queued_latencies

    cell = load.task.cell
    raw = load.task.raw
    scratch = load.task.scratch
    files = event_files(scratch)
    threads = int(cell.parameters.get("clients", 1))
    if len(files) != threads:
        raise DriverFailed(f"{len(files)} result files for {threads} threads", effect=tool.FAILED)
    printed = load.text()
    totals = tool.read_counts(COUNTS, printed)
    counts = parse(files, load.seconds)
    tool.same("transactions", counts.all_transactions, totals["transactions"], "sysbench")
    tool.same(
        "ignored errors", counts.all_errors, totals["errors"], "sysbench", slack=threads
    )  # the threads' last attempts
    if totals["reconnects"]:
        raise DriverFailed(f"sysbench reconnected {totals['reconnects']} times", effect=tool.FAILED)
    tool.pack(files, raw / "sysbench_events.txt.gz")
    if cell.parameters.get("rate"):
        queue = scratch / QUEUE
        written = tool.read_left(queue) if os.path.lexists(queue) else ""
        (raw / "sysbench_queue.txt").write_text(written)
        whole_run = histogram(printed)
        lived_s = load.lived_s or float(load.seconds)
        put_queued_latencies(counts, written, whole_run, lived_s)
    outcome = tool.outcome_of(
        load, counts, reconnects=float(totals["reconnects"] or 0), **_tpcc(cell, counts)
    )
    if cell.workload.primary == "rows_per_s":  # an event is a statement that inserts `rows` rows
        outcome.figures["rows_per_s"] = (
            outcome.transactions * int(cell.parameters["rows"]) / outcome.window_s
        )
    statements = (totals["queries"] or 0) / max(1, totals["transactions"] or 0)
    # Of dbbench_recorded.lua; each thread finds it out for itself.
    left_out = {
        line.partition("): ")[0]: line
        for line in printed.splitlines()
        if line.startswith("left out: ")
    }
    warnings = (*outcome.warnings, *(TrialWarning("W019", line) for line in left_out.values()))
    return replace(
        outcome, warnings=warnings, claims=claims(cell, counts.all_transactions, statements)
    )


def claims(cell: Cell, events: int, statements: float) -> tuple[Claim, ...]:
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
    work = tuple(_kinds(cell, script, options, events)) if generated else ()
    single = any(
        _option_text(options.get(name, "off")) in ("on", "1", "true")
        for name in ("skip_trx", "skip-trx")
    )
    if script in _EXPLICIT and not single:
        return (Claim("transactions", events, changes=changes), *work)
    if script in _EXPLICIT:  # with skip_trx: statements, most of which only read
        return (Claim("statements", events * max(1.0, statements)), *work)
    return (Claim("statements", events, changes=changes), *work)


def _kinds(cell: Cell, script: str, options: Mapping[str, Scalar], events: int) -> Iterator[Claim]:
    """Yield the rows that the events of a bundled script read and change, and the pages that they
    are on.
    """

    def times(name: str, usual: int) -> int:
        return int(options.get(name, options.get(name.replace("_", "-"), usual)))

    points = times("point_selects", 10) if script in ("oltp_read_only", "oltp_read_write") else 0
    indexed = (
        times("index_updates", 1) if script in _UPDATING or script == "oltp_update_index" else 0
    )
    plain = (
        times("non_index_updates", 1)
        if script in _UPDATING or script == "oltp_update_non_index"
        else 0
    )
    replaced = times("delete_inserts", 1) if script in _UPDATING else 0
    single = int(script in ("oltp_point_select", "select_random_points", "select_random_ranges"))
    inserted = replaced or int(script == "oltp_insert")
    read = points + indexed + plain + replaced + single
    yield from kinds(events, read=read, updated=indexed + plain, deleted=replaced, rows=inserted)
    if options.get("rand_type") == "uniform" and script != "oltp_insert":
        rows = int(options.get("tables", 1)) * int(options.get("table_size", 0))
        yield from pages_of(events * read, rows / _ROWS_PER_PAGE)


def _tpcc(cell: Cell, counts: Counts) -> dict[str, float | None]:
    """Return new orders of the window per minute, including those rolled back (TPC-C 5.4.2), and
    percentiles of each transaction; with `rate` none, because the wait in the queue is not known
    by transaction.
    """
    if cell.dataset.kind != "tpcc":
        return {}
    warmup, measure = tool.whole_seconds(cell.window)
    measured = counts.measure(warmup, warmup + measure)
    figures: dict[str, float | None] = {"tpmc": measured.kinds.get(_NEW_ORDER, 0) * 60 / measure}
    for kind, name in enumerate(TPCC, _NEW_ORDER):
        histogram = None if cell.parameters.get("rate") else measured.kind_histograms.get(kind)
        for percent in (50, 95, 99):
            figures[f"{name}_p{percent}_ms"] = (
                histogram.percentile_ms(percent) if histogram else None
            )
    return figures


def live(line: str) -> Live | None:
    """Parse a line of `--report-interval=1`; None for other lines."""
    match = _SECOND.match(line)
    return Live(int(match[1]), float(match[2]), float(match[3])) if match else None


def histogram(stdout: str) -> Counter[str]:
    """Parse `--histogram`: counts of the whole run by the latency in ms as printed ("0.797")."""
    begin = stdout.find("Latency histogram")
    end = stdout.find("SQL statistics")
    return Counter(
        {ms: int(count) for ms, count in _BAR.findall(stdout[begin:end])}
        if 0 <= begin < end
        else {}
    )


def printed_ms(bucket: int) -> str:
    """Return how sysbench prints the latency of its bucket."""
    return f"{math.exp(bucket * _STEP + math.log(_LEAST_MS)):.3f}"
