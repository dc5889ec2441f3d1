"""Run every benchmark, one after the other, and say which kept its target: `make bench` (root for
some).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "startup.py",
    "large_host.py",
    "parse_pgbench_log.py",
    "page.py",
    "restore.py",
    "overhead.py",
    "layers.py",
    "road.py",
    "history.py",
    "calibration.py",
    "fleet.py",
)


def main() -> int:
    """Run all benchmarks; return 1 if one failed or missed its target."""
    missed = []
    for name in SCRIPTS:
        print(f"== {name}", flush=True)
        if subprocess.run(
            [sys.executable, str(Path(__file__).parent / name)], check=False
        ).returncode:
            missed.append(name)
    print("all kept their targets" if not missed else f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
