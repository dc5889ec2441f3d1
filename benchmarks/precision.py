"""How many blocks and minutes does a precision take: whole blocks until every pair has it, compared
with `run`?

    python benchmarks/precision.py [REPLAYS] [RUN..]       (default 50 replays: about three
    minutes)

Simulated plans of three setups, one of which has half the throughput, and recorded runs
(tests/fixtures/recorded/demo.json and the folders RUN), of which the baseline is listed a second
time. A replay draws whole blocks at random. `dbbench.run.adaptive.further` decides what is
measured; the other rule measures every setup until half of each pair's 98 % interval is within
the precision, at most 15 blocks. With a budget, whole blocks are compared with what `further`
measures in the same time. Exits with 1 if `run` needs more minutes than the other rule.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/fixtures"))
import synthetic

from dbbench import results
from dbbench.compare import rows
from dbbench.compare.pairing import estimate_of, values_of
from dbbench.model import Budget, Run, Status, Trial, TrialSpec
from dbbench.run.adaptive import LEAST, MOST_BLOCKS, another, further

RECORDED: Final = Path(__file__).parents[1] / "tests/fixtures/recorded/demo.json"
WORK: Final = (("postgres", "pgbench-tpcb"), ("mariadb", "oltp_read_write"), ("postgres", "scan"))
TRIAL_S: Final = 10.5  # of the demo
DIFFERENT: Final = ("faster", "slower")
# (workload, setup) -> logarithm of its value in each block
Values = dict[tuple[str, str], numpy.ndarray]
Draw = Callable[[int], Values]  # -> values of so many blocks


def simulated(scatter: float, workloads: int, rng: numpy.random.Generator) -> Draw:
    """Return three setups: two alike, and one with half the throughput."""
    level = {"ext4": 0.0, "again": 0.0, "btrfs": math.log(0.5)}
    return lambda blocks: {
        (work, arm): level[arm] + rng.normal(0, scatter, blocks)
        for _, work in WORK[:workloads]
        for arm in level
    }


def replayed(recorded: Values, rng: numpy.random.Generator) -> Draw:
    """Return the setups of a recorded run with their scatter; `again` has other blocks of the
    baseline.
    """
    count = min(len(values) for values in recorded.values())

    def draw(blocks: int) -> Values:
        picked = rng.integers(0, count, blocks)
        other = rng.integers(0, count, blocks)
        drawn = {key: values[picked] for key, values in recorded.items()}
        for work, arm in recorded:
            if arm == "ext4":
                drawn[work, "again"] = recorded[work, arm][other]
        return drawn

    return draw


def recorded_values(path: Path) -> Values:
    """Return the values of a run's folder, or of a file like RECORDED, whose baseline is ext4."""
    if path.is_file():
        document = json.loads(path.read_text())["workloads"]
        names = [work for _, work in WORK]
        return {
            (name, arm): numpy.log(of["value"])
            for name, arms in zip(names, document.values(), strict=True)
            for arm, of in arms.items()
        }
    loaded = results.load_run(path)
    metric = {cell.workload.name: cell.workload.primary for cell in loaded.run.cells}
    values: dict[tuple[str, str], list[float]] = {}
    for trial in sorted(loaded.trials, key=lambda trial: trial.block):
        if value := trial.summary.get(metric[trial.workload]):
            arm = "ext4" if trial.fs_setup == loaded.run.baseline else trial.fs_setup
            values.setdefault((trial.workload, arm), []).append(math.log(value))
    names = dict(
        zip(dict.fromkeys(work for work, _ in values), (work for _, work in WORK), strict=False)
    )
    return {
        (names[work], arm): numpy.array(of) for (work, arm), of in values.items() if work in names
    }


def make_run(folder: Path, values: Values) -> Run:
    """Return a run of these setups with three blocks."""
    arms = dict.fromkeys(arm for _, arm in values)
    works = {work for work, _ in values}
    ordered = sorted(arms, key=lambda arm: arm != "ext4")
    work = [pair for pair in WORK if pair[1] in works]
    run = results.load_spec(
        synthetic.write(
            folder,
            synthetic.Shape(
                ordered,
                work,
                series=False,
                samplers=False,
                missing=10**6,
            ),
        )
    )
    return dataclasses.replace(
        run,
        plan=dataclasses.replace(
            run.plan,
            baseline="ext4",
            repeat_suspect=False,
        ),
    )


def measured(
    run: Run,
    specs: tuple[TrialSpec, ...],
    values: Values,
) -> dict[str, Trial]:
    """Return the trials of these cells with the drawn values."""
    trials = {}
    for spec in specs:
        cell = run.cell(spec.cell)
        tps = math.exp(values[cell.workload.name, cell.arm][spec.block - 1]) * 1000
        trials[spec.id] = Trial(
            spec.id,
            "r",
            "h",
            cell.arm,
            cell.engine.name,
            cell.workload.name,
            spec.block,
            1,
            spec.position,
            Status.OK,
            summary={cell.workload.primary: tps},
        )
    return trials


def by_whole_blocks(run: Run, values: Values, precision: float) -> int:
    """Return the number of trials until every pair has its precision, by the rule of former
    versions.
    """
    trials = list[Trial]()
    left = {(cell.group, cell.arm) for cell in run.cells if cell.arm != "ext4"}
    count = 0
    for block in range(1, MOST_BLOCKS + 1):
        groups = {group for group, _ in left}
        cells = [
            c
            for c in run.cells
            if (c.group, c.arm) in left or (c.arm == "ext4" and c.group in groups)
        ]
        new = measured(run, tuple(another(run, block, cells)), values)
        trials = [*trials, *new.values()]
        count = count + len(new)
        for cell in [cell for cell in cells if cell.arm != "ext4" and block >= LEAST]:
            of_group = [t for t in trials if (t.engine, t.workload, t.variant) == cell.group]
            guess = estimate_of(
                values_of(
                    of_group,
                    "ext4",
                    cell.arm,
                    cell.workload.primary,
                )
            )
            if guess and math.expm1(guess.log_ratio().half_width(0.98)) <= precision:
                left.discard((cell.group, cell.arm))
    return count


def by_run(run: Run, values: Values) -> tuple[Run, list[Trial]]:
    """Return the run as `further` ends it, with its trials."""
    while True:
        trials = measured(run, run.order, values)
        if run.budget is not None:
            used = dataclasses.replace(run.budget, used_s=TRIAL_S * len(run.order))
            run = dataclasses.replace(run, budget=used)
        longer = further(run, trials)
        if longer.order == run.order:
            return longer, list(trials.values())
        run = longer


def compare_precisions(
    name: str, run: Run, draw: Draw, replays: int
) -> Iterator[tuple[str, float]]:
    """Yield (line, minutes of `run` ÷ minutes of whole blocks) for ±3 and ±5 %."""
    for precision in (0.03, 0.05):
        before = []
        now = []
        for _ in range(replays):
            values = draw(MOST_BLOCKS)
            before.append(by_whole_blocks(run, values, precision))
            now.append(len(by_run(dataclasses.replace(run, precision=precision), values)[1]))
        old, new = (statistics.fmean(counts) for counts in (before, now))
        cells = len(run.cells)
        yield (
            f"{name:<34} ±{100 * precision:.0f} %: {old / cells:5.1f} blocks, "
            f"{old * TRIAL_S / 60:5.1f} min; now {new / cells:5.1f}, {new * TRIAL_S / 60:5.1f} "
            f"min ({new / old:.2f})",
            new / old,
        )


def in_ten_minutes(
    name: str,
    run: Run,
    draw: Draw,
    replays: int,
    budget_s: float = 580.0,
) -> str:
    """Return how wide the intervals are after the budget of the demo, with whole blocks and with
    `further`.
    """
    plan = dataclasses.replace(run.plan, budget_s=budget_s)
    times = {cell.id: TRIAL_S for cell in run.cells}
    timed = dataclasses.replace(
        run,
        plan=plan,
        budget=Budget(cell_s=times),
    )
    blocks = int(budget_s / TRIAL_S / len(run.cells))
    primary = {cell.workload.name: cell.workload.primary for cell in run.cells}
    widths: dict[str, list[float]] = {"before": [], "now": []}
    apart = 0
    differs = 0
    families = 0
    for _ in range(replays):
        values = draw(60)
        order = tuple(
            spec for block in range(1, blocks + 1) for spec in another(run, block, run.cells)
        )
        for when, trials in (
            ("before", list(measured(run, order, values).values())),
            ("now", by_run(timed, values)[1]),
        ):
            table = rows(trials, "ext4", primary)
            widths[when] += [
                math.log(row.hi / row.lo) / 2
                for row in table
                if row.fs_setup in ("again", "xfs") and row.lo and row.hi
            ]
            if when == "now":
                again = [row.verdict for row in table if row.fs_setup == "again"]
                differs += sum(verdict in DIFFERENT for verdict in again)
                families += len(again)
                btrfs = [row.verdict for row in table if row.fs_setup == "btrfs"]
                apart += all(verdict in DIFFERENT for verdict in btrfs)
    before, now = (100 * statistics.median(of) for of in widths.values())
    alike = f"ext4 differs from itself in {differs} of {families}"
    widths_text = (
        f"±{before:.1f} % with {blocks} whole blocks, now ±{now:.1f} % ({now / before:.2f})"
    )
    different = f"btrfs is told apart everywhere in {apart} of {replays}"
    return f"{name:<34} ten minutes: {widths_text}; {different}, {alike}"


def main() -> int:
    """Print all comparisons; return 1 if `run` needs more minutes anywhere."""
    replays = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    rng = numpy.random.default_rng(1)
    ratios = list[float]()
    plans = {
        f"simulated, {100 * cv:.0f} %, {n} workloads": simulated(cv, n, rng)
        for cv in (0.03, 0.05, 0.08)
        for n in (1, 3)
    }
    plans |= {
        f"recorded, {path.stem}": replayed(recorded_values(path), rng)
        for path in (RECORDED, *map(Path, sys.argv[2:]))
    }
    for name, draw in plans.items():
        with tempfile.TemporaryDirectory() as folder:
            run = make_run(Path(folder), draw(1))
        for line, ratio in compare_precisions(name, run, draw, replays):
            print(line, flush=True)
            ratios.append(ratio)
        print(in_ten_minutes(name, run, draw, replays), flush=True)
    return 1 if max(ratios) > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
