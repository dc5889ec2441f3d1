"""Throughput through dbbench's drivers against the bare tool with the same options, on one server.

    sudo .venv/bin/python benchmarks/overhead.py [--pairs 10] [--seconds 10] [--silent] [--folder
    /var/tmp] [CASE ...]

Cases: pgbench (TPC-B), select (pgbench select-only: the most lines of log), sysbench
(oltp_read_write on MariaDB), points (oltp_point_select on MariaDB: the most events to count). In
each pair both run on the same server and data, each after a checkpoint and with seeds of its own
(with the other's seed the second of a pair would find its pages already logged in full); either
is first equally often, and of both the seconds after the warm-up count. With `--silent` the bare
pgbench writes no log, and the ratio then holds what that costs. Prints the ratio of each case
with its 95 % interval, and the CPU that dbbench used in its windows; exit 1 where a mean ratio
is below 0.98.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from scipy import stats

from dbbench import process
from dbbench.datasets import generated
from dbbench.drivers import DRIVERS, pgbench, sysbench
from dbbench.drivers.protocol import LoadTask
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Clock
from dbbench.model import Cell, Dataset, EngineSpec, FsSetup, Mkfs, Window, Workload, merge_settings

LEAST_RATIO = 0.98
MOST_CPU = 0.02  # share of a core that dbbench itself uses during the load
WARMUP_S = 1
SERVER_MEMORY = 2 * 2**30  # the data fits, so that the load generator is the limit


@dataclass(frozen=True)
class Case:
    """A load and its server."""

    engine: str
    driver: str
    script: str
    dataset: Dataset
    clients: int = 4


_PGBENCH = Dataset("pgbench", {"scale": 20})
_SYSBENCH = Dataset("sysbench", {"tables": 4, "table_size": 50000})
CASES = {
    "pgbench": Case("postgres", "pgbench", "tpcb-like", _PGBENCH),
    "select": Case("postgres", "pgbench", "select-only", _PGBENCH),
    "sysbench": Case("mariadb", "sysbench", "oltp_read_write", _SYSBENCH),
    "points": Case("mariadb", "sysbench", "oltp_point_select", _SYSBENCH),
}


@contextlib.contextmanager
def serving(case: Case, folder: Path) -> Iterator[Server]:
    """Start a server of the case's engine with its dataset, in `folder`."""
    home = Path(tempfile.mkdtemp(prefix="dbb", dir=folder))
    home.chmod(0o755)
    engine = ENGINES[case.engine]
    place = Place(home / "s", home / "log")
    settings = merge_settings(
        ("default", engine.defaults(SERVER_MEMORY)), ("window", engine.window_settings(60, 120))
    )
    try:
        engine.create(home / "data", place)
        with engine.serving(home / "data", settings, place) as server:
            generated.build(server, case.dataset)
            yield server
    finally:
        shutil.rmtree(home)


def cell_of(case: Case, seconds: int) -> Cell:
    """Return the case as the cell of a trial."""
    engine = cast(Any, case.engine)
    workload = Workload(
        "t", cast(Any, case.driver), (engine,), {"kind": case.dataset.kind}, script=case.script
    )
    parameters = {**case.dataset.parameters, "clients": case.clients}
    setup = FsSetup("x", Mkfs("x"))
    window = Window("fixed", WARMUP_S, seconds)
    return Cell(
        "c",
        "x",
        setup,
        EngineSpec(engine),
        workload,
        parameters,
        case.dataset,
        window,
    )


def through_dbbench(server: Server, cell: Cell, seed: int) -> tuple[Outcome, float]:
    """Return the outcome, and the CPU seconds of this process per second of the window."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        raw = Path(folder, "raw")
        scratch = Path(folder, "scratch")
        raw.mkdir()
        scratch.mkdir()
        driver = DRIVERS[cell.workload.driver]
        with driver.driving(
            LoadTask(
                server,
                cell,
                seed,
                Clock(),
                raw,
                scratch,
            )
        ) as load:
            load.wait_until(WARMUP_S, lambda _live: None)
            began = time.monotonic()
            cpu = time.process_time()
            load.wait(lambda _live: None)
            busy = (time.process_time() - cpu) / (time.monotonic() - began)
        outcome = load.outcome()
    return outcome, busy


def bare(
    server: Server,
    cell: Cell,
    seed: int,
    logged: bool,
) -> float:
    """Start the same command without dbbench; return tps of the window from what the tool prints
    per second.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        if cell.workload.driver == "pgbench":
            argv = pgbench.command(server, cell, seed, Path(scratch))
            live = pgbench.live
            argv = [word for word in argv if logged or not word.startswith("--log")]
        else:
            argv = [*sysbench.command(server, cell, seed)[:-2], cell.workload.script, "run"]
            live = sysbench.live
        done = process.run(argv, timeout_s=600)
    rates = []
    for line in (done.stdout + done.stderr).splitlines():
        second = live(line)
        if second is not None and second.tps is not None and second.second > WARMUP_S:
            rates.append(second.tps)
    return statistics.fmean(rates)


def measure(
    name: str,
    pairs: int,
    seconds: int,
    folder: Path,
    logged: bool,
) -> bool:
    """Run the pairs of a case and print its line; return whether it meets the targets."""
    case = CASES[name]
    orders = [("dbbench", "bare"), ("bare", "dbbench")] * ((pairs + 1) // 2)
    random.Random(1).shuffle(orders)
    cell = cell_of(case, seconds)
    logs = []
    busy = []
    rates = []
    with serving(case, folder) as server:
        for pair, order in enumerate(orders[:pairs]):
            tps: dict[str, float] = {}
            for place, which in enumerate(order):
                server.checkpoint()
                if which == "bare":
                    tps[which] = bare(server, cell, 2 * pair + place + 1, logged)
                else:
                    outcome, cpu = through_dbbench(server, cell, 2 * pair + place + 1)
                    tps[which] = outcome.transactions / outcome.window_s
                    busy.append(cpu)
            logs.append(math.log(tps["dbbench"] / tps["bare"]))
            rates.append(tps["bare"])
            print(
                f"  {name} {pair + 1}/{pairs}  bare {tps['bare']:.0f}  dbbench "
                f"{tps['dbbench']:.0f}",
                flush=True,
            )
    mean = math.fsum(logs) / pairs
    half = stats.t.ppf(0.975, pairs - 1) * stats.sem(logs) if pairs > 1 else math.inf
    ratio = math.exp(mean)
    share = math.fsum(busy) / pairs
    print(
        f"{name:<9} {math.fsum(rates) / pairs:>8.0f} tx/s bare  ratio {ratio:.4f} "
        f"({math.exp(mean - half):.4f}..{math.exp(mean + half):.4f})  dbbench's CPU {share:.2%} of "
        "a core"
    )
    return ratio >= LEAST_RATIO and share <= MOST_CPU


def main() -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        default=list(CASES),
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument(
        "--silent",
        action="store_true",
        help="the bare pgbench writes no log",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("/var/tmp"),
    )
    asked = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("root is needed: the servers run as their own accounts")
    good = [
        measure(name, asked.pairs, asked.seconds, asked.folder, not asked.silent)
        for name in asked.cases
    ]
    print("ok" if all(good) else f"missed: ratio >= {LEAST_RATIO}, CPU <= {MOST_CPU:.0%}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
