"""What a trial costs beside its load: dbbench's road against a shell script with the same steps, in
one run.

    python benchmarks/road.py [ROUNDS]          (root, PostgreSQL)

A pgbench dataset of about 578 MB on ext4 on a loop device with direct I/O. In each round the
script and a trial with a window of 1 + 1 s take turns; the trial's phases without warm-up and
window are what is compared. Prints medians, the ratio (target: at most 1.3), the phases, and the
share of wall time that a cell of 60 s + 60 s spends in warm-up and window (target: at least 96.5
%), with the phases of that cell outside of its load.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dbbench import datasets, results
from dbbench.model import Phase, Run, Trial
from dbbench.plan import expand, identity, load
from dbbench.plan.catalog import catalog
from dbbench.run.queue import execute
from dbbench.storage.devices.image import make_image

SCALE = 36  # 578 MB
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


def trial(folder: Path, number: int, warmup: int = 1, measure: int = 1) -> tuple[Trial, float]:
    """Run a plan of one trial; return it and the wall seconds of its process, without images and
    golden copies.
    """
    path = folder / "plan.toml"
    path.write_text(PLAN.format(warmup=warmup, measure=measure, scale=SCALE))
    plan = load(path, catalog())
    cells, order, _ = expand(plan, catalog())
    run = Run(f"r{number}", "2026-01-01T00:00:00Z", plan, identity(plan, cells), cells, order)
    where = results.create_run(folder, run, path.read_text())
    marks: dict[str, float] = {}
    execute(
        where, run.plan_sha256, emit=lambda event: marks.setdefault(event.kind, time.monotonic())
    )
    (found,) = results.load_run(where).trials
    if found.error:
        raise SystemExit(f"the trial failed: {found.error.text}")
    return found, marks["trial_end"] - marks["trial_begin"]


def beside_load(found: Trial, wall_s: float) -> float:
    """Return the wall seconds outside of warm-up and window, including process start and
    publishing.
    """
    return wall_s - (found.phase_s(Phase.WARMUP) or 0) - (found.phase_s(Phase.MEASURE) or 0)


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="dbbench-road-", dir="/var/tmp") as name:
        folder = Path(name)
        found, _ = trial(folder, 0)  # builds the golden copy and does not count
        cell = results.load_spec(folder / "r0").cells[0]
        golden = (
            datasets.golden.cache_folder()
            / datasets.golden.recipe(cell.engine, cell.dataset).key
            / "data"
        )
        image = folder / "hand.img"
        make_image(image, 4 * 2**30)
        bin_folder = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        hand = []
        ours = []
        trials = []
        for number in range(1, rounds + 1):
            began = time.monotonic()
            script = Path(__file__).parent / "by_hand.sh"
            subprocess.run([str(script), str(image), str(golden), str(bin_folder)], check=True)
            hand.append(time.monotonic() - began)
            found, wall = trial(folder, number)
            trials.append(found)
            ours.append(beside_load(found, wall))
        ratio = statistics.median(o / h for o, h in zip(ours, hand, strict=True))
        print(f"dataset {(found.summary['dataset_bytes'] or 0) / 1e6:.0f} MB, {rounds} rounds")
        print(
            f"by hand {statistics.median(hand):.2f} s   dbbench {statistics.median(ours):.2f} s  "
            f" ratio {ratio:.2f}"
        )
        for phase in Phase:
            if phase not in LOAD:
                print(
                    "  "
                    f"{phase.value:<11}{statistics.median(t.phase_s(phase) or 0 for t in trials):6.2f} "
                    "s"
                )
        in_phases = statistics.median(
            beside_load(t, sum(p.seconds for p in t.phases)) for t in trials
        )
        print(
            f"  {'the rest':<11}{statistics.median(ours) - in_phases:6.2f} s  process, samplers' "
            "end, publishing"
        )
        found, wall = trial(folder, rounds + 1, 60, 60)
        share = 1 - beside_load(found, wall) / wall
        print(f"a cell of 60 s + 60 s: {wall:.1f} s, {share:.1%} of it in warm-up and window")
        parts = [
            f"{p.name.value} {p.seconds:.2f} s"
            for p in found.phases
            if p.name not in LOAD and p.seconds >= 0.1
        ]
        print(f"  {', '.join(parts)}")
        return 0 if ratio <= 1.3 and share >= 0.965 else 1


if __name__ == "__main__":
    sys.exit(main())
