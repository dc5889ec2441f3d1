"""From which share on does CPU time that the host withholds change a result by more than its own scatter?

    sudo .venv/bin/python benchmarks/steal.py [--rounds 60] [--folder /var/tmp] [CASE ...]

Cases: as in overhead.py. Server and load generator run in a control group whose quota leaves them 100, 90, 88, 86,
84, 82, 80, 75 and 70 % of all CPU time; a load that uses less is not limited. Each second has another quota, in
random order in each round, so that a machine that becomes slower or faster during the benchmark does not matter. The
kernel counts for how long they could have run and did not, which is what a guest sees as steal. Prints for each quota
that share, the change of throughput against the second without a quota in the same round with its 95 % interval, and
the scatter of the seconds without one. No target: docs/method.md has a table, on which `STEAL_SHARE` in
dbbench/machine/host/__init__.py is based.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import random
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from overhead import CASES, cell_of, serving
from scipy import stats

from dbbench import process
from dbbench.drivers import pgbench, sysbench
from dbbench.engines.port import Server
from dbbench.model import Cell

CPU = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000  # short, because a hypervisor withholds CPU time in slices of milliseconds
QUOTAS = (1.0, 0.90, 0.88, 0.86, 0.84, 0.82, 0.80, 0.75, 0.70)
IGNORED_S = 10  # at the beginning of the load


@contextlib.contextmanager
def group() -> Iterator[Path]:
    """Put this process, and all that it starts, into a control group within the block."""
    folder = CPU / f"dbbench-steal-{os.getpid()}"
    folder.mkdir()
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield folder
    finally:
        (CPU / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()


def withheld_s(folder: Path) -> float:
    """Return the CPU seconds, over all CPUs, in which the group had work and was not allowed to run."""
    counts = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    return int(counts["throttled_time"]) / 1e9


def rates(server: Server, cell: Cell) -> Iterator[float]:
    """Run the cell's load generator and yield the tps of each second when the tool prints it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        if cell.workload.driver == "pgbench":
            words, live = pgbench.command(server, cell, 1, Path(scratch)), pgbench.live
            argv = [word for word in words if not word.startswith("--log")]
        else:
            argv, live = [*sysbench.command(server, cell, 1)[:-2], cell.workload.script, "run"], sysbench.live
        with process.running(argv, stdout=subprocess.PIPE) as tool:
            assert tool.popen.stdout is not None
            for line in tool.popen.stdout:
                if (second := live(line.decode())) is not None and second.tps:
                    yield second.tps


def measure(name: str, rounds: int, folder: Path) -> None:
    """Run the rounds of a case and print its table."""
    cpus, order = os.cpu_count() or 1, random.Random(1)
    cell = cell_of(CASES[name], IGNORED_S + (rounds + 1) * len(QUOTAS))
    shares: dict[float, list[float]] = {quota: [] for quota in QUOTAS}
    logs: dict[float, list[float]] = {quota: [] for quota in QUOTAS}
    with group() as limits, serving(CASES[name], folder) as server:
        (limits / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        seconds = rates(server, cell)
        for _second, _tps in zip(range(IGNORED_S), seconds, strict=False):
            pass
        for _round in range(rounds):
            for quota in order.sample(QUOTAS, len(QUOTAS)):
                (limits / "cpu.cfs_quota_us").write_text(str(-1 if quota == 1 else round(quota * cpus * PERIOD_US)))
                before = withheld_s(limits)
                logs[quota].append(math.log(next(seconds)))
                shares[quota].append((withheld_s(limits) - before) / cpus)
        (limits / "cpu.cfs_quota_us").write_text("-1")
        seconds.close()
    free = logs.pop(1.0)
    steps = [after - before for before, after in itertools.pairwise(free)]  # a slow drift is no scatter
    print(f"{name}: scatter of seconds without a quota {statistics.stdev(steps) / math.sqrt(2):.1%}, {rounds} rounds")
    for quota, values in logs.items():
        changes = [value - base for value, base in zip(values, free, strict=True)]
        mean, half = statistics.fmean(changes), stats.t.ppf(0.975, rounds - 1) * stats.sem(changes)
        interval = f"{math.expm1(mean - half):+.1%}..{math.expm1(mean + half):+.1%}"
        withheld = statistics.fmean(shares[quota])
        print(f"  quota {quota:.0%}  withheld {withheld:6.1%}  throughput {math.expm1(mean):+6.1%} ({interval})")


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=["pgbench", "select", "sysbench"])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    asked = parser.parse_args()
    if not (CPU / "cpu.stat").exists():
        raise SystemExit(f"{CPU} has no cpu.stat: the cpu controller of cgroup v1 is required")
    for name in asked.cases:
        measure(name, asked.rounds, asked.folder)


if __name__ == "__main__":
    main()
