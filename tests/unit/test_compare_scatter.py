"""The variance shared by the pairs of a run: computed by hand, its limits, its calibration."""

import math
from typing import Any

import calibration_sharing
import numpy
import pytest
from calibration_sharing import EQUAL, Case
from made_up import HOSTS

from dbbench.compare import Comparison, compare_all, rows
from dbbench.compare.interval import Estimate
from dbbench.compare.scatter import share_variance
from tests.support.trials import trial


def run_of(*sds: float, n: int = 3) -> dict[str, dict[str, Estimate]]:
    """Two pairs in each of len(sds) / 2 workloads, with these standard deviations."""
    return {
        f"w{number // 2}": {
            "b": Estimate(n, -0.1, sds[number]),
            "c": Estimate(n, 0.1, sds[number + 1]),
        }
        for number in range(0, len(sds), 2)
    }


def test_pairs_that_scatter_alike_lend_each_other_twice_their_own_degrees() -> None:
    """Six equal variances: 2 + 4 degrees of freedom. Their logarithms are too low by digamma(1) =
    −0.577216.
    """
    guess = share_variance(run_of(*[0.05] * 6))["w0"]["b"]
    assert (guess.df, guess.shared_df) == (6.0, 4.0)
    assert guess.shared_sd**2 == pytest.approx(0.05**2 * math.exp(0.5772156649))
    assert guess.combined_sd**2 == pytest.approx((2 * 0.05**2 + 4 * guess.shared_sd**2) / 6)
    assert guess.log_ratio().half_width(0.95) == pytest.approx(
        2.4469118487916806 * guess.combined_sd / math.sqrt(3)
    )


def test_unlike_pairs_share_what_the_method_of_moments_gives() -> None:
    """Variances of e^±1.5 around 1, with 4 degrees of freedom each: the excess variance of their
    logarithms over trigamma(2) is 2.25·6/5 − 0.644934 = 2.055066, which is trigamma(0.8145…):
    1.629 degrees, below half of 4, so that nothing is shared; with e^±1 it is 0.555066 =
    trigamma(2.2590…), a quarter of 4.518.
    """
    far = math.exp(0.75)
    near = math.exp(0.5)
    assert share_variance(run_of(*[far, 1 / far] * 3, n=5))["w0"]["b"].shared_df == 0
    assert share_variance(run_of(*[near, 1 / near] * 3, n=5))["w0"]["b"].shared_df == pytest.approx(
        1.1296, abs=2e-3
    )


def test_no_pair_borrows_within_one_workload() -> None:
    """The candidates of one workload have the baseline's trials in common; below two workloads all
    stand alone.
    """
    alone = {"w": {arm: Estimate(3, 0.0, 0.05) for arm in "bcde"}}
    assert share_variance(alone) == alone
    with_silent = alone | {"v": {"b": Estimate(3, 0.0, 0.0)}}
    assert share_variance(with_silent) == with_silent


def test_few_pairs_lend_less() -> None:
    """At most half of the degrees of freedom that the other pairs have together: of three pairs, as
    many as its own.
    """
    run = {f"w{number}": {"b": Estimate(5, 0.0, 0.05)} for number in range(3)}
    assert share_variance(run)["w0"]["b"].shared_df == 4.0
    del run["w2"]
    assert share_variance(run)["w0"]["b"].shared_df == 2.0


def test_pairs_without_scatter_or_with_two_blocks_neither_lend_nor_borrow() -> None:
    """Equal values in every block have no logarithm of a variance, and two blocks have no interval."""
    run = run_of(*[0.05] * 6)
    run["w3"] = {"b": Estimate(3, 0.0, 0.0), "c": Estimate(2, 0.0, 1.0)}
    result = share_variance(run)
    assert result["w3"] == run["w3"]
    assert result["w0"] == share_variance(run_of(*[0.05] * 6))["w0"]


def document(scale: dict[str, float]) -> dict[str, Any]:
    """Three arms, three blocks, one workload for each of `scale`, which multiplies its scatter."""
    rng = numpy.random.default_rng(5)
    trials = [
        {
            "fs_setup": arm,
            "engine": "e",
            "workload": work,
            "block": block,
            "attempt": 1,
            "position": 0,
            "status": "ok",
            "warmup_s": 0,
            "tps": [1000 * math.exp(rng.normal(0, 0.03 * times))],
        }
        for work, times in scale.items()
        for arm in "abc"
        for block in (1, 2, 3)
    ]
    return {"baseline": "a", "trials": trials}


def test_rows_of_a_run_say_where_their_degrees_of_freedom_come_from() -> None:
    """`compare_all` has each arm but the baseline under each workload; alone, a workload has its
    own degrees only.
    """
    table = compare_all(document({"u": 1, "v": 1, "w": 1}))
    assert [(row["workload"], row["fs_setup"]) for row in table if row["workload"] == "u"] in (
        [("u", "b"), ("u", "c")],
        [("u", "c"), ("u", "b")],
    )
    assert len(table) == 6 and all(
        row["df_shared"] > 1 and row["df"] == 2 + row["df_shared"] for row in table
    )
    assert all(row["df"] == 2 and row["df_shared"] == 0 for row in compare_all(document({"u": 1})))


def test_settled_workloads_have_a_higher_level() -> None:
    """As in the run's own table; the other workloads keep theirs. Holm's procedure divides the
    error by two or one.
    """
    table = compare_all({**document({"u": 1, "v": 1}), "settled": [["e", "u"]]})
    errors = {row["workload"]: set[float]() for row in table}
    for row in table:
        errors[row["workload"]].add(round(1 - row["level"], 6))
    assert errors["u"] <= {0.02, 0.04} and errors["v"] <= {0.025, 0.05}


def test_workloads_of_very_unlike_scatter_stand_alone() -> None:
    """Twenty times the scatter in the next workload: nothing is shared, and each interval is the
    pair's own.
    """
    unlike = document({"u": 1, "v": 20, "w": 400})
    for row in compare_all(unlike):
        alone = [trial for trial in unlike["trials"] if trial["workload"] == row["workload"]]
        assert row in compare_all({"baseline": "a", "trials": alone})


def test_a_workload_shares_by_its_own_metric() -> None:
    """The workloads share the variance of their own metrics; another metric is shared on its own."""
    rng = numpy.random.default_rng(6)
    trials = [
        trial(
            arm,
            block,
            id=f"{arm}-{work}-{block}",
            engine="e",
            workload=work,
            summary={
                name: math.exp(rng.normal(0, sd))
                for name, sd in (("tps", 0.03), ("mb_per_s", 0.04))
            },
        )
        for work in "uvw"
        for arm in "abc"
        for block in (1, 2, 3)
    ]
    primary = {"u": "tps", "v": "tps", "w": "mb_per_s"}
    comparison = Comparison(trials, "a", primary)
    group = ("e", "w", "")
    assert comparison.rows(group, "mb_per_s") == [
        row for row in rows(trials, "a", primary) if row.workload == "w"
    ]
    assert comparison.rows(group, "tps") == [
        row for row in rows(trials, "a", "tps") if row.workload == "w"
    ]
    assert comparison.rows(("e", "w", ""), "p95_ms") == []


def test_runs_that_share_their_variance_find_more() -> None:
    """−10 % with three arms and three workloads at a trial CV of 3 %: two of three are found with
    three blocks, where a pair alone finds two of five; with five blocks nearly all.
    """
    figures = list(calibration_sharing.sharing_power(60, numpy.random.default_rng(21)))
    # three standard errors of 180 pairs, of which nine share a run
    margins = [0.07, 0.02, 0.07, 0.02]
    assert [
        figure.line()
        for figure, margin in zip(figures, margins, strict=True)
        if figure.limit is None or figure.value < figure.limit - margin
    ] == []


@pytest.mark.parametrize(
    "case",
    [
        Case(HOSTS[0], "another arm × 3", 5, 3, 3),
        Case(HOSTS[2], "log-normal 0.8", 2, 3, 3),
        Case(HOSTS[2], "another arm × 3", 5, 1, 3),
        Case(HOSTS[0], "baseline × 3", 3, 3, 3),
        Case(HOSTS[3], EQUAL, 3, 3, 5),
    ],
    ids=lambda case: case.text,
)
def test_runs_that_share_their_variance_are_calibrated(case: Case) -> None:
    """Where sharing is most likely to go wrong: false alarms of a family, and coverage."""
    alarms, coverage = calibration_sharing.sharing(case, 60, numpy.random.default_rng(22))
    assert alarms.limit is not None and alarms.value <= alarms.limit + 0.05
    assert coverage.limit is not None and coverage.value >= coverage.limit - 0.04
