"""A budget of time: the number of blocks that it gives, equal for all cells."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import results
from dbbench.errors import RunNameTaken
from dbbench.machine import host
from dbbench.model import Budget, Plan, Question, Run, Status
from dbbench.plan import expand, identity, narrow
from dbbench.plan.forecast import apply_budget, budget_text
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.request import PlanRequest, load_request, of_plan, take_share
from dbbench.results import merging
from dbbench.run.adaptive import charge, conclude, duration_s, extend, fits, further, may_begin
from dbbench.run.create import choose, create, must_be_of, refine
from tests.support import plans
from tests.support.files import write_file
from tests.support.plans import SHIPPED

TEXT = """name = "b"
fs_setups = ["ext4", "xfs"]
budget = "{budget}"
warmup = "5s"
measure = "15s"
{more}
[engine]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
"""
CELL_S = 30.0


@pytest.fixture(autouse=True)
def nothing_is_asked_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its facts come from programs."""
    for name in ("facts", "state", "versions"):
        monkeypatch.setattr(host, name, dict)


def plan_of(tmp_path: Path, budget: str = "10min", more: str = "") -> Plan:
    """A plan of two cells with that budget."""
    return plans.plan_of(tmp_path, TEXT.format(budget=budget, more=more))


def asked_of(tmp_path: Path, more: str = "") -> PlanRequest:
    """The same as `run` reads it."""
    path = write_file(tmp_path / "plan.toml", TEXT.format(budget="10min", more=more))
    return load_request(str(path), [])


def run_of(
    tmp_path: Path,
    budget_s: float,
    step: int = 1,
    blocks: int = 3,
) -> Run:
    """A run of three arms and that many blocks, whose trials take CELL_S each; nothing is used yet."""
    run = results.load_spec(synthetic.write(tmp_path, Shape(work=TPCB, blocks=blocks)))
    plan = dataclasses.replace(
        run.plan,
        budget_s=budget_s,
        blocks=3,
        repeat_suspect=True,
        margin=1e-9,
    )
    return dataclasses.replace(
        run,
        plan=plan,
        budget=Budget(step, cell_s={cell.id: CELL_S for cell in run.cells}),
    )


def used(run: Run, seconds: float) -> Run:
    """The run with that much of its budget used."""
    assert run.budget is not None
    return dataclasses.replace(run, budget=dataclasses.replace(run.budget, used_s=seconds))


def ids(run: Run) -> set[str]:
    """All trials of the order."""
    return {spec.id for spec in run.order}


def test_a_budget_begins_with_the_fewest_blocks_that_give_an_interval(tmp_path: Path) -> None:
    """Three, whatever the default of `blocks` is; on the command line it replaces what the plan
    says.
    """
    plan = plan_of(tmp_path)
    five = dataclasses.replace(plan, budget_s=None, blocks=5)
    for made, budget_s, blocks in (
        (plan, 600.0, 3),
        (narrow(five, Narrowing(budget="8h")), 8 * 3600.0, 3),
        (narrow(plan, Narrowing(blocks=7)), None, 7),
        (narrow(plan, Narrowing(quick=True)), None, 1),
    ):
        assert (made.budget_s, made.blocks) == (budget_s, blocks)


@pytest.mark.parametrize(
    ("argv", "evidence"),
    [
        (["--budget", "0s"], "'--budget': expected more than 0 s, not 0s"),
        (["--budget", "8"], "'--budget': requires a unit: write 8ms, 8s or 8min"),
        (["--budget", "soon"], "'--budget': expected a time"),
        (["--budget", "-5min"], "'--budget': expected a time"),
        (["--budget", "8h", "--blocks", "5"], "E008: --budget and --blocks cannot be combined"),
        (["--budget", "8h", "--quick"], "E008: --budget and --quick cannot be combined"),
        (["--budget", "1min"], "E001: the budget of 60 s is too short"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_bad_budgets_of_a_command(
    tmp_path: Path,
    printed: Any,
    command: str,
    argv: list[str],
    evidence: str,
) -> None:
    """Refused with an ID before anything is made: three blocks of two trials measure for two
    minutes.
    """
    (tmp_path / "plan.toml").write_text(TEXT.format(budget="10min", more=""))
    where = ["--results", str(tmp_path / "results")]
    err = printed(command, str(tmp_path / "plan.toml"), *argv, *where, code=2)
    assert evidence in err
    assert not (tmp_path / "results").exists()


def test_a_budget_is_another_plan_but_its_size_is_not(tmp_path: Path) -> None:
    """So a larger one continues a run. Plans without one have another hash."""
    small = plan_of(tmp_path)
    large = plan_of(tmp_path, "8h")
    fixed = dataclasses.replace(small, budget_s=None)
    cells = expand(small, SHIPPED).cells
    assert identity(small, cells) == identity(large, cells) != identity(fixed, cells)


@pytest.mark.starts_processes
def test_plan_says_how_many_blocks_and_which_precision(tmp_path: Path, printed: Any) -> None:
    """The order that it lists is that of the run, and the precision is that of so many blocks."""
    (tmp_path / "plan.toml").write_text(TEXT.format(budget="10min", more=""))
    argv = ["plan", str(tmp_path / "plan.toml"), "--results", str(tmp_path / "results")]
    document: dict[str, Any] = json.loads(printed(*argv, "--json", code=None))
    budget = document["budget"]
    assert (budget["budget_s"], budget["enough"]) == (600.0, True)
    assert budget["blocks"] == int((600 - budget["prepare_s"]) / budget["block_s"]) > 3
    assert (
        document["forecast"]["blocks"]
        == budget["blocks"]
        == max(trial["block"] for trial in document["trials"])
    )
    assert document["eta_s"] <= 600
    out = printed(*argv, code=None)
    assert (
        f"the budget of 10 min gives about {budget['blocks']} blocks" in out
        and "precision: unknown: windows below 60 s are a smoke test" in out
    )


def test_a_budget_that_is_probably_exceeded_is_announced(tmp_path: Path) -> None:
    """By the estimate, which may be wrong: only what is certain is refused."""
    plan = plan_of(tmp_path, "130s")
    request, allowance = apply_budget(of_plan("", plan, SHIPPED))
    assert (
        allowance is not None and not allowance.enough and "probably be exceeded" in allowance.text
    )
    assert (request.plan.blocks, len(request.expanded.order)) == (3, 6)
    fixed = of_plan("", dataclasses.replace(plan, budget_s=None, blocks=5), SHIPPED)
    assert apply_budget(fixed) == (fixed, None)


def test_whole_blocks_are_added_while_they_fit(tmp_path: Path) -> None:
    """The same number for every cell, in the order of a plan with so many blocks. 660 s hold seven
    blocks of 90 s.
    """
    run = run_of(tmp_path, 660)
    while True:
        run = used(run, CELL_S * len(run.order))
        longer = further(run, {})
        if longer.order == run.order:
            break
        run = longer
    assert longer.budget and longer.budget.ended == "time"
    assert [sum(spec.cell == cell.id for spec in run.order) for cell in run.cells] == [7, 7, 7]
    assert [spec.position for spec in run.order] == list(range(1, 22))
    done, aside = conclude(longer, ids(longer))
    assert done.budget and (done.budget.blocks, done.blocks, aside) == (7, 7, [])
    assert (
        budget_text(done) == "budget 11 min: 7 blocks in 10 min 30 s; another block would not fit"
    )


def test_added_blocks_are_those_that_plan_lists(tmp_path: Path) -> None:
    """A block that is added to a run has the order that the dry run shows."""
    wanted = asked_of(tmp_path)
    expanded = apply_budget(wanted)[0].expanded
    folder = create(tmp_path / "results", wanted, "r")
    run = results.load_spec(folder)
    run = further(
        dataclasses.replace(run, budget=Budget(cell_s={cell.id: 1.0 for cell in run.cells})), {}
    )
    assert len(run.order) == 8
    assert run.order == expanded.order[:8]


def test_the_time_of_a_cell_follows_its_last_trials(tmp_path: Path) -> None:
    """Half of it is the last one. A cell without any takes as long as the slowest."""
    run = dataclasses.replace(run_of(tmp_path, 100), budget=Budget())
    one = run.order[0]
    other = next(spec for spec in run.order if spec.cell != run.order[0].cell)
    for seconds in (10.0, 20.0, 40.0):
        run = charge(run, seconds, one.cell)
    run = charge(run, 5.0)  # a preparation
    assert run.budget and (run.budget.used_s, run.budget.cell_s) == (75.0, {one.cell: 27.5})
    assert duration_s(run.budget, [one, other]) == 55.0
    assert not fits(run, [one])
    fixed = dataclasses.replace(run, budget=None)
    assert charge(fixed, 1.0) is fixed and fits(fixed, run.order) and may_begin(fixed, one)


def test_a_block_that_the_end_cuts_does_not_count(tmp_path: Path) -> None:
    """Its trials are set aside, those that were not run leave the order: every cell has as many as
    the others.
    """
    run = used(run_of(tmp_path, 500, blocks=5), 500.0)
    missing = run.order[-1]
    done, aside = conclude(run, ids(run) - {missing.id})
    assert done.budget and (done.budget.ended, done.budget.blocks) == ("cut", 4)
    assert {spec.block for spec in done.order} == {1, 2, 3, 4}
    assert sorted(aside) == sorted(
        spec.id for spec in run.order if spec.block == 5 and spec != missing
    )


def test_the_first_blocks_run_in_any_case(tmp_path: Path) -> None:
    """Fewer give no interval. Nothing else begins when the time is over: no further block and no
    repeat.
    """
    run = used(run_of(tmp_path, 100, blocks=4), 100.0)
    assert [may_begin(run, spec) for spec in run.order] == [spec.block <= 3 for spec in run.order]
    assert not may_begin(run, dataclasses.replace(run.order[0], attempt=2))
    share = dataclasses.replace(run, budget=Budget(8, 100.0))
    assert may_begin(share, dataclasses.replace(run.order[0], block=5))
    assert not may_begin(share, dataclasses.replace(run.order[0], block=13))
    done, aside = conclude(further(used(run_of(tmp_path / "b", 100), 270.0), {}), ids(run))
    assert done.budget and (done.budget.ended, done.budget.blocks, aside) == ("first", 3, [])
    assert "the minimum number of blocks already used" in budget_text(done)
    results.save_spec(tmp_path, done)
    assert results.load_spec(tmp_path).budget == done.budget
    assert budget_text(dataclasses.replace(done, budget=None)) == ""


def test_repeats_fill_what_is_left(tmp_path: Path) -> None:
    """A suspect block is repeated if it fits; a repeat that the end cuts costs no block."""
    run = run_of(tmp_path, 500)
    suspect = {run.order[0].id, run.order[3].id}

    def status(spec: Any) -> Status:
        return Status.SUSPECT if spec.id in suspect else Status.OK

    assert extend(used(run, 450.0), status).order == run.order
    longer = extend(used(run, 400.0), status)
    assert len(longer.order) == len(run.order) + 3
    done, aside = conclude(used(longer, 500.0), {spec.id for spec in longer.order[:-1]})
    assert done.budget and (done.budget.ended, done.budget.blocks, aside) == ("time", 3, [])
    assert done.order == longer.order[:-1]


def test_with_a_precision_whichever_is_first_ends_the_run(tmp_path: Path) -> None:
    """Time that is left does not prolong a run whose questions are settled, and open ones do not
    prolong the budget.
    """
    folder = synthetic.write(tmp_path, Shape(work=TPCB, blocks=5, noise=0.0001))
    trials = {trial.id: trial for trial in results.load_run(folder).trials}
    run = dataclasses.replace(run_of(tmp_path / "other", 1e6, blocks=5), precision=0.5)
    settled = further(run, trials)
    assert settled.order == run.order and settled.budget and settled.budget.ended == "precision"
    late = further(used(dataclasses.replace(run, precision=1e-9), 1e6 - 1), trials)
    assert late.order == run.order and late.budget and late.budget.ended == "time"
    more = further(dataclasses.replace(run, precision=1e-9), trials)
    # btrfs is decided
    assert len(more.order) == len(run.order) + 2 and more.budget and more.budget.ended == ""


def test_a_larger_budget_continues_a_finished_run(tmp_path: Path) -> None:
    """By another block; the time that was used counts. The same budget changes nothing."""
    folder = synthetic.write(tmp_path, Shape(work=TPCB, blocks=3))
    run, _ = conclude(
        used(run_of(tmp_path / "other", 300), 270.0), ids(run_of(tmp_path / "third", 300))
    )
    assert run.budget
    run = dataclasses.replace(
        run,
        name=folder.name,
        budget=dataclasses.replace(run.budget, ended="time"),
    )
    results.save_spec(folder, run)
    refine(results.RunFolder(folder), None, dataclasses.replace(run.plan, budget_s=300.0))
    assert results.load_spec(folder) == run
    # Still too short for another block.
    refine(results.RunFolder(folder), None, dataclasses.replace(run.plan, budget_s=310.0))
    same = results.load_spec(folder)
    assert (
        same.order == run.order
        and same.budget
        and (same.budget.ended, same.budget.blocks) == ("time", 3)
    )
    refine(results.RunFolder(folder), None, dataclasses.replace(run.plan, budget_s=400.0))
    more = results.load_spec(folder)
    assert len(more.order) == 12 and more.plan.budget_s == 400.0
    assert more.budget and (more.budget.used_s, more.budget.ended, more.budget.blocks) == (
        270.0,
        "",
        None,
    )


def test_each_share_begins_with_a_block_and_adds_every_nth(tmp_path: Path) -> None:
    """Three blocks in all, or one for each machine; a run of a share is continued by that share
    alone.
    """
    wanted = asked_of(tmp_path)

    def numbers(request: PlanRequest) -> list[int]:
        return sorted({spec.block for spec in request.expanded.order})

    assert [numbers(take_share(wanted, (k, 2))) for k in (1, 2)] == [[1, 3], [2]]
    assert [numbers(take_share(wanted, (k, 5))) for k in (1, 2, 3, 4, 5)] == [
        [1],
        [2],
        [3],
        [4],
        [5],
    ]
    half = take_share(wanted, (1, 2))
    root = tmp_path / "results"
    run = results.load_spec(create(root, half, "r"))
    assert run.budget == Budget(step=2)
    longer = further(
        dataclasses.replace(run, budget=Budget(2, cell_s={cell.id: 1.0 for cell in run.cells})), {}
    )
    assert {spec.block for spec in longer.order} == {1, 3, 5}
    results.save_spec(root / "r", longer)
    chosen = choose(root, half, new=False, name="r")
    assert chosen is not None and chosen.path == root / "r"
    for other in (wanted, take_share(wanted, (2, 2)), take_share(wanted, (1, 3))):
        with pytest.raises(RunNameTaken):
            choose(root, other, new=False, name="r")
    request, allowance = apply_budget(half)
    assert allowance and {spec.block for spec in request.expanded.order} == set(
        range(1, 2 * allowance.blocks, 2)
    )


def test_merged_shares_have_the_blocks_of_both(tmp_path: Path) -> None:
    """The time is that of the slower machine, because both work at once."""
    wanted = asked_of(tmp_path)
    runs = []
    for k, used_s in ((1, 500.0), (2, 480.0)):
        run = results.load_spec(create(tmp_path / str(k), take_share(wanted, (k, 2)), "r"))
        blocks = len({spec.block for spec in run.order})
        budget = Budget(2, used_s, blocks=blocks, ended="time")
        runs.append(dataclasses.replace(run, budget=budget, host={"hostname": f"h{k}"}))
    done = ids(runs[0]) | ids(runs[1])
    both = merging.pool(merging.unite(runs[0], runs[1]), runs[1], done)
    assert both.budget and (both.budget.used_s, both.budget.blocks, both.blocks) == (500.0, 3, 3)
    assert merging.pool(merging.unite(both, runs[1]), runs[1], done) == both
    half = merging.pool(merging.unite(runs[0], runs[1]), runs[1], ids(runs[1]))
    assert half.budget and half.budget.blocks == 1


def test_another_margin_judges_a_finished_run_again(tmp_path: Path) -> None:
    """It is the same run. What was decided with the former margin is asked again."""
    folder = create(tmp_path / "results", asked_of(tmp_path), "r")
    run = results.load_spec(folder)
    run = dataclasses.replace(
        run, questions={run.cells[0].id: Question("decided", 3, 0.01, "same")}
    )
    results.save_spec(folder, run)
    wanted = asked_of(tmp_path, 'margin = "1%"')
    found = choose(tmp_path / "results", wanted, new=False, name="r")
    assert found is not None
    must_be_of(found, wanted)
    refine(found, None, wanted.plan)
    again = results.load_spec(folder)
    assert (again.plan.margin, again.questions, again.plan_sha256) == (0.01, {}, run.plan_sha256)
