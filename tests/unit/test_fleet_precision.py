"""Further blocks of a fleet, with `--until-precision` or a budget."""

import dataclasses
from pathlib import Path
from typing import Literal

import pytest

from dbbench import results
from dbbench.fleet import fleet_files
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.messages import Assignment
from dbbench.model import Budget
from dbbench.model.events import ignore
from dbbench.run.adaptive import LEAST, further
from tests.support.fleet_hosts import TRIAL_S, Hosts, new_fleet, two_arms

NAMES = ["a", "b"]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Those of a run in two blocks, in which each figure is the same in every trial, asked for 5 %."""
    run = two_arms(2)
    # so that equal figures are not the same, which ends at once
    alone = dataclasses.replace(run.plan, margin=1e-9)
    return new_fleet(dataclasses.replace(run, plan=alone, precision=0.05), NAMES, tmp_path)


def coordinator(results_folder: Path, hosts: Hosts) -> Coordinator:
    """One at work, or the next one."""
    fleet = fleet_files.load(results_folder, "f")
    assignment = Assignment("", b"", "", {}, (), "1")
    return Coordinator(results_folder, fleet, hosts, assignment, ignore, clock=hosts.clock)


def test_blocks_are_added_whole_until_all_is_settled(tmp_path: Path, hosts: Hosts) -> None:
    """One to each host at a time, as on one machine: from LEAST pairs on, and no further. Hosts
    decide nothing.
    """
    coordinator(tmp_path, hosts).work()
    run = results.load_run(tmp_path / "f")
    assert run.remaining == [] and fleet_files.load(tmp_path, "f").finished
    assert {spec.block for spec in run.run.order} == set(range(1, LEAST + 2))  # two at a time
    question = run.run.questions["xfs.postgres.w"]
    assert (question.kind, question.pairs, question.half_width) == ("settled", LEAST + 1, 0.0)
    by_block = {
        block: {t.host for t in run.trials if t.block == block} for block in range(1, LEAST + 2)
    }
    assert list(by_block.values()) == [{"a"}, {"b"}] * 3


@pytest.mark.parametrize("with_budget", [False, True])
def test_next_coordinator_deals_what_was_added(
    with_budget: bool, tmp_path: Path, hosts: Hosts
) -> None:
    """A coordinator that was killed between extending and assigning the order leaves unassigned
    blocks.
    """
    results_folder = tmp_path
    blocks = LEAST + 1
    if with_budget:
        results_folder = tmp_path / "budget"
        blocks = 8
        hosts = budgeted(results_folder, 90.0)
    first = coordinator(results_folder, hosts)

    def killed() -> None:
        raise SystemExit(len(first.runs["f"].order))

    first._deal = killed  # type: ignore[method-assign]
    with pytest.raises(SystemExit, match="8"):
        first.work()
    assert len(results.load_spec(results_folder / "f").order) == 8
    hosts.waiting.clear()  # the next coordinator has a new connection
    second = coordinator(results_folder, hosts)
    second.work()
    assert results.load_run(results_folder / "f").remaining == []
    assert sorted(block for mine in second.fleet.blocks.values() for block in mine) == list(
        range(1, blocks + 1)
    )


def test_hosts_are_not_asked_for_the_precision(tmp_path: Path, hosts: Hosts) -> None:
    """A host that added blocks by itself would drive those of another."""
    coordinator(tmp_path, hosts).work()
    assert {
        results.parsed_spec(deal.spec).precision
        for deal in hosts.asked
        if isinstance(deal, Assignment)
    } == {None}
    assert results.load_spec(tmp_path / "f").precision == 0.05


def budgeted(tmp_path: Path, budget_s: float, mode: Literal["spread", "each"] = "spread") -> Hosts:
    """The same two hosts and two arms, with a budget instead of a precision."""
    run = two_arms(3)
    plan = dataclasses.replace(run.plan, budget_s=budget_s)
    return new_fleet(dataclasses.replace(run, plan=plan, budget=Budget()), NAMES, tmp_path, mode)


def by_host(folder: Path) -> dict[str, set[int]]:
    """The blocks that each host ran."""
    trials = results.load_run(folder).trials
    return {host: {t.block for t in trials if t.host == host} for host in {t.host for t in trials}}


def test_each_host_of_a_spread_fleet_uses_its_own_budget(tmp_path: Path) -> None:
    """110 s hold five blocks of two trials for the quick host; the slow one has time for three. All
    are whole.
    """
    hosts = budgeted(tmp_path, 110.0)
    hosts.trial_s["b"] = 1.7 * TRIAL_S
    coordinator(tmp_path, hosts).work()
    run = results.load_run(tmp_path / "f")
    assert run.remaining == [] and fleet_files.load(tmp_path, "f").finished
    assert {host: len(blocks) for host, blocks in by_host(tmp_path / "f").items()} == {
        "a": 5,
        "b": 3,
    }
    assert run.run.budget and (run.run.budget.ended, run.run.budget.blocks) == ("time", 8)
    assert run.run.budget.used_s == pytest.approx(102.0)


def test_each_host_with_a_run_of_its_own_adds_its_own_blocks(tmp_path: Path) -> None:
    """Four blocks of 20 s fit into 90 s."""
    coordinator(tmp_path, budgeted(tmp_path, 90.0, "each")).work()
    for name in ("f-a", "f-b"):
        run = results.load_run(tmp_path / name)
        assert {spec.block for spec in run.run.order} == {1, 2, 3, 4} and run.remaining == []
        assert run.run.budget and (run.run.budget.ended, run.run.budget.blocks) == ("time", 4)


def test_a_block_that_a_host_could_not_finish_is_dropped(tmp_path: Path) -> None:
    """Its trials are set aside and it is not run elsewhere; a next coordinator finds the same."""
    hosts = budgeted(tmp_path, 90.0)
    hosts.budget_s = 65.0  # slower than it seemed: the fourth block of a host is cut
    coordinator(tmp_path, hosts).work()
    run = results.load_run(tmp_path / "f")
    assert run.remaining == [] and fleet_files.load(tmp_path, "f").finished
    assert {host: len(blocks) for host, blocks in by_host(tmp_path / "f").items()} == {
        "a": 3,
        "b": 3,
    }
    assert run.run.budget and (run.run.budget.ended, run.run.budget.blocks) == ("cut", 6)
    assert len(list((tmp_path / "f/set-aside/budget").iterdir())) == 2
    before = run.run.order
    coordinator(tmp_path, hosts).work()
    assert results.load_spec(tmp_path / "f").order == before


def test_hosts_know_the_budget_and_add_no_blocks(tmp_path: Path) -> None:
    """The coordinator numbers the blocks; each host measures its own time."""
    hosts = budgeted(tmp_path, 50.0)
    coordinator(tmp_path, hosts).work()
    dealt = [results.parsed_spec(deal.spec) for deal in hosts.asked if isinstance(deal, Assignment)]
    assert dealt and all((run.budget, run.plan.budget_s) == (Budget(step=0), 50.0) for run in dealt)
    assert further(dealt[0], {}).order == dealt[0].order
