"""How long `dbbench --help` takes, beside an interpreter that does nothing, in one run.

    python benchmarks/startup.py [ROUNDS]

Prints medians of interleaved runs; exit 1 where --help takes more than 150 ms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

MOST_MS = 150


def milliseconds(*words: str) -> float:
    """Return the wall time of a process."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *words],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Measure and print; return 1 if the target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rounds", metavar="ROUNDS", type=int, nargs="?", default=15)
    rounds = parser.parse_args().rounds
    pairs = [
        (milliseconds("-m", "dbbench", "--help"), milliseconds("-c", "pass")) for _ in range(rounds)
    ]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(with_dbbench / alone for with_dbbench, alone in pairs)
    print(f"dbbench --help {ours:.0f} ms   python -c pass {bare:.0f} ms   ratio {ratio:.1f}")
    return 0 if ours <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
