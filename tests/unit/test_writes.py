"""The estimate of bytes that a plan writes: each cause, and the comparison with the devices'
counters.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbbench.datasets import golden
from dbbench.datasets.manifest import Entry, Manifest, save
from dbbench.engines import ENGINES
from dbbench.model import EarlierLoad, Plan, Status, WriteFacts
from dbbench.plan import expand, identity, preview, writes
from dbbench.plan.planned_conditions import sentences
from tests.support.plans import SHIPPED, plan, plan_of
from tests.support.trials import trial

GIB = 2**30


def read(tmp_path: Path, *args: Any, **keys: Any) -> tuple[Plan, list[dict[str, int]]]:
    """The plan, and what each of its cells writes in a trial."""
    asked = plan_of(tmp_path, plan(*args, **keys))
    return asked, [writes.of_trial(asked, cell) for cell in expand(asked, SHIPPED).cells]


def test_ageing_of_a_large_disk_is_in_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk, as on an image: its size × fill × (1 + churn) in every trial."""
    monkeypatch.setattr(writes.devices, "size_bytes", lambda _path: 256 * GIB)
    age = {"fill": 0.5, "churn": 2.0}
    for device in ({"kind": "block", "path": "/dev/sdx", "identity": "x"}, {"size": "256GiB"}):
        asked, (parts,) = read(tmp_path, device=device, age=age, blocks=10)
        assert parts["ageing"] == 384 * GIB
        look = preview(asked, expand(asked, SHIPPED))
        assert look.written["ageing"] == 3840 * GIB
        assert look.written_bytes > 3.75 * 1024 * GIB


@pytest.mark.parametrize(
    ("setup", "count", "times"),
    [
        ("ext4", 1, 1),
        ("btrfs-raid1", 2, 2),
        ("btrfs-raid0", 2, 1),
        ("ext4-md1", 2, 2),
        ("ext4-md10", 4, 2),
        ("ext4-lvm-striped-md1", 4, 2),
        ("ext4-data-journal", 1, 2),
        ("zfs-mirror", 2, 2),
    ],
)
def test_mirrors_write_each_byte_to_all_sides(
    setup: str,
    count: int,
    times: int,
    tmp_path: Path,
) -> None:
    """The restored dataset, once for each copy."""
    _, (once,) = read(tmp_path, "ext4")
    _, (parts,) = read(tmp_path, setup, device={"size": "1GiB", "count": count})
    assert parts["restore"] == times * once["restore"]


@pytest.mark.parametrize(
    ("engine", "load", "least", "most"),
    [
        ("files", {"name": "copy", "file_size": "3GiB"}, 3.0, 3.1),
        ("files", {"name": "bonnie", "file_size": "1GiB"}, 2.0, 2.1),
        ("files", {"name": "fio-randread", "file_size": "1GiB", "clients": 3}, 3.0, 3.1),
        ("files", {"name": "fio-seqwrite", "file_size": "1GiB", "measure": "60s"}, 10, 30),
        ("postgres", {"name": "copy-in", "tables": 2, "file_bytes": "1GiB"}, 6, 10),
        ("mariadb", {"name": "index-build", "tables": 1, "table_size": 3_500_000}, 1.5, 3.5),
        ("postgres", {"name": "vacuum", "tables": 1, "table_size": 3_500_000}, 3, 7),
        (
            "postgres",
            {"name": "insert-benchmark", "rows": 2**20, "insert_rate": 1, "measure": "60s"},
            1,
            2,
        ),
        (
            "mariadb",
            {"name": "insert-benchmark", "rows": 1, "insert_rate": 10**9, "measure": "60s"},
            1,
            3,
        ),
        ("postgres", {"name": "scan"}, 0, 0),
        ("postgres", {"name": "pgbench-select-only", "measure": "60s"}, 0, 0.1),
    ],
)
def test_each_load_has_its_bytes(
    engine: str,
    load: dict[str, Any],
    least: float,
    most: float,
    tmp_path: Path,
) -> None:
    """In GiB: what is written to its end, or a rate over its window; nothing of a load that only
    reads.
    """
    _, (parts,) = read(tmp_path, engine=engine, workload=load)
    assert least <= parts.get("load", 0) / GIB <= most


def test_copy_on_write_writes_more(tmp_path: Path) -> None:
    """btrfs writes each change to another place, with the tree above it; not with nodatacow, and
    not a load that only reads. What is restored is less on a filesystem that compresses.
    """
    _, (ext4, btrfs, in_place) = read(tmp_path, ["ext4", "btrfs", "btrfs-nodatacow"])
    assert btrfs["load"] > 2 * ext4["load"] == 2 * in_place["load"]
    _, (ext4, btrfs) = read(tmp_path, ["ext4", "btrfs"], workload={"name": "scan"})
    assert "load" not in ext4 and "load" not in btrfs
    _, (btrfs, lzo) = read(tmp_path, ["btrfs", "btrfs-lzo"])
    assert 0.5 < lzo["restore"] / btrfs["restore"] < 0.7


def test_the_load_is_that_of_earlier_runs(tmp_path: Path) -> None:
    """By its rate and its window, with its logs; otherwise by what it wrote to its end."""
    earlier = EarlierLoad(40.0, 5e6, 70e6, 2e6, 1e6)
    keys: dict[str, Any] = {"engine": "mariadb", "workload": "sysbench-oltp-read-write"}
    asked, (assumed,) = read(tmp_path, "btrfs", **keys, warmup="10s", measure="20s")
    (cell,) = expand(asked, SHIPPED).cells
    measured = writes.of_trial(asked, replace(cell, earlier=earlier))
    assert writes.BINARY_LOG in assumed and writes.BINARY_LOG not in measured
    assert measured["load"] == 30 * 5e6 + 70e6
    assert writes.kept_logs(replace(cell, earlier=earlier)) == {writes.BINARY_LOG: 30 * 10**6}
    asked, _ = read(
        tmp_path,
        engine="postgres",
        workload={"name": "copy-in"},
        warmup=None,
        measure=None,
    )
    expanded = expand(asked, SHIPPED)
    cells = tuple(replace(cell, earlier=earlier) for cell in expanded.cells)
    assert writes.of_trial(asked, cells[0])["load"] == 40 * 5e6 + 70e6
    assert identity(asked, cells) == identity(asked, expanded.cells)
    look = preview(asked, expanded._replace(cells=cells))
    assert look.remembered == 1 and 40 < look.trial_s[cells[0].id] < 50


@pytest.mark.parametrize(
    ("load", "least", "most"),
    [
        ({"name": "bonnie", "file_size": "1GiB"}, 40, 90),
        ({"name": "bonnie", "file_size": "8GiB", "chars": False}, 120, 240),
        ({"name": "small-files", "files": 100_000}, 60, 120),
        ({"name": "copy", "file_size": "8GiB"}, 30, 60),
        (
            {
                "name": "fio-randwrite",
                "file_size": "8GiB",
                "clients": 2,
                "warmup": "5s",
                "measure": "30s",
            },
            90,
            150,
        ),
    ],
)
def test_the_time_of_file_loads_follows_their_sizes(
    load: dict[str, Any],
    least: float,
    most: float,
    tmp_path: Path,
) -> None:
    """In seconds of the whole trial."""
    asked, _ = read(tmp_path, engine="files", workload=load, device={"size": "64GiB"})
    (seconds,) = preview(asked, expand(asked, SHIPPED)).trial_s.values()
    assert least < seconds < most


def test_what_a_run_does_once_is_counted(tmp_path: Path) -> None:
    """The image, the measurement of the bare device, and preconditioning of each disk once a block."""
    asked, _ = read(tmp_path)
    assert writes.once(asked)["image"] == 512 * 2**20
    assert writes.once(asked)["baseline measurement"] > 0
    device = {"kind": "block", "paths": ["/dev/sdx", "/dev/sdy"], "condition": "precondition"}
    asked, _ = read(tmp_path, device=device, blocks=3)
    assert writes.once(asked, lambda _path: 10 * GIB)["preconditioning"] > 3 * 2 * 2 * 10 * GIB
    existing, parts = read(tmp_path, device={"kind": "dir", "paths": {"ext4": "/srv/a"}})
    assert writes.once(existing) == {} and "mkfs" not in parts[0]


def test_operations_are_counted(tmp_path: Path) -> None:
    """Each by the size of the data."""
    _, (parts,) = read(tmp_path, operations=["clone", "repair"])
    assert parts["operations"] == pytest.approx(3 * parts["restore"], rel=0.01)


@pytest.mark.parametrize(
    ("setup", "count", "added"),
    [
        ("ext4-lvm-striped-md1", 6, ["/dev/md/dbbench-spare", "LOOP5", "LOOP6"]),
        ("ext4-lvm", 3, []),
        ("ext4", 2, []),
        ("btrfs-raid1", 3, []),
    ],
)
def test_grow_adds_what_the_layers_below_need(
    setup: str,
    count: int,
    added: list[str],
    tmp_path: Path,
) -> None:
    """A volume on mirrors gets another mirror; the others use all devices but the last one."""
    asked, _ = read(tmp_path, setup, device={"size": "1GiB", "count": count}, operations=["grow"])
    argvs = [argv for _, argv in preview(asked, expand(asked, SHIPPED)).commands]
    made = [argv for argv in argvs if "mdadm" in argv and "-spare" in argv[2]]
    assert [[argv[2], *argv[-2:]] for argv in made] == ([added] if added else [])
    used = {word for argv in argvs for word in argv if word.startswith("LOOP")}
    assert used == (
        {"LOOP1"} if setup == "ext4" else {f"LOOP{n}" for n in range(1, count + bool(added))}
    )


@pytest.mark.parametrize(
    ("counted", "reported"), [(100, False), (201, True), (49, True), (None, False)]
)
def test_a_deviation_is_reported(counted: int | None, reported: bool) -> None:
    """By more than a factor of two, either way, over all trials that did not fail."""
    good = trial(writes=WriteFacts(100, counted))
    text = writes.deviation([good, good, trial(status=Status.FAILED, writes=WriteFacts(100, 1))])
    assert (text is not None) == reported
    if text:
        assert "differ by more than a factor of 2" in text
    assert writes.deviation([]) is None


@pytest.mark.starts_processes
def test_a_copy_of_the_users_data_replaces_its_estimate(
    tmp_path: Path,
    programs: Path,
    environ: dict[str, str],
) -> None:
    """Tables and whole copy as they are; before that, an expansion of the dump that is said to be
    estimated.
    """
    dump = tmp_path / "shop.sql"
    head = "-- PostgreSQL database dump\n-- Dumped from database version 15.1\n"
    rows = "x" * 10_000_000
    dump.write_text(f"{head}{rows}\n--\n-- PostgreSQL database dump complete\n--\n")
    asked = plan_of(tmp_path, plan(workload={"name": "scan", "source": str(dump)}))
    expanded = expand(asked, SHIPPED)
    environ["DBBENCH_CACHE"] = str(tmp_path)
    for name in ENGINES["postgres"].programs():
        (programs / Path(name).name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 15.1'\n")
        (programs / Path(name).name).chmod(0o755)
    key = golden.recipe(expanded.cells[0].engine, expanded.cells[0].dataset).key
    before = writes.with_copies(expanded)
    assert before == expanded
    assert 20_000_000 < writes.tables_bytes(before.cells[0]) < 25_000_000
    assert any("(estimated)" in line for line in sentences(asked, before.cells))

    (tables := tmp_path / key / "data" / "base" / "5").mkdir(parents=True)
    (tables / "16384").write_bytes(bytes(70_000_000))
    (tmp_path / key / "data" / "log").write_bytes(bytes(30_000_000))
    entries = (
        Entry("base/5/16384", "file", 0o600, 70_000_000),
        Entry("log", "file", 0o600, 30_000_000),
    )
    dataset = expanded.cells[0].dataset
    save(tmp_path / key, Manifest(key, dataset, 100_000_000, None, entries))
    after = writes.with_copies(expanded)
    assert writes.tables_bytes(after.cells[0]) == 70_000_000
    # the copy is no other run
    assert identity(asked, after.cells) == identity(asked, expanded.cells)
    assert writes.dataset_bytes(after.cells[0]) == 100_000_000
    assert not any("(estimated)" in line for line in sentences(asked, after.cells))
    recipes = [
        golden.Recipe(cell.engine, "15.1", "", cell.dataset, {})
        for cell in (after.cells[0], expanded.cells[0])
    ]
    assert recipes[0].key == recipes[1].key
