"""What the sampler `threads` costs: pgbench with many clients, with and without it, on one server.

    sudo .venv/bin/python benchmarks/layers.py [--pairs 75] [--clients 60] [--case select]
    [--folder /dev/shm]

The sampler is switched on and off within one run of pgbench, because two runs differ by more than
it costs. The server's data is in memory, where the load needs all of the CPU: with writes to a disk
(`--case pgbench`), neighbouring slots differ by a multiple of what is measured. Of each pair of
slots one has the sampler, either first at random; the first second of a slot does not count. Prints
the ratio of the throughputs with its 95 % interval, and the sampler's CPU time as a share of a
core; exit 1 where the ratio is below 0.99 or the share above 3 %.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from overhead import CASES, cell_of, serving, through_dbbench
from scipy import stats

from dbbench.engines.port import Server
from dbbench.machine import threads
from dbbench.metrics.outcome import Outcome
from dbbench.samplers.thread_waits import ThreadWaits

LEAST_RATIO = 0.99
MOST_CPU = 0.03  # share of a core
SLOT_S = 4.0
SETTLE_S = 1.0  # of a slot


class Slot(NamedTuple):
    """A part of the run, with the sampler or without. `cpu_s` is the sampler's CPU time."""

    sampled: bool
    begin_utc: float
    end_utc: float
    cpu_s: float

    def tps(self, outcome: Outcome) -> float:
        """Return the mean of the whole seconds of the slot."""
        first = math.ceil(self.begin_utc + SETTLE_S - outcome.begin_utc)
        last = math.floor(self.end_utc - outcome.begin_utc)
        values = outcome.series.columns["tps"][first:last]
        return math.fsum(value or 0.0 for value in values) / len(values)


def switched(server: Server, pairs: int) -> Iterator[Slot]:
    """Yield the slots of that many pairs, each when it has ended."""
    assert server.pid is not None
    orders = [(True, False), (False, True)] * ((pairs + 1) // 2)
    random.Random(1).shuffle(orders)
    for order in orders[:pairs]:
        for is_sampled in order:
            sampler = ThreadWaits(server.pid, Path(os.devnull), server.session_threads)
            begin_utc = time.time()
            with contextlib.ExitStack() as stack:
                if is_sampled:
                    stack.enter_context(threads.beside("threads", sampler.work))
                time.sleep(SLOT_S)
            yield Slot(is_sampled, begin_utc, time.time(), sampler.cpu_s)


def main() -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=75)
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--case", choices=("select", "pgbench"), default="select")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    asked = parser.parse_args()
    case = dataclasses.replace(CASES[asked.case], clients=asked.clients)
    cell = cell_of(case, round(2.2 * SLOT_S * asked.pairs) + 5)
    slots = list[Slot]()
    with serving(case, asked.folder) as server:
        switching = threading.Timer(3, lambda: slots.extend(switched(server, asked.pairs)))
        switching.start()
        outcome, _ = through_dbbench(server, cell, 1)
        switching.join()

    # Two slots are a pair.
    logs = []
    for first, second in zip(slots[::2], slots[1::2], strict=True):
        ratio = first.tps(outcome) / second.tps(outcome)
        logs.append(math.log(ratio) if first.sampled else -math.log(ratio))
    mean = math.fsum(logs) / len(logs)
    half = math.inf
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs))
    share = math.fsum(slot.cpu_s for slot in slots) / (SLOT_S * len(logs))
    print(
        f"{asked.clients} clients, {len(logs)} pairs: ratio {math.exp(mean):.4f} "
        f"({math.exp(mean - half):.4f}..{math.exp(mean + half):.4f}), sampler {share:.2%} of a core"
    )
    return 0 if math.exp(mean) >= LEAST_RATIO and share <= MOST_CPU else 1


if __name__ == "__main__":
    sys.exit(main())
