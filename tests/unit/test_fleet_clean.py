"""What `dbbench clean` and `fleet stop` find of a fleet whose coordinator was killed."""

import json
from pathlib import Path
from typing import Any

import pytest

from dbbench import results
from dbbench.fleet import fleet_files, security
from dbbench.fleet.fleet_files import Fleet
from dbbench.results import merging
from dbbench.results.journal import Journal, tag_of
from tests.support.files import write_file
from tests.support.plans import plan
from tests.support.runs import small_run
from tests.support.trials import trial_of


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    """A results folder with a fleet `f` of one host of `--local`: one of its two trials is here."""
    results_folder = tmp_path / "results"
    run = small_run("f")
    fleet = Fleet("f", "spread", run.created, run.plan_sha256, ("local-1",))
    fleet_files.save(results_folder, fleet)
    results.create_run(results_folder, run, "# plan\n")
    host = results.create_run(host_of(results_folder), run, "# plan\n")
    for index, spec in enumerate(run.order):
        results.Draft(host, spec.id).publish(trial_of(run, index, host="local-1"), None, [], None)
    merging.take(host / "trials" / run.order[0].id, results_folder / "f")
    return results_folder


def host_of(results_folder: Path) -> Path:
    """Return the results folder of the fleet's host."""
    return results_folder / ".fleet/f/hosts/local-1"


def leave_behind(results_folder: Path) -> list[Path]:
    """Make what kill -9 leaves: an image of a host, unfinished trials, and the fleet's keys."""
    host = host_of(results_folder) / "f"
    image = write_file(host / f".dbbench-f-{tag_of(host)}.img", b"x" * 8192)
    Journal(host / "journal.jsonl").note("take", what="image", path=str(image))
    partial = [host / "trials/.partial-x", results_folder / "f/trials/.partial-y"]
    keys = security.folder_of_fleet(results_folder / ".fleet/f")
    for path in (*partial, keys):
        path.mkdir()
    return [image, *partial, keys]


def trials(run: Path) -> list[str]:
    """Return the finished trials of a run's folder."""
    return sorted(path.name for path in (run / "trials").glob("[!.]*"))


def test_what_a_killed_fleet_leaves_is_removed(told: Any, results_folder: Path) -> None:
    """Of its hosts on this machine and here; results stay, also those that were not collected."""
    left = leave_behind(results_folder)
    folders = [results_folder / "f", host_of(results_folder) / "f"]
    before = [trials(folder) for folder in folders]
    listed = told("clean", "--dry-run")
    assert all(f" {path} (" in listed and path.exists() for path in left)
    removed = [line for line in told("clean").splitlines() if line.startswith("removed ")]
    assert len(removed) == len(left)
    assert not any(path.exists() for path in left)
    assert [trials(folder) for folder in folders] == before
    assert told("clean", "f").strip() == "nothing to remove"


def test_fleet_that_is_worked_on_is_left_alone(told: Any, results_folder: Path) -> None:
    """With a coordinator, all of it: what arrives is no leftover. What a host is running, too."""
    left = leave_behind(results_folder)
    with fleet_files.coordinating(results_folder, "f"):
        assert told("clean").splitlines()[0] == "nothing to remove"
        assert "E803" in told("clean", "f", code=5)
    with results.lock(host_of(results_folder) / "f"):
        told("clean")
    assert [path.exists() for path in left] == [True, True, False, False]


def test_stop_removes_the_keys_of_a_killed_coordinator(told: Any, results_folder: Path) -> None:
    """Its scheduler was a part of its process; the keys are named."""
    pytest.importorskip("distributed")
    keys = leave_behind(results_folder)[-1]
    printed = told("fleet", "stop", "f")
    assert "no host runs trials of fleet f" in printed and f"{keys}" in printed
    assert not keys.exists()


def test_status_of_a_fleet_without_a_scheduler(told: Any, results_folder: Path) -> None:
    """It says what has been collected, and how to go on."""
    pytest.importorskip("distributed")
    printed = told("fleet", "status", "f")
    assert "1 trial collected" in printed and "The same `fleet run` command resumes." in printed
    status = json.loads(told("fleet", "status", "--json"))
    assert (status["scheduler"], status["hosts"], status["collected"]) == (False, [], 1)


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "-x"])
def test_name_of_a_fleet_cannot_leave_the_results(
    name: str,
    tmp_path: Path,
    told: Any,
    results_folder: Path,
) -> None:
    """It is the name of folders here and on the hosts."""
    pytest.importorskip("distributed")
    (tmp_path / "plan.toml").write_text(plan())
    words = ("--local", "1", "--spread", f"--name={name}")
    printed = told("fleet", "run", str(tmp_path / "plan.toml"), *words, code=2)
    assert "invalid name of a fleet" in printed
    assert [path.name for path in (results_folder / ".fleet").iterdir()] == ["f"]
