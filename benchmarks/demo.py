"""How often does the demo tell btrfs from ext4, and ext4 from itself?

    sudo .venv/bin/python benchmarks/demo.py [RUNS]          (10 minutes per run; 10 runs)

Runs the plan of `make demo` with another seed each time and with one more setup, which is ext4
again. Needs a machine with nothing else to do. Targets: btrfs is called slower or faster in all
three workloads of every run, and ext4 differs from itself in at most 1 of 30 comparisons. Not
part of `make bench`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.units import change, interval

DEMO = Path(__file__).parents[1] / "docs/plans/demo.toml"
SETUPS = 'fs_setups = ["ext4", "xfs", "btrfs"]'
AGAIN = 'fs_setups = ["ext4", { use = "ext4", label = "again" }, "xfs", "btrfs"]'
SEED = "seed = 2026 "


def compared(folder: Path, number: int) -> list[dict[str, Any]]:
    """Run the plan in that folder and return the rows of its comparison."""
    text = DEMO.read_text()
    assert SETUPS in text and SEED in text
    (folder / "plan.toml").write_text(
        text.replace(SETUPS, AGAIN).replace(SEED, f"seed = {number} ")
    )
    name = f"demo{number}"
    base = [sys.executable, "-m", "dbbench"]
    subprocess.run(
        [*base, "run", "plan.toml", "--name", name, "--progress", "none"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shown = subprocess.run(
        [*base, "compare", name, "--json"], cwd=folder, stdout=subprocess.PIPE, check=False
    )
    rows: list[dict[str, Any]] = json.loads(shown.stdout)["rows"]
    return rows


def main() -> int:
    """Print each run's verdicts and the totals; return 1 if a target was missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    everywhere = 0
    differs = 0
    of = 0
    with tempfile.TemporaryDirectory(prefix="dbbench-demo-") as folder:
        for number in range(1, runs + 1):
            rows = [
                row
                for row in compared(Path(folder), number)
                if row["fs_setup"] in ("btrfs", "again")
            ]
            for row in rows:
                print(
                    f"{number:>2}  {row['fs_setup']:<6} {row['workload']:<26} {row['verdict']:<13} "
                    f"{change(row['ratio'])} ({interval(row['lo'], row['hi'])})",
                    flush=True,
                )
            called = [row["fs_setup"] for row in rows if row["verdict"] in (*AHEAD, *BEHIND)]
            everywhere += called.count("btrfs") == 3
            differs += called.count("again")
            of += sum(row["fs_setup"] == "again" for row in rows)
    print(f"btrfs differs from ext4 in all three workloads in {everywhere} of {runs} runs")
    print(f"ext4 differs from itself in {differs} of {of} comparisons")
    return 0 if everywhere == runs and differs <= of / 30 else 1


if __name__ == "__main__":
    sys.exit(main())
