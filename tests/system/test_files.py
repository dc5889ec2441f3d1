"""Loads on plain files: each driver on a small ext4; its figures agree with the tool's own output.

All tests read the same run of five trials.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.leftovers import leaving_nothing
from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "sadf", "fio", "bonnie++")


LOADS: list[Any] = [
    {"name": "bonnie", "file_size": "128MiB", "files": 1, "chars": False},
    {"name": "fio-randrw", "file_size": "32MiB", "clients": 2},
    {"name": "fio-seqread", "file_size": "64MiB"},
    {"name": "copy", "file_size": "200MiB", "clients": 3},
    {"name": "small-files", "files": 2000, "clients": 2},
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> Any:
    """One run of five loads."""
    dbbench = dbbench_in(tmp_path_factory.mktemp("files"))
    dbbench.plan(plan("ext4", "files", LOADS, measure="5s", device={"size": "768MiB"}))
    with leaving_nothing(dbbench.folder):
        dbbench.said = dbbench("run", "plan.toml", "--name", "r", "--progress", "plain")
    return dbbench


def trial(done: Any, workload: str) -> tuple[dict[str, Any], Path]:
    """What the trial of that workload found, and its raw files."""
    name = f"ext4.files.{workload}-b1-a1"
    return done.trials()[name], done.folder / "results/r/trials" / name / "raw"


@pytest.mark.parametrize("workload", ["bonnie", "fio-randrw", "fio-seqread", "copy", "small-files"])
def test_each_load_ends_well(done: Any, workload: str) -> None:
    """No failure, a figure of the primary metric, the commands in the result, telemetry beside
    it.
    """
    found, raw = trial(done, workload)
    assert found["status"] in ("ok", "suspect") and found["error"] is None
    assert (
        found["engine"] == "files"
        and found["effective_settings"] == {}
        and found["cores"]["server"] is None
    )
    assert list(raw.glob("*.command"))
    # Of a shorter load that was stopped for two seconds, no sampler may have a whole second.
    if found["summary"].get("duration_s", 5) > 4:
        assert any(row["cpu_system_pct"] for row in done.series(found))
    assert not {w["id"] for w in found["warnings"]} & {"W002", "W010", "W013", "W016", "W132"}


def test_fio_reports_the_same(done: Any) -> None:
    """I/Os a second, MB/s and the histogram are those of fio's own summary; the window's seconds
    have rates.
    """
    found, raw = trial(done, "fio-randrw")
    job = json.loads((raw / "fio.json").read_text())["jobs"][0]
    told = job["read"]["iops"] + job["write"]["iops"]
    assert found["summary"]["tps"] == pytest.approx(told, rel=0.01)
    assert found["summary"]["read_mb_per_s"] == pytest.approx(
        job["read"]["bw_bytes"] / 1e6, rel=0.01
    )
    assert found["summary"]["write_mb_per_s"] == pytest.approx(
        job["write"]["bw_bytes"] / 1e6, rel=0.01
    )
    counts = json.loads((raw.parent / "histogram.json").read_text())["counts"]
    assert sum(counts.values()) == job["read"]["total_ios"] + job["write"]["total_ios"]
    rates = [float(row["tps"]) for row in done.series(found) if row["tps"]]
    # The seconds at the window's ends are known in part only, so the mean of all is not that of the
    # window. fio's extremes are those of half a second, reads and writes of both jobs.
    least, largest = (job["read"][word] + job["write"][word] for word in ("iops_min", "iops_max"))
    assert rates and least / 4 <= max(rates) <= 1.001 * largest


def test_fio_flushes_reach_the_device(done: Any) -> None:
    """Every sixteenth write of a job is flushed, and the device counts it."""
    found, _ = trial(done, "fio-randrw")
    assert found["io"]["flushes"] > 0 and found["io"]["write_bytes"] > 0


def test_fio_files_are_laid_out_and_cold(done: Any) -> None:
    """Laying out is no part of the window, and what was laid out comes from the device again."""
    found, _ = trial(done, "fio-seqread")
    assert found["io"]["write_bytes"] < 32 * 2**20
    assert found["space"]["logical_bytes"] == 64 * 2**20 and found["checked"].startswith("1 files,")
    assert [argv for argv in found["commands"] if "--create_only=1" in argv]
    # of a load that writes too: it overwrites, and fills no holes
    written, _ = trial(done, "fio-randrw")
    assert written["space"]["disk_bytes"] >= written["space"]["logical_bytes"] == 64 * 2**20


def test_bonnie_runs_as_nobody_and_reports_the_same(done: Any) -> None:
    """Figures are those of its line, which says which were not timed; a file of 128 MiB is labelled
    cached.
    """
    found, raw = trial(done, "bonnie")
    fields = (raw / "bonnie.csv").read_text().strip().split(",")
    block = None if fields[11].startswith("+") else float(fields[11]) * 1024 / 1e6
    assert found["summary"]["block_write_mb_per_s"] == (
        block if block is None else pytest.approx(block)
    )
    assert (
        found["summary"]["char_write_mb_per_s"] is None
        and found["summary"]["block_write_max_ms"] > 0
    )
    assert "W116" in {w["id"] for w in found["warnings"]}
    assert "Using uid" not in (raw / "bonnie.out").read_text()  # it says so where root starts it


def test_copy_has_both_times(done: Any) -> None:
    """The fsync comes on top; all bytes of the three writers are there, and the seconds' rates add
    up to them.
    """
    found, _ = trial(done, "copy")
    figures = found["summary"]
    assert 0 < figures["copy_s"] < figures["duration_s"]
    assert figures["copy_synced_mb_per_s"] == pytest.approx(
        209.7152 / figures["duration_s"], rel=0.001
    )
    written = sum(float(row["file_write_mb_per_s"] or 0) for row in done.series(found))
    assert written == pytest.approx(209.7152, rel=0.01)
    assert found["space"]["logical_bytes"] == 200 * 2**20
    # the fsync brought it to the device within the window
    assert found["io"]["write_bytes"] >= 190 * 2**20


def test_small_files_are_read_cold(done: Any) -> None:
    """What is read comes from the device, and all that was made is gone."""
    found, raw = trial(done, "small-files")
    lines = [json.loads(line) for line in (raw / "smallfiles.out").read_text().splitlines()]
    assert [line["files"] for line in lines if "step" in line] == [2000, 2000, 2000] and lines[2][
        "why"
    ] == ""
    assert found["io"]["read_bytes"] >= 2000 * 4096 and found["checked"].startswith("0 files")
    assert found["summary"]["reads_per_s"] == pytest.approx(2000 / lines[2]["seconds"])


def test_the_page_names_what_was_measured(done: Any) -> None:
    """Each load has its own row of verdicts, in its own unit, and no engine's counters are
    missed.
    """
    page = (done.folder / "results/r/report.html").read_text()
    for words in (
        "Files · copy",
        "copy rate with fsync",
        "Files · fio-randrw",
        "Read and written by the load",
    ):
        assert words in page
    assert "no trial has counters of the server" not in page


def test_no_trial_failed(done: Any) -> None:
    """And the run does not count any."""
    assert {trial["status"] for trial in done.trials().values()} <= {"ok", "suspect"}
    assert " failed" not in done.said.stdout and " failed" not in done.said.stderr


JOB = """
title = "own job"
driver = "fio"
engines = ["files"]
script = "own.fio"
dataset = { kind = "none" }
[parameters.clients]
type = "integer"
default = 1
"""


def test_a_load_elsewhere_fails(dbbench: Any, tmp_path: Path) -> None:
    """A fio that also runs a job in another directory, which a job file cannot."""
    (folder := dbbench.folder / "own/workloads").mkdir(parents=True)
    (folder / "own.toml").write_text(JOB)
    (folder / "own.fio").write_text("[a]\nrw=randread\nsize=8m\n")
    # The load's account can reach this folder.
    (programs := Path("/var/tmp") / tmp_path.name).mkdir()
    (elsewhere := programs / "elsewhere").mkdir()
    elsewhere.chmod(0o777)
    job = f"--name=b --directory={elsewhere} --rw=randread --size=8m --time_based --runtime=9"
    (fio := programs / "fio").write_text(f'#!/bin/sh\nexec {shutil.which("fio")} "$@" {job}\n')
    fio.chmod(0o755)
    dbbench.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    dbbench.plan(plan("ext4", "files", {"name": "own"}, measure="3s"))
    try:
        dbbench("--path", "own", "run", "plan.toml", "--name", "r", status=1)
    finally:
        shutil.rmtree(programs)
    (trial,) = dbbench.trials().values()
    assert (trial["status"], trial["error"]["id"]) == ("failed", "E355")
    assert str(elsewhere) in trial["error"]["text"]
