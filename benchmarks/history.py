"""With a history of 10 000 trials: `show`, `compare` of a run and the analysis of a night in 1 s
each; the index is rebuilt from the folders in 30 s.

One made-up run is linked 250 times into a temporary folder. Seconds are of CPU, start of Python
included: on an idle machine with a warm page cache the answer takes as long. Exits 1 where a
target is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/fixtures"))

import synthetic  # noqa: E402
from synthetic import Shape  # noqa: E402

from dbbench import results  # noqa: E402
from dbbench.nightly import history  # noqa: E402
from dbbench.nightly.judging import judge  # noqa: E402
from dbbench.nightly.night import night_of  # noqa: E402
from dbbench.results import INDEX_NAME as NAME  # noqa: E402

RUNS: Final = 250
SHAPE: Final = Shape(
    arms=("ext4", "xfs", "btrfs", "ext4-guard"), blocks=10, work=(("postgres", "pgbench-tpcb"),)
)
ANSWER_S: Final = 1.0
REBUILD_S: Final = 30.0


def grow(results_folder: Path) -> None:
    """Create RUNS runs of 40 trials, and as many nights."""
    first = synthetic.write(results_folder, SHAPE)
    base = night_of(results.load_run(first))
    content = json.loads((first / "run.json").read_text())
    lines = []
    for number in range(RUNS):
        day = datetime.date(2026, 1, 1) + datetime.timedelta(number)
        name = f"demo-night-{day}-a"
        shutil.copytree(first, results_folder / name, copy_function=os.link)
        (results_folder / name / "run.json").unlink()
        content |= {"name": name, "created": f"{day}T01:30:00.000Z"}
        (results_folder / name / "run.json").write_text(json.dumps(content))
        night = dataclasses.replace(
            base, night=str(day), run=name, created=content["created"], good=True
        )
        lines.append(json.dumps(dataclasses.asdict(night)))
    shutil.rmtree(first)
    (results_folder / history.FOLDER).mkdir()
    (results_folder / history.FOLDER / "demo.jsonl").write_text("\n".join(lines) + "\n")


def command(results_folder: Path, *words: str) -> float:
    """Return the CPU seconds of a command line, including the start of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-m", "dbbench", *words, "--results", str(results_folder), "--json"]
    subprocess.run(
        argv,
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=results_folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def analysis(results_folder: Path) -> float:
    """Return the CPU seconds of reading all nights and judging the newest one."""
    began = time.process_time()
    nights = history.all_nights(results_folder, "demo")
    judge(nights[:-1], nights[-1], None, RUNS)
    return time.process_time() - began


def main() -> int:
    """Print each figure next to its target."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="dbbench-history-") as folder:
        results_folder = Path(folder)
        grow(results_folder)
        trials = sum(1 for _ in results_folder.glob("*/trials/*/trial.json"))
        print(f"{trials} trials in {RUNS} runs")
        newest = max(path.name for path in results_folder.glob("demo-night-*"))
        for what, limit, took in (
            (
                "show, the index rebuilt from the folders",
                REBUILD_S,
                command(results_folder, "show"),
            ),
            ("show", ANSWER_S, min(command(results_folder, "show") for _ in range(3))),
            (
                "compare of a run",
                ANSWER_S,
                min(command(results_folder, "compare", newest) for _ in range(3)),
            ),
            (f"nightly: {RUNS} nights read and judged", ANSWER_S, analysis(results_folder)),
        ):
            missed += took > limit
            print(f"  {what:<44} {took:6.2f} s  ≤ {limit:g} s{'  MISSED' if took > limit else ''}")
        assert (results_folder / NAME).exists()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
