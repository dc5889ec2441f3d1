"""What a trial costs next to its load: a trial and a shell script with the same steps, in one run.

    python benchmarks/road.py [ROUNDS]          (root, PostgreSQL)

A pgbench dataset of about 578 MB on ext4 on a loop device with direct I/O. In each round the
script and a trial with a window of 1 + 1 s take turns, and both begin with the golden copy in the
page cache (warm), then both without it (cold). The trial's phases without warm-up and window are
what is compared.

Prints the medians of both states with their ratios (target: at most 1.10 each), the phases, and
the share of wall time that a cell of 60 s + 60 s spends in warm-up and window (target: at least
97.5 %), with the phases of that cell outside of its load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dbbench import datasets, results
from dbbench.model import Phase, Run, Trial
from dbbench.plan import expand, identity, load
from dbbench.plan.catalog import catalog
from dbbench.run.queue import execute
from dbbench.storage.devices.image import make_image

SCALE = 36  # 578 MB
SCRIPT = Path(__file__).parent / "by_hand.sh"
MOST_RATIO = 1.10
LEAST_SHARE = 0.975
LOAD = (Phase.WARMUP, Phase.MEASURE)
PLAN = """
name = "road"
fs_setups = ["ext4"]
blocks = 1
warmup = "{warmup}s"
measure = "{measure}s"
repeat_suspect = false
[device]
size = "4GiB"
[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
scale = {scale}
"""

Prepare = Callable[[Path], None]


def run_trial(
    folder: Path,
    number: int,
    warmup: int = 1,
    measure: int = 1,
) -> tuple[Trial, float]:
    """Run a plan of one trial; return it and the wall seconds of its process, without images and
    golden copies.
    """
    path = folder / "plan.toml"
    path.write_text(
        PLAN.format(
            warmup=warmup,
            measure=measure,
            scale=SCALE,
        )
    )
    plan = load(path, catalog())
    cells, order, _ = expand(plan, catalog())
    run = Run(
        f"r{number}",
        "2026-01-01T00:00:00Z",
        plan,
        identity(plan, cells),
        cells,
        order,
    )
    where = results.create_run(folder, run, path.read_text())
    marks: dict[str, float] = {}
    execute(
        where, run.plan_sha256, emit=lambda event: marks.setdefault(event.kind, time.monotonic())
    )
    (trial,) = results.load_run(where).trials
    if trial.error:
        raise SystemExit(f"the trial failed: {trial.error.text}")
    return trial, marks["trial_end"] - marks["trial_begin"]


def beside_load(trial: Trial, wall_s: float) -> float:
    """Return the wall seconds outside of warm-up and window, with process start and publishing."""
    load_s = [trial.phase_s(phase) or 0 for phase in LOAD]
    return wall_s - sum(load_s)


def warm(golden: Path) -> None:
    """Read the golden copy into the page cache."""
    for file in golden.rglob("*"):
        if file.is_file():
            file.read_bytes()


def cool(golden: Path) -> None:
    """Remove the golden copy from the page cache."""
    for file in golden.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Round(NamedTuple):
    """One turn of the script and one trial after it, in seconds outside of the load."""

    script_s: float
    trial_s: float
    trial: Trial


def compare_once(
    folder: Path,
    golden: Path,
    prepare: Prepare,
    number: int,
) -> Round:
    """Let the script and a trial take a turn each; `prepare` sets the cache state before both."""
    image = folder / "hand.img"
    bin_folder = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    prepare(golden)
    began = time.monotonic()
    subprocess.run([str(SCRIPT), str(image), str(golden), str(bin_folder)], check=True)
    script_s = time.monotonic() - began

    prepare(golden)
    trial, wall_s = run_trial(folder, number)
    return Round(script_s, beside_load(trial, wall_s), trial)


def print_rounds(state: str, rounds: list[Round]) -> float:
    """Print the medians of one cache state and the phases of its trials; return the ratio."""
    ratio = statistics.median(each.trial_s / each.script_s for each in rounds)
    script_s = statistics.median(each.script_s for each in rounds)
    trial_s = statistics.median(each.trial_s for each in rounds)
    print(f"{state}: by hand {script_s:.2f} s   dbbench {trial_s:.2f} s   ratio {ratio:.2f}")
    for phase in Phase:
        if phase in LOAD:
            continue
        seconds = statistics.median(each.trial.phase_s(phase) or 0 for each in rounds)
        print(f"  {phase.value:<11}{seconds:6.2f} s")
    outside = []
    for each in rounds:
        in_phases = sum(phase.seconds for phase in each.trial.phases)
        outside.append(each.trial_s - beside_load(each.trial, in_phases))
    rest_s = statistics.median(outside)
    print(f"  {'the rest':<11}{rest_s:6.2f} s  process, samplers' end, publishing")
    return ratio


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rounds", metavar="ROUNDS", type=int, nargs="?", default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="dbbench-road-", dir="/var/tmp") as name:
        folder = Path(name)
        make_image(folder / "hand.img", 4 * 2**30)
        first, _ = run_trial(folder, 0)  # builds the golden copy and does not count
        cell = results.load_spec(folder / "r0").cells[0]
        key = datasets.golden.recipe(cell.engine, cell.dataset).key
        golden = datasets.golden.cache_folder() / key / "data"
        print(f"dataset {(first.summary['dataset_bytes'] or 0) / 1e6:.0f} MB, {rounds} rounds")

        states: dict[str, Prepare] = {"warm": warm, "cold": cool}
        turns: dict[str, list[Round]] = {state: [] for state in states}
        number = 0
        for _ in range(rounds):
            for state, prepare in states.items():
                number += 1
                turns[state].append(compare_once(folder, golden, prepare, number))
        ratios = [print_rounds(state, turns[state]) for state in states]

        last, wall_s = run_trial(folder, number + 1, 60, 60)
        share = 1 - beside_load(last, wall_s) / wall_s
        print(f"a cell of 60 s + 60 s: {wall_s:.1f} s, {share:.1%} of it in warm-up and window")
        parts = [
            f"{phase.name.value} {phase.seconds:.2f} s"
            for phase in last.phases
            if phase.name not in LOAD and phase.seconds >= 0.1
        ]
        print(f"  {', '.join(parts)}")
        return 0 if max(ratios) <= MOST_RATIO and share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
