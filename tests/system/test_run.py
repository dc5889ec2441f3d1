"""Complete runs through the command line on real filesystems, servers and load generators.

Most tests read one run of nine trials, which takes a minute.
"""

import calendar
import gzip
import hashlib
import json
import math
import shutil
import subprocess
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dbbench.storage.filesystems.common import mount_of
from tests import by_hand
from tests.support.kept_counts import kept_counts
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
            events = [(second, n) for second, what, n in kept_counts(raw) if what >= 0]
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

    def test_first_screen_is_what_the_files_say(self, whole: Any) -> None:
        """Values and changes, computed from the seconds of the trials without code of dbbench."""
        run = Path(whole.folder, "results/r")
        assert by_hand.missing(run, "ext4", (run / "report.html").read_text()) == []
        assert by_hand.missing(run, "ext4", whole.done.stdout) == []

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
        """By themselves the filesystems read ahead differently; a warm-up of a second does not see
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
