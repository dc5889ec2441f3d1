"""What `dbbench clean` finds of a fleet: in the results, and of hosts that ran on this machine."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dbbench import results
from dbbench.fleet import fleet_files, here
from dbbench.fleet.fleet_files import Fleet
from dbbench.results import merging
from dbbench.results.journal import Journal, tag_of
from tests.support.files import write_file
from tests.support.runs import small_run
from tests.support.trials import trial_of


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    """A results folder with a fleet `f` of one host of `--local`: one of its two trials is home."""
    results_folder = tmp_path / "results"
    run = small_run("f")
    fleet = Fleet("f", "spread", run.created, run.plan_sha256, {"local-1": (1, 2)})
    fleet_files.save(results_folder, fleet)
    fleet_files.create_runs(results_folder, fleet, run, "# plan\n", {})
    theirs = results.create_run(host_of(results_folder), run, "# plan\n")
    for index, spec in enumerate(run.order):
        results.Draft(theirs, spec.id).publish(trial_of(run, index, host="local-1"), None, [], None)
    merging.take(theirs / "trials" / run.order[0].id, results_folder / "f")
    return results_folder


def host_of(results_folder: Path) -> Path:
    """The results folder of the fleet's host."""
    return results_folder / ".fleet/f/hosts/local-1"


def leave_behind(results_folder: Path) -> list[Path]:
    """What kill -9 leaves: an image of a host, its cut-off trial, a transfer, a worker's scratch
    folder.
    """
    theirs = host_of(results_folder) / "f"
    image = write_file(theirs / f".dbbench-f-{tag_of(theirs)}.img", b"x" * 8192)
    Journal(theirs / "journal.jsonl").note("take", what="image", path=str(image))
    scratch = host_of(results_folder) / here.SCRATCH
    left = [theirs / "trials/.partial-x", results_folder / "f/trials/.partial-y", scratch]
    for path in left:
        path.mkdir()
    return [image, *left]


def trials(run: Path) -> list[str]:
    """Finished trials of a run's folder."""
    return sorted(path.name for path in (run / "trials").glob("[!.]*"))


def test_what_killed_hosts_leave_is_given_back(told: Any, results_folder: Path) -> None:
    """At the host and here; results stay, at the host too as long as the fleet is not finished."""
    left = leave_behind(results_folder)
    before = [trials(results_folder / "f"), trials(host_of(results_folder) / "f")]
    listed = told("clean", "--dry-run")
    assert all(f" {path} (" in listed for path in left) and all(path.exists() for path in left)
    assert len(told("clean").splitlines()) == len(left)
    assert not any(path.exists() for path in left)
    assert [trials(results_folder / "f"), trials(host_of(results_folder) / "f")] == before
    assert told("clean", "f").strip() == "nothing to remove"


@pytest.mark.parametrize("damaged", [False, True])
def test_copies_of_a_finished_fleet_go(damaged: bool, told: Any, results_folder: Path) -> None:
    """A host's copy of a collected trial is removed if it is identical: of a damaged result it is
    the only one that is whole. A trial that was not collected stays.
    """
    first, second = trials(host_of(results_folder) / "f")
    fleet_files.save(
        results_folder, dataclasses.replace(fleet_files.load(results_folder, "f"), finished=True)
    )
    if damaged:
        path = results_folder / "f/trials" / first / "trial.json"
        path.write_text(path.read_text().replace('"ok"', '"suspect"'))
    copy = f"removed copy of a result {host_of(results_folder)}/f/trials/{first} "
    assert told("clean").startswith("nothing to remove" if damaged else copy)
    assert trials(host_of(results_folder) / "f") == ([first, second] if damaged else [second])
    if not damaged:
        assert [trial.id for trial in results.load_run(results_folder / "f").trials] == [first]


def test_fleet_that_is_worked_on_is_left_alone(told: Any, results_folder: Path) -> None:
    """A coordinator: all of it, for what arrives is no leftover. A host or its worker: what is
    theirs.
    """
    left = leave_behind(results_folder)
    with fleet_files.coordinating(results_folder, "f"):
        assert told("clean").strip() == "nothing to remove"
        assert "E803" in told("clean", "f", code=5)
    with results.lock(host_of(results_folder) / "f"), here.worker_of(host_of(results_folder)):
        assert told("clean").splitlines() == [
            f"removed unfinished trial {results_folder}/f/trials/.partial-y (0 B)"
        ]
    assert [path.exists() for path in left] == [True, True, False, True]
