"""Blocks until a precision: only the width of each pair's interval decides."""

from __future__ import annotations

import dataclasses
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import synthetic
from synthetic import Shape

from dbbench import results
from dbbench.model import Run, Status, Trial
from dbbench.run.adaptive import further

WORK = (("postgres", "pgbench-tpcb"),)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three arms, three blocks, 2 % asked."""
    found = results.load_spec(synthetic.write(tmp_path, Shape(work=WORK)))
    return dataclasses.replace(found, precision=0.02)


def driven(run: Run, scatter: dict[str, float], failed: str = "") -> dict[str, Trial]:
    """All trials of the order, with the scatter of their arms."""
    found = {}
    for spec in run.order:
        cell = run.cell(spec.cell)
        tps = 1000 * (1 + random.Random(spec.id).gauss(0, scatter.get(cell.arm, 0.0001)))
        found[spec.id] = Trial(
            spec.id, run.name, "h", cell.arm, cell.engine.name, cell.workload.name, spec.block, spec.attempt,
            spec.position, Status.FAILED if cell.arm == failed else Status.OK, summary={"tps": tps},
        )  # fmt: skip
    return found


def to_the_end(run: Run, scatter: dict[str, float], failed: str = "") -> Run:
    """The run when nothing is asked for any more."""
    while (longer := further(run, driven(run, scatter, failed))).order != run.order:
        run = longer
    return longer


def blocks(run: Run, arm: str) -> int:
    """How many trials of the arm the order has."""
    return sum(run.cell(spec.cell).arm == arm for spec in run.order)


def test_never_fewer_than_five_pairs(run: Run) -> None:
    """However quiet, the width is not believed before."""
    end = to_the_end(run, {})
    assert [blocks(end, arm) for arm in ("ext4", "xfs", "btrfs")] == [5, 5, 5]
    assert all((question.kind, question.pairs) == ("settled", 5) for question in end.questions.values())
    assert all(text.startswith("settled after 5 pairs") for text in end.settled.values())
    assert len(end.settled) == 2


def test_a_settled_arm_stops_and_the_baseline_stays(run: Run) -> None:
    """The noisy pair continues to fifteen blocks with the baseline; the quiet one stops at five."""
    end = to_the_end(run, {"btrfs": 0.2})
    assert [blocks(end, arm) for arm in ("ext4", "xfs", "btrfs")] == [15, 5, 15]
    assert end.settled["btrfs.postgres.pgbench-tpcb"].startswith("open after 15 pairs: ±")


def test_an_arm_that_always_fails_is_given_up(run: Run) -> None:
    """No time for what cannot be answered."""
    end = to_the_end(run, {}, failed="btrfs")
    assert blocks(end, "btrfs") == 3
    assert end.settled["btrfs.postgres.pgbench-tpcb"].startswith("given up")


def test_without_a_precision_exactly_the_plans_blocks(run: Run) -> None:
    """No further block is ever made."""
    plain = dataclasses.replace(run, precision=None)
    assert further(plain, driven(plain, {"btrfs": 0.5})) is plain


def test_order_of_a_further_block_is_repeatable(run: Run) -> None:
    """By seed and block alone; positions go on."""
    one, two = further(run, driven(run, {})), further(run, driven(run, {}))
    assert one.order == two.order
    assert [spec.position for spec in one.order] == list(range(1, 13))
