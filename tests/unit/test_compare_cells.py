"""Two levels in a cell, curves that cross, arms of different runs, and --gate."""

import dataclasses
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import synthetic
from scipy.stats import ttest_ind
from synthetic import TPCB, Shape

from dbbench import cli, results
from dbbench.compare import Row, rows
from dbbench.compare.interaction import curves
from dbbench.compare.remarks import RemarkKind, has, texts
from dbbench.compare.scatter import two_levels, two_levels_remark
from dbbench.compare.unpaired import unpaired_rows, welch
from dbbench.metrics.summary import stability, stalled_seconds
from dbbench.model import TrialWarning, Window
from dbbench.report.sentences import crossing, plain_text
from dbbench.report.verdict_table import put_tables
from dbbench.report.verdicts import verdicts
from tests.support.runs import changed
from tests.support.trials import trial


def test_two_levels_are_called_out() -> None:
    """Three trials near one figure and two near another, nothing between; a scatter is none."""
    assert two_levels([1900, 1200, 1910, 1190, 1905]) == ([1190, 1200], [1900, 1905, 1910])
    assert any(two_levels_remark([1900, 1200, 1910, 1190, 1905]))
    draw = random.Random(2)
    assert not any(
        any(two_levels_remark([math.exp(draw.gauss(7, 0.03)) for _ in range(5)]))
        for _ in range(200)
    )
    assert two_levels([1900, 1900, 1200]) is None
    table = rows(
        [trial("ext4", b, v) for b, v in enumerate([1900, 1200, 1910, 1190, 1905], 1)], "ext4"
    )
    said = "two levels: 2 trials near 1 190, 3 near 1 900; check what differs between them"
    assert said in texts(table[0].notes)


def row(clients: int, verdict: str, ratio: float) -> Row:
    """xfs at so many clients."""
    return Row(
        "xfs",
        "postgres",
        "tpcb",
        1.0,
        ratio,
        None,
        None,
        verdict,
        5,
        0,
        None,
        "full",
        False,
        (),
        f"clients={clients}",
    )


def test_a_crossing_of_two_arms_is_a_finding() -> None:
    """Behind at one client, ahead at 64: named by both ends; what is undecided is no crossing."""
    table = [row(64, "faster", 1.12), row(1, "slower", 0.9), row(8, "inconclusive", 1.01)]
    (curve,) = curves(table)
    assert [at for at, _ in curve.points] == [1, 8, 64]
    assert curve.crosses is not None
    assert plain_text(crossing(curve, "ext4")) == (
        "postgres tpcb: xfs is slower at clients=1 (−10.0 %) and faster at clients=64 (+12.0 %), "
        "compared with ext4."
    )
    (apart,) = curves([row(1, "slower", 0.9), row(8, "inconclusive", 1.1), row(64, "same", 1.0)])
    assert apart.crosses is None
    assert crossing(apart, "ext4") == ""
    assert curves([row(1, "same", 1.0)]) == []


def test_unpaired_is_welch_on_logarithms() -> None:
    """The p value of another implementation; the interval excludes 1 just when p is below alpha."""
    draw = random.Random(3)
    one = [draw.gauss(7, 0.03) for _ in range(5)]
    other = [draw.gauss(6.9, 0.08) for _ in range(8)]
    assert welch(one, other).p_value() == pytest.approx(
        ttest_ind(other, one, equal_var=False).pvalue
    )


def test_kernels_are_compared_by_arm_and_labelled() -> None:
    """One baseline row and one row a value; every ratio says that nothing pairs it."""
    trials = [trial("ext4", b, 1000.0 + b, run="old") for b in range(1, 6)]
    trials += [trial("ext4", b, 800.0 + b, run="new") for b in range(6, 11)]
    found = unpaired_rows(trials, {t.id: {"old": "6.1", "new": "6.2"}[t.run] for t in trials})
    assert [(r.fs_setup, r.verdict) for r in found] == [
        ("ext4 @ 6.1", "baseline"),
        ("ext4 @ 6.2", "slower"),
    ]
    assert found[1].ratio == pytest.approx(0.8, rel=0.01) and has(
        found[1].notes, RemarkKind.UNPAIRED
    )


def test_kernels_are_the_same_within_the_margin() -> None:
    """Each kernel scatters by 1 %, so the interval does not fit a margin of 0.5 %."""
    tps = {"6.1": (990.0, 1000.0, 1010.0), "6.2": (1010.0, 990.0, 1001.0)}
    trials = [
        trial("ext4", b, value, run=kernel, id=f"{kernel}-{b}")
        for kernel, of in tps.items()
        for b, value in enumerate(of)
    ]
    for margin, verdict in ((0.05, "same"), (0.005, "inconclusive")):
        row = unpaired_rows(trials, {t.id: t.run for t in trials}, margin=margin)[1]
        assert (row.verdict, row.margin) == (verdict, margin)


def test_no_stalls_in_either_arm_is_the_same() -> None:
    """Zeros have no logarithm, but nothing differs."""
    trials = [trial(arm, b, summary={"stall_s": 0.0}) for arm in ("ext4", "xfs") for b in (1, 2, 3)]
    assert [r.verdict for r in rows(trials, "ext4", "stall_s")] == ["baseline", "same"]


def test_no_steady_state_has_no_plain_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where every trial has a trend, the table says that in the figure's place."""
    odd = {"xfs": {"warnings": (TrialWarning("W005", "x"),)}}
    run = synthetic.with_trials(
        synthetic.loaded(tmp_path, Shape(work=TPCB)), lambda t: odd.get(t.fs_setup, {})
    )
    put_tables(verdicts([run]))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("xfs  "))
    assert "no steady state" in line


def test_stability_of_a_window() -> None:
    """Warm-up is out; three stalled seconds in a row of five stalled ones; gaps are no seconds."""
    tps: list[float | None] = [5.0, 5.0, *[100.0] * 10, 0, 0, 0, 100.0, 0, 0, None]
    found = stability(Window("fixed", 2, 17), tps, {"p50_ms": 2.0, "p99_ms": 9.0})
    assert (found["longest_stall_s"], found["tps_floor"], found["p99_to_p50"]) == (3.0, 0.0, 4.5)
    assert found["tps_cv"] == pytest.approx(math.sqrt((11 * 31.25**2 + 5 * 68.75**2) / 15) / 68.75)


def test_stability_if_most_seconds_have_no_transaction() -> None:
    """The median is 0, so a stall is a second without a transaction, and the floor is not
    defined.
    """
    window = Window("fixed", 0, 9)
    tps = [50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 250.0, 50.0, 50.0]
    found = stability(window, tps, {})
    assert (found["longest_stall_s"], stalled_seconds(window, tps)) == (5.0, 5.0)
    assert (found["tps_floor"], found["tps_cv"] is None) == (None, False)
    assert stability(window, [0.0] * 9, {})["tps_cv"] is None


def test_gate_and_all_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slower arm ends with 3; `--metric all` has every metric that was measured, each by its
    direction.
    """
    synthetic.write(tmp_path, Shape(work=TPCB, blocks=5))
    assert (
        cli.run(
            ["compare", "demo", "--results", str(tmp_path), "--gate", "--metric", "all", "--json"]
        )
        == 3
    )
    found = json.loads(capsys.readouterr().out)["rows"]
    assert {"tps", "p95_ms", "cpu_ms_per_tx", "write_amplification", "disk_bytes"} <= {
        r["metric"] for r in found
    }
    words = {r["metric"]: r["verdict"] for r in found if r["fs_setup"] == "btrfs"}
    assert (words["tps"], words["p95_ms"], words["cpu_ms_per_tx"]) == ("slower", "worse", "worse")


def test_by_kernel_needs_two(tmp_path: Path, printed: Any) -> None:
    """A single kernel is an error that names it; two kernels are compared."""
    folder = synthetic.write(tmp_path, Shape(work=TPCB, name="one"))
    assert "6.12.9" in printed(
        "compare",
        "one",
        "--by",
        "kernel",
        "--results",
        str(tmp_path),
        code=2,
    )
    synthetic.write(tmp_path, Shape(work=TPCB, name="two"))
    spec = results.load_spec(tmp_path / "two")
    results.save_spec(
        tmp_path / "two", dataclasses.replace(spec, host={**spec.host, "kernel": "6.13"})
    )
    found = json.loads(
        printed("compare", "one", "two", "--by", "kernel", "--results", str(tmp_path), "--json")
    )["rows"]
    assert [r["fs_setup"] for r in found if "xfs" in r["fs_setup"]] == [
        "xfs @ 6.12.9",
        "xfs @ 6.13",
    ]
    assert folder.exists()


SCALED = {f"cells[{number}].parameters.scale": 100 for number in range(3)}


def other(folder: Path, name: str, changes: Mapping[str, Any], **shape: Any) -> None:
    """Write a run with other values at these paths of its fields."""
    path = synthetic.write(folder, Shape(work=TPCB, name=name, blocks=3, **shape))
    spec = results.load_spec(path)
    for place, value in changes.items():
        spec = changed(spec, place, value)
    results.save_spec(path, spec)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (SCALED, "parameters.scale of postgres pgbench-tpcb"),
        ({"plan.device.size_bytes": 2**31}, "size_bytes of the device"),
        ({"host.kernel": "6.13"}, "kernel (6.12.9 and 6.13)"),
        ({"versions.mkfs.ext4": "1.99"}, "mkfs.ext4 (1.47 and 1.99)"),
        (
            {"host.kernel": "6.13", "host.hostname": "elsewhere", "plan_sha256": "another"},
            "kernel (",
        ),
    ],
)
def test_runs_that_differ_are_not_pooled(
    changes: dict[str, Any],
    told: str,
    tmp_path: Path,
    printed: Any,
) -> None:
    """E809 with the key and the way out, which works: unpaired, by run, with the difference next to
    each ratio.
    """
    other(tmp_path, "old", {"versions.mkfs.ext4": "1.47"})
    other(tmp_path, "new", {"versions.mkfs.ext4": "1.47", **changes})
    error = " ".join(printed("compare", "old", "new", "--results", str(tmp_path), code=2).split())
    assert "E809" in error and told in error and "dbbench compare new --against old" in error
    document = json.loads(
        printed("compare", "new", "--against", "old", "--results", str(tmp_path), "--json")
    )
    assert document["baseline"] == "old"
    by_name = {
        row["fs_setup"]: row for row in document["rows"] if row["fs_setup"].startswith("xfs @ ")
    }
    assert by_name["xfs @ old"]["verdict"] == "baseline" and by_name["xfs @ new"][
        "ratio"
    ] == pytest.approx(1, abs=0.05)
    notes = " ".join(by_name["xfs @ new"]["notes"])
    assert "unpaired" in notes and told in notes
    assert {row["n"] for row in by_name.values()} == {3}


def test_what_may_differ_between_runs_of_one_mean(tmp_path: Path, printed: Any) -> None:
    """Packages of the page, the versions of another host of the plan, and setups that only one run
    has.
    """
    other(tmp_path, "old", {"versions.plotly": "1"})
    elsewhere = {"versions.plotly": "2", "host.kernel": "6.13", "host.hostname": "elsewhere"}
    other(tmp_path, "new", elsewhere, arms=("ext4", "xfs"))
    numbers = {
        row["fs_setup"]: row["n"]
        for row in json.loads(
            printed("compare", "old", "new", "--results", str(tmp_path), "--json")
        )["rows"]
    }
    assert (numbers["xfs"], numbers["btrfs"]) == (6, 3)


def test_runs_of_one_kernel_that_differ_are_not_pooled_by_kernel(
    tmp_path: Path, printed: Any
) -> None:
    """Not the two of the old kernel; one of each is compared."""
    for name, changes in (("a", {}), ("b", SCALED), ("c", {"host.kernel": "6.13"})):
        other(tmp_path, name, changes)
    assert "parameters.scale" in printed(
        "compare",
        "a",
        "b",
        "c",
        "--by",
        "kernel",
        "--results",
        str(tmp_path),
        code=2,
    )
    assert cli.run(["compare", "a", "c", "--by", "kernel", "--results", str(tmp_path)]) == 0


def test_against_takes_a_run_and_nothing_that_contradicts_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    printed: Any,
) -> None:
    """Not itself, not with a setup as baseline; several runs are each compared with it; paths of
    equal names too.
    """
    for name in ("old", "one", "two"):
        other(tmp_path, name, {})
    other(tmp_path / "elsewhere", "first", {})
    (tmp_path / "elsewhere/first").rename(tmp_path / "elsewhere/old")
    at = ["--results", str(tmp_path)]
    assert "at least two are needed" in printed("compare", "old", "--against", "old", *at, code=2)
    for words in (["--baseline", "xfs"], ["--by", "kernel"]):
        assert cli.run(["compare", "one", "--against", "old", *words, *at]) == 2
    capsys.readouterr()
    rows = json.loads(printed("compare", "one", "two", "--against", "old", "--json", *at))["rows"]
    assert [row["fs_setup"] for row in rows if row["fs_setup"].startswith("ext4 ")] == [
        "ext4 @ old",
        "ext4 @ one",
        "ext4 @ two",
    ]
    assert json.loads(
        printed("compare", str(tmp_path / "elsewhere/old"), "--against", "old", "--json", *at)
    )["baseline"] == str(tmp_path / "old")
