"""Complete runs through the command line on real filesystems, servers and load generators.

The file is long because all its tests read one run of nine trials, which takes a minute.
"""

import calendar
import contextlib
import dataclasses
import gzip
import hashlib
import json
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench import results
from dbbench.storage.filesystems.common import mount_of
from tests.support.plans import SMALL, installed, plan

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> Any:
    """One run of three filesystems, two engines, three workloads; `.done` is what the command
    printed.
    """
    dbbench = dbbench_in(tmp_path_factory.mktemp("whole"))
    tpcb = {"name": "pgbench-tpcb", "engines": ["postgres"], "scale": 1, "clients": 2, "threads": 2}
    sysbench = {
        "name": "sysbench-oltp-read-write",
        "engines": ["mariadb"],
        **SMALL["sysbench-oltp-read-write"],
    }
    scan = {"name": "scan", "engines": ["postgres"], "tables": 2, "table_bytes": "16MiB"}
    text = plan(
        ["ext4", "xfs", "btrfs"],
        ["postgres", "mariadb"],
        [tpcb, sysbench, scan],
        device={"size": "1GiB"},
    )
    dbbench.plan(text)
    dbbench.done = dbbench("run", "plan.toml", "--name", "r", "--progress", "plain")
    return dbbench


def of(whole: Any, workload: str) -> dict[str, dict[str, Any]]:
    """The trials of one workload, by fs setup."""
    return {t["fs_setup"]: t for t in whole.trials().values() if t["workload"] == workload}


def folder_of(whole: Any, trial: dict[str, Any]) -> Path:
    """Where a trial's files lie."""
    return Path(whole.folder, "results/r/trials", trial["id"])


@pytest.mark.needs("mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs", "engine:mariadb", "sysbench")
class TestWhole:
    """Nine trials, read back as other people's scripts would."""

    def test_every_cell_has_a_good_trial(self, whole: Any) -> None:
        """Three filesystems under three workloads: no trial failed, each proved its cold cache and
        its flushes.
        """
        trials = whole.trials().values()
        assert len(trials) == 9
        assert [(t["id"], t["error"]) for t in trials if t["status"] == "failed"] == []
        assert all(t["cache"]["proved"] and t["cache"]["before_bytes"] > 0 for t in trials)
        assert all(t["device"]["direct_io"] for t in trials)
        assert {t["device"]["image_blocks_before"] for t in trials} == {
            t["device"]["image_blocks_after"] for t in trials
        }
        assert {"full"} == {t["filesystem"]["durability_class"] for t in trials}

    def test_tps_is_what_the_raw_logs_of_all_workers_say(self, whole: Any) -> None:
        """Counted by hand from the per-transaction logs: transactions that ended in the window ÷
        its seconds.

        The system clock that wrote the logs may differ from the trial's clock by milliseconds,
        so those that ended that close to one end of the window may be counted or not.
        """
        for trial in of(whole, "pgbench-tpcb").values():
            logs = sorted((folder_of(whole, trial) / "raw").glob("pgbench_log.*.gz"))
            assert len(logs) == 2
            begin = time.strptime(trial["anchor_utc"][:19], "%Y-%m-%dT%H:%M:%S")
            anchor = calendar_s(begin) + float("0" + trial["anchor_utc"][19:-1])
            window = trial["window"]
            latencies = list[float]()
            doubtful = list[float]()
            ends = window["warmup_s"], window["warmup_s"] + window["measure_s"]
            for log in logs:
                for line in gzip.decompress(log.read_bytes()).decode().splitlines():
                    fields = line.split()
                    second = int(fields[4]) + int(fields[5]) / 1e6 - anchor
                    # of clocks that were read one after the other
                    if any(abs(second - end) < 0.05 for end in ends):
                        doubtful.append(int(fields[2]) / 1000)
                    if ends[0] <= second < ends[1]:
                        latencies.append(int(fields[2]) / 1000)
            latencies.sort()
            more = len(doubtful)
            assert trial["summary"]["tps"] * window["measure_s"] == pytest.approx(
                len(latencies), abs=more + 1e-6
            )
            rank = math.ceil(0.95 * len(latencies)) - 1
            low = latencies[max(rank - more, 0)]
            high = max(latencies[rank : rank + more + 1] + doubtful)
            assert 0.99 * low <= trial["summary"]["p95_ms"] <= 1.01 * high

    def test_series_adds_up_to_the_summary(self, whole: Any) -> None:
        """The measured seconds' tps sum to the transactions of the window; the warm-up is not among
        them.
        """
        for name in ("pgbench-tpcb", "sysbench-oltp-read-write"):
            for trial in of(whole, name).values():
                rows = whole.series(trial)
                assert [row["phase"] for row in rows] == ["warmup"] + ["measure"] * 3
                measured = sum(float(row["tps"]) for row in rows if row["phase"] == "measure")
                assert measured == pytest.approx(trial["summary"]["transactions"], abs=0.5)

    def test_histogram_holds_the_window_and_gives_the_percentiles(self, whole: Any) -> None:
        """Its counts are the transactions; the 95 % rank lies in the bucket of p95."""
        for trial in of(whole, "sysbench-oltp-read-write").values():
            found = json.loads((folder_of(whole, trial) / "histogram.json").read_text())["counts"]
            assert sum(found.values()) == trial["summary"]["transactions"]
            rank = math.ceil(0.95 * sum(found.values()))
            seen = 0
            for bucket in sorted(found, key=int):
                seen += found[bucket]
                if seen >= rank:
                    break
            assert trial["summary"]["p95_ms"] == pytest.approx(
                math.exp((int(bucket) + 0.5) / 100) / 1000
            )

    def test_sysbench_agrees_with_its_own_report(self, whole: Any) -> None:
        """All transactions that the tool reports are counted, in the seconds, before them or after
        the last one. How many are outside depends on how fast the machine starts and stops the
        tool.
        """
        for trial in of(whole, "sysbench-oltp-read-write").values():
            raw = folder_of(whole, trial) / "raw"
            printed = (raw / "sysbench.out").read_text()
            total = next(
                int(line.split()[1]) for line in printed.splitlines() if "transactions:" in line
            )
            seconds = [float(row["tps"]) for row in whole.series(trial)]
            lines = (
                gzip.decompress((raw / "sysbench_events.txt.gz").read_bytes()).decode().splitlines()
            )
            events = [
                (second, n)
                for second, what, n in (map(int, line.split()) for line in lines)
                if what >= 0
            ]
            assert total == sum(n for _, n in events)
            assert 0 < sum(seconds) == sum(n for second, n in events if 0 <= second < len(seconds))

    def test_telemetry_stands_beside_the_load(self, whole: Any) -> None:
        """CPU, disk and awaits of the device under test have data in each OLTP trial, and in half
        of all seconds: a recorder of a busy or stopped machine leaves gaps.
        """
        columns = ("cpu_user_pct", "cpu_iowait_pct", "disk_write_kb_per_s", "w_await_ms")
        every: list[dict[str, str]] = []
        for trial in of(whole, "pgbench-tpcb").values():
            every += (rows := whole.series(trial))
            assert all(any(row[column] for row in rows) for column in columns)
            assert sum(float(row["disk_write_kb_per_s"] or 0) for row in rows) > 0
        assert all(sum(row[column] != "" for row in every) >= len(every) / 2 for column in columns)

    def test_compare_says_the_same_as_the_trials(self, whole: Any) -> None:
        """One block: the ratio is the quotient of the two trials, and nothing is claimed of it."""
        for row in whole.compared():
            if row["workload"] == "pgbench-tpcb" and row["fs_setup"] != "ext4":
                trials = of(whole, "pgbench-tpcb")
                expected = (
                    trials[row["fs_setup"]]["summary"]["tps"] / trials["ext4"]["summary"]["tps"]
                )
                assert row["ratio"] == pytest.approx(expected)
                assert (row["lo"], row["hi"], row["verdict"]) == (None, None, "inconclusive")

    def test_page_is_one_file_without_network(self, whole: Any) -> None:
        """report.html has each setup, the warning about short windows and no address to load from."""
        page = Path(whole.folder, "results/r/report.html").read_text()
        for text in ("ext4", "xfs", "btrfs", "smoke test"):
            assert text in page
        found: list[str] = []
        parser = HTMLParser()
        parser.handle_starttag = lambda _, attributes: found.extend(
            v or "" for k, v in attributes if k in ("src", "href")
        )  # type: ignore[method-assign]
        parser.feed(page)
        assert [address for address in found if not address.startswith(("#", "trials/"))] == []
        assert all(
            Path(whole.folder, "results/r", address).exists()
            for address in found
            if address[:1] == "t"
        )

    def test_short_window_says_burst(self, whole: Any) -> None:
        """No checkpoint fits into three seconds, and the verdict says it."""
        assert all(
            "W002" in {w["id"] for w in t["warnings"]} for t in of(whole, "pgbench-tpcb").values()
        )
        assert "too short to contain a checkpoint" in " ".join(whole("compare", "r").stdout.split())

    def test_read_ahead_and_a_short_warm_up_are_named(self, whole: Any) -> None:
        """By themselves the filesystems read ahead differently; a warm-up of a second sees none of
        their periods.
        """
        trials = whole.trials().values()
        kb = {t["fs_setup"]: t["filesystem"]["read_ahead_kb"] for t in trials}
        if kb["ext4"] != kb["btrfs"]:
            notes = [
                note
                for row in whole.compared()
                if row["fs_setup"] == "btrfs"
                for note in row["notes"]
            ]
            assert f"read-ahead differs ({kb['btrfs']} kB; baseline: {kb['ext4']} kB)" in notes
        told = {
            (t["fs_setup"], t["workload"]): [w["text"] for w in t["warnings"] if w["id"] == "W001"]
            for t in trials
        }
        assert (
            "the warm-up is 1 s, but btrfs commits every 30 s; use at least 60 s"
            in told["btrfs", "pgbench-tpcb"]
        )
        assert not any("warm-up" in text for text in told["btrfs", "scan"])

    def test_same_golden_bytes_on_every_filesystem(self, whole: Any) -> None:
        """The restored dataset has the same size in all trials of a workload."""
        for name in ("pgbench-tpcb", "sysbench-oltp-read-write", "scan"):
            assert len({t["summary"]["dataset_bytes"] for t in of(whole, name).values()}) == 1

    def test_same_command_again_drives_nothing(self, whole: Any) -> None:
        """A finished run says so, exits 0, and changes no file."""
        before = digest(Path(whole.folder, "results/r/trials"))
        done = whole("run", "plan.toml", "--name", "r")
        assert "already finished" in done.stderr
        assert before == digest(Path(whole.folder, "results/r/trials"))

    def test_run_leaves_no_image(self, whole: Any) -> None:
        """The run's disk image goes with its end."""
        assert [*Path(whole.folder).rglob("*.img"), *Path(whole.folder).rglob("*.partial")] == []


def calendar_s(moment: time.struct_time) -> float:
    """Epoch seconds of a UTC time."""
    return calendar.timegm(moment)


def digest(folder: Path) -> str:
    """One sum over all files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(p).encode() + p.read_bytes() for p in files)).hexdigest()


@pytest.mark.needs("engine:mysql", "sysbench")
def test_mysql_is_driven_along_the_same_road(dbbench: Any, nothing_left: None) -> None:
    """A real mysqld, named by `bin`: a sysbench trial and a scan, with the integrity check. Pages
    of ext4 can tear, and MySQL does not restore each.
    """
    sysbench = {"name": "sysbench-oltp-read-write", "tables": 1, "table_size": 1000, "clients": 2}
    scan = {"name": "scan", "tables": 2, "table_bytes": "16MiB"}
    dbbench.plan(plan("ext4", installed("mysql"), [sysbench, scan], device={"size": "1GiB"}))
    dbbench("run", "plan.toml", "--name", "r")
    trials = list(dbbench.trials().values())
    assert [(t["engine"], t["error"]) for t in trials] == [("mysql", None), ("mysql", None)]
    assert all("CHECK TABLE" in t["checked"] and t["cache"]["proved"] for t in trials)
    assert {"lab-unsafe"} == {t["filesystem"]["durability_class"] for t in trials}


def test_second_run_on_the_same_folder_is_refused(dbbench: Any, nothing_left: None) -> None:
    """The second command is told which process works on the run, exit 5. The first one is stopped
    meanwhile: on a busy machine its trial could end before the second command looks.
    """
    dbbench.plan(plan())
    refused: list[subprocess.CompletedProcess[str]] = []

    def run_again(pid: int) -> None:
        command = psutil.Process(pid)
        first = [command, *command.children(recursive=True)]
        for process in first:
            with contextlib.suppress(psutil.NoSuchProcess):  # a program that has just ended
                process.suspend()
        try:
            refused.append(dbbench("run", "plan.toml", "--name", "r", status=5))
        finally:
            for process in first:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    dbbench.run_and("plan.toml", dbbench.in_window, run_again)
    assert "E803" in refused[0].stderr


def test_programs_that_a_results_folder_names_are_not_executed(
    dbbench: Any, nothing_left: None
) -> None:
    """run.json gets other server programs during the first trial: the second one does not begin,
    and the command is refused when it is repeated, with the key; so is a run with another plan.
    """
    evil = dbbench.folder / "evil"
    proof = dbbench.folder / "executed"
    evil.mkdir()
    for name in ("initdb", "pgbench", "pg_ctl", "postgres", "psql"):
        (evil / name).write_text(f'#!/bin/sh\necho $0 >> {proof}\nexec {name} "$@"\n')
        (evil / name).chmod(0o755)
    dbbench.plan(plan(blocks=2))
    folder = dbbench.folder / "results/r"
    written = list[bytes]()

    def plant(_pid: int) -> None:
        written.append((folder / "run.json").read_bytes())
        run = results.load_spec(folder)
        cells = [
            dataclasses.replace(c, engine=dataclasses.replace(c.engine, bins=(str(evil),)))
            for c in run.cells
        ]
        results.save_spec(folder, dataclasses.replace(run, cells=tuple(cells)))

    status, said = dbbench.run_and("plan.toml", dbbench.in_window, plant)
    assert status == 5 and "E803" in said, said[-2000:]
    assert len(dbbench.trials()) == 1
    refused = dbbench("run", "plan.toml", "--name", "r", status=5).stderr
    assert "E803" in refused and "cells[0].engine.bins" in refused
    run = results.load_spec(folder)
    device = dataclasses.replace(run.plan.device, at=str(evil))
    results.save_spec(
        folder, dataclasses.replace(run, plan=dataclasses.replace(run.plan, device=device))
    )
    assert "plan.device.at" in dbbench("run", "plan.toml", "--name", "r", status=5).stderr
    assert [path for path in evil.iterdir() if path.suffix == ".img"] == []
    (folder / "run.json").write_bytes(written[0])
    dbbench("run", "plan.toml", "--name", "r")
    assert len(dbbench.trials()) == 2 and not proof.exists()


def test_server_killed_in_the_window_fails_the_trial(dbbench: Any, nothing_left: None) -> None:
    """After kill -9 of the postmaster the trial has failed and the run continues; exit status 1."""
    dbbench.plan(plan(blocks=2, measure="5s"))
    status, _ = dbbench.run_and("plan.toml", dbbench.in_window, dbbench.kill("postgres"))
    first, second = (dbbench.trials()[name] for name in sorted(dbbench.trials()))
    assert (status, first["status"], first["error"]["id"]) == (1, "failed", "E402")
    assert second["status"] != "failed"


def test_recorder_killed_in_the_window_makes_the_trial_suspect(
    dbbench: Any, nothing_left: None
) -> None:
    """kill -9 of sadc: what is missing is a gap and a warning, never silence."""
    dbbench.plan(plan(measure="5s"))
    dbbench.run_and("plan.toml", dbbench.in_window, dbbench.kill("sadc"))
    (trial,) = dbbench.trials().values()
    assert trial["status"] == "suspect"
    assert any(w["id"] == "W013" and "sa" in w["text"] for w in trial["warnings"])
    assert dbbench.series(trial)[-1]["cpu_user_pct"] == ""


def test_aborting_clients_fail_the_trial(dbbench: Any, nothing_left: None) -> None:
    """A script that divides by zero now and then aborts its clients: E601, not a slow good trial."""
    (dbbench.folder / "mine/workloads").mkdir(parents=True)
    workload = (
        'title = "aborts"\ndriver = "pgbench"\nengines = ["postgres"]\nscript = "abort.sql"\n'
        'dataset = { kind = "pgbench", scale = 1 }\n'
    )
    (dbbench.folder / "mine/workloads/aborts.toml").write_text(workload)
    (dbbench.folder / "mine/workloads/abort.sql").write_text(
        "\\set n random(0, 200)\nSELECT 1 / :n;\n"
    )
    trial = dbbench.trial(plan(workload={"name": "aborts"}), "--path", "mine", status=1)
    assert (trial["status"], trial["error"]["id"]) == ("failed", "E601")


@contextlib.contextmanager
def mounted(device: Any, *options: str) -> Iterator[Path]:
    """Yield a user's mounted ext4 on the device, which every account can access."""
    subprocess.run(["mkfs.ext4", "-q", str(device.path)], check=True)
    at = Path(tempfile.mkdtemp(dir="/var/tmp"))
    subprocess.run(["mount", *options, str(device.path), str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
        at.rmdir()


def test_disk_full_while_restoring_fails_that_phase(dbbench: Any, loop_device: Any) -> None:
    """Another program fills the directory's filesystem after the start: E305 in restore, the
    directory as it was.
    """
    with mounted(loop_device) as at:
        (at / "target").mkdir()
        dbbench.plan(plan(device=directory(at / "target")))

        def fill(_pid: int) -> None:
            left = os.statvfs(at)
            with (at / "theirs").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - 16 * 2**20)

        status, _printed = dbbench.run_and(
            "plan.toml",
            lambda event: event["kind"] == "trial_begin",
            fill,
        )
        assert status == 1
        assert not list((at / "target").iterdir())
    (trial,) = dbbench.trials().values()
    assert (trial["error"]["id"], trial["error"]["phase"]) == ("E305", "restore")


def test_phase_that_hangs_ends_by_its_deadline(dbbench: Any, nothing_left: None) -> None:
    """A deadline of the plan ends a restore that takes longer, with its own error."""
    trial = dbbench.trial(plan(deadlines={"restore": "1ms"}), status=1)
    assert (trial["error"]["id"], trial["error"]["phase"]) == ("E901", "restore")


def test_plan_with_five_errors_names_all_five_and_changes_nothing(dbbench: Any) -> None:
    """Each with its line; exit 2; no run folder."""
    text = plan(
        "ext5",
        "postgers",
        {"name": "pgbench-tpcb", "scael": 1},
        blocks=0,
        measure="3 apples",
    )
    done = dbbench("run", dbbench.plan(text), status=2)
    assert "Traceback" not in done.stderr
    for wrong in ("ext5", "blocks", "scael", "apples", "postgers"):
        assert wrong in done.stderr
    assert done.stderr.count("plan.toml:") >= 5
    assert not (dbbench.folder / "results").exists()


def test_mounted_device_is_refused_and_untouched(dbbench: Any, loop_device: Any) -> None:
    """A mounted block device: E104, exit status 5, not one byte changed, whatever was typed."""
    with mounted(loop_device, "-o", "ro") as at:
        before = hashlib.sha256(Path(loop_device.path).read_bytes()).hexdigest()
        text = plan(device={"kind": "block", "path": str(loop_device.path)})
        done = dbbench("run", dbbench.plan(text), "--wipe", loop_device.path.name, status=5)
        assert "E104" in done.stderr and str(at) in done.stderr
        assert before == hashlib.sha256(Path(loop_device.path).read_bytes()).hexdigest()


def directory(target: Path) -> dict[str, Any]:
    """A plan's device: an existing directory."""
    return {"kind": "dir", "paths": {"ext4": str(target)}}


@pytest.mark.needs("fs:tmpfs")
def test_existing_directories_are_measured(dbbench: Any, nothing_left: None) -> None:
    """From `init` to the verdict: the filesystem of one is on a disk, and cold by eviction with
    proof. That of the other is of no family: tmpfs is named, has its class, and is not ranked.
    Nothing is left in them.
    """
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    for path in (folder, folder / "disk", folder / "memory"):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400m", "memory", folder / "memory"], check=True
    )
    try:
        dirs = f"{folder}/disk,{folder}/memory"
        dbbench(
            "init",
            "--dirs",
            dirs,
            "--engine",
            "postgres",
            "--workload",
            "pgbench-simple-update",
        )
        text = (proposed := dbbench.folder / "plan.toml").read_text()
        proposed.write_text(text.replace('update" }', 'update", scale = 1 }'))
        planned = " ".join(dbbench("plan").stdout.split())
        assert "memory is on tmpfs: dbbench does not know whether its data survive" in planned
        verdict = " ".join(dbbench("run", "--quick", "--name", "r").stdout.split())
        assert [*(folder / "disk").iterdir(), *(folder / "memory").iterdir()] == []
    finally:
        subprocess.run(["umount", folder / "memory"], check=True)
        shutil.rmtree(folder)
    trials = {trial["fs_setup"]: trial for trial in dbbench.trials().values()}
    on_disk = trials["disk"]
    assert on_disk["status"] != "failed" and on_disk["cache"]["proved"]
    assert on_disk["filesystem"]["family"] == mount_of(folder.parent).fstype
    classes = {name: trial["filesystem"]["durability_class"] for name, trial in trials.items()}
    assert classes["memory"] == "no-barrier" and classes["disk"] != "no-barrier"
    assert "memory is not ranked: its durability class is no-barrier" in verdict
