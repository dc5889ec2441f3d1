"""Throughput through dbbench's drivers against the bare tool with the same options, on one server.

    sudo .venv/bin/python benchmarks/overhead.py [--pairs 9] [--seconds 10] [--folder /var/tmp] [CASE ...]

Cases: pgbench (TPC-B), select (pgbench select-only: the most lines of log), sysbench (oltp_read_write on MariaDB),
points (oltp_point_select on MariaDB: the most events to count). In each pair both run, in random order, on the same
server and data; the bare tool writes no log, counts nothing and reports only at its end. Prints the ratio of each
case with its 95 % interval, and the CPU that dbbench used in its windows; exit 1 where a mean ratio is below 0.98.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from scipy import stats

from dbbench import process
from dbbench.clock import Clock
from dbbench.datasets import generated
from dbbench.drivers import DRIVERS, pgbench, sysbench
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.model import Cell, Dataset, EngineSpec, FsSetup, Mkfs, Window, Workload, merged

LEAST_RATIO = 0.98
MOST_CPU = 0.02  # of one core, by dbbench itself while the load runs
WARMUP_S = 1
SERVER_MEMORY = 2 * 2**30  # the data fits: the tool is asked for as much as it can do


@dataclass(frozen=True)
class Case:
    """What is driven."""

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
    """A server of the case's engine with its dataset, in `folder`."""
    own = Path(tempfile.mkdtemp(prefix="dbb", dir=folder))
    own.chmod(0o755)
    engine, place = ENGINES[case.engine], Place(own / "s", own / "log")
    settings = merged(("default", engine.defaults(SERVER_MEMORY)), ("window", engine.window_settings(60, 120)))
    try:
        engine.create(own / "data", place)
        with engine.serving(own / "data", settings, place) as server:
            generated.build(server, case.dataset)
            yield server
    finally:
        shutil.rmtree(own)


def cell_of(case: Case, seconds: int) -> Cell:
    """The case as a trial would have it."""
    engine = cast(Any, case.engine)
    workload = Workload("t", cast(Any, case.driver), (engine,), {"kind": case.dataset.kind}, script=case.script)
    parameters = {**case.dataset.parameters, "clients": case.clients}
    setup, window = FsSetup("x", Mkfs("x")), Window("fixed", WARMUP_S, seconds)
    return Cell("c", "x", setup, EngineSpec(engine), workload, parameters, case.dataset, window)


def through_dbbench(server: Server, cell: Cell, seed: int) -> tuple[float, float]:
    """tps of the window, and CPU seconds of this process a second of it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        raw, scratch = Path(folder, "raw"), Path(folder, "scratch")
        raw.mkdir()
        scratch.mkdir()
        driver = DRIVERS[cell.workload.driver]
        with driver.driving(server, cell, seed, Clock(), raw, scratch) as load:
            load.wait_until(WARMUP_S, lambda _live: None)
            began, cpu = time.monotonic(), time.process_time()
            load.wait(lambda _live: None)
            busy = (time.process_time() - cpu) / (time.monotonic() - began)
        outcome = load.outcome()
    return outcome.transactions / outcome.window_s, busy


def bare(server: Server, cell: Cell, seed: int) -> float:
    """tps that the tool prints when it is started by hand."""
    asked = int(cell.window.measure_s)
    if cell.workload.driver == "pgbench":
        argv = pgbench.command(server, cell, seed, Path("/nowhere"))
        argv = [word for word in argv if not re.match("--(log|progress|time)", word)]
        # Warm-up with numbers of its own: with the same seed it would touch, and log in full, the window's own pages.
        other = [re.sub("^--random-seed=.*", f"--random-seed={seed + 10**6}", word) for word in argv]
        _run([*other[:-1], f"--time={WARMUP_S}", other[-1]])
        printed = _run([*argv[:-1], f"--time={asked}", argv[-1]])
        return float(_found(r"^tps = ([\d.]+)", printed))
    argv = [w for w in sysbench.command(server, cell, seed)[:-2] if not re.match("--(report-interval|time)", w)]
    _run([*argv, f"--time={WARMUP_S}", cell.workload.script, "run"])
    printed = _run([*argv, f"--time={asked}", cell.workload.script, "run"])
    return float(_found(r"transactions: +\d+ +\(([\d.]+) per sec", printed))


def _run(argv: list[str]) -> str:
    return process.run(argv, timeout_s=600).stdout


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise SystemExit(f"no {pattern} in:\n{text}")
    return match[1]


def measure(name: str, pairs: int, seconds: int, folder: Path) -> bool:
    """Run the pairs of a case and print its line; whether it keeps the targets."""
    case, rng = CASES[name], random.Random(1)
    cell, logs, busy, rates = cell_of(case, seconds), [], [], []
    with serving(case, folder) as server:
        for pair in range(pairs):
            found: dict[str, float] = {}
            for which in rng.sample(["dbbench", "bare"], 2):
                if which == "bare":
                    found[which] = bare(server, cell, seed=pair + 1)
                else:
                    found[which], cpu = through_dbbench(server, cell, seed=pair + 1)
                    busy.append(cpu)
            logs.append(math.log(found["dbbench"] / found["bare"]))
            rates.append(found["bare"])
            print(f"  {name} {pair + 1}/{pairs}  bare {found['bare']:.0f}  dbbench {found['dbbench']:.0f}", flush=True)
    mean = math.fsum(logs) / pairs
    half = stats.t.ppf(0.975, pairs - 1) * stats.sem(logs) if pairs > 1 else math.inf
    ratio, share = math.exp(mean), math.fsum(busy) / pairs
    print(
        f"{name:<9} {math.fsum(rates) / pairs:>8.0f} tx/s bare  ratio {ratio:.4f} "
        f"({math.exp(mean - half):.4f}..{math.exp(mean + half):.4f})  dbbench's CPU {share:.2%} of a core"
    )
    return ratio >= LEAST_RATIO and share <= MOST_CPU


def main() -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    asked = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("root is needed: the servers run as their own accounts")
    good = [measure(name, asked.pairs, asked.seconds, asked.folder) for name in asked.cases]
    print("ok" if all(good) else f"missed: ratio >= {LEAST_RATIO}, CPU <= {MOST_CPU:.0%}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
