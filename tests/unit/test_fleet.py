"""The coordinator of a fleet with simulated hosts: parts, losses, refusals, repeats, budgets."""

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from dbbench import results
from dbbench.errors import HostLost, ImportRefused, NotWritable, Terminated
from dbbench.fleet import fleet_files
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.parts import Given, blocks_of, parts_of, unpack
from dbbench.model import Budget, Run
from dbbench.model.events import Event
from dbbench.plan import Expanded
from dbbench.plan.request import PlanRequest
from dbbench.run.adaptive import LEAST
from tests.support.fleet_hosts import Hosts, coordinator, new_fleet, two_arms

NAMES = ("a", "b")


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Two hosts, whose folders are beside the results."""
    return Hosts(tmp_path / "hosts", NAMES)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The results folder."""
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def run_fleet(root: Path, fleet: Fleet, run: Run, hosts: Hosts) -> Fleet:
    """Run a fleet to its end; return what is stored of it."""
    coordinator(root, fleet, run).work(hosts)  # type: ignore[arg-type]
    return fleet_files.load(root, fleet.name)


def hosts_of_blocks(root: Path, name: str = "f") -> dict[int, set[str]]:
    """Return the hosts that each block of a run comes from."""
    blocks: dict[int, set[str]] = {}
    for trial in results.load_run(root / name).trials:
        blocks.setdefault(trial.block, set()).add(trial.host)
    return blocks


def test_each_block_is_a_part_and_so_is_its_repeat() -> None:
    """A part has the trials of one block and one attempt, in the order of the plan."""
    run = two_arms(3)
    again = dataclasses.replace(run.order[0], id="x-b2-a2", block=2, attempt=2)
    parts = blocks_of(dataclasses.replace(run, order=(*run.order, again)))
    assert {part.name for part in parts} == {"block-1", "block-2", "block-3", "block-2-a2"}
    assert [spec for part in parts for spec in part.run.order if spec.attempt == 1] == [*run.order]
    assert {part.host for part in parts} == {None}


@pytest.mark.parametrize("mode", ["spread", "each"])
def test_results_are_those_of_one_machine(
    mode: str,
    root: Path,
    hosts: Hosts,
) -> None:
    """All trials of the plan have their ids and the plan's order; a block comes from one host."""
    run = two_arms(6)
    fleet = run_fleet(root, new_fleet(run, NAMES, mode), run, hosts)
    assert fleet.finished
    for name in fleet.runs:
        loaded = results.load_run(root / name)
        assert [trial.id for trial in loaded.trials] == [spec.id for spec in run.order]
        blocks = hosts_of_blocks(root, name)
        assert {len(of_block) for of_block in blocks.values()} == {1}
        assert {facts["kernel"] for facts in loaded.run.hosts.values()} == {"6.1"}
        assert loaded.run.hosts.keys() == set().union(*blocks.values())


def test_lost_tasks_are_submitted_again(root: Path, hosts: Hosts) -> None:
    """A scheduler that died has forgotten them."""
    run = two_arms(3)
    hosts.lost = 3
    assert run_fleet(root, new_fleet(run, NAMES), run, hosts).finished
    assert sorted(part for _host, part in hosts.ran) == ["block-1", "block-2", "block-3"]


def test_host_that_refuses_gets_no_more_parts(root: Path, hosts: Hosts) -> None:
    """Its blocks are run by the other host, and it is not named in the results."""
    run = two_arms(4)
    hosts.refuses["a"] = "mkfs.xfs is not installed"
    assert run_fleet(root, new_fleet(run, NAMES), run, hosts).finished
    assert hosts.unusable == {"a"}
    assert set(results.load_spec(root / "f").hosts) == {"b"}


def test_fleet_without_an_able_host_fails_and_resumes(root: Path, hosts: Hosts) -> None:
    """The error has every host's reason; the next command asks the hosts again."""
    run = two_arms(2)
    fleet = new_fleet(run, NAMES)
    hosts.refuses = dict.fromkeys(NAMES, "no mkfs.xfs")
    with pytest.raises(HostLost, match=r"a: E999 no mkfs.xfs.*b: E999 no mkfs.xfs"):
        run_fleet(root, fleet, run, hosts)
    assert not fleet_files.load(root, "f").finished
    hosts.refuses.clear()
    hosts.unusable.clear()
    assert run_fleet(root, fleet, run, hosts).finished


def test_host_of_each_that_is_gone_is_an_error(root: Path, hosts: Hosts) -> None:
    """The results of the other one are kept, and nobody else runs its plan."""
    run = two_arms(2)
    del hosts.there["b"]
    fleet = new_fleet(run, NAMES, "each")
    with pytest.raises(HostLost, match="b: no answer for 0 s"):
        coordinator(root, fleet, run, gone_after_s=0.0).work(hosts)  # type: ignore[arg-type]
    assert results.load_run(root / "f-a").remaining == []
    assert not (root / "f-b").exists()


def test_host_with_another_version_is_not_used(root: Path, hosts: Hosts) -> None:
    """It never gets a task, because dask would unpickle it with other code."""
    run = two_arms(2)
    notes = list[Event]()
    hosts.there["a"] = dataclasses.replace(hosts.there["a"], is_usable=None)
    hosts.unusable.add("a")
    coordinator(root, new_fleet(run, NAMES), run, notes.append).work(hosts)  # type: ignore[arg-type]
    assert {host for host, _part in hosts.ran} == {"b"}
    assert any("another version of dbbench" in str(event.data.get("text")) for event in notes)


def test_arm_that_hosts_leave_out_is_not_in_the_results(root: Path, hosts: Hosts) -> None:
    """Its blocks are collected all the same, and are not run again."""
    run = two_arms(3)
    hosts.left_out = "ext4"
    fleet = run_fleet(root, new_fleet(run, NAMES), run, hosts)
    loaded = results.load_run(root / "f")
    assert loaded.remaining == [] and {trial.fs_setup for trial in loaded.trials} == {"xfs"}
    run_fleet(root, dataclasses.replace(fleet, finished=False), run, hosts)
    assert len(hosts.ran) == 3


def test_damaged_parcel_is_never_a_result(root: Path, hosts: Hosts) -> None:
    """Its host gets no more parts, and the other one runs them."""
    run = two_arms(3)
    hosts.damages.add("a")
    assert run_fleet(root, new_fleet(run, NAMES), run, hosts).finished
    assert set().union(*hosts_of_blocks(root).values()) == {"b"}


def test_results_that_cannot_be_written_end_the_coordinator(root: Path, hosts: Hosts) -> None:
    """This is no fault of a host."""
    run = two_arms(2)
    fleet = new_fleet(run, NAMES)
    (root / ".fleet/f/arrived").parent.mkdir(parents=True)
    (root / ".fleet/f/arrived").write_text("")
    with pytest.raises(NotWritable):
        run_fleet(root, fleet, run, hosts)


def test_block_that_a_killed_coordinator_has_imported_in_part_is_of_one_host(
    root: Path, hosts: Hosts
) -> None:
    """It runs again as a whole; what was imported is set aside and not lost."""
    run = two_arms(3)
    first = coordinator(root, new_fleet(run, ["b"]), run)
    block = first.open_parts[0]
    alone = Hosts(hosts.folder.with_name("others"), ["b"])
    outcome = alone.submit(block, Given("# plan\n", {})).result
    assert outcome is not None
    first._import(block, outcome.files)
    trials = sorted((root / "f/trials").iterdir())
    trials[0].rename(root / "f/trials/.partial-x")
    del hosts.there["b"]
    assert run_fleet(root, new_fleet(run, NAMES), run, hosts).finished
    assert hosts_of_blocks(root) == {1: {"a"}, 2: {"a"}, 3: {"a"}}
    assert (root / "f/set-aside/interrupted-import" / trials[1].name).is_dir()


def test_finished_parts_are_not_run_again(root: Path, hosts: Hosts) -> None:
    """A coordinator that was killed before it noted a part finds its trials in the results."""
    run = two_arms(2)
    fleet = run_fleet(root, new_fleet(run, NAMES), run, hosts)
    again = Hosts(hosts.folder.with_name("others"), NAMES)
    run_fleet(root, dataclasses.replace(fleet, collected=(), finished=False), run, again)
    assert again.ran == []


def test_stop_of_the_fleet_ends_the_coordinator(
    root: Path,
    hosts: Hosts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`fleet stop` on another machine tells it through the scheduler."""
    run = two_arms(2)
    monkeypatch.setattr(hosts, "events", lambda: [(0.0, {"kind": "stop"})])
    with pytest.raises(Terminated):
        run_fleet(root, new_fleet(run, NAMES), run, hosts)


def test_suspect_block_is_repeated_as_a_whole(root: Path, hosts: Hosts) -> None:
    """On any host, after all blocks, as on one machine."""
    run = two_arms(2)
    run = dataclasses.replace(run, plan=dataclasses.replace(run.plan, repeat_suspect=True))
    hosts.suspect = {"xfs.postgres.w-b2-a1"}
    run_fleet(root, new_fleet(run, NAMES), run, hosts)
    assert [part for _host, part in hosts.ran][2:] == ["block-2-a2"]
    loaded = results.load_run(root / "f")
    assert loaded.remaining == [] and sum(trial.attempt == 2 for trial in loaded.trials) == 2


def test_blocks_are_added_until_the_precision_is_reached(root: Path, hosts: Hosts) -> None:
    """One for each host at a time, from LEAST pairs on, and no further. Hosts decide nothing."""
    run = two_arms(2)
    # Equal figures would otherwise be the same at once.
    plan = dataclasses.replace(run.plan, margin=1e-9)
    run = dataclasses.replace(run, plan=plan, precision=0.05)
    run_fleet(root, new_fleet(run, NAMES), run, hosts)
    loaded = results.load_run(root / "f")
    assert {spec.block for spec in loaded.run.order} == set(range(1, LEAST + 2))
    question = loaded.run.questions["xfs.postgres.w"]
    assert (question.kind, question.pairs) == ("settled", LEAST + 1)
    assert loaded.remaining == [] and {len(of) for of in hosts_of_blocks(root).values()} == {1}


def test_budget_of_a_spread_fleet_gives_each_host_a_share(root: Path) -> None:
    """As `run --share` does: each host begins with whole blocks and adds every N-th."""
    run = two_arms(3)
    plan = dataclasses.replace(run.plan, budget_s=3600.0)
    run = dataclasses.replace(run, plan=plan, budget=Budget())
    wanted = PlanRequest("", plan, Expanded(run.cells, run.order), run.plan_sha256)
    parts = parts_of(new_fleet(run, NAMES), run, wanted)
    blocks = [sorted({spec.block for spec in part.run.order}) for part in parts]
    assert blocks == [[1, 3], [2]]
    assert [part.run.budget for part in parts] == [Budget(step=2)] * 2


@pytest.mark.parametrize("name", ["/etc/x", "../x", "trials/../../x"])
def test_parcel_writes_only_below_its_folder(name: str, tmp_path: Path) -> None:
    """A name that leads out of it is refused."""
    with pytest.raises(ImportRefused):
        unpack({name: b""}, tmp_path / "a/b/part")
    assert list(tmp_path.iterdir()) == []


def test_coordinator_counts_what_is_there(root: Path, hosts: Hosts) -> None:
    """The first event of a resumed fleet has the trials that were collected before."""
    run = two_arms(3)
    fleet = run_fleet(root, new_fleet(run, NAMES), run, hosts)
    events = list[Event]()
    later: Coordinator = coordinator(root, fleet, run, events.append)
    later.work(hosts)  # type: ignore[arg-type]
    assert (events[0].data["done"], events[0].data["trials"]) == (6, 6)
