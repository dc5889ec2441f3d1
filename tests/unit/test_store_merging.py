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
from dbbench.results import merging
from dbbench.results.fileio import sha256
from tests.support.runs import small_run
from tests.support.trials import trial_of


@pytest.fixture
def host(tmp_path: Path) -> Callable[..., Path]:
    """A maker of run folders, each of another host, with the given trials of the order finished."""

    def make(
        name: str,
        *finished: int,
        value: float = 9.5,
        sha: str = "cafe",
    ) -> Path:
        run = dataclasses.replace(
            small_run(),
            host={"hostname": name, "kernel": f"of {name}"},
            plan_sha256=sha,
        )
        folder = results.create_run(tmp_path / name, run, "# plan\n")
        for index in finished:
            draft = results.Draft(folder, run.order[index].id)
            (draft.raw / "pgbench.out").write_text(f"{value}\n")
            draft.publish(trial_of(run, index, host=name, summary={"tps": value}), None, [], None)
        return folder

    return make


def test_shares_of_two_hosts_become_one_run(host: Callable[..., Path], tmp_path: Path) -> None:
    """One run with all trials in the plan's order; each keeps its host, and both hosts' facts are
    there.
    """
    here = tmp_path / "here"
    first, second = (
        merging.merge(host(name, index), here) for name, index in (("h2", 1), ("h1", 0))
    )
    assert (len(first.added), len(second.added)) == (1, 1)
    run = results.load_run(here / "r")
    assert [(trial.host, trial.position) for trial in run.trials] == [("h1", 1), ("h2", 2)]
    assert {name: facts["kernel"] for name, facts in run.run.hosts.items()} == {
        "h1": "of h1",
        "h2": "of h2",
    }
    assert run.remaining == []


def test_import_is_idempotent(host: Callable[..., Path], tmp_path: Path) -> None:
    """The same folder again changes nothing. `run` never resumes an imported run: a block would be
    divided between two hosts. A folder without a run is refused.
    """
    source = host("h1", 0)
    here = tmp_path / "here"
    merging.merge(source, here)
    before = {path: path.stat().st_mtime_ns for path in (here / "r/trials").rglob("*")}
    again = merging.merge(source, here)
    assert (len(again.added), len(again.unchanged)) == (0, 1)
    assert before == {path: path.stat().st_mtime_ns for path in (here / "r/trials").rglob("*")}
    assert results.find_open(here, "cafe") is None
    (tmp_path / "none").mkdir()
    with pytest.raises(RunMissing):
        merging.sources(tmp_path / "none")


def test_other_result_of_the_same_id_is_refused(host: Callable[..., Path], tmp_path: Path) -> None:
    """Two hosts that drove the same trial are two runs: nothing of the second is taken over. Nor is
    a run of the same name and another plan.
    """
    here = tmp_path / "here"
    merging.merge(host("h1", 0), here)
    with pytest.raises(ImportRefused):
        merging.merge(host("h2", 0, 1, value=8.0), here)
    run = results.load_run(here / "r")
    assert [trial.host for trial in run.trials] == ["h1"]
    assert run.run.hosts.keys() == {"h1"}
    with pytest.raises(RunNameTaken):
        merging.merge(host("h3", 1, sha="beef"), here)


def linked(path: Path, elsewhere: Path) -> None:
    """Move a file or folder, and leave a link to it."""
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def renamed(run: Path, **names: str) -> None:
    """Change the name of the run, or that of its first trial."""
    content = json.loads(run.read_text())
    content["order"][0]["id"] = names.get("trial", content["order"][0]["id"])
    run.write_text(json.dumps({**content, "name": names.get("name", content["name"])}))


# What is done to the folder of a run, and to its first trial.
DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "a file is altered": lambda _, trial: (trial / "raw/pgbench.out").write_text("99\n"),
    "a file has no sum": lambda _, trial: (trial / "raw/more").write_text("not in the sums\n"),
    "no sums": lambda _, trial: (trial / "SHA256SUMS").unlink(),
}
LEADS_OUT: dict[str, Callable[[Path, Path], object]] = {
    "a file is a link": lambda run, trial: linked(trial / "raw/pgbench.out", run / "elsewhere"),
    "a trial is a link": lambda run, trial: linked(trial, run / "elsewhere"),
    "the trials are a link": lambda run, _: linked(run / "trials", run / "elsewhere"),
    "a FIFO": lambda _, trial: os.mkfifo(trial / "raw/fifo"),
    "a sum of a file outside": lambda run, trial: (trial / "SHA256SUMS").write_text(
        f"{(trial / 'SHA256SUMS').read_text()}{sha256(run / 'run.json', run)}  ../../run.json\n"
    ),
    "a trial is called by a path": lambda run, _: renamed(
        run / "run.json", trial="../../../outside"
    ),
    "the run is called by a path": lambda run, _: renamed(run / "run.json", name="../outside"),
    "a script is a link": lambda run, _: (
        (run / "scripts").mkdir(),
        (run / "scripts/w.sql").symlink_to("/etc/hostname"),
    ),
}


@pytest.mark.parametrize("spoil", [*DAMAGE, *LEADS_OUT])
def test_what_is_damaged_or_leads_out_is_refused(
    host: Callable[..., Path],
    tmp_path: Path,
    spoil: str,
) -> None:
    """A file that differs from its sum, has none, or a folder without sums; links, FIFOs, and names
    of trials, files or runs that lead out of the folder: nothing is written, not even the run.
    """
    source = host("h1", 0, 1)
    (DAMAGE | LEADS_OUT)[spoil](source, next((source / "trials").iterdir()))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ResultDamaged if spoil in DAMAGE else (ImportRefused, ResultDamaged)):
        merging.merge(source, tmp_path / "here")
    assert before == sorted(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\nb"])
def test_incoming_file_stays_in_its_folder(name: str) -> None:
    """What another machine calls its files is not trusted."""
    with pytest.raises(ImportRefused):
        merging.inner(name)
