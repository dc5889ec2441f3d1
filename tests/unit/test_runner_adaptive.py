"""Blocks until a precision: only the width of each pair's interval decides."""

import dataclasses
import random
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import results
from dbbench.compare import Comparison, stop_reasons
from dbbench.compare.remarks import RemarkKind
from dbbench.model import Budget, Question, Run, Status, Trial
from dbbench.run.adaptive import further
from tests.support.trials import trial

BTRFS = "btrfs.postgres.pgbench-tpcb"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three arms, three blocks, 2 % asked. No pair is the same, because the margin is smaller than
    any scatter.
    """
    found = results.load_spec(synthetic.write(tmp_path, Shape(work=TPCB)))
    return dataclasses.replace(
        found,
        precision=0.02,
        plan=dataclasses.replace(found.plan, margin=1e-9),
    )


def driven(
    run: Run,
    scatter: dict[str, float],
    failed: str = "",
    slow: str = "",
) -> dict[str, Trial]:
    """All trials of the order, with the scatter of their arms; one arm fails, one has a third of
    the throughput.
    """
    found = {}
    for spec in run.order:
        cell = run.cell(spec.cell)
        tps = (330 if cell.arm == slow else 1000) * (
            1 + random.Random(spec.id).gauss(0, scatter.get(cell.arm, 0.0001))
        )
        status = Status.FAILED if cell.arm == failed else Status.OK
        found[spec.id] = trial(
            cell.arm,
            spec.block,
            tps,
            id=spec.id,
            workload=cell.workload.name,
            status=status,
        )
    return found


def to_the_end(
    run: Run,
    scatter: dict[str, float],
    failed: str = "",
    slow: str = "",
) -> Run:
    """The run when nothing is asked for any more."""
    while (longer := further(run, driven(run, scatter, failed, slow))).order != run.order:
        run = longer
    return longer


def blocks(run: Run, arm: str) -> int:
    """How many trials of the arm the order has."""
    return sum(run.cell(spec.cell).arm == arm for spec in run.order)


def test_an_arm_stops_when_it_is_settled(run: Run) -> None:
    """Never with fewer than five pairs: however quiet, the width is not believed before. The noisy
    pair continues to fifteen blocks with the baseline. An arm that always fails is given up: no
    time for what cannot be answered.
    """
    end = to_the_end(run, {})
    assert [blocks(end, arm) for arm in ("ext4", "xfs", "btrfs")] == [5, 5, 5]
    assert all(
        (question.kind, question.pairs) == ("settled", 5) for question in end.questions.values()
    )
    assert len(end.questions) == 2
    end = to_the_end(run, {"btrfs": 0.2})
    assert [blocks(end, arm) for arm in ("ext4", "xfs", "btrfs")] == [15, 5, 15]
    question = end.questions[BTRFS]
    assert (
        (question.kind, question.pairs) == ("open", 15)
        and question.half_width
        and question.half_width > 0.02
    )
    end = to_the_end(run, {}, failed="btrfs")
    assert blocks(end, "btrfs") == 3
    assert end.questions[BTRFS].kind == "given-up"


def test_the_interval_of_a_settled_pair_has_a_higher_level(run: Run) -> None:
    """It stopped because its scatter looked small, which it does too often by chance. Other runs
    keep 95 %.
    """
    two = tuple(cell for cell in run.cells if cell.arm != "btrfs")
    run = dataclasses.replace(
        run,
        cells=two,
        order=tuple(s for s in run.order if not s.cell.startswith("btrfs")),
    )
    end = to_the_end(run, {"xfs": 0.004})
    assert {question.kind for question in end.questions.values()} == {"settled"}
    trials = list(driven(end, {"xfs": 0.004}).values())
    group = ("postgres", "pgbench-tpcb", "")
    (_, plain), (_, settled) = (
        Comparison(trials, "ext4", {}, stopped=stopped).rows(group, "tps")
        for stopped in ({}, stop_reasons(end))
    )
    assert (plain.level, settled.level) == (0.95, pytest.approx(0.96))
    assert plain.lo and settled.lo and settled.lo < plain.lo


def test_further_blocks_are_repeatable(run: Run) -> None:
    """By seed and block alone; positions go on. Without a precision there are exactly the plan's
    blocks.
    """
    plain = dataclasses.replace(run, precision=None)
    assert further(plain, driven(plain, {"btrfs": 0.5})) is plain
    one = further(run, driven(run, {}))
    two = further(run, driven(run, {}))
    assert one.order == two.order
    assert [spec.position for spec in one.order] == list(range(1, 13))


def test_a_decided_arm_gives_its_time_to_the_others(run: Run) -> None:
    """With a precision and with a budget; the state is recorded, and rows say why the arm has fewer
    blocks.
    """
    noise = dict.fromkeys(("ext4", "xfs", "btrfs"), 0.03)
    budget = Budget(cell_s=dict.fromkeys((cell.id for cell in run.cells), 30.0))
    plan = dataclasses.replace(run.plan, budget_s=1000.0)
    timed = dataclasses.replace(run, precision=None, plan=plan, budget=budget)
    while (longer := further(timed, driven(timed, noise, slow="btrfs"))).order != timed.order:
        timed = dataclasses.replace(
            longer, budget=dataclasses.replace(budget, used_s=30.0 * len(longer.order))
        )
    for end in (to_the_end(run, noise, slow="btrfs"), longer):
        assert blocks(end, "btrfs") == 5 < blocks(end, "xfs") == blocks(end, "ext4")
        question = end.questions[BTRFS]
        assert (question.kind, question.pairs, question.verdict) == ("decided", 5, "slower")
        trials = list(driven(end, noise, slow="btrfs").values())
        table = Comparison(trials, "ext4", {}, stopped=stop_reasons(end)).rows(
            ("postgres", "pgbench-tpcb", ""), "tps"
        )
        kinds = {row.fs_setup: [note.kind for note in row.notes] for row in table}
        assert kinds["btrfs"] == [RemarkKind.DECIDED] and RemarkKind.DECIDED not in kinds["xfs"]
    assert blocks(longer, "xfs") == 14  # 5 blocks of three cells and 9 of two fill 33 times 30 s
    assert longer.budget and longer.budget.ended == "time"


def test_a_decision_is_kept_when_the_run_is_resumed(run: Run) -> None:
    """Even if the figures that are there now would not decide it; without the record they do not."""
    noise = dict.fromkeys(("ext4", "xfs", "btrfs"), 0.2)
    decided = {BTRFS: Question("decided", 3, 0.01, "slower")}
    kept = further(dataclasses.replace(run, questions=decided), driven(run, noise))
    assert kept.questions[BTRFS] == decided[BTRFS] and blocks(kept, "btrfs") == 3 < blocks(
        kept, "xfs"
    )
    assert blocks(further(run, driven(run, noise)), "btrfs") == 4


def test_a_run_ends_when_all_is_decided(run: Run) -> None:
    """Equal within the margin is an answer too. A run without candidates uses its whole budget."""
    plan = dataclasses.replace(run.plan, budget_s=1e6, margin=0.05)
    timed = dataclasses.replace(run, precision=None, plan=plan, budget=Budget())
    end = further(timed, driven(timed, {}))
    assert end.order == run.order and end.budget and end.budget.ended == "decided"
    assert {question.verdict for question in end.questions.values()} == {"same"}
    alone = tuple(cell for cell in run.cells if cell.arm == "ext4")
    order = tuple(spec for spec in run.order if spec.cell == alone[0].id)
    lonely = dataclasses.replace(timed, cells=alone, order=order)
    assert len(further(lonely, driven(lonely, {})).order) == 4


def test_a_share_of_a_run_decides_nothing(run: Run) -> None:
    """It has a part of the pairs only."""
    plan = dataclasses.replace(run.plan, budget_s=1e6)
    share = dataclasses.replace(run, precision=None, plan=plan, budget=Budget(2))
    longer = further(share, driven(share, {}, slow="btrfs"))
    assert longer.questions == {} and blocks(longer, "btrfs") == 4
