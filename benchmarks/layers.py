"""What the sampler `threads` costs: pgbench with many clients, with and without it, on one server.

    sudo .venv/bin/python benchmarks/layers.py [--pairs 10] [--seconds 10] [--clients 60]

In each pair either is first equally often. Prints the ratio of the throughputs with its 95 %
interval, and the sampler's CPU time as a share of a core; exit 1 where the ratio is below 0.99 or
the share above 3 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from overhead import CASES, bare, cell_of, serving
from scipy import stats

from dbbench.engines.port import Server
from dbbench.machine import threads
from dbbench.model import Cell
from dbbench.samplers.thread_waits import ThreadWaits

LEAST_RATIO = 0.99
MOST_CPU = 0.03  # share of a core


def sampled(server: Server, cell: Cell, seed: int) -> tuple[float, float]:
    """Return tps with the sampler, and its CPU seconds per second."""
    assert server.pid is not None
    sampler = ThreadWaits(server.pid, Path(os.devnull), server.session_threads)
    began = time.monotonic()
    with threads.beside("threads", sampler.work):
        tps = bare(server, cell, seed, True)
    return tps, sampler.cpu_s / (time.monotonic() - began)


def main() -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=60)
    asked = parser.parse_args()
    case = dataclasses.replace(CASES["pgbench"], clients=asked.clients)
    cell = cell_of(case, asked.seconds)
    orders = [(True, False), (False, True)] * ((asked.pairs + 1) // 2)
    random.Random(1).shuffle(orders)
    logs = []
    busy = []
    with serving(case, Path(tempfile.gettempdir())) as server:
        for pair, order in enumerate(orders[: asked.pairs]):
            tps = {}
            for with_sampler in order:
                server.checkpoint()
                if with_sampler:
                    tps[True], share = sampled(server, cell, 2 * pair + 1)
                    busy.append(share)
                else:
                    tps[False] = bare(server, cell, 2 * pair + 2, True)
            logs.append(math.log(tps[True] / tps[False]))
            print(f"  {pair + 1}  bare {tps[False]:.0f}  sampled {tps[True]:.0f}", flush=True)
    mean = math.fsum(logs) / len(logs)
    half = math.inf
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs))
    share = math.fsum(busy) / len(busy)
    print(
        f"{asked.clients} clients: ratio {math.exp(mean):.4f} ({math.exp(mean - half):.4f}.."
        f"{math.exp(mean + half):.4f}), sampler {share:.2%} of a core"
    )
    return 0 if math.exp(mean) >= LEAST_RATIO and share <= MOST_CPU else 1


if __name__ == "__main__":
    sys.exit(main())
