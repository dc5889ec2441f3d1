"""Conditions of a trial: their sentences, differences between arms, and trials limited by the
device.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from dbbench.compare import rows
from dbbench.compare.conditions import device_limits, unequal
from dbbench.compare.remarks import texts
from dbbench.machine.host import tunables
from dbbench.metrics.table import METRICS
from dbbench.model import (
    Cell,
    CheckpointFacts,
    ClientFacts,
    CoresFacts,
    FilesystemFacts,
    MemoryFacts,
    Trial,
    TrialWarning,
    Window,
)
from dbbench.plan import workloads
from dbbench.report.answer import answer
from dbbench.report.sentences import plain_text
from dbbench.report.verdicts import VerdictTable
from dbbench.results.journal import Journal
from dbbench.run.evaluate import fairness
from dbbench.run.meter import ProcessFigures
from dbbench.run.stages.attach import first_host_state
from tests.support.files import write_file
from tests.support.plans import SHIPPED
from tests.support.runs import small_run
from tests.support.trials import trial

GIB = 2**30


def cell(**parameters: Any) -> Cell:
    """A cell with a window of five seconds, without warm-up."""
    return dataclasses.replace(
        small_run().cells[0],
        parameters=parameters,
        window=Window("fixed", 0, 5),
    )


@pytest.mark.parametrize(
    ("ratio", "word"), [(0.79, "cached"), (0.8, "edge"), (1.99, "edge"), (2.0, "io-bound")]
)
def test_label_follows_the_ratio(ratio: float, word: str) -> None:
    """The bounds belong to the larger word."""
    assert workloads.label(ratio) == word


def test_direct_io_is_judged_by_what_is_resident() -> None:
    """A tenth of the files in the page cache is more than headers, but 16 MiB are what a server
    reads of its catalogues; what was not asked for is plain buffered.
    """
    direct = {"innodb_flush_method": "O_DIRECT"}
    assert fairness.how_read(direct, GIB // 20, GIB) == "direct"
    assert fairness.how_read(direct, GIB // 5, GIB) == "buffered-fallback"
    assert fairness.how_read(direct, None, GIB) is None
    assert fairness.how_read(direct, 15 * 2**20, 16 * 2**20) == "direct"
    assert fairness.how_read({"innodb_flush_method": "fsync"}, GIB, GIB) == "buffered"
    assert fairness.how_read({"shared_buffers": "1GB"}, 0, GIB) == "buffered"


def test_share_of_the_load_generator_is_of_what_it_can_use() -> None:
    """One thread cannot use more than one core, four threads no more than their two cores."""

    def client_share(trial: Cell, cpu_s: float | None) -> float | None:
        client_cpu = {"client_cpu_s": cpu_s, "seconds": 10.0}
        processes = ProcessFigures(client_cpu=client_cpu, cores=CoresFacts("0-1", "2-3"))
        facts = fairness.cores(trial, processes)
        return facts.client_share if facts else None

    assert client_share(cell(clients=8, threads=1), 9.0) == pytest.approx(0.9)
    assert client_share(cell(clients=4), 9.0) == pytest.approx(0.45)
    assert client_share(cell(clients=4), None) is None


def test_block_layer_is_read_of_each_disk(tmp_path: Path) -> None:
    """The chosen scheduler, not the list; what a kernel does not have is None, never 0."""
    for disk, scheduler in (("a", "none [mq-deadline] bfq"), ("b", "[none] mq-deadline")):
        queue = tmp_path / "sys/class/block" / disk / "queue"
        write_file(queue / "scheduler", scheduler)
        write_file(queue / "read_ahead_kb", "128\n")
    found = tunables.block_layer(("a", "b"), tmp_path)
    assert (found["disk: scheduler"], found["disk 2: scheduler"]) == ("mq-deadline", "none")
    assert (found["disk: read_ahead_kb"], found["disk: wbt_lat_usec"]) == ("128", None)


def test_sectors_are_compared_with_the_first_trial_that_has_the_same(tmp_path: Path) -> None:
    """Everything else with the first trial of the run; before any trial there is nothing to compare
    with.
    """
    journal = Journal(tmp_path / "run" / "journal.jsonl")
    journal.path.parent.mkdir()
    usual = SHIPPED.setup("xfs")
    large = SHIPPED.setup("xfs-16k")
    assert first_host_state(large, journal) == {}
    first = {
        "disk: logical_block_size": "512",
        "disk: nr_requests": "128",
        "log disk: logical_block_size": "512",
    }
    journal.note("state", state=first, sectors=0)
    assert first_host_state(usual, journal) == first
    journal.note(
        "state",
        state={**first, "disk: logical_block_size": "16384", "disk: nr_requests": "64"},
        sectors=16384,
    )
    assert first_host_state(large, journal) == {**first, "disk: logical_block_size": "16384"}
    assert first_host_state(usual, journal) == first
    kept = {name: value for name, value in first.items() if "nr_requests" not in name}
    assert first_host_state(usual, journal, {"scheduler": "none"}) == kept


def test_the_files_that_are_watched_are_those_of_disks_and_volumes(tmp_path: Path) -> None:
    """Of the volume that a path lies on only what a snapshot beside the load does not change; btrfs
    has its own bdi.
    """
    number = tmp_path.stat().st_dev
    volume = tmp_path / "sys/dev/block" / f"{os.major(number)}:{os.minor(number)}" / "queue"
    (tmp_path / "sys/fs/btrfs/uuid/devices/a").mkdir(parents=True)
    found = tunables.block_files(("a",), (tmp_path,), tmp_path)
    assert found["a: scheduler"] == tmp_path / "sys/class/block/a/queue/scheduler"
    assert found["a: loop/dio"] == tmp_path / "sys/class/block/a/loop/dio"
    assert found["btrfs: read_ahead_kb"] == tmp_path / "sys/fs/btrfs/uuid/bdi/read_ahead_kb"
    assert {path.name for path in found.values() if path.parent == volume} == {
        "scheduler",
        "nr_requests",
    }


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (
            {"host_state": {"disk: read_ahead_kb": "128"}},
            {"host_state": {"disk: read_ahead_kb": "16"}},
            "disk: read_ahead_kb differs (16; baseline: 128)",
        ),
        (
            {"host_state": {"disk: scheduler": "none"}},
            {"host_state": {"disk: scheduler": "bfq"}},
            "disk: scheduler differs (bfq; baseline: none)",
        ),
        (
            {"host_state": {"vm_dirty_bytes": 0}},
            {"host_state": {"vm_dirty_bytes": 2**24}},
            "vm_dirty_bytes differs (16777216; baseline: 0)",
        ),
        (
            {"memory": MemoryFacts(effective_bytes=GIB, enforced="cgroup v2")},
            {"memory": MemoryFacts(effective_bytes=2 * GIB)},
            "memory differs (2 GiB, not limited by the kernel; baseline: 1 GiB, limited by "
            "cgroup v2)",
        ),
        (
            {"memory": MemoryFacts(direct="direct")},
            {"memory": MemoryFacts(direct="buffered-fallback")},
            "I/O of the server differs (through the page cache; baseline: direct)",
        ),
        (
            {"cores": CoresFacts("0", "1")},
            {"cores": CoresFacts("0", "0", 1)},
            "cores differs (server 0, load generator 0; baseline: server 0, load generator 1)",
        ),
        (
            {"checkpoints": CheckpointFacts(2, 2)},
            {"checkpoints": CheckpointFacts(3, 3)},
            "number of checkpoints in the window differs (3; baseline: 2)",
        ),
        (
            {"checkpoints": CheckpointFacts(ended=1, by_cause={"flushing": 1})},
            {"checkpoints": CheckpointFacts(ended=4, by_cause={"redo full": 1, "flushing": 3})},
            "number of checkpoints in the window differs (1; baseline: 0)",
        ),
        (
            {"filesystem": FilesystemFacts("ext4")},
            {
                "filesystem": FilesystemFacts(
                    "ext4", mount_options_effective=("rw", "discard=async")
                )
            },
            "online discard differs (on; baseline: off)",
        ),
        (
            {"filesystem": FilesystemFacts("zfs", geometry={"autotrim": "off"})},
            {"filesystem": FilesystemFacts("zfs", geometry={"autotrim": "on"})},
            "online discard differs (on; baseline: off)",
        ),
        (
            {},
            {
                "client": ClientFacts(
                    "load@db2",
                    "db2",
                    "192.0.2.20",
                    "192.0.2.10",
                    15432,
                    "sysbench 1.0.20",
                )
            },
            "place of the load generator differs (another host, over the network; baseline: this "
            "host)",
        ),
        (
            {"profile": "standalone", "effective_settings": {"fsync": "on"}},
            {"profile": "production", "effective_settings": {"fsync": "on"}},
            "settings profile differs (production; baseline: standalone)",
        ),
        (
            {"effective_settings": {"log_bin": "OFF"}},
            {"effective_settings": {"log_bin": "ON", "sync_binlog": "1"}},
            "binary log differs (on, sync_binlog = 1; baseline: off)",
        ),
        (
            {"effective_settings": {"huge_pages_status": "off"}},
            {"effective_settings": {"huge_pages_status": "on"}},
            "huge pages differs (on; baseline: off)",
        ),
    ],
)
def test_each_inequality_is_named_with_both_values(
    one: dict[str, Any],
    other: dict[str, Any],
    told: str,
) -> None:
    """And stands in the notes of the arm's row; equal arms have none."""
    assert texts(unequal([trial(**one)], [trial("b", **other)])) == (told,)
    assert unequal([trial(**one)], [trial("b", **one)]) == ()
    table = rows([trial("a", 1, 100.0, **one), trial("b", 1, 100.0, **other)], "a")
    assert told in texts(table[1].notes)


def test_two_of_a_family_with_other_features_are_not_the_same() -> None:
    """The features that differ are named; other families, and results without features, are not
    compared.
    """

    def of(family: str, **geometry: str) -> list[Trial]:
        return [trial(filesystem=FilesystemFacts(family, geometry=dict(geometry)))]

    many = of("xfs", features="crc reflink rmapbt")
    one = of("xfs", features="crc")
    told = "both are xfs, but not the same xfs: bigtime, rmapbt"
    assert texts(unequal(many, of("xfs", features="crc bigtime reflink"))) == (told,)
    for other in (one, of("ext4", features="extent"), of("xfs")):
        assert unequal(other, one) == ()


def test_public_reports_stand_next_to_the_ratio_and_in_the_verdict() -> None:
    """The class with its report, for the setup and for the baseline; others have no such remark."""
    reported = FilesystemFacts(
        "zfs",
        durability_class="reported-unsafe",
        reports=("owner/project#7",),
    )
    unsafe = trial("a", 1, 100.0, filesystem=reported)
    usual = trial("b", 1, 100.0)
    for baseline in ("a", "b"):
        table = rows([unsafe, usual], baseline)
        notes = {row.fs_setup: texts(row.notes) for row in table}
        assert "losses after a power cut were reported: owner/project#7" in notes["a"]
        assert not [note for note in notes["b"] if "owner" in note]
        ((_, parts),) = answer([VerdictTable("postgres", "w", "", METRICS["tps"], table)]).caveats
        assert "reported-unsafe (owner/project#7)" in plain_text(parts)


def test_read_ahead_counts_for_scans_alone() -> None:
    """Filesystems have different ones by themselves; a load of single pages does not live on it.
    Nor is it a difference that one arm has a second disk, or no server.
    """
    facts = [{"filesystem": FilesystemFacts("x", read_ahead_kb=kb)} for kb in (2560, 4096)]
    scan = Window("to-completion", 0, 0)
    oltp = Window("fixed", 0, 60)
    one, other = ([trial(window=window, **f) for f in facts] for window in (scan, oltp))
    assert texts(unequal(one[:1], one[1:])) == ("read-ahead differs (4096 kB; baseline: 2560 kB)",)
    assert unequal(other[:1], other[1:]) == ()
    here = {"disk: scheduler": "none"}
    there = {"disk: scheduler": "none", "disk 2: scheduler": "bfq"}
    assert unequal([trial(host_state=here)], [trial("b", host_state=there)]) == ()
    server = trial(effective_settings={"log_bin": "OFF"}, profile="standalone")
    assert unequal([server], [trial("b", effective_settings={}, profile="")]) == ()


def test_two_arms_at_the_ceiling_are_never_the_same() -> None:
    """The word is about the device; an arm below it is still slower, and one arm alone limits no
    comparison.
    """
    flat = (TrialWarning("W042", "writes stood at 300 IOPS"),)
    held = [trial(arm, block, 100 + block, warnings=flat) for arm in "ab" for block in (1, 2, 3)]
    assert device_limits(held)
    assert [row.verdict for row in rows(held, "a")] == ["baseline", "device-limited"]
    slower = [*held[:3], *(trial("b", block, 50 + block, warnings=flat) for block in (1, 2, 3))]
    assert [row.verdict for row in rows(slower, "a")] == ["baseline", "slower"]
    for free in ("a", "b", "ab"):
        trials = [dataclasses.replace(t, warnings=()) if t.fs_setup in free else t for t in held]
        assert [row.verdict for row in rows(trials, "a")] == ["baseline", "same"]
