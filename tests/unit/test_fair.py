"""Conditions of a trial: their sentences, differences between arms, and trials limited by the
device.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from dbbench import plan
from dbbench.compare import rows
from dbbench.compare.conditions import device_limits, unequal
from dbbench.compare.remarks import texts
from dbbench.errors import PlanInvalid
from dbbench.machine.host import tunables
from dbbench.metrics.series import Series
from dbbench.metrics.table import METRICS
from dbbench.model import (
    CeilingFacts,
    CeilingRow,
    Cell,
    CheckpointFacts,
    ClientFacts,
    CoresFacts,
    DeviceFacts,
    DeviceLimit,
    FilesystemFacts,
    LimitFacts,
    MemoryFacts,
    Plan,
    Trial,
    TrialWarning,
    Window,
)
from dbbench.plan import conditions, workloads
from dbbench.report.answer import answer
from dbbench.report.sentences import no_limit, plain_text
from dbbench.report.verdicts import VerdictTable
from dbbench.results import Exceeded
from dbbench.results.ceiling import judge
from dbbench.results.journal import Journal
from dbbench.run.evaluate import device, fairness
from dbbench.run.meter import ProcessFigures
from dbbench.run.stages.attach import first_host_state
from tests.support import plans
from tests.support.files import write_file
from tests.support.plans import SHIPPED, Table
from tests.support.runs import small_run
from tests.support.trials import trial

GIB = 2**30


def cell(**parameters: Any) -> Cell:
    """A cell with a window of five seconds, without warm-up."""
    return dataclasses.replace(
        small_run().cells[0], parameters=parameters, window=Window("fixed", 0, 5)
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


CEILING = CeilingFacts(
    (
        CeilingRow("write_8k_fdatasync", 150, 1.2, 6.6),
        CeilingRow("write_8k", 300, 2.4, 100),
        CeilingRow("read_8k", 40_000, 320, 0.7),
        CeilingRow("write_1m", 230, 240, 130),
        CeilingRow("read_1m", 900, 900, 35),
    )
)


def rated(name: str = "ext4-1", tps: float = 120.0, **columns: list[float | None]) -> Trial:
    """A trial of five seconds with these columns, as it is stored."""
    facts = device.with_rates(CEILING, Series(5, columns), cell(), tps)
    return trial(name[:-2], int(name[-1]), tps, ceiling=facts)


def limit_of(*trials: Trial, ceiling: CeilingFacts | None = None) -> list[str]:
    """What limited each of the trials of a run, "" for none."""
    return [
        "; ".join(w.text for w in one.warnings if w.id == "W042")
        for one in judge(trials, ceiling)[0]
    ]


@pytest.mark.parametrize(
    ("columns", "limit"),
    [
        # low, scattered
        ({"w_per_s": [200, 200, 200, 200, 200]}, ""),
        ({"w_per_s": [100, 500, 300, 150, 450]}, ""),
        # above, too few
        ({"w_per_s": [330, 330, 330, 330, 330]}, ""),
        ({"w_per_s": [300, None, None, None, 300]}, ""),
        (
            {"w_per_s": [285, 311.9, 260, 309, 300]},
            "writes constant at 300 IOPS; the bare device delivers 300",
        ),
        # of 1024 bytes; fio's MB have 10^6
        (
            {"w_kb_per_s": [240e6 / 1024] * 5, "r_kb_per_s": [0.0] * 5},
            "writes constant at 240 MB/s; the bare device delivers 240",
        ),
    ],
)
def test_columns_flat_at_the_ceiling_are_called_so(
    columns: dict[str, list[float | None]], limit: str
) -> None:
    """As recorded under a limit of 300 writes per second on a busy machine. Other series do not
    show a limit.
    """
    found = rated(**({"r_per_s": [204, 139, 96, 91, 109]} | columns))
    assert limit_of(found) == [limit]
    assert judge([found], None)[0][0].summary["ceiling_pct"] == 80


def test_without_a_ceiling_nothing_is_said() -> None:
    """No fio, no share and no limit. Cloud disks count reads and writes alike: neither is at the
    ceiling, their sum is.
    """
    series = Series(5, {"r_per_s": [600, 400, 700, 500, 550], "w_per_s": [400, 600, 300, 500, 450]})
    absent = CeilingFacts(note="fio is not installed")
    assert device.with_rates(absent, series, cell(), 100.0) == absent
    assert judge([trial(ceiling=absent)], None) == ((trial(ceiling=absent),), ())
    both = CeilingFacts((CeilingRow("write_8k", 1000, 8, 1), CeilingRow("read_8k", 1010, 8, 1)))
    facts = device.with_rates(both, series, cell(), None)
    assert limit_of(trial(ceiling=facts)) == [
        "reads and writes constant at 1000 IOPS; the bare device delivers 1010"
    ]


def reading(name: str, mb: float) -> Trial:
    """A trial that reads so many MB/s in each second."""
    return rated(name, r_kb_per_s=[mb * 1e6 / 1024] * 5, w_kb_per_s=[0.0] * 5)


def test_what_any_trial_exceeds_is_no_limit_for_the_others() -> None:
    """btrfs stays at what fio measured, but ext4 reads twice as much from the same device. What
    writes reach is another matter.
    """
    writing = rated("xfs-1", r_kb_per_s=[0.0] * 5, w_kb_per_s=[240e6 / 1024] * 5)
    trials = [reading("btrfs-1", 900), reading("ext4-1", 960), writing]
    assert limit_of(*trials) == [
        "reads constant at 900 MB/s; the bare device delivers 900",
        "reads constant at 960 MB/s; the bare device delivers 900",
        "writes constant at 240 MB/s; the bare device delivers 240",
    ]
    trials.append(reading("ext4-2", 1830))
    assert limit_of(*trials) == [
        "",
        "",
        "writes constant at 240 MB/s; the bare device delivers 240",
        "",
    ]
    exceeded = judge(trials, None)[1]
    assert exceeded == (Exceeded("reads", "MB/s", 900, None, "ext4", 1830),)
    assert plain_text(no_limit(exceeded)) == (
        "Not a limit of the device: fio measured 900 MB/s, but ext4 read 1 830 MB/s."
    )


def test_a_second_measurement_after_the_run_counts_if_it_is_higher() -> None:
    """The first may have been disturbed. Of another host, whose first one differs, it says nothing."""
    trials = [reading("ext4-1", 1800), reading("btrfs-1", 900)]
    higher = dataclasses.replace(
        CEILING, again=(*CEILING.rows[:-1], CeilingRow("read_1m", 1800, 1850, 20))
    )
    assert limit_of(*trials, ceiling=higher) == [
        "reads constant at 1800 MB/s; the bare device delivers 1850",
        "",
    ]
    assert judge(trials, higher)[1] == ()
    lower = dataclasses.replace(
        CEILING, again=(*CEILING.rows[:-1], CeilingRow("read_1m", 1200, 1200, 30))
    )
    (exceeded,) = judge(trials, lower)[1]
    assert "fio measured 900 MB/s before the run and 1 200 after it" in plain_text(
        no_limit([exceeded])
    )
    other = dataclasses.replace(higher, rows=CEILING.rows[1:])
    assert limit_of(*trials, ceiling=other) == ["", ""]


def test_commits_that_share_flushes_have_no_share_of_the_ceiling() -> None:
    """Above 108 % of single flushed writes it is no ceiling, for no trial of the run."""
    trials, exceeded = judge([rated(tps=120.0), rated("xfs-1", tps=162.0)], None)
    assert [one.summary["ceiling_pct"] for one in trials] == [80, 108]
    assert exceeded == ()
    trials, exceeded = judge([rated(tps=120.0), rated("xfs-1", tps=163.0)], None)
    assert [one.summary["ceiling_pct"] for one in trials] == [None, None]
    assert plain_text(no_limit(exceeded)) == (
        "Not a limit of the device: fio measured 150 flushed single writes of 8 KiB per second, "
        "but xfs reached 163 transactions per second, so the share of the ceiling is not shown."
    )


@pytest.mark.parametrize(
    ("busy", "requests", "kb", "expected"),
    [
        (100.0, 40.0, 400.0, True),  # the slowest measurement was 150 IOPS and 1.2 MB/s
        (100.0, 100.0, 400.0, False),
        (100.0, 40.0, 20_000.0, False),  # few and large
        (50.0, 40.0, 400.0, False),  # it waited for the load
        (None, 40.0, 400.0, False),
    ],
)
def test_a_device_that_fell_below_what_it_gave_before_the_run_is_reported(
    busy: float | None, requests: float, kb: float, expected: bool
) -> None:
    """Busy second after second, and less than half of its slowest measurement in requests and in
    bytes. A load shorter than iostat's first interval has an empty lead column and no other.
    """
    columns: dict[str, list[float | None]] = {
        "util_pct": [100.0, 100.0, busy, busy, busy],
        "r_per_s": [0.0] * 5,
        "r_kb_per_s": [0.0] * 5,
        "w_per_s": [900.0, 900.0, requests, requests, requests],
        "w_kb_per_s": [9000.0, 9000.0, kb, kb, kb],
    }
    found = list(device.slower(CEILING, Series(5, columns), cell()))
    assert [(warning.id, warning.suspect) for warning in found] == (
        [("W106", True)] if expected else []
    )
    assert list(device.slower(CEILING, Series(1, {"util_pct": [None]}), cell())) == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (DeviceLimit(iops=300), ""),
        (DeviceLimit(mb_per_s=2.4576), ""),  # 300 writes of 8 KiB
        (DeviceLimit(iops=200), "write_8k of fio completed 300 IOPS instead of 200"),
        (DeviceLimit(iops=400), "write_8k of fio completed 300 IOPS instead of 400"),
    ],
)
def test_a_limit_that_fio_did_not_measure_is_reported(asked: DeviceLimit, expected: str) -> None:
    """Above it and below it: the kernel does not enforce it, or the disk is slower."""
    limit = LimitFacts(asked, "cgroup v1", (CeilingRow("write_8k", 300, 2.4576, 100),))
    warnings = list(device.exceeds_limit(limit, CEILING, None))
    assert [(warning.id, warning.text) for warning in warnings] == (
        [("W157", expected)] if expected else []
    )


def test_a_window_above_the_limit_is_reported() -> None:
    """What kernel threads write may not be limited. Two devices may do twice as much."""
    ceiling = rated(w_per_s=[500.0] * 5, r_per_s=[0.0] * 5).ceiling
    one = DeviceFacts("loop", "/dev/loop1", "loop1", 2**30)
    two = dataclasses.replace(one, members=(one, one))
    assert ceiling is not None
    limit = LimitFacts(DeviceLimit(iops=300))
    (warning,) = device.exceeds_limit(limit, ceiling, one)
    assert warning.text == "writes in the window: 500 IOPS instead of at most 300"
    assert list(device.exceeds_limit(limit, ceiling, two)) == []
    assert list(device.exceeds_limit(None, ceiling, one)) == []


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
                    "load@db2", "db2", "192.0.2.20", "192.0.2.10", 15432, "sysbench 1.0.20"
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
    one: dict[str, Any], other: dict[str, Any], told: str
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
        "zfs", durability_class="reported-unsafe", reports=("owner/project#7",)
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


def loaded(
    tmp_path: Path, workload: Table | None = None, engine: Table | None = None, **keys: Any
) -> tuple[Plan, tuple[Cell, ...]]:
    """The plan with these keys, and its cells."""
    asked = {"name": "pgbench-tpcb", **(workload or {})}
    text = plans.plan(
        "ext4",
        {"name": "postgres", **(engine or {})},
        asked,
        **{"measure": "60s", "device": {}, **keys},
    )
    found = plans.plan_of(tmp_path, text)
    return found, plan.expand(found, SHIPPED).cells


def test_size_sets_the_scale_by_the_memory(tmp_path: Path) -> None:
    """Three times 1 GiB in units of 15.7 MB; a list of sizes is a sweep; nothing of the word
    reaches the tool.
    """
    _, (one,) = loaded(tmp_path, {"size": "io-bound"}, memory="1GiB")
    assert one.dataset.parameters["scale"] == one.parameters["scale"] == round(3 * GIB / 15_700_000)
    assert "size" not in one.parameters
    _, several = loaded(tmp_path, {"size": ["cached", "edge", "io-bound"]}, memory="1GiB")
    scales = [int(c.parameters["scale"]) for c in several]
    assert scales == sorted(scales) and len(set(scales)) == 3


@pytest.mark.parametrize(
    ("workload", "keys", "told"),
    [
        ({"size": "edge"}, {}, 'for example memory = "2GiB"'),
        (
            {"size": "edge", "scale": 3},
            {"memory": "1GiB"},
            '"size" cannot be combined with "scale"',
        ),
        ({"size": "huge"}, {"memory": "1GiB"}, "must be one of"),
        (
            {},
            {"equal_readahead": "1MiB", "device": {"kind": "dir", "paths": {"ext4": "/mnt/a"}}},
            "has no effect",
        ),
        ({}, {"checkpoints": "never"}, "checkpoints"),
    ],
)
def test_flaws_of_conditions_are_told(
    tmp_path: Path, workload: Table, keys: Table, told: str
) -> None:
    """Before anything is done."""
    with pytest.raises(PlanInvalid) as caught:
        loaded(tmp_path, workload, **keys)
    assert told in caught.value.evidence


def test_each_condition_is_a_sentence(tmp_path: Path) -> None:
    """What `dbbench plan` prints: memory beside the tables, cores, checkpoints, warm-up, what fio
    takes.
    """
    found, cells = loaded(
        tmp_path, {"size": "io-bound"}, memory="1GiB", measure="120s", warmup="9s"
    )
    flaws = (
        '"numa_node" must be 0 or more.*\n.*"cpus_server" must be a list of CPUs such as "0-3,8"'
    )
    with pytest.raises(PlanInvalid, match=flaws):
        loaded(tmp_path, engine={"cpus_server": "a-b", "numa_node": -1})
    said = conditions.sentences(found, cells)
    assert any("1 GiB" in line and "io-bound" in line for line in said)
    assert any("cores" in line for line in said)
    assert any(line.startswith("Each window of 120 s contains two checkpoints") for line in said)
    assert "Limits of this plan: a warm-up of 9 s (W001)." in said
    assert "Before the first trial, fio measures the bare device for 14 s." in said


@pytest.mark.parametrize(("scale", "shares"), [(3, True), (4, False)])
def test_more_clients_than_rows_are_a_condition(tmp_path: Path, scale: int, shares: bool) -> None:
    """The default of four clients updates as many branches as `scale` has."""
    said = conditions.sentences(*loaded(tmp_path, {"scale": scale}))
    assert any("share 3 rows that each transaction locks" in line for line in said) == shares
