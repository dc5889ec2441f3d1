"""The precision that `plan` predicts, compared with simulated runs and with earlier results."""

import dataclasses
import json
import math
import platform
from pathlib import Path
from typing import Any

import calibration_sharing
import numpy
import pytest
import synthetic
from calibration_sharing import EQUAL, Case
from made_up import HOSTS

from dbbench import results
from dbbench.compare import compare_all
from dbbench.model import Budget, EarlierLoad
from dbbench.plan.forecast import (
    DEFAULT_CV,
    Design,
    Forecast,
    detectable,
    outlook,
    recall,
    same_within,
)
from dbbench.plan.request import of_plan
from dbbench.run.adaptive import further
from tests.support.files import write_file
from tests.support.plans import SHIPPED, Named, plan, plan_of
from tests.support.trials import trial

LOAD = {"name": "pgbench-tpcb"}
STANDALONE = {"name": "postgres", "profile": "standalone"}


def forecast_of(tmp_path: Path, printed: Any, blocks: int = 5, measure: str = "60s") -> Forecast:
    """What `plan --json` says of such a plan, with the results folder of the test."""
    document = plan(["ext4", "xfs"], workload=LOAD, blocks=blocks, measure=measure)
    path = write_file(tmp_path / "plan.toml", document)
    document = json.loads(
        printed("plan", str(path), "--json", "--results", str(tmp_path / "results"), code=None)
    )
    return Forecast(**document["forecast"])


@pytest.mark.parametrize(("arms", "workloads", "blocks"), [(2, 1, 5), (3, 3, 3), (3, 3, 5)])
def test_the_difference_is_found_nine_times_out_of_ten(
    arms: int,
    workloads: int,
    blocks: int,
) -> None:
    """In 150 simulated runs whose last setup is slower by what is promised: 90 %, within three
    standard errors.
    """
    difference = detectable(Design(HOSTS[0].trial_cv, blocks, workloads, arms - 1))
    assert difference is not None
    rng = numpy.random.default_rng(31)
    ratios = [*[1.0] * (arms - 2), 1 - difference]
    case = Case(HOSTS[0], EQUAL, arms, workloads, blocks)
    last = [
        row["verdict"] == "slower"
        for _ in range(150)
        for row in compare_all(calibration_sharing.run_document(case, ratios, rng))
        if row["fs_setup"] == f"arm{arms - 1}"
    ]
    assert sum(last) / len(last) == pytest.approx(0.9, abs=0.075)


def test_more_blocks_and_less_scatter_find_smaller_differences() -> None:
    """And below three blocks nothing is promised."""
    three = detectable(Design(0.03, 3, 1, 1))
    five = detectable(Design(0.03, 5, 1, 1))
    quiet = detectable(Design(0.01, 5, 1, 1))
    assert three and five and quiet and three > five > quiet
    assert detectable(Design(0.03, 2, 3, 2)) is None


@pytest.mark.starts_processes
def test_without_earlier_runs_the_assumption_is_named(tmp_path: Path, printed: Any) -> None:
    """The default, and the words say that it is one; too few blocks are said to be too few."""
    expected = forecast_of(tmp_path, printed)
    assert (expected.trial_cv, expected.runs) == (DEFAULT_CV, 0)
    assert "8 %" in expected.text and "assumed" in expected.text
    assert forecast_of(tmp_path, printed, blocks=2).difference is None


@pytest.mark.starts_processes
def test_a_smoke_test_has_no_forecast(tmp_path: Path, printed: Any) -> None:
    """Its scatter says nothing, neither about itself nor, in an earlier run, about another one."""
    expected = forecast_of(tmp_path, printed, measure="59s")
    assert (expected.difference, expected.same) == (None, None)
    assert "smoke test" in expected.text
    shape = synthetic.Shape(arms=("ext4", "xfs"), blocks=5, work=synthetic.TPCB)
    folder = synthetic.write(tmp_path / "results", shape)
    run = results.load_spec(folder)
    results.save_spec(
        folder, dataclasses.replace(run, host={**run.host, "hostname": platform.node()})
    )
    assert forecast_of(tmp_path, printed).trial_cv == DEFAULT_CV


@pytest.mark.starts_processes
def test_earlier_runs_of_this_host_give_the_scatter(tmp_path: Path, printed: Any) -> None:
    """The root mean square of its pairs' variances, halved: a pair has two trials. Other hosts'
    runs do not count.
    """
    shape = synthetic.Shape(
        arms=("ext4", "xfs", "btrfs"), blocks=5, work=synthetic.TPCB, measure_s=60
    )
    folder = synthetic.write(tmp_path / "results", shape)
    run = results.load_spec(folder)
    assert forecast_of(tmp_path, printed).runs == 0
    results.save_spec(
        folder, dataclasses.replace(run, host={**run.host, "hostname": platform.node()})
    )
    expected = forecast_of(tmp_path, printed)
    tps = {
        (t.fs_setup, t.block): math.log(t.summary["tps"] or 0)
        for t in results.load_run(folder).trials
    }
    variances = [
        numpy.var([tps[arm, block] - tps["ext4", block] for block in range(1, 6)], ddof=1)
        for arm in ("xfs", "btrfs")
    ]
    assert expected.runs == 1 and "in 1 earlier run here" in expected.text
    assert expected.trial_cv == pytest.approx(math.sqrt(sum(variances) / 2 / 2))


def test_a_load_is_remembered_by_this_host(tmp_path: Path) -> None:
    """Medians of its bytes, by engine, profile, workload, setup and kind of device; other
    parameters count if there are no others.
    """
    shape = synthetic.Shape(arms=("ext4", "xfs"), blocks=3, work=synthetic.TPCB)
    folder = synthetic.write(tmp_path / "results", shape)
    run = results.load_spec(folder)
    results.save_spec(
        folder, dataclasses.replace(run, host={**run.host, "hostname": platform.node()})
    )

    def loads(engine: Named = STANDALONE, **keys: Any) -> list[EarlierLoad | None]:
        asked = plan_of(tmp_path, plan(["ext4", "btrfs"], engine, LOAD, blocks=3, **keys))
        request = of_plan("", asked, SHIPPED)
        return [cell.earlier for cell in recall(request, tmp_path / "results").expanded.cells]

    ext4, btrfs = loads()
    (window,) = {trial.window for trial in results.load_run(folder).trials}
    assert ext4 is not None and btrfs is None and window is not None
    assert ext4.write_bytes_per_s == pytest.approx(10**9 / window.measure_s)
    assert ext4.load_s == window.warmup_s + window.measure_s and ext4.drain_bytes == 42 * 2**20
    assert ext4.log_bytes_per_s is None
    assert loads("postgres") == [None, None]
    assert loads(device={"kind": "block", "path": "/dev/sdx", "identity": "x"}) == [None, None]


def test_outlook_prices_the_next_precision(tmp_path: Path) -> None:
    """Computed by hand from the pairs: 4 more blocks of two cells fit, and ±5 % needs more than
    these.
    """
    run = results.load_spec(
        synthetic.write(tmp_path, synthetic.Shape(work=synthetic.TPCB, noise=0.0, measure_s=60))
    )
    times = {cell.id: 30.0 for cell in run.cells}
    run = dataclasses.replace(
        run,
        plan=dataclasses.replace(run.plan, budget_s=570.0),
        budget=Budget(used_s=310.0, cell_s=times),
    )
    logs = {"ext4": (0.0, 0.0, 0.0), "xfs": (0.05, -0.05, 0.0), "btrfs": (-1.0, -1.0, -1.0)}
    trials = [
        trial(
            cell.arm,
            spec.block,
            1000 * math.exp(logs[cell.arm][spec.block - 1]),
            id=spec.id,
            engine=cell.engine.name,
            workload=cell.workload.name,
        )
        for spec in run.order
        for cell in [run.cell(spec.cell)]
    ]
    run = further(run, {trial.id: trial for trial in trials})
    assert run.questions["btrfs.postgres.pgbench-tpcb"].verdict == "slower"
    # sd 0.05; with 7 pairs t(.975, 6) = 2.447, so ±4.6 %. ±3 % needs 14 pairs (t = 2.160): 7 more
    # of 60 s.
    half = math.expm1(2.4469 * 0.05 / math.sqrt(7))
    assert f"{100 * half:.2g}" == "4.7"
    assert (
        outlook(run, trials)
        == "at the end of the budget, by the scatter so far: xfs ±4.7 %; ±3 % for xfs: 7 min more"
    )
    assert outlook(dataclasses.replace(run, questions={}), trials) == ""
    short = [
        dataclasses.replace(cell, window=dataclasses.replace(cell.window, measure_s=59))
        for cell in run.cells
    ]
    assert outlook(dataclasses.replace(run, cells=tuple(short)), trials) == ""


@pytest.mark.parametrize(("margin", "blocks"), [(0.05, 5), (0.05, 8), (0.03, 14)])
def test_probability_of_the_same_is_that_of_simulated_runs(margin: float, blocks: int) -> None:
    """Two equal setups under one workload."""
    case = Case(HOSTS[0], EQUAL, 2, 1, blocks)
    rng = numpy.random.default_rng(4)
    rows = [
        compare_all({**calibration_sharing.run_document(case, [1.0], rng), "margin": margin})[0]
        for _ in range(300)
    ]
    found = sum(row["verdict"] == "same" for row in rows) / len(rows)
    expected = same_within(margin, Design(HOSTS[0].trial_cv, blocks, 1, 1))
    assert expected == pytest.approx(found, abs=0.1)
