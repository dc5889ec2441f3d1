"""Verdicts: the method agrees with values that were computed independently of the code."""

import math
from dataclasses import replace
from typing import Any

import pytest

from dbbench.compare import Row, chosen, compare, compare_all, rows
from dbbench.compare.interval import estimate, holm_levels
from dbbench.compare.remarks import RemarkKind, remark
from dbbench.metrics.table import METRICS
from dbbench.model import FilesystemFacts, Phase, PhaseTime, Status, Trial
from dbbench.report.answer import Answer, answer
from dbbench.report.sentences import plain_text
from dbbench.report.verdicts import VerdictTable
from tests.support.trials import trial

WINDOW = (PhaseTime(Phase.MEASURE, "", "", 30.0),)


def arms(base: list[float], other: list[float]) -> list[Trial]:
    """One trial a block of two arms, with these throughputs and a window of 30 s."""
    return [
        trial(arm, block, tps, phases=WINDOW)
        for arm, values in (("ext4", base), ("xfs", other))
        for block, tps in enumerate(values, 1)
    ]


def answered(table: list[Row]) -> Answer:
    """The answer in words of one table."""
    return answer([VerdictTable("postgres", "w", "", METRICS["tps"], table)])


def test_interval_is_the_paired_t_interval_of_the_logarithms() -> None:
    """Three pairs, computed by hand: differences ln .5, ln .52, ln .48; t(.975, 2) = 4.302653."""
    differences = [math.log(0.5), math.log(0.52), math.log(0.48)]
    mean = sum(differences) / 3
    sd = math.sqrt(sum((d - mean) ** 2 for d in differences) / 2)
    guess = estimate([(100, 50), (200, 104), (50, 24)])
    assert guess.ratio == pytest.approx(math.exp(mean))
    assert guess.log_ratio().half_width(0.95) == pytest.approx(
        4.302652729911275 * sd / math.sqrt(3)
    )


def test_clear_difference_is_slower_and_has_the_interval() -> None:
    """A candidate at half the throughput in each block is slower, and its interval excludes 1."""
    base, row = rows(arms([1000, 1010, 990], [500, 515, 497]), "ext4")
    assert (base.verdict, base.ratio, base.n) == ("baseline", 1.0, 3)
    assert (row.verdict, row.n, row.wins) == ("slower", 3, 0)
    assert row.lo is not None and row.hi is not None and row.lo < 0.505 < row.hi < 1


def test_a_row_keeps_the_log_ratio_of_its_interval() -> None:
    """Whoever combines rows needs the error itself, not the interval that was made of it."""
    row = rows(arms([1000, 1010, 990], [500, 515, 497]), "ext4")[1]
    assert row.log_ratio is not None and row.level is not None
    low, high = row.log_ratio.bounds(row.level)
    assert (row.lo, row.hi) == (math.exp(low), math.exp(high))
    assert (row.df, math.exp(row.log_ratio.mean)) == (2, row.ratio)


def test_same_needs_the_whole_interval_within_five_percent() -> None:
    """Half a percent apart with little scatter is the same; with much scatter it is inconclusive,
    with a price.
    """
    near = rows(arms([1000, 1001, 1000, 1002], [1004, 997, 1003, 1001]), "ext4")[1]
    wide = rows(arms([1000, 1300, 900, 1000], [1100, 1000, 1000, 1010]), "ext4")[1]
    assert near.verdict == "same"
    assert wide.verdict == "inconclusive"
    assert RemarkKind.MORE_BLOCKS_MINUTES in {note.kind for note in wide.notes}


def test_lower_is_better_turns_the_word_round() -> None:
    """Half the latency is better, though the ratio is below one."""
    trials = [
        trial(a, b, summary={"p95_ms": v})
        for b in (1, 2, 3)
        for a, v in (("ext4", 10.0 + b / 10), ("xfs", 5.0))
    ]
    assert rows(trials, "ext4", "p95_ms")[1].verdict == "better"


def test_pairs_are_by_block_whatever_the_order() -> None:
    """Shuffling the list of trials changes nothing."""
    trials = arms([1000, 500, 250], [900, 450, 225])
    assert rows(trials[::-1], "ext4") == rows(trials, "ext4")
    assert rows(trials, "ext4")[1].ratio == pytest.approx(0.9)


def test_below_three_blocks_there_is_a_ratio_and_no_interval() -> None:
    """Two pairs: inconclusive, too few blocks."""
    row = rows(arms([1000, 1000], [500, 500]), "ext4")[1]
    assert (row.ratio, row.lo, row.hi, row.verdict) == (
        pytest.approx(0.5),
        None,
        None,
        "inconclusive",
    )
    assert remark(RemarkKind.TOO_FEW_BLOCKS) in row.notes


def test_failed_trials_take_their_pair_out_and_are_reported() -> None:
    """A failed trial's block is not a pair; completeness is per pair."""
    trials = [*arms([1000] * 4, [500] * 3), trial("xfs", 4, 1.0, status=Status.FAILED)]
    row = rows(trials, "ext4")[1]
    assert row.n == 3
    assert remark(RemarkKind.FAILED, failed=1) in row.notes


def test_earliest_attempt_in_which_all_are_good_counts() -> None:
    """A suspect block gives way to its repeat as a whole; without a repeat it stays."""
    repeated = [
        trial("ext4", 1, 100, status=Status.SUSPECT),
        trial("xfs", 1, 100),
        trial("ext4", 1, 200, attempt=2),
        trial("xfs", 1, 150, attempt=2),
    ]
    assert {"ext4-b1-a2", "xfs-b1-a2"} == {t.id for t in chosen(repeated)}
    assert rows(repeated, "ext4")[1].ratio == pytest.approx(0.75)
    assert {"ext4-b1-a1", "xfs-b1-a1"} == {t.id for t in chosen(repeated[:2])}


def test_mixed_durability_is_flagged_in_row_and_caveat() -> None:
    """An arm that promises less is never ranked silently."""
    trials = [trial("ext4", b, 1000.0) for b in (1, 2, 3)]
    unsafe = FilesystemFacts("ext4", durability_class="no-barrier")
    trials += [trial("fast", b, 1300.0 + b, filesystem=unsafe) for b in (1, 2, 3)]
    table = rows(trials, "ext4")
    assert table[1].mixed_durability
    ((kind, text),) = answered(table).caveats
    assert (
        kind == "durability"
        and "is not ranked: its durability class is no-barrier" in plain_text(text)
    )
    assert (
        plain_text(answered(table).sentences[0])
        == "No other setup has the durability class of ext4."
    )


def test_holm_gives_each_row_its_level() -> None:
    """Three candidates: alpha/3, alpha/2, alpha as long as each is rejected; the first failure
    keeps its step.
    """
    assert holm_levels([0.001, 0.02, 0.04]) == pytest.approx([1 - 0.05 / 3, 1 - 0.05 / 2, 0.95])
    assert holm_levels([0.04, 0.001, 0.045]) == pytest.approx([0.975, 1 - 0.05 / 3, 0.975])
    assert holm_levels([0.03]) == pytest.approx([0.95])


def test_engines_are_never_compared_with_each_other() -> None:
    """Each engine and workload has its own baseline row."""
    trials = [
        trial(a, b, 1.0, engine=e)
        for e in ("mariadb", "postgres")
        for a in ("ext4", "xfs")
        for b in (1, 2, 3)
    ]
    pairs = [(engine, arm) for engine in ("mariadb", "postgres") for arm in ("ext4", "xfs")]
    assert [(row.engine, row.fs_setup) for row in rows(trials, "ext4")] == pairs


def entry(arm: str, block: int, tps: list[float | None], **more: Any) -> dict[str, Any]:
    """A trial of the plain document."""
    return {"fs_setup": arm, "block": block, "status": "ok", "warmup_s": 2, "tps": tps, **more}


def compared(trials: list[dict[str, Any]], candidate: str = "b", **more: Any) -> dict[str, Any]:
    """The result of a document with these trials and the baseline `a`."""
    return compare({"trials": trials, "baseline": "a", "candidate": candidate, **more})


def test_document_leaves_warm_up_out_and_keeps_stalls_in() -> None:
    """The mean is over the window's seconds: zeros count, gaps do not, warm-up does not."""
    trials = [entry("a", b, [9, 9, 100, 100, 100, 100]) for b in (1, 2, 3)]
    trials += [entry("b", b, [9, 9, 100, 0, None, 80]) for b in (3, 1, 2)]
    found = compared(trials)
    assert (found["ratio"], found["verdict"], found["n"]) == (pytest.approx(0.6), "slower", 3)


def test_document_drops_failed_blocks_and_repeated_suspects() -> None:
    """A failed trial's block is out; a suspect one is when its repeat exists."""
    trials = [entry("a", b, [0, 0, 100]) for b in (1, 2, 3, 4)]
    trials += [entry("b", b, [0, 0, 50]) for b in (1, 2, 3)]
    trials += [entry("b", 4, [0, 0, 1], status="failed"), entry("b", 1, [0, 0, 50], attempt=2)]
    trials += [entry("a", 1, [0, 0, 100], attempt=2)]
    trials[0]["status"] = "suspect"
    trials[0]["tps"] = [0, 0, 1]
    found = compared(trials)
    assert (found["n"], found["ratio"]) == (3, pytest.approx(0.5))


def test_mostly_disturbed_trials_are_a_caveat() -> None:
    """A verdict from suspect trials says so."""
    trials = [
        trial(a, b, v, status=Status.SUSPECT)
        for b in (1, 2, 3)
        for a, v in (("ext4", 100.0), ("xfs", 50.0 + b))
    ]
    ((kind, text),) = answered(rows(trials, "ext4")).caveats
    assert kind == "suspect" and plain_text(text).startswith("6 of 6 trials are suspect")
    unfinished = [
        *trials[:2],
        replace(trials[2], status=Status.OK),
        trial("ext4", 3, 99.0, status=Status.SUSPECT),
    ]
    ((kind, text),) = answered(rows(unfinished, "ext4")).caveats
    assert plain_text(text).startswith("3 of 4 trials are suspect")  # two blocks have no pair
    assert answered(rows(arms([1000, 1010, 990], [500, 515, 497]), "ext4")).caveats == ()


def test_document_takes_a_suspect_trial_out_where_its_arm_alone_was_repeated() -> None:
    """The repeat counts with the other arm's good trial of that block."""
    trials = [entry(a, b, [0, 0, 100]) for a in ("a", "b") for b in (1, 2, 3)]
    trials[5] |= {"status": "suspect", "tps": [0, 0, 1]}
    found = compared([*trials, entry("b", 3, [0, 0, 100], attempt=2)])
    assert (found["n"], found["ratio"]) == (3, pytest.approx(1.0))


def test_document_takes_hostile_seconds() -> None:
    """NaN, infinities, negative numbers and nulls are no data; failed trials need no seconds;
    lengths may differ.
    """
    nan = math.nan
    inf = math.inf
    odd = [[9, 9, nan, 50, None, inf, 50, -1], [9, 9, 50], [9, 9, 40, 60, 50, 50], [9, 9, None]]
    trials = [entry("a", b, [9, 9, 100, 100]) for b in (1, 2, 3, 4, 5)]
    trials += [entry("b", b, seconds, p95_ms=[nan]) for b, seconds in enumerate(odd, 1)]
    trials += [{"fs_setup": "b", "block": 5, "status": "failed"}, {"fs_setup": "other", "block": 1}]
    found = compared(trials)
    assert (found["n"], found["ratio"], found["verdict"]) == (3, pytest.approx(0.5), "slower")
    assert "1 pairs without throughput left out" in found["notes"]


@pytest.mark.parametrize(("blocks", "ratio"), [(0, None), (2, 1.0)])
def test_document_without_three_pairs_has_null_bounds(blocks: int, ratio: float | None) -> None:
    """Nothing to compare is an answer, with a note; the same arm twice is a fault of the caller."""
    trials = [entry("a", b, [0, 0, 5]) for b in (1, 2)] + [
        entry("b", b, [0, 0, 5]) for b in range(1, blocks + 1)
    ]
    found = compared(trials)
    assert (found["n"], found["ratio"], found["lo"], found["hi"]) == (blocks, ratio, None, None)
    assert found["verdict"] == "inconclusive" and "too few blocks for an interval" in found["notes"]
    with pytest.raises(ValueError, match="both"):
        compared([], "a")


def test_a_margin_decides_what_is_the_same() -> None:
    """Ratios of about +1 %: within 5 %, and with a narrow margin different or inconclusive."""
    trials = [
        entry(arm, block, [0, 0, 1000.0 * (1 + extra * (arm == "b"))])
        for block, extra in enumerate((-0.01, 0.0, 0.02, 0.01), start=1)
        for arm in "ab"
    ]
    document = {"trials": trials, "baseline": "a", "candidate": "b"}
    assert compare(document)["verdict"] == "same" == compare_all(document)[0]["verdict"]
    strict = {**document, "margin": 0.02}
    assert compare(strict)["verdict"] == "inconclusive" == compare_all(strict)[0]["verdict"]
