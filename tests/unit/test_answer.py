"""The answer in words says what the tables support: for all tests of a run, and with their caveats."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.compare import rows
from dbbench.compare.remarks import RemarkKind, has
from dbbench.metrics.table import METRICS
from dbbench.model import FilesystemFacts, Status, TrialWarning
from dbbench.report.answer import (
    DURABILITY,
    FAILED,
    SHORT,
    SKIPPED,
    SUSPECT,
    UNFINISHED,
    WARM,
    answer,
)
from dbbench.report.page.groups import groups
from dbbench.report.page.headline import verdict
from dbbench.report.sentences import plain_text
from dbbench.report.verdicts import VerdictTable, verdicts
from tests.support.runs import changed
from tests.support.trials import trial

STEADY = (1000, 1001, 999, 1000)
NOISY = (1000, 1400, 800, 1300)


def table(
    work: str,
    values: Mapping[str, Sequence[float | None]],
    metric: str = "tps",
    **more: Mapping[str, str],
) -> VerdictTable:
    """The table of "ENGINE WORKLOAD" with these values of each block; the first setup is the
    baseline. `durability` is the class of a setup.
    """
    engine, _, workload = work.partition(" ")
    trials = [
        trial(
            arm,
            block,
            engine=engine,
            workload=workload,
            status=Status.FAILED if value is None else Status.OK,
            summary={metric: value},
            filesystem=FilesystemFacts(
                "ext4", durability_class=more.get("durability", {}).get(arm, "full")
            ),
        )
        for arm, of_arm in values.items()
        for block, value in enumerate(of_arm, 1)
    ]
    return VerdictTable(
        engine,
        workload,
        "",
        METRICS[metric],
        rows(trials, next(iter(values)), metric),
    )


def said(*tables: VerdictTable) -> str:
    """The sentences of these tables."""
    return " ".join(plain_text(sentence) for sentence in answer(tables).sentences)


def times(values: Sequence[float], factor: float) -> list[float]:
    """The values, each times the factor."""
    return [value * factor for value in values]


def test_tests_with_the_same_outcome_share_a_sentence() -> None:
    """A ratio near a half has that name, and the price of a decision is one range."""
    one = table("postgres tpcb", {"ext4": STEADY, "xfs": NOISY, "btrfs": times(STEADY, 0.52)})
    two = table("mariadb oltp", {"ext4": STEADY, "xfs": NOISY, "btrfs": times(STEADY, 0.47)})
    text = said(one, two)
    both = "btrfs is about half as fast as ext4 in both tests. "
    assert text.startswith(f"{both}ext4 and xfs cannot be told apart yet in either test: ")
    assert text.endswith(" more blocks would be needed.") and text.count(".") == 2


def test_what_three_tests_cannot_tell_is_told_by_none() -> None:
    """Not "in all three tests", which would leave one or two."""
    values = {"ext4": STEADY, "xfs": NOISY}
    text = said(table("a x", values), table("b y", values), table("c z", values))
    assert text.startswith("ext4 and xfs cannot be told apart yet in any of the three tests: ")


def test_each_size_without_a_name_has_its_test() -> None:
    """Per cent of throughputs are rounded; the change of a metric whose lower values are better is
    the table's.
    """
    faster = {"ext4": STEADY, "xfs": times(STEADY, 1.12)}
    assert said(table("postgres a", faster)) == "xfs is 12 % faster than ext4."
    assert (
        said(
            table("postgres a", faster),
            table("postgres b", {"ext4": STEADY, "xfs": times(STEADY, 1.3)}),
        )
        == "xfs is 12 % faster than ext4 in a, and 30 % faster in b."
    )
    four = [
        table(f"postgres {work}", {"ext4": STEADY, "xfs": times(STEADY, factor)})
        for work, factor in (("a", 1.12), ("b", 1.3), ("c", 1.2), ("d", 1.4))
    ]
    assert said(*four) == (
        "xfs is faster than ext4 in all four tests (least 12 % in a, most 40 % in d)."
    )
    slow = table("postgres c", {"ext4": STEADY, "xfs": times(STEADY, 1.25)}, "duration_s")
    assert said(table("postgres a", faster), slow) == (
        "xfs is 12 % faster than ext4 in a, and slower (duration +25.0 %) in c."
    )
    double = table("postgres c", {"ext4": STEADY, "xfs": times(STEADY, 2)}, "duration_s")
    assert said(double) == "xfs is about half as fast as ext4."


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"ext4": STEADY}, "ext4 reached 1 000 tx/s; no other setup was measured."),
        ({"ext4": STEADY, "xfs": STEADY}, "xfs is the same as ext4 within 5 %."),
        (
            {"ext4": STEADY[:2], "xfs": STEADY[:2]},
            "xfs cannot be compared with ext4 yet: 2 of at least 3 blocks are done.",
        ),
        (
            {"ext4": [None, None], "xfs": [1, 2]},
            "Nothing can be compared: of the baseline ext4, 2 trials failed.",
        ),
        (
            {"ext4": STEADY, "xfs": [None] * 4},
            "xfs has no result to compare with ext4: 4 trials failed.",
        ),
        (
            {"ext4": STEADY, "ext4-guard": NOISY},
            "ext4 reached 1 000 tx/s; no other setup was measured.",
        ),
        (
            {"ext4": STEADY, **{f"s{n}": times(STEADY, 0.8) for n in range(7)}},
            "ext4 is the fastest setup. s0, s1, s2, s3 and 3 others are 20 % slower than ext4.",
        ),
    ],
)
def test_one_table(values: Mapping[str, Sequence[float | None]], text: str) -> None:
    """Each outcome has its sentence; the guard is not a setup to choose. The margin is the plan's,
    not a constant.
    """
    assert said(table("postgres tpcb", values)) == text
    assert said() == "Nothing was measured."
    equal = table("postgres a", {"ext4": STEADY, "xfs": STEADY})
    narrow = equal._replace(rows=[replace(row, margin=0.02) for row in equal.rows])
    assert said(narrow) == "xfs is the same as ext4 within 2 %."


def test_another_durability_class_is_a_caveat_and_not_ranked() -> None:
    """It is named once, although two tables have it."""
    both = [
        table(work, {"ext4": STEADY, "fast": times(STEADY, 2)}, durability={"fast": "no-barrier"})
        for work in ("postgres a", "postgres b")
    ]
    ((kind, parts),) = answer(both).caveats
    assert kind == DURABILITY and plain_text(parts).startswith(
        "fast is not ranked: its durability class is no-barrier"
    )
    assert said(*both) == "No other setup has the durability class of ext4."


def test_caveats_of_a_run(tmp_path: Path) -> None:
    """A smoke test, a run that is not finished, failures, most trials suspect, and setups that
    could not run.
    """
    failed = ["xfs.postgres.pgbench-tpcb-b1-a1"]
    loaded = synthetic.loaded(tmp_path, Shape(work=TPCB, blocks=5, failed=failed, missing=2))
    suspect = {Status.OK: {"status": Status.SUSPECT}}
    run = synthetic.with_trials(loaded, lambda trial: suspect.get(trial.status, {}))
    run = changed(run, "run.skipped", {"zfs": "no ZFS driver is available"})
    texts = {
        kind: plain_text(parts) for kind, parts in answer(verdicts([run]).tables, [run]).caveats
    }
    assert list(texts) == [SHORT, UNFINISHED, FAILED, SKIPPED, SUSPECT]
    assert "windows of 20 s" in texts[SHORT] and texts[SHORT].endswith("dbbench init")
    assert "13 of 15 trials are done" in texts[UNFINISHED]
    assert texts[FAILED] == "1 of 13 trials failed."
    assert texts[SKIPPED] == "zfs was not run: no ZFS driver is available."


def test_the_page_has_the_same_answer(tmp_path: Path) -> None:
    """Its first section has the sentences and caveats of the terminal, and its groups the same
    rows.
    """
    run = synthetic.loaded(tmp_path, Shape())
    terminal = answer(verdicts([run]).tables, [run])
    page = verdict(groups([run]), ())
    assert page.answers == (("", terminal),)
    assert set(terminal.caveats) <= {*page.caveats, *page.notices}
    rows = {row for group in groups([run]) for row in map(repr, group.rows)}
    assert rows == {row for table in verdicts([run]).tables for row in map(repr, table.rows)}


def test_scans_of_memory_are_named() -> None:
    """In the table and in a sentence: only the first pass was cold."""
    trials = []
    for arm in ("ext4", "xfs"):
        for block, value in enumerate(STEADY, 1):
            made = trial(arm, block, workload="scan", summary={"mb_per_s": value})
            trials.append(replace(made, warnings=(TrialWarning("W158", "2 passes"),)))
    warm = VerdictTable(
        "postgres",
        "scan",
        "",
        METRICS["mb_per_s"],
        rows(trials, "ext4", "mb_per_s"),
    )
    assert all(has(row.notes, RemarkKind.WARM) for row in warm.rows)
    (caveat,) = [text for kind, text in answer([warm]).caveats if kind == WARM]
    assert "fit into memory" in caveat
