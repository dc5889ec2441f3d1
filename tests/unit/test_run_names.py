"""Which run a plan continues, and the names of runs."""

import dataclasses
import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli, results
from dbbench.commands.options import Options
from dbbench.commands.report import put_verdict
from dbbench.errors import (
    DatasetBuildFailed,
    ImportRefused,
    Interrupted,
    RunLocked,
    RunNameTaken,
)
from dbbench.model import Fault, Status
from dbbench.plan.request import PlanRequest, load_request
from dbbench.results.merging import keep_scripts
from dbbench.run import worker
from dbbench.run.create import (
    choose,
    create,
    free_name,
    is_complete,
    must_be_of,
    scripts_of,
    set_killed_aside,
)
from dbbench.run.queue import LOG, begin
from tests.support.files import write_file
from tests.support.runs import changed, small_run
from tests.support.trials import trial_of

PLAN = (
    'name = "x"\nfs_setups = ["ext4", "xfs"]\nblocks = 1\n[engine]\nname = "postgres"\n'
    '[workload]\nname = "scan"\n'
)


OWN = (
    'title = "x"\ndriver = "pgbench"\nengines = ["postgres"]\nscript = "own.sql"\n'
    'dataset = { kind = "pgbench", scale = 1 }\n'
)


def plan_asked(tmp_path: Path, text: str = PLAN) -> PlanRequest:
    """A plan as `run` reads it."""
    path = write_file(tmp_path / "plan.toml", text)
    return load_request(str(path), [])


def with_hash(results_folder: Path, name: str, sha256: str) -> Path:
    """Give a run of the folder the hash of a plan."""
    run = results.load_spec(results_folder / name)
    results.save_spec(results_folder / name, dataclasses.replace(run, plan_sha256=sha256))
    return results_folder / name


def path_of(folder: results.RunFolder | None) -> Path | None:
    """Return the path of the chosen run."""
    return None if folder is None else folder.path


def test_the_unfinished_run_of_the_same_plan_continues(
    results_folder: Path, tmp_path: Path
) -> None:
    """Unfinished before finished; another plan's run is none; --new makes another."""
    wanted = plan_asked(tmp_path)
    assert choose(results_folder, wanted, new=False, name=None) is None
    done = with_hash(results_folder, "demo", wanted.sha256)
    assert path_of(choose(results_folder, wanted, new=False, name=None)) == done
    synthetic.write(results_folder, Shape(name="half", work=TPCB, missing=2))
    half = with_hash(results_folder, "half", wanted.sha256)
    assert path_of(choose(results_folder, wanted, new=False, name=None)) == half
    assert choose(results_folder, wanted, new=True, name=None) is None


def test_an_unfinished_run_of_other_cells_is_not_resumed(
    results_folder: Path,
    tmp_path: Path,
    printed: Any,
) -> None:
    """It names the hash of the plan, but its cells are not those of the plan: E803, before anything
    is checked.
    """
    wanted = plan_asked(tmp_path)
    synthetic.write(results_folder, Shape(name="half", work=TPCB, missing=2))
    before = with_hash(results_folder, "half", wanted.sha256).joinpath("run.json").read_bytes()
    err = printed("run", str(tmp_path / "plan.toml"), "--results", str(results_folder), code=5)
    assert "E803" in err and "plan.workload[0].name" in err
    assert (results_folder / "half/run.json").read_bytes() == before


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("error", "says", "stays"),
    [
        (DatasetBuildFailed("refused"), "", False),
        (DatasetBuildFailed("refused"), "a traceback", True),
        (Interrupted("stopped"), "", True),
        (KeyboardInterrupt(), "", True),
    ],
)
def test_a_new_run_that_is_refused_is_removed(
    error: BaseException,
    says: str,
    stays: bool,
    tmp_path: Path,
) -> None:
    """With its results folder; not after a stop, nor if its log says something."""
    root = tmp_path / "results"
    wanted = plan_asked(tmp_path)
    with (
        pytest.raises(type(error)),
        begin(None, root, wanted, partial(create, root, wanted, "r")) as folder,
    ):
        (folder.path / LOG).write_text(says)
        raise error
    assert (root.exists(), (root / "r/run.json").exists()) == (stays, stays)


@pytest.mark.starts_processes
def test_a_refused_run_stays_that_existed_or_that_another_process_resumes(tmp_path: Path) -> None:
    """The other process holds its lock."""
    root = tmp_path / "results"
    wanted = plan_asked(tmp_path)
    make = partial(create, root, wanted, "r")
    with (
        ExitStack() as other,
        pytest.raises(DatasetBuildFailed),
        begin(None, root, wanted, make) as folder,
    ):
        other.enter_context(results.lock(folder.path))
        raise DatasetBuildFailed("refused")
    with pytest.raises(DatasetBuildFailed), begin(folder, root, wanted, make):
        raise DatasetBuildFailed("refused")
    assert (root / "r/run.json").exists()


@pytest.mark.starts_processes
def test_a_run_is_that_of_its_plan(tmp_path: Path) -> None:
    """What `create` makes matches, with the script as it was then; each change of plan, cells or
    scripts is named.
    """
    write_file(tmp_path / "workloads/own.toml", OWN)
    script = write_file(tmp_path / "workloads/own.sql", "SELECT 1;\n")
    path = write_file(tmp_path / "plan.toml", PLAN.replace('"scan"', '"own"'))
    wanted = load_request(str(path), [str(tmp_path)])
    folder = create(tmp_path / "results", wanted, "r")
    keep_scripts(folder, scripts_of(wanted))
    script.write_text("SELECT 2;\n")
    with pytest.raises(ImportRefused):
        keep_scripts(folder, scripts_of(wanted))
    assert (folder / "scripts/own.sql").read_text() == "SELECT 1;\n"
    script.write_text("SELECT 1;\n")
    must_be_of(results.RunFolder(folder), wanted)
    run = results.load_spec(folder)
    worker.must_be(run, wanted.sha256)

    for key, value in (
        ("plan.device.at", "/etc"),
        ("cells[0].engine.bins", ("/tmp/evil",)),
        ("cells[0].engine.settings.archive_command", "id"),
        ("cells[0].workload.script", str(script)),
    ):
        results.save_spec(folder, evil := changed(run, key, value))
        with pytest.raises(RunLocked, match=re.escape(key)):
            must_be_of(results.RunFolder(folder), wanted)
        if key != "cells[0].workload.script":  # the same content: a trial runs a copy of it
            with pytest.raises(RunLocked):
                worker.must_be(evil, wanted.sha256)
    results.save_spec(folder, run)
    (folder / "scripts/own.sql").write_text("\\! id\n")
    with pytest.raises(RunLocked, match=r"keys that differ: scripts/own\.sql"):
        must_be_of(results.RunFolder(folder), wanted)
    with pytest.raises(RunLocked):
        worker.must_be(run, wanted.sha256)


def test_a_name_belongs_to_one_plan(results_folder: Path, tmp_path: Path) -> None:
    """A fixed name resumes its own plan and refuses another; nothing is overwritten."""
    wanted = plan_asked(tmp_path)
    with pytest.raises(RunNameTaken, match="belongs to another plan"):
        choose(results_folder, wanted, new=False, name="demo")
    folder = with_hash(results_folder, "demo", wanted.sha256)
    assert path_of(choose(results_folder, wanted, new=False, name="demo")) == folder
    assert choose(results_folder, wanted, new=False, name="fresh") is None
    for bad in ("a/b", "..", ".hidden"):
        with pytest.raises(RunNameTaken, match="invalid name of a run"):
            choose(results_folder, wanted, new=False, name=bad)


def test_names_are_plan_date_and_letter(tmp_path: Path) -> None:
    """The first letter that is free; after z comes aa."""
    for letter in ["a", *"bcdefghijklmnopqrstuvwxyz", "aa"]:
        name = free_name(tmp_path, "p", "2026-11-21")
        assert name == f"p-2026-11-21-{letter}"
        (tmp_path / name).mkdir()


def test_name_of_a_fleet_is_not_free(tmp_path: Path) -> None:
    """With --each there is no run of that name, and --new would continue the finished fleet."""
    (tmp_path / ".fleet/p-2026-11-21-a").mkdir(parents=True)
    assert free_name(tmp_path, "p", "2026-11-21") == "p-2026-11-21-b"


def test_a_finished_run_is_not_driven_again(
    results_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says so on stderr, prints its verdict and page, and exits with 0; nothing is checked: no
    machine has the CPU of this plan.
    """
    wanted = plan_asked(tmp_path, PLAN.replace("[workload]", 'cpus_server = "900"\n[workload]'))
    with_hash(results_folder, "demo", wanted.sha256)
    assert cli.run(["run", str(tmp_path / "plan.toml"), "--results", str(results_folder)]) == 0
    out, err = capsys.readouterr()
    assert "is already finished; --new starts another" in err
    assert "throughput, tx/s" in out and str(results_folder / "demo/report.html") in out


@pytest.mark.parametrize(("error", "again"), [("E601", False), ("E348", True)])
def test_a_finished_run_with_a_failed_trial_exits_with_1_again(
    error: str,
    again: bool,
    tmp_path: Path,
) -> None:
    """A trial whose process died (E348) is run again instead; no other one is."""
    folder = results.create_run(tmp_path, run := small_run(), "")
    trial = trial_of(run, status=Status.FAILED, error=Fault(error, "measure", "it failed"))
    for each in (trial, *(trial_of(run, index) for index in range(1, len(run.order)))):
        results.Draft(folder, each.id).publish(each, None, [], None)
    assert put_verdict(Options(), [results.load_run(folder)], folder / "report.html", {}) == 1
    assert is_complete(results.RunFolder(folder)) is not again
    assert set_killed_aside(results.RunFolder(folder)) == ([trial.id] if again else [])
    assert bool(results.load_run(folder).remaining) is again
