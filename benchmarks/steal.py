"""From which share on does CPU time that the host withholds change a result by more than its own
scatter?

    sudo .venv/bin/python benchmarks/steal.py [--rounds 40] [--period-ms 20] [--folder /var/tmp]
    [CASE ...]

Cases: as in overhead.py. Server and load generator run in a control group whose quota leaves
them from 120 to 65 % of the CPU time that they use without a quota, so that a load that waits
for the disk is limited too. Above 100 %, a quota limits only the moments in which they need more
than on average. Each second has another quota, in random order in each round, so that a machine
that becomes slower or faster during the benchmark does not matter. The kernel counts for how
long they could have run and did not, which is what a guest sees as steal. Prints for each quota
that share of all CPU time, the change of throughput and of p95 against the second without a
quota in the same round with its 95 % interval, and the scatter of the seconds without one. A
longer period withholds the same share in longer slices. Needs a machine with nothing else to do.
No target: docs/method.md has a table, on which `STEAL_SHARE` in dbbench/machine/host/__init__.py
is based.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from overhead import CASES, cell_of, serving
from scipy import stats

from dbbench.drivers import DRIVERS
from dbbench.drivers.protocol import LoadTask
from dbbench.engines.port import Server
from dbbench.machine.host.proc import cpu_times
from dbbench.metrics.series import Clock, Column
from dbbench.model import Cell

CPU = Path("/sys/fs/cgroup/cpu")
FREE = math.inf  # no quota
QUOTAS = (FREE, 1.2, 1.1, 1.05, 1.0, 0.95, 0.9, 0.8, 0.65)
# at the beginning of the load, without a quota: the load's own use of the CPUs is measured
FREE_S = 10
COLUMNS = ("tps", "p95_ms")


class Group:
    """A control group for server and load generator, to which this process belongs until they have
    started.
    """

    def __init__(self, period_us: int) -> None:
        self.folder = CPU / f"dbbench-steal-{os.getpid()}"
        self.period_us = period_us

    def __enter__(self) -> Group:
        self.folder.mkdir()
        (self.folder / "cpu.cfs_period_us").write_text(str(self.period_us))
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave()
        self.folder.rmdir()

    def leave(self) -> None:
        """Move this process out, so that it notices the seconds in time."""
        (CPU / "cgroup.procs").write_text(str(os.getpid()))

    def set(self, quota: float, cores: float) -> None:
        """Limit the group to this share of so many cores."""
        value = -1 if quota == FREE else round(quota * cores * self.period_us)
        (self.folder / "cpu.cfs_quota_us").write_text(str(value))

    def withheld_s(self) -> float:
        """Return the CPU seconds, over all CPUs, in which the group had work and was not allowed to
        run.
        """
        counts = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(counts["throttled_time"]) / 1e9


def busy_s() -> float:
    """Return the CPU seconds that the machine has used since it was booted."""
    times = cpu_times()
    assert times is not None
    return times.busy_s


def load(
    server: Server, cell: Cell, limits: Group, order: list[float]
) -> tuple[float, list[float], list[Column]]:
    """Run the cell's load, each second after the first ones with its quota.

    Returns the cores that it used without a quota, the CPU seconds withheld in each second of
    the order, and the values of these seconds for each of COLUMNS.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        raw = Path(scratch, "raw")
        raw.mkdir()
        task = LoadTask(server, cell, 1, Clock(), raw, Path(scratch))
        with DRIVERS[cell.workload.driver].driving(task) as running:
            limits.leave()
            running.wait_until(1, lambda _live: None)
            began = time.monotonic()
            busy = busy_s()
            running.wait_until(FREE_S, lambda _live: None)
            cores = (busy_s() - busy) / (time.monotonic() - began)
            counted = [limits.withheld_s()]
            for second, quota in enumerate(order, FREE_S + 1):
                limits.set(quota, cores)
                running.wait_until(second, lambda _live: None)
                counted.append(limits.withheld_s())
            limits.set(FREE, cores)
            running.wait(lambda _live: None)
        series = running.outcome().series
    withheld = [after - before for before, after in itertools.pairwise(counted)]
    return cores, withheld, [series[name][FREE_S : FREE_S + len(order)] for name in COLUMNS]


def measure(
    name: str,
    rounds: int,
    period_us: int,
    folder: Path,
) -> None:
    """Run the rounds of a case and print its table."""
    shuffled = random.Random(1)
    cpus = os.cpu_count() or 1
    order = [quota for _ in range(rounds) for quota in shuffled.sample(QUOTAS, len(QUOTAS))]
    cell = cell_of(CASES[name], FREE_S + len(order) + 1)
    with Group(period_us) as limits, serving(CASES[name], folder) as server:
        cores, withheld, columns = load(server, cell, limits, order)
    slices = f"slices of {period_us / 1000:.0f} ms"
    print(f"{name}: {rounds} rounds, {slices}, the load uses {cores / cpus:.0%} of the CPUs")
    for quota in QUOTAS[1:]:
        share = (
            statistics.fmean(s for s, q in zip(withheld, order, strict=True) if q == quota) / cpus
        )
        parts = [
            f"{column} {change_of(values, order, quota)}"
            for column, values in zip(COLUMNS, columns, strict=True)
        ]
        print(f"  quota {quota:4.0%}  withheld {share:6.1%}  {'  '.join(parts)}")
    scatters = [
        f"{column} {scatter(values, order):.1%}"
        for column, values in zip(COLUMNS, columns, strict=True)
    ]
    print(f"  scatter of seconds without a quota: {', '.join(scatters)}", flush=True)


def logs_of(
    values: list[float | None],
    order: list[float],
    quota: float,
) -> list[float]:
    """Return the logarithms of the seconds with that quota, in the order of the rounds."""
    return [
        math.log(value or math.nan) for value, q in zip(values, order, strict=True) if q == quota
    ]


def change_of(values: list[float | None], order: list[float], quota: float) -> str:
    """Return the mean change against the seconds without a quota, with its 95 % interval."""
    pairs = zip(logs_of(values, order, quota), logs_of(values, order, FREE), strict=True)
    changes = [value - free for value, free in pairs if math.isfinite(value - free)]
    mean = statistics.fmean(changes)
    half = stats.t.ppf(0.975, len(changes) - 1) * stats.sem(changes)
    return (
        f"{math.expm1(mean):+6.1%} ({math.expm1(mean - half):+.1%}..{math.expm1(mean + half):+.1%})"
    )


def scatter(values: list[float | None], order: list[float]) -> float:
    """Return the standard deviation of the logarithms of seconds without a quota, from neighbouring
    rounds: a slow drift is no scatter.
    """
    free = [value for value in logs_of(values, order, FREE) if math.isfinite(value)]
    return statistics.stdev(
        after - before for before, after in itertools.pairwise(free)
    ) / math.sqrt(2)


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", default=["pgbench", "select", "sysbench"]
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--period-ms", type=int, default=20)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("/var/tmp"),
    )
    asked = parser.parse_args()
    if asked.rounds < 3:
        parser.error("--rounds must be at least 3")
    if not (CPU / "cpu.stat").exists():
        raise SystemExit(f"{CPU} has no cpu.stat: the cpu controller of cgroup v1 is required")
    for name in asked.cases:
        measure(name, asked.rounds, 1000 * asked.period_ms, asked.folder)


if __name__ == "__main__":
    main()
