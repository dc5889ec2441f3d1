"""dbbench's row of docs/dev/compared.md: the share of load in the time of a cell that other suites
ran.

    python benchmarks/peer_cell.py          (root, PostgreSQL; 7 minutes)

Runs the plan of that page with an empty cache of datasets, as on a machine where dbbench has not
run before. Prints the wall time, the shares of it that are measured load and load with the
warm-up, the phases of the trials, and which warnings marked a trial as suspect. No target: it is
a record, and its table names the date.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dbbench import results
from dbbench.model import Phase

PAGE = Path(__file__).resolve().parents[1] / "docs/dev/compared.md"


def main() -> int:
    """Run the cell and print its row."""
    (plan,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    with tempfile.TemporaryDirectory(prefix="dbbench-cell-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "plan.toml").write_text(plan, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "dbbench",
            "run",
            "plan.toml",
            "--name",
            "cell",
            "--results",
            "results",
        ]
        began = time.monotonic()
        ended = subprocess.run(
            command, cwd=folder, env={**os.environ, "XDG_CACHE_HOME": name}, check=False
        )
        wall = time.monotonic() - began
        trials = results.load_run(folder / "results/cell").trials
    spent = {phase: sum(trial.phase_s(phase) or 0 for trial in trials) for phase in Phase}
    load = spent[Phase.MEASURE]
    warmup = spent[Phase.WARMUP]
    print(
        f"wall time {wall:.0f} s, measured load {load / wall:.0%}, with the warm-up "
        f"{(load + warmup) / wall:.0%}"
    )
    print(
        f"outside the trials {wall - sum(spent.values()):.0f} s (image, limits of the device, "
        "dataset, page)"
    )
    for phase, seconds in spent.items():
        if seconds:
            print(f"  {phase.value:12} {seconds:6.1f} s in {len(trials)} trials")
    for trial in trials:
        ids = (
            ", ".join(sorted({warning.id for warning in trial.warnings if warning.suspect}))
            or "none"
        )
        print(f"  trial {trial.id}: {trial.status.value}, warnings that mark it: {ids}")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
