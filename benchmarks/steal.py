"""From which share on does CPU time that the host withholds change a result by more than its own scatter?

    sudo .venv/bin/python benchmarks/steal.py [--rounds 8] [--seconds 5] [--folder /var/tmp] [CASE ...]

Cases: as in overhead.py. Server and load generator run in a control group whose quota leaves them 100, 99, 98, 95, 90,
80 and 70 % of all CPU time, in random order in each round, each with a window of so many seconds. The kernel counts for
how long they could have run and did not, which is what a guest sees as steal. Prints for each quota that share, the
change of throughput against the window without a quota in the same round with its 95 % interval, and last the scatter
of the windows without one. No target: `STEAL_SHARE` in dbbench/machine/host/__init__.py follows from the table.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from overhead import CASES, bare, cell_of, serving
from scipy import stats

CPU = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000  # short, because a hypervisor withholds CPU time in slices of milliseconds
LEFT = (0.99, 0.98, 0.95, 0.90, 0.80, 0.70)


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


def measure(name: str, rounds: int, seconds: int, folder: Path) -> None:
    """Run the rounds of a case and print its table."""
    case, cpus, order = CASES[name], os.cpu_count() or 1, random.Random(1)
    cell = cell_of(case, seconds)
    shares: dict[float, list[float]] = {left: [] for left in LEFT}
    logs: dict[float, list[float]] = {left: [] for left in LEFT}
    free = []
    with group() as limits, serving(case, folder) as server:
        (limits / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        for number in range(rounds):
            rates, quotas = {}, [1.0, *LEFT]
            order.shuffle(quotas)
            for place, left in enumerate(quotas):
                server.checkpoint()
                quota = -1 if left == 1 else round(left * cpus * PERIOD_US)
                (limits / "cpu.cfs_quota_us").write_text(str(quota))
                began, before = time.monotonic(), withheld_s(limits)
                rates[left] = bare(server, cell, number * len(quotas) + place + 1, logged=False)
                if left != 1:
                    shares[left].append((withheld_s(limits) - before) / ((time.monotonic() - began) * cpus))
                (limits / "cpu.cfs_quota_us").write_text("-1")
            free.append(math.log(rates[1.0]))
            for left in LEFT:
                logs[left].append(math.log(rates[left] / rates[1.0]))
    print(f"{name}: scatter of windows without a quota {statistics.stdev(free):.1%}, {rounds} rounds of {seconds} s")
    for left in LEFT:
        mean, half = statistics.fmean(logs[left]), stats.t.ppf(0.975, rounds - 1) * stats.sem(logs[left])
        print(
            f"  quota {left:.0%}  withheld {statistics.fmean(shares[left]):6.1%}  throughput {math.expm1(mean):+6.1%} "
            f"({math.expm1(mean - half):+.1%}..{math.expm1(mean + half):+.1%})",
            flush=True,
        )


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=["pgbench", "select", "sysbench"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    asked = parser.parse_args()
    if not (CPU / "cpu.stat").exists():
        raise SystemExit(f"{CPU} has no cpu.stat: the cpu controller of cgroup v1 is required")
    for name in asked.cases:
        measure(name, asked.rounds, asked.seconds, asked.folder)


if __name__ == "__main__":
    main()
