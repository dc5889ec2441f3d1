"""Results are complete or absent, and damage is detected."""

import json
import sys
from pathlib import Path

import pytest

from dbbench import results
from dbbench.errors import ProgramMissing, ResultDamaged, RunLocked, RunMissing
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.series import Series
from dbbench.model import Phase, Run, Status, Trial
from dbbench.report.trial_text import trial_text
from dbbench.results.fileio import write_with_sum
from tests.support.runs import small_run
from tests.support.trials import trial_of


def a_trial(run: Run, index: int = 0, status: Status = Status.OK) -> Trial:
    """A finished trial of that run."""
    return trial_of(run, index, status=status, summary={"tps": 9.5})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a new run."""
    return results.create_run(tmp_path, small_run(), "# plan\n")


def publish(folder: Path, index: int = 0) -> Path:
    """Finish a trial of the run in `folder`."""
    run = results.load_spec(folder)
    draft = results.Draft(folder, run.order[index].id)
    (draft.raw / "pgbench.out").write_text("tps = 9.5\n")
    series = Series(3, {"tps": [1.0, 0.0, None], "p95_ms": [2.5, None, None]})
    return draft.publish(
        a_trial(run, index),
        series,
        ["warmup", "measure", "measure"],
        Histogram({500: 3}),
    )


def test_trial_is_read_back_with_series_and_histogram(folder: Path) -> None:
    """A gap stays a gap and a zero stays a zero. run.json holds the whole run; series.csv.gz
    carries no time of its writing. Other people's scripts rely on the names in trial.json.
    """
    assert small_run() == results.load_spec(folder)
    other = publish(results.create_run(folder.parent, small_run("b"), ""))
    assert (publish(folder) / "series.csv.gz").read_bytes() == (
        other / "series.csv.gz"
    ).read_bytes()
    loaded = results.load_run(folder)
    (trial,) = loaded.trials
    assert a_trial(loaded.run) == trial
    found = loaded.series(trial)
    assert found is not None
    assert (found[0]["tps"], found[1]) == ([1.0, 0.0, None], ["warmup", "measure", "measure"])
    assert Histogram({500: 3}) == loaded.histogram(trial)
    written = json.loads((other / "trial.json").read_text())
    assert {
        "schema",
        "id",
        "run",
        "host",
        "attempt",
        "fs_setup",
        "engine",
        "engine_version",
        "workload",
        "block",
        "position",
        "status",
        "warnings",
        "phases",
        "summary",
        "filesystem",
        "cache",
        "checkpoints",
        "drain",
        "memory",
        "space",
        "io",
        "device",
        "commands",
    } <= written.keys()


def test_what_an_interrupted_trial_left_is_not_a_result_and_is_emptied(folder: Path) -> None:
    """By the next attempt, also if nothing has removed it before."""
    ident = results.load_spec(folder).order[0].id
    (left := results.Draft(folder, ident).raw / "half").write_text("x")
    assert results.load_run(folder).trials == ()
    results.Draft(folder, ident)
    assert not left.exists()


@pytest.mark.parametrize(
    "name", ["trial.json", "series.csv.gz", "histogram.json", "raw/pgbench.out"]
)
def test_altered_file_is_found_and_named(folder: Path, name: str) -> None:
    """One flipped byte in any file of a result is an error that names it, and so is a file that is
    gone.
    """
    path = publish(folder) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ResultDamaged, match=name):
        results.load_run(folder)
    path.unlink()
    with pytest.raises(ResultDamaged, match=f"{name} is missing"):
        results.load_run(folder)


@pytest.mark.parametrize(
    "added", ["\n", " ", "x", f"{'0' * 64}  trial.json\n", f"{'0' * 64}  more\n", "\x0c\n", "\0"]
)
def test_bytes_added_to_the_checksums_are_found(added: str, folder: Path) -> None:
    """Whatever they are, the result is damaged."""
    with (publish(folder) / "SHA256SUMS").open("a") as file:
        file.write(added)
    with pytest.raises(ResultDamaged, match=r"SHA256SUMS|more is missing"):
        results.load_run(folder)


def test_newest_unfinished_run_of_the_same_plan_is_found(tmp_path: Path) -> None:
    """Another plan's run and a finished one are passed over."""
    done = results.create_run(tmp_path, small_run("done"), "")
    publish(done, 0)
    publish(done, 1)
    half = results.create_run(tmp_path, small_run("half"), "")
    publish(half, 0)
    found = results.find_open(tmp_path, "cafe")
    assert found is not None and found.path == half
    assert results.find_open(tmp_path, "beef") is None


def test_second_worker_on_a_run_is_refused_with_who_holds_it(folder: Path) -> None:
    """Two processes never work on one run."""
    with results.lock(folder), pytest.raises(RunLocked, match=r"process \d+"), results.lock(folder):
        pass
    with results.lock(folder):
        pass


def test_a_run_of_another_schema_is_refused(folder: Path, tmp_path: Path) -> None:
    """In one sentence; keys may mean something else there. A cut-off run.json is damage, not
    guessed around, and a folder without one is no run.
    """
    path = folder / "run.json"
    written = json.loads(path.read_text())
    del written["sha256"]
    write_with_sum(path, written | {"schema": 2})
    with pytest.raises(
        ResultDamaged, match="its schema is 2, and this version of dbbench reads schema 1 only"
    ):
        results.load_run(folder)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ResultDamaged, match=r"run\.json"):
        results.load_run(folder)
    with pytest.raises(RunMissing):
        results.load_run(tmp_path)


def test_a_run_of_an_earlier_version_is_read(folder: Path) -> None:
    """A key of the plan, its deadline, its phase and its facts that have left are ignored."""
    publish(folder, 0)
    path = folder / "run.json"
    written = json.loads(path.read_text())
    del written["sha256"]
    written["plan"]["age_engine"] = {"write_factors": [0, 4], "repair": True}
    written["plan"]["deadlines"] = {"age_engine": 7200, "mkfs": 60}
    write_with_sum(path, written)
    result = next(folder.glob("trials/*/trial.json"))
    trial = json.loads(result.read_text())
    trial["age_engine"] = {"dataset_bytes": 1, "points": [{"factor": 0.0, "tps": 1.0}]}
    phase = {"start": "2026-01-01T00:00:00.000Z", "end": "2026-01-01T00:00:09.000Z", "seconds": 9}
    trial["phases"].append({"name": "age_engine", **phase})
    result.write_text(json.dumps(trial))
    run = results.load_run(folder, verify=False)
    assert run.run.plan.deadlines == {Phase.MKFS: 60}
    assert run.trials[0].phases[-1].seconds == 9
    assert "age_engine 0:09" in "\n".join(trial_text(run.trials[0], run))


@pytest.mark.needs("python:pandas")
def test_trials_become_a_frame(folder: Path) -> None:
    """One row for each finished trial, with a column for each metric."""
    publish(folder)
    frame = results.load(folder).to_frame()
    assert (
        list(frame["tps"]) == [9.5]
        and list(frame["status"]) == ["ok"]
        and list(frame["fs_setup"]) == ["ext4"]
    )


def test_a_frame_needs_pandas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the error names the command that installs it."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ProgramMissing) as refused:
        results.load(folder).to_frame()
    assert "pip install pandas" in str(refused.value.remedy)
