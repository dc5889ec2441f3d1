"""Two levels in a cell, curves that cross, arms of different runs, and --gate."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_ind

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import synthetic
from synthetic import Shape

from dbbench import cli, results
from dbbench.compare import Row, crossings, curves, rows, unpaired_rows
from dbbench.compare.remarks import Kind, has, texts
from dbbench.compare.scatter import levels, two_levels
from dbbench.compare.unpaired import welch
from dbbench.metrics.summary import stability, stalled_seconds
from dbbench.model import Status, Trial, TrialWarning, Window
from dbbench.report.sentences import crossing, plain_text

WORK = (("postgres", "pgbench-tpcb"),)


def trial(arm: str, block: int, tps: float, *, run: str = "r", **more: Any) -> Trial:
    """A finished trial."""
    summary = {"tps": tps, **more.pop("summary", {})}
    return Trial(f"{run}/{arm}-b{block}", run, "h", arm, "postgres", "w", block, 1, block, Status.OK,
                 summary=summary, **more)  # fmt: skip


def test_two_levels_are_called_out() -> None:
    """Three trials near one figure and two near another, nothing between; a scatter is none."""
    assert two_levels([1900, 1200, 1910, 1190, 1905]) == ([1190, 1200], [1900, 1905, 1910])
    assert any(levels([1900, 1200, 1910, 1190, 1905]))
    draw = random.Random(2)
    assert not any(any(levels([math.exp(draw.gauss(7, 0.03)) for _ in range(5)])) for _ in range(200))
    assert two_levels([1900, 1900, 1200]) is None
    table = rows([trial("ext4", b, v) for b, v in enumerate([1900, 1200, 1910, 1190, 1905], 1)], "ext4")
    said = "two levels: 2 trials near 1 190, 3 near 1 900; check what differs between them"
    assert said in texts(table[0].notes)


def row(clients: int, verdict: str, ratio: float) -> Row:
    """xfs at so many clients."""
    return Row(
        "xfs", "postgres", "tpcb", 1.0, ratio, None, None, verdict, 5, 0, None, "full", False, (), f"clients={clients}"
    )


def test_a_crossing_of_two_arms_is_a_finding() -> None:
    """Behind at one client, ahead at 64: told by both ends; what is undecided tells no crossing."""
    table = [row(64, "faster", 1.12), row(1, "slower", 0.9), row(8, "inconclusive", 1.01)]
    (curve,) = curves(table)
    assert [point.at for point in curve.points] == [1, 8, 64]
    assert crossings(table) == [curve]
    assert plain_text(crossing(curve, "ext4")) == (
        "postgres tpcb: xfs is slower at clients=1 (−10.0 %) and faster at clients=64 (+12.0 %), compared with ext4."
    )
    assert crossings([row(1, "slower", 0.9), row(8, "inconclusive", 1.1), row(64, "same", 1.0)]) == []
    assert curves([row(1, "same", 1.0)]) == []


def test_unpaired_is_welch_on_logarithms() -> None:
    """The p value of another implementation; the interval excludes 1 just when p is below alpha."""
    draw = random.Random(3)
    one = [draw.gauss(7, 0.03) for _ in range(5)]
    other = [draw.gauss(6.9, 0.08) for _ in range(8)]
    assert welch(one, other).p_value() == pytest.approx(ttest_ind(other, one, equal_var=False).pvalue)


def test_kernels_are_compared_by_arm_and_labelled() -> None:
    """One baseline row and one row a value; every ratio says that nothing pairs it."""
    trials = [trial("ext4", b, 1000.0 + b, run="old") for b in range(1, 6)]
    trials += [trial("ext4", b, 800.0 + b, run="new") for b in range(6, 11)]
    found = unpaired_rows(trials, {t.id: {"old": "6.1", "new": "6.2"}[t.run] for t in trials})
    assert [(r.fs_setup, r.verdict) for r in found] == [("ext4 @ 6.1", "baseline"), ("ext4 @ 6.2", "slower")]
    assert found[1].ratio == pytest.approx(0.8, rel=0.01) and has(found[1].notes, Kind.UNPAIRED)


def test_no_stalls_in_either_arm_is_the_same() -> None:
    """Zeros have no logarithm, but nothing differs."""
    trials = [trial(arm, b, 1000.0 + b, summary={"stall_s": 0.0}) for arm in ("ext4", "xfs") for b in (1, 2, 3)]
    assert [r.verdict for r in rows(trials, "ext4", "stall_s")] == ["baseline", "same"]


def test_no_steady_state_has_no_plain_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where every trial has a trend, the table says that in the figure's place."""
    folder = synthetic.write(tmp_path, Shape(work=WORK))
    loaded = results.load_run(folder)
    from dbbench.report import verdicts as made

    odd = [
        dataclasses.replace(t, warnings=(TrialWarning("W005", "x"),)) if t.fs_setup == "xfs" else t
        for t in loaded.trials
    ]
    made.put_tables(made.verdicts([dataclasses.replace(loaded, trials=tuple(odd))]))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("xfs  "))
    assert "no steady state" in line


def test_stability_of_a_window() -> None:
    """Warm-up is out; three stalled seconds in a row of five stalled ones; gaps are no seconds."""
    tps: list[float | None] = [5.0, 5.0, *[100.0] * 10, 0, 0, 0, 100.0, 0, 0, None]
    found = stability(Window("fixed", 2, 17), tps, {"p50_ms": 2.0, "p99_ms": 9.0})
    assert (found["longest_stall_s"], found["tps_floor"], found["p99_to_p50"]) == (3.0, 0.0, 4.5)
    assert found["tps_cv"] == pytest.approx(math.sqrt((11 * 31.25**2 + 5 * 68.75**2) / 15) / 68.75)


def test_stability_if_most_seconds_have_no_transaction() -> None:
    """The median is 0, so a stall is a second without a transaction, and the floor is not defined."""
    window, tps = Window("fixed", 0, 9), [50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 250.0, 50.0, 50.0]
    found = stability(window, tps, {})
    assert (found["longest_stall_s"], stalled_seconds(window, tps)) == (5.0, 5.0)
    assert (found["tps_floor"], found["tps_cv"] is None) == (None, False)
    assert stability(window, [0.0] * 9, {})["tps_cv"] is None


def test_gate_and_all_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slower arm ends with 3; `--metric all` has every metric that was measured, each by its direction."""
    synthetic.write(tmp_path, Shape(work=WORK, blocks=5))
    assert cli.run(["compare", "demo", "--results", str(tmp_path), "--gate", "--metric", "all", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["rows"]
    assert {"tps", "p95_ms", "cpu_ms_per_tx", "write_amplification", "disk_bytes"} <= {r["metric"] for r in found}
    words = {r["metric"]: r["verdict"] for r in found if r["fs_setup"] == "btrfs"}
    assert (words["tps"], words["p95_ms"], words["cpu_ms_per_tx"]) == ("slower", "worse", "worse")


def test_by_kernel_needs_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A single kernel is an error that names it; two kernels are compared."""
    folder = synthetic.write(tmp_path, Shape(work=WORK, name="one"))
    assert cli.run(["compare", "one", "--by", "kernel", "--results", str(tmp_path)]) == 2
    assert "6.12.9" in capsys.readouterr().err
    synthetic.write(tmp_path, Shape(work=WORK, name="two"))
    spec = results.load_spec(tmp_path / "two")
    results.save_spec(tmp_path / "two", dataclasses.replace(spec, host={**spec.host, "kernel": "6.13"}))
    assert cli.run(["compare", "one", "two", "--by", "kernel", "--results", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [r["fs_setup"] for r in found if "xfs" in r["fs_setup"]] == ["xfs @ 6.12.9", "xfs @ 6.13"]
    assert folder.exists()
