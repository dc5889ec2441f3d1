"""The harm of power cuts: words, counts, intervals, and the controls."""

from __future__ import annotations

import dataclasses
from typing import Final

import pytest

from dbbench.compare.interval import independent_tries, share_interval, upper_bound
from dbbench.labs.powercut import targets
from dbbench.labs.powercut.base_images import BaseImages
from dbbench.labs.powercut.conclusions import (
    conclusion,
    contradiction,
    cut_counts,
    is_blind,
    statement,
)
from dbbench.labs.powercut.lab import Tally
from dbbench.model import Conclusion, CutFacts, Durability, EngineName, EngineSpec
from tests.support.plans import SHIPPED
from tests.unit.test_powercut import cut

UNKNOWN, NOBARRIER, NOJOURNAL, ASYNC, TORN, REPORTED, LAB, PREVENTED = Durability


CONTROL: Final = targets.control_target(
    targets.controls_of("postgres")[0],
    EngineSpec("postgres"),
    SHIPPED,
)


def late(**harms: str) -> CutFacts:
    """A power loss after a kill."""
    return dataclasses.replace(cut(**harms), after_kill=True)


def killed(**harms: str) -> CutFacts:
    """A kill."""
    return dataclasses.replace(cut(**harms), aim="kill", unit_bytes=0)


def said(cuts: list[CutFacts], blind: bool = False) -> str:
    """The statement about these cuts."""
    return statement(conclusion(cuts, blind), cuts)


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        # 3/n at 95 %, the rule of three, and never "safe"
        ([cut()] * 223, "0 of 223 cuts (< 1.3 % at 95 %)"),
        ([*[cut()] * 9, cut(invalid="umount")], "0 of 9 cuts (< 33.3 % at 95 %)"),
        # one in ten may be
        ([*[cut()] * 8, *[cut(invalid="umount")] * 2], "no statement: 2 of 10 cuts are invalid"),
        ([], "no statement: no valid cut"),
        (
            [cut(), cut(lost="3 of 9")],
            "1 of 2 cuts harmed (9.45–90.5 % at 95 % from 1 recording; rows: 1 of 2; "
            "unit 4 KiB: 1 of 2)",
        ),
        # one fault is not the other
        (
            [cut(), late(torn="page 7"), killed(), killed(lost="1")],
            "0 of 1 cuts (< 100.0 % at 95 %); after kill: 1 of 1; kills: 1 of 2",
        ),
        (
            [cut(lost="3 of 9"), *[late()] * 9],
            "1 of 1 cuts harmed (0–100 % at 95 % from 1 recording; rows: 1 of 1; unit 4 KiB: 1 of 1); "
            "after kill: 0 of 9",
        ),
        ([late()], "no statement: no valid cut"),
    ],
)
def test_cuts_are_put_into_words(cuts: list[CutFacts], words: str) -> None:
    """Invalid cuts do not count. A blind lab says nothing, not even of cuts that were harmed."""
    assert said(cuts) == words
    assert not cuts or said(cuts, blind=True) == "lab blind: no statement"
    assert upper_bound(2) == 1.0


def test_cuts_are_counted_by_their_worst_harm() -> None:
    """Those during writes, after schema changes and after a kill apart, kills too; each cut once."""
    cuts = [*[cut()] * 3, cut(lost="3 of 9\nmore", torn="page 7"), cut(invalid="umount")]
    cuts += [
        dataclasses.replace(cut(fsck="inode 12"), changes=True),
        dataclasses.replace(late(torn="page 7"), changes=True),
        killed(),
    ]
    counts = list(cut_counts(cuts, Conclusion.HARMED, "said"))
    assert [(one.column, one.word, one.count, one.of) for one in counts] == [
        ("cut during DML", "unharmed", 3, 4),
        ("cut during DML", "torn", 1, 4),
        ("cut after DDL", "fsck", 1, 1),
        ("cut after kill", "torn", 1, 1),
        ("kill", "unharmed", 1, 1),
    ]
    assert counts[1].detail == "unit 4 KiB: 1 of 4; page 7"
    assert {
        (one.word, one.of, one.detail) for one in cut_counts(cuts, Conclusion.BLIND, "blind")
    } == {("untried", 0, "blind")}
    unharmed = cut_counts([cut()], Conclusion.UNHARMED, "")
    assert [one.detail for one in unharmed] == ["unit 4 KiB: 0 of 1", *["no valid cut"] * 3]


@pytest.mark.parametrize(
    ("count", "tries", "low", "high"),
    [
        (0, 30, 0.0, 0.1),
        (30, 30, 0.9, 1.0),
        (1, 2, 0.0945, 0.9055),
        (5, 50, 0.0435, 0.2136),
        (0, 2, 0.0, 1.0),
    ],
)
def test_a_share_has_an_interval(
    count: int,
    tries: int,
    low: float,
    high: float,
) -> None:
    """Wilson's, and at the ends the rule of three."""
    assert share_interval(count, tries) == pytest.approx((low, high), abs=1e-4)


def test_harmed_cuts_of_one_recording_make_the_interval_wider() -> None:
    """Ten of forty, all in one of four recordings, tell no more than three independent cuts."""
    spread = [(3, 10), (2, 10), (3, 10), (2, 10)]
    assert independent_tries(spread) == 40
    assert independent_tries([(10, 10), (0, 10), (0, 10), (0, 10)]) == pytest.approx(3.0)
    assert independent_tries([(10, 20)]) == 20
    assert independent_tries([(0, 10), (0, 10)]) == 20
    assert share_interval(10, 40, 3.0) == pytest.approx((0.0368, 0.7439), abs=1e-4)


def test_each_recording_has_a_number_of_its_own() -> None:
    """Also those of other processes, which record at the same time."""
    first = Tally(CONTROL, 1, 2, recordings=2)
    second = Tally(CONTROL, 2, 2, recordings=1)
    for tally in (first, second):
        tally.count(cut(), changes=False)
    first.add([second])
    assert [one.recording for one in first.cuts] == [3, 2]


@pytest.mark.parametrize(
    ("flags", "kind", "allowed"),
    [
        ((), "lost", False),
        ((), "fsck", False),
        ((ASYNC,), "lost", True),
        ((ASYNC,), "torn", False),
        ((TORN,), "torn", True),
        ((TORN,), "unrecovered", True),
        ((TORN,), "fsck", False),
        ((NOBARRIER,), "fsck", True),
        ((NOJOURNAL,), "unrecovered", True),
        ((ASYNC, TORN), "damaged", True),
        ((REPORTED,), "lost", True),
        ((REPORTED,), "fsck", False),
        ((LAB,), "unrecovered", True),
        ((LAB,), "fsck", False),
    ],
)
def test_class_says_which_harm_is_allowed(
    flags: tuple[Durability, ...],
    kind: str,
    allowed: bool,
) -> None:
    """A commit that was not waited for may be gone, and nothing else; a torn page may be all but
    the filesystem.
    """
    said = contradiction([cut(), cut(4, **{kind: "seen\nmore"})], flags)
    assert said == ("" if allowed else f"cut 4 (commit, seed seed): {kind}: seen")
    if not allowed:
        assert contradiction([cut(**{kind: "status 2:\n  page 5\nmore"})], flags).endswith(
            ": status 2: page 5"
        )


@pytest.mark.parametrize(
    ("unit", "shift", "allowed"),
    [
        (512, 0, True),
        (8192, 0, True),
        (16384, 4096, True),
        (16384, 0, False),
        (0, 0, True),
    ],
)
def test_torn_pages_are_prevented_by_aligned_units(
    unit: int,
    shift: int,
    allowed: bool,
) -> None:
    """Smaller units than a page and shifted ones may tear it, and a kill may end a write in the
    middle.
    """
    torn = dataclasses.replace(cut(torn="page 7"), unit_bytes=unit, shift_bytes=shift)
    assert (contradiction([torn], (PREVENTED,)) == "") is allowed
    assert contradiction([torn], (PREVENTED, TORN)) == ""


def test_harm_that_contradicts_no_class() -> None:
    """MariaDB's schema changes are not safe, so its cuts after them are left out, and the others
    are not. What was not seen twice is no evidence.
    """
    changed = dataclasses.replace(cut(schema="seen"), changes=True)
    assert contradiction([changed], ()) == "cut 1 (commit, seed seed): schema: seen"
    assert contradiction([changed], (), schema_safe=False) == ""
    assert contradiction([changed, cut(2, lost="1 of 9")], (), schema_safe=False).startswith(
        "cut 2"
    )
    assert contradiction([cut(invalid="seen once", lost="1")], ()) == ""


@pytest.mark.parametrize(
    ("tries", "needed", "harmed", "valid", "blind"),
    [
        (6, 5, 5, 5, False),
        (6, 5, 5, 6, False),
        (6, 5, 4, 6, True),
        (20, 18, 17, 20, True),
        (20, 18, 18, 19, False),
        (6, 5, 0, 0, True),
    ],
)
def test_control_that_does_not_lose_makes_blind(
    tries: int,
    needed: int,
    harmed: int,
    valid: int,
    blind: bool,
) -> None:
    """5 of 6 tries beside few cuts, or 18 of 20 beside 100 or an unknown number."""
    assert is_blind(tries, needed, harmed, valid) is blind
    assert all(
        targets.how_often(cuts) == (tries, needed)
        for cuts in ((30,) if tries == 6 else (100, None))
    )


def test_a_recording_without_a_checkpoint_is_said_so() -> None:
    """Its cuts show what a server does with all of its log, and not what a checkpoint leaves."""
    first = Tally(CONTROL, cuts=[cut()], checkpoints=[True, False])
    first.add([Tally(CONTROL, checkpoints=[True])])
    row = first.row(blind=False)
    assert row.checkpoints == 2
    assert row.statement.endswith("; 1 of 3 recordings without a checkpoint")
    assert Tally(CONTROL, cuts=[cut()]).row(blind=False).checkpoints is None


def test_cuts_of_two_processes_are_numbered_without_gaps() -> None:
    """In the order of their numbers, although one has made more."""
    first = Tally(CONTROL, 1, 2)
    second = Tally(CONTROL, 2, 2, recordings=1, failed="it stopped")
    for aim in ("commit", "drop", "kill"):
        first.count(dataclasses.replace(cut(), aim=aim), False)
    second.count(dataclasses.replace(cut(), aim="subset"), True)
    assert [each.number for each in (*first.cuts, *second.cuts)] == [1, 3, 5, 2]
    first.add([second])
    assert [(each.number, each.aim) for each in first.cuts] == [
        (1, "commit"),
        (2, "subset"),
        (3, "drop"),
        (4, "kill"),
    ]
    assert (first.recordings, first.failed, first.cuts[1].changes) == (1, "it stopped", True)


def test_a_kill_may_tear_a_page_where_a_power_loss_does_not() -> None:
    """Without protection from torn pages, because it ends a write in the middle."""
    base = BaseImages.__new__(BaseImages)
    vars(base).update(flags=(), killed_flags=(TORN,), version="17")
    kill = killed(unrecovered="it ended", torn="page 7")
    assert Tally(CONTROL, base=base, cuts=[kill]).row(blind=False).contradiction == ""
    assert (
        Tally(CONTROL, base=base, cuts=[kill, cut(2, torn="page 7")])
        .row(False)
        .contradiction.startswith("cut 2")
    )
    vars(base).update(killed_flags=())
    assert (
        Tally(CONTROL, base=base, cuts=[kill]).row(False).contradiction
        == "cut 1 (kill, seed seed): torn: page 7"
    )
    vars(base).update(flags=(REPORTED,))
    row = Tally(CONTROL, base=base, cuts=[cut(2, torn="page 7")]).row(False)
    assert (row.harmed, row.contradiction, row.durability_class) == (1, "", "reported-unsafe")


@pytest.mark.parametrize(("engine", "judged"), [("postgres", True), ("mysql", False)])
def test_a_class_rests_on_cuts_without_a_kill(engine: EngineName, judged: bool) -> None:
    """InnoDB does not flush what a killed server wrote, PostgreSQL does when it starts again."""
    control = targets.controls_of(engine)[0]
    target = targets.control_target(control, EngineSpec(engine), SHIPPED)
    base = BaseImages.__new__(BaseImages)
    vars(base).update(flags=(), killed_flags=(), version="17")
    row = Tally(target, base=base, cuts=[cut(), late(torn="page 7")]).row(False)
    assert bool(row.contradiction) is judged
    assert row.conclusion is Conclusion.UNHARMED
