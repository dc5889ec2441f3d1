"""The recommendation: what to use, in words without statistics, and no more than intervals
support.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.compare import Row
from dbbench.compare.remarks import RemarkKind, remark
from dbbench.metrics.table import METRICS
from dbbench.model import Verdict
from dbbench.report.answer import answer
from dbbench.report.sentences import plain_text
from dbbench.report.verdicts import VerdictTable, compare_groups, verdicts

SAME = (0.98, 1.02)
OPEN = (0.9, 1.2)
HALF = (0.47, 0.52)
SLOWER = (0.85, 0.9)
FASTER = (1.1, 1.2)


def word(low: float, high: float) -> Verdict:
    """The verdict of an interval of a throughput."""
    if low > 1:
        return Verdict.FASTER
    if high < 1:
        return Verdict.SLOWER
    return Verdict.SAME if high / low < 1.1 else Verdict.INCONCLUSIVE


def table(workload: str, **bounds: tuple[float, float] | None) -> VerdictTable:
    """The table of a workload whose baseline is ext4."""
    base = Row(
        "ext4",
        "postgres",
        workload,
        100.0,
        1.0,
        verdict=Verdict.BASELINE,
        n=5,
        durability_class="full",
        trials=5,
    )
    rows = [base]
    for setup, ends in bounds.items():
        row = replace(base, fs_setup=setup, verdict=Verdict.INCONCLUSIVE)
        if ends is not None:
            low, high = ends
            middle = (low * high) ** 0.5
            row = replace(row, ratio=middle, lo=low, hi=high, verdict=word(low, high))
        rows.append(row)
    return VerdictTable("postgres", workload, "", METRICS["tps"], rows)


def recommended(*tables: VerdictTable) -> str:
    """The recommendation of these tables as plain text."""
    return plain_text(answer(tables).recommendation)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"xfs": SLOWER}, "Use ext4. Not xfs: 13 % slower."),
        ({"xfs": FASTER}, "Use xfs: 15 % faster than ext4."),
        ({"xfs": SAME}, "No difference that matters: use ext4 or xfs."),
        (
            {"xfs": SAME, "btrfs": HALF},
            "No difference that matters: use ext4 or xfs. Not btrfs: about half as fast.",
        ),
        ({"xfs": OPEN}, "Not decided yet: this run cannot tell ext4 and xfs apart."),
        ({"xfs": None}, "Not decided yet: this run cannot tell ext4 and xfs apart."),
        (
            {"xfs": OPEN, "btrfs": HALF},
            "Not decided yet: ext4 or xfs. Not btrfs: about half as fast.",
        ),
        ({"xfs": FASTER, "zfs": (1.12, 1.3)}, "Not decided yet: xfs or zfs."),
        (
            {"xfs": FASTER, "btrfs": HALF},
            "Use xfs: 15 % faster than ext4. Not btrfs: about half as fast.",
        ),
        (
            {"xfs": SLOWER, "btrfs": HALF},
            "Use ext4. Not xfs or btrfs: up to 51 % slower.",
        ),
    ],
)
def test_one_test(bounds: Mapping[str, tuple[float, float]], text: str) -> None:
    """Each kind of recommendation, with the size of what is advised against."""
    assert recommended(table("tpcb", **bounds)) == text


def test_a_difference_within_the_margin_does_not_matter() -> None:
    """An interval that excludes no change is "slower" in the table, and yet of no consequence."""
    assert recommended(table("tpcb", xfs=(0.96, 0.98))) == (
        "No difference that matters: use ext4 or xfs."
    )


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (FASTER, SAME, "Use xfs: 15 % faster than ext4 in a."),
        (FASTER, SLOWER, "It depends on the load: use xfs in a, ext4 in b."),
        (FASTER, OPEN, "As far as this run can tell, use xfs: 15 % faster than ext4 in a."),
        (SAME, OPEN, "Not decided yet: this run cannot tell ext4 and xfs apart."),
    ],
)
def test_two_tests(first: Sequence[float], second: Sequence[float], text: str) -> None:
    """A setup is recommended if it is among the best in each test."""
    one = table("a", xfs=(first[0], first[1]))
    other = table("b", xfs=(second[0], second[1]))
    assert recommended(one, other) == text


def test_sizes_of_several_tests_do_not_look_like_an_interval() -> None:
    """The recommendation names the largest, the answer each with its test."""
    both = [table("a", xfs=SLOWER), table("b", xfs=(0.6, 0.7))]
    assert recommended(*both) == "Use ext4. Not xfs: up to 35 % slower."
    sentences = plain_text(" ".join(answer(both).sentences))
    assert "xfs is 13 % slower than ext4 in a, and 35 % slower in b." in sentences


def test_another_durability_class_is_never_recommended() -> None:
    """Not even if it is ten times as fast; a class below full is named."""
    fast = table("a", fast=(9.0, 11.0))
    rows = [fast.rows[0], replace(fast.rows[1], mixed_durability=True)]
    assert recommended(fast._replace(rows=rows)) == (
        "No recommendation: the setups do not protect the data equally after a power loss."
    )
    weak = table("a", xfs=SLOWER)
    rows = [replace(row, durability_class="no-barrier") for row in weak.rows]
    assert recommended(weak._replace(rows=rows)).endswith(
        "may lose data: their durability class is no-barrier."
    )


def test_a_disturbed_run_decides_nothing() -> None:
    """With more than half of the trials suspect; one disturbed test of two leaves the other."""
    quiet = table("a", xfs=SLOWER)
    note = remark(RemarkKind.SUSPECT, suspect=3)
    rows = [replace(row, notes=(note,)) for row in table("b", xfs=FASTER).rows]
    disturbed = quiet._replace(workload="b", rows=rows)
    assert recommended(disturbed).startswith("Too disturbed to decide")
    assert recommended(quiet, disturbed).startswith("As far as this run can tell, use ext4.")


def test_a_limit_of_the_device_says_nothing_about_setups() -> None:
    """Its interval is not used."""
    limited = table("a", xfs=SAME)
    rows = [limited.rows[0], replace(limited.rows[1], verdict=Verdict.LIMITED)]
    assert recommended(limited._replace(rows=rows)).startswith("Not decided yet")


def test_less_is_better_for_a_duration() -> None:
    """The interval of a duration is turned round."""
    slow = table("scan", xfs=(1.2, 1.3))
    rows = [slow.rows[0], replace(slow.rows[1], verdict=Verdict.SLOWER)]
    slow = slow._replace(metric=METRICS["duration_s"], rows=rows)
    assert recommended(slow) == "Use ext4. Not xfs: slower (duration +24.9 %)."


def test_a_smoke_test_is_too_short(tmp_path: Path) -> None:
    """Whatever its intervals are; without other setups there is nothing to recommend."""
    run = synthetic.loaded(tmp_path, Shape(work=TPCB))
    words = answer(verdicts([run]).tables, [run])
    assert plain_text(words.recommendation) == "Too short to decide which setup to use."
    assert recommended(table("a")) == ""


def test_runs_are_not_setups(tmp_path: Path) -> None:
    """A comparison of two runs recommends neither."""
    shape = Shape(work=TPCB, measure_s=60)
    runs = [synthetic.loaded(tmp_path / name, replace(shape, name=name)) for name in ("old", "new")]
    assert answer(compare_groups(runs, "run").tables).recommendation == ""
