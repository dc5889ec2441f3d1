"""Merging runs: verified before anything is written, written once, no path outside of the folder."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench import results
from dbbench.errors import ImportRefused, ResultDamaged, RunMissing, RunNameTaken
from dbbench.model import Run, Status, Trial
from dbbench.results import merging
from dbbench.results.fileio import sha256

MakeRun = Callable[..., Run]


@pytest.fixture
def host(tmp_path: Path, make_run: MakeRun) -> Callable[..., Path]:
    """A maker of run folders, each of another host, with the given trials of the order finished."""

    def make(name: str, *finished: int, value: float = 9.5, sha: str = "cafe") -> Path:
        run = dataclasses.replace(make_run(), host={"hostname": name, "kernel": f"of {name}"}, plan_sha256=sha)
        folder = results.create_run(tmp_path / name, run, "# plan\n")
        for index in finished:
            spec = run.order[index]
            draft = results.Draft(folder, spec.id)
            (draft.raw / "pgbench.out").write_text(f"{value}\n")
            trial = Trial(spec.id, run.name, name, "ext4", "postgres", "w", spec.block, 1, spec.position, Status.OK,
                          summary={"tps": value})  # fmt: skip
            draft.publish(trial, None, [], None)
        return folder

    return make


def test_shares_of_two_hosts_become_one_run(host: Callable[..., Path], tmp_path: Path) -> None:
    """One run with all trials in the plan's order; each keeps its host, and both hosts' facts are there."""
    here = tmp_path / "here"
    first, second = (merging.merge(host(name, index), here) for name, index in (("h2", 1), ("h1", 0)))
    assert (len(first.added), len(second.added)) == (1, 1)
    run = results.load_run(here / "r")
    assert [(trial.host, trial.position) for trial in run.trials] == [("h1", 1), ("h2", 2)]
    assert {name: facts["kernel"] for name, facts in run.run.hosts.items()} == {"h1": "of h1", "h2": "of h2"}
    assert run.remaining == []


def test_import_is_idempotent(host: Callable[..., Path], tmp_path: Path) -> None:
    """The same folder again changes nothing; with a trial more it adds that one."""
    source, here = host("h1", 0), tmp_path / "here"
    merging.merge(source, here)
    before = {path: path.stat().st_mtime_ns for path in (here / "r/trials").rglob("*")}
    again = merging.merge(source, here)
    assert (len(again.added), len(again.known)) == (0, 1)
    assert before == {path: path.stat().st_mtime_ns for path in (here / "r/trials").rglob("*")}


def test_other_result_of_the_same_id_is_refused(host: Callable[..., Path], tmp_path: Path) -> None:
    """Two hosts that drove the same trial are two runs: nothing of the second is taken over."""
    here = tmp_path / "here"
    merging.merge(host("h1", 0), here)
    with pytest.raises(ImportRefused):
        merging.merge(host("h2", 0, 1, value=8.0), here)
    run = results.load_run(here / "r")
    assert [trial.host for trial in run.trials] == ["h1"]
    assert run.run.hosts.keys() == {"h1"}


def test_other_plan_of_the_same_name_is_refused(host: Callable[..., Path], tmp_path: Path) -> None:
    """A run of that name stands here for another plan."""
    merging.merge(host("h1", 0), tmp_path / "here")
    with pytest.raises(RunNameTaken):
        merging.merge(host("h2", 1, sha="beef"), tmp_path / "here")


def damaged(trial: Path) -> None:
    """Alter a file."""
    (trial / "raw/pgbench.out").write_text("99\n")


def added(trial: Path) -> None:
    """Add a file that no sum is of."""
    (trial / "raw/more").write_text("not in the sums\n")


def unsummed(trial: Path) -> None:
    """Take the sums away."""
    (trial / "SHA256SUMS").unlink()


@pytest.mark.parametrize("spoil", [damaged, added, unsummed])
def test_damaged_trial_is_refused(host: Callable[..., Path], tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """A file that differs from its sum, has none, or a folder without sums: nothing is written, not even the run."""
    source = host("h1", 0, 1)
    spoil(next((source / "trials").iterdir()))
    with pytest.raises(ResultDamaged):
        merging.merge(source, tmp_path / "here")
    assert not (tmp_path / "here").exists()


def linked_file(source: Path) -> None:
    """A file is a link."""
    out = next((source / "trials").iterdir()) / "raw/pgbench.out"
    out.unlink()
    out.symlink_to("/etc/hostname")


def linked_trial(source: Path) -> None:
    """A trial's folder is a link."""
    trial = next((source / "trials").iterdir())
    shutil.move(trial, source / "elsewhere")
    trial.symlink_to(source / "elsewhere")


def linked_trials(source: Path) -> None:
    """The folder of all trials is a link."""
    shutil.move(source / "trials", source / "elsewhere")
    (source / "trials").symlink_to(source / "elsewhere")


def fifo(source: Path) -> None:
    """A FIFO among the files."""
    os.mkfifo(next((source / "trials").iterdir()) / "raw/fifo")


def outer_sum(source: Path) -> None:
    """The sums name a file outside."""
    sums = next((source / "trials").iterdir()) / "SHA256SUMS"
    sums.write_text(sums.read_text() + f"{sha256(source / 'run.json', source)}  ../../run.json\n")


def outer_id(source: Path) -> None:
    """A trial is called by a path."""
    run = json.loads((source / "run.json").read_text())
    run["order"][0]["id"] = "../../../outside"
    (source / "run.json").write_text(json.dumps(run))


def outer_name(source: Path) -> None:
    """The run is called by a path."""
    run = json.loads((source / "run.json").read_text())
    (source / "run.json").write_text(json.dumps({**run, "name": "../outside"}))


def linked_script(source: Path) -> None:
    """A script is a link."""
    (source / "scripts").mkdir()
    (source / "scripts/w.sql").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    "spoil", [linked_file, linked_trial, linked_trials, fifo, outer_sum, outer_id, outer_name, linked_script]
)
def test_what_leads_out_is_refused(host: Callable[..., Path], tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """Links, FIFOs, and names of trials, files or runs that lead out of the folder."""
    source = host("h1", 0, 1)
    spoil(source)
    before = sorted(tmp_path.iterdir())
    with pytest.raises((ImportRefused, ResultDamaged)):
        merging.merge(source, tmp_path / "here")
    assert before == sorted(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\nb"])
def test_incoming_file_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    """What another machine calls its files is not trusted."""
    with pytest.raises(ImportRefused):
        merging.Incoming(tmp_path, "t").write(name, b"x")


def test_merged_run_is_not_driven_on(host: Callable[..., Path], tmp_path: Path) -> None:
    """`run` never resumes an imported run: a block would be divided between two hosts."""
    merging.merge(host("h1", 0), tmp_path / "here")
    assert results.find_open(tmp_path / "here", "cafe") is None


def test_folder_without_a_run_is_told(tmp_path: Path) -> None:
    """Neither a run's folder nor a results folder."""
    with pytest.raises(RunMissing):
        merging.sources(tmp_path)
