"""How fast pgbench's logs are parsed, on one core, and that memory does not grow with the log.

    python benchmarks/parse_pgbench_log.py [LINES]

Prints million lines a second of CPU time and the peak memory for a log and for one four times as
long; exit 1 below 3 M lines/s, or where the longer log takes more than 10 % more memory.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dbbench.drivers import pgbench_log

LEAST_RATE = 3e6  # lines per second
MOST_GROWTH = 1.10  # peak memory with the long log ÷ with the short one
SECONDS = 120
BEGIN = 1_795_258_550


def write_log(path: Path, lines: int) -> None:
    """Write a log in the format of pgbench: two minutes of transactions of 8 clients, latencies
    around 1 ms.
    """
    rng = np.random.default_rng(1)
    end_us = np.sort(rng.integers(0, SECONDS * 1_000_000, lines)) + BEGIN * 1_000_000
    latency_us = rng.lognormal(7, 0.6, lines).astype(int)
    with path.open("w") as log:
        log.writelines(
            f"{n % 8} {n // 8} {took} 0 {end // 1_000_000} {end % 1_000_000}\n"
            for n, (took, end) in enumerate(zip(latency_us.tolist(), end_us.tolist(), strict=True))
        )


def parse(path: Path, times: int) -> None:
    """Parse the log `times` times; print lines, CPU seconds and peak memory in KiB. Runs in a
    separate process.
    """
    began = time.process_time()
    counts, _ = pgbench_log.parse([path] * times, float(BEGIN), SECONDS)
    counts.series(float(SECONDS))
    took_s = time.process_time() - began
    # getrusage would report the peak of the process that started this one if it is higher.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(counts.all_transactions, took_s, peak[1] if peak else 0)


def main() -> int:
    """Measure both lengths and print a line for each; return 1 if a target is missed."""
    if sys.argv[1:2] == ["--parse"]:
        parse(Path(sys.argv[2]), int(sys.argv[3]))
        return 0
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    peaks = []
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "pgbench_log.1"
        write_log(log, lines)
        for times in (1, 4):
            argv = [sys.executable, __file__, "--parse", str(log), str(times)]
            words = subprocess.run(
                argv,
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
            rates.append(int(words[0]) / float(words[1]))
            peaks.append(int(words[2]))
            print(
                f"{int(words[0]):>10} lines  {rates[-1] / 1e6:.2f} M lines/s  peak "
                f"{peaks[-1] / 1024:.0f} MiB"
            )
    good = min(rates) >= LEAST_RATE and peaks[1] <= peaks[0] * MOST_GROWTH
    print(
        "ok"
        if good
        else f"too slow or growing: {LEAST_RATE / 1e6:.0f} M lines/s and {MOST_GROWTH:.2f} are "
        "asked for"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
