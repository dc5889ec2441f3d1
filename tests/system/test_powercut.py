"""The power-loss lab on real filesystems and servers: class `full` loses nothing, and the controls
lose data.
"""

import contextlib
import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from dbbench.errors import DeadlinePassed, LabUnavailable
from dbbench.labs.powercut import Order
from dbbench.labs.powercut.phases import STEP_S
from dbbench.machine.host.proc import below, tasks
from dbbench.model.events import Event
from dbbench.run.children import Overdue
from tests.support.lab_runs import (
    CONTROLS,
    INVALID,
    by_rows,
    invalid,
    lab,
    plain,
    plan,
    torn,
    undisturbed,
)
from tests.support.setups import shipped
from tests.system.conftest import Dbbench

pytestmark = [pytest.mark.needs("root", "mkfs.ext4"), pytest.mark.usefixtures("nothing_left")]

SOAK_CUTS = int(os.environ.get("DBBENCH_SOAK_LAB_CUTS", "3400"))


@pytest.mark.needs("engine:postgres")
def test_a_lab_that_hangs_is_killed(dbbench: Dbbench) -> None:
    """A step that exceeds its deadline (here after no time) ends the lab, and nothing of it is
    left.
    """
    order = Order(1, 2, None, ("lying disk",))
    overdue = Overdue(grace_s=-STEP_S)
    with pytest.raises(DeadlinePassed, match='"control lying disk on postgres" was still running'):
        lab(dbbench, plan("postgres", ["ext4"]), order, lambda _: None, overdue)


@pytest.mark.needs("engine:postgres")
def test_a_lab_that_is_killed_names_the_signal(dbbench: Dbbench) -> None:
    """Planted: SIGKILL of all its processes but the fork server, as the kernel does if the memory is
    exhausted.
    """

    def kill_all(_: Event) -> None:
        table = tasks()
        (server,) = [pid for pid in below([os.getpid()], table) if table[pid].parent == os.getpid()]
        for pid in below([server], table) - {server}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(LabUnavailable, match="the lab's process ended with signal SIGKILL"):
        lab(dbbench, plan("postgres", ["ext4"]), Order(1, 2, None, []), kill_all)


@pytest.mark.needs("engine:postgres")
def test_minutes_bound_the_controls_too(dbbench: Dbbench) -> None:
    """Controls get half of the time: one that had no time to lose makes the lab blind, and says
    why.
    """
    found = lab(
        dbbench,
        plan("postgres", ["ext4"]),
        Order(1, None, 0.1, ("lying disk", "nobarrier")),
    )
    assert found["seconds"] < 600  # 6 s, and the making and recording that had begun
    assert [(one["blind"], one["note"]) for one in found["controls"]][-1] == (
        True,
        "the time was used up",
    )
    assert {row["conclusion"] for row in found["rows"]} == {"blind"}


@pytest.mark.needs("engine:postgres", "mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs")
def test_full_loses_nothing_and_the_controls_do(dbbench: Dbbench) -> None:
    """10 cuts each of PostgreSQL on ext4, xfs and btrfs: class full, nothing lost; each control
    loses 5 of 6; the page and --json say so, and `show` lists it.
    """
    file = dbbench.plan(plan("postgres", ["ext4", "xfs", "btrfs"]))
    done = []

    def examine() -> dict[str, Any]:
        done.append(
            dbbench("powercut", file, "--cuts", "10", "--json", "--progress", "none", status=None)
        )
        return dict(json.loads(done[-1].stdout))

    found = undisturbed(dbbench, 9, examine)
    assert (done[-1].returncode == 0) == (not any(map(torn, found["rows"]))), done[-1].stderr
    assert {one["name"]: one["blind"] for one in found["controls"]} == dict.fromkeys(
        CONTROLS["postgres"], False
    )
    assert all(
        one["harmed"] >= one["needed"] == 5 and one["tries"] == 6 for one in found["controls"]
    )
    assert [row["fs_setup"] for row in found["rows"]] == ["ext4", "xfs", "btrfs"]
    for row in found["rows"]:
        assert (row["durability_class"], row["harmed"]) == ("full", len(torn(row)))
        assert row["valid"] >= 9, invalid(row)
        if not torn(row):
            assert (row["lost"], row["contradiction"]) == (0, "")
            assert row["statement"].startswith(f"0 of {len(plain(row))} cuts (<")
        assert row["flushes_per_commit"] > 0.2  # sessions share some, and a filesystem adds its own
        assert {cut["aim"] for cut in row["cuts"]} >= {"kill", "checkpoint", "commit", "drop"}
        assert row["acknowledged"] > 10 * 20
    page = Path(found["report"]).read_text()
    assert any(f"0 of {len(plain(row))} cuts" in page for row in found["rows"])
    assert 'id="powercut"' in page
    assert json.loads(dbbench("show", "--json").stdout)["runs"][0]["name"] == found["run"]
    shown = dbbench("show", found["run"]).stdout
    assert "power-loss lab" in shown and "trials" not in shown
    assert all(f"{row['fs_setup']} with PostgreSQL" in shown for row in found["rows"])


@pytest.mark.soak
@pytest.mark.needs("engine:postgres", "mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs")
@pytest.mark.parametrize("setup", ["ext4", "xfs", "btrfs"])
def test_full_loses_nothing_in_thousands_of_cuts(dbbench: Dbbench, setup: str) -> None:
    """DBBENCH_SOAK_LAB_CUTS of them are valid (10 200 for the three), none is harmed, and ten
    minutes hold two hundred. The controls lose 18 of 20 each. What was found is printed (`pytest
    -s`).
    """
    file = dbbench.plan(plan("postgres", [setup]))
    asked = math.ceil(SOAK_CUTS / (1 - INVALID))
    words = (
        "--cuts",
        str(asked),
        "--seed",
        os.environ.get("DBBENCH_SOAK_SEED", "1"),
        "--json",
        "--progress",
        "none",
    )
    done = dbbench("powercut", file, *words, timeout_s=60 + 10 * asked)
    found = json.loads(done.stdout)
    (row,) = found["rows"]
    print(
        f"{setup}: {row['valid']} valid cuts in {row['seconds']:.0f} s ({found['seconds']:.0f} s "
        f"with the controls), {row['recordings']} recordings, {row['acknowledged']} acknowledged, "
        f"{row['lost']} lost"
    )
    assert not found["blind"]
    assert (row["durability_class"], row["harmed"], row["lost"], row["contradiction"]) == (
        "full",
        0,
        0,
        "",
    )
    assert row["valid"] >= SOAK_CUTS, invalid(row)
    assert row["valid"] * 600 / row["seconds"] >= 200


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_innodb_on_ext4_loses_nothing(dbbench: Dbbench, engine: str) -> None:
    """5 cuts each, with the settings that are the default here. MariaDB's schema changes are not
    crash-safe, and MySQL does not use each intact copy of a torn page: about one cut in a
    hundred.
    """
    found = undisturbed(
        dbbench,
        5,
        lambda: lab(dbbench, plan(engine, ["ext4"]), Order(1, 5, None, CONTROLS[engine])),
    )
    assert [one["blind"] for one in found["controls"]] == [False] * len(CONTROLS[engine])
    (row,) = found["rows"]
    promised = "lab-unsafe" if engine == "mysql" else "full"
    assert (row["durability_class"], row["contradiction"]) == (promised, "")
    assert row["harmed"] <= 1 if engine == "mysql" else not by_rows(row)
    assert {cut["changes"] for cut in row["cuts"]} == {False, True}
    assert row["valid"] == 5, invalid(row)
    assert row["checkpoints"] == row["recordings"]


@pytest.mark.long
@pytest.mark.needs("engine:postgres")
def test_a_disk_that_lies_after_a_truncate_is_found(dbbench: Dbbench) -> None:
    """Planted: for 100 ms after each TRUNCATE the disk does not carry out flushes. Only a cut after
    a schema change can find it; in one of three tries, because on a busy machine little is
    committed in that time.
    """
    for _ in range(3):
        shutil.rmtree(dbbench.folder / "results", ignore_errors=True)
        (row,) = lab(dbbench, plan("postgres", ["ext4"]), Order(1, 50, None, [], "truncate"))[
            "rows"
        ]
        assert not by_rows(row)
        if row["contradiction"]:
            break
    assert row["contradiction"] and row["harmed"]


@pytest.mark.long
@pytest.mark.needs("engine:postgres")
def test_a_pool_is_examined_too(dbbench: Dbbench) -> None:
    """Imported again after each cut: nothing is lost, and commits are if ZFS does not wait for its
    log.
    """
    shipped("zfs-8k")
    late = {"use": "zfs-8k", "label": "zfs-late", "mount": ["sync=disabled"]}
    found = lab(dbbench, plan("postgres", ["zfs-8k", late]), Order(1, 5, None, []))
    for row, durability in zip(found["rows"], ("full", "async-commit"), strict=True):
        assert row["valid"] == 5, invalid(row)
        assert (row["durability_class"], row["contradiction"]) == (durability, "")
    assert [bool(row["lost"]) for row in found["rows"]] == [False, True]
    assert found["rows"][0]["harmed"] == 0


@pytest.mark.needs("engine:postgres", "mkfs.btrfs", "fs:btrfs")
@pytest.mark.parametrize("lying", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_power_of_all_disks_goes_at_once(dbbench: Dbbench, lying: bool) -> None:
    """A mirror of two disks, and one of its own for the log: nothing is lost, unless the disks lie;
    then three images are kept of a cut.
    """
    log = {"fs_setup": "ext4", "size": "512MiB"}
    cuts = 3 if lying else 5
    order = Order(1, cuts, None, [], "always" if lying else "")
    found = lab(dbbench, plan("postgres", ["btrfs-raid1"], count=2, wal=log), order)
    (row,) = found["rows"]
    assert (row["fs_setup"], row["durability_class"], row["valid"]) == (
        "btrfs-raid1+wal:ext4",
        "full",
        cuts,
    ), invalid(row)
    if not lying:
        assert (row["harmed"], row["lost"], row["contradiction"]) == (0, 0, "")
        return
    assert row["harmed"] and row["lost"]
    (folder,) = (dbbench.folder / "results").glob("cut-powercut-*/powercut")
    harmed = {image.name.rpartition("-")[0] for image in folder.glob("*.img")}
    assert harmed and len(list(folder.glob("*.img"))) == 3 * len(harmed)


@pytest.mark.needs("engine:postgres")
def test_contradicted_class_is_an_error(dbbench: Dbbench) -> None:
    """Planted: the disk below a setup of class full acknowledges flushes and does nothing. The lab
    finds it, believes it after a second recovery, keeps the image, and the row says which class
    is wrong. In one of three tries: on a busy machine little is committed between the last
    write-back and a cut.
    """
    for _ in range(3):
        shutil.rmtree(dbbench.folder / "results", ignore_errors=True)
        (row,) = lab(dbbench, plan("postgres", ["ext4"]), Order(1, 4, None, [], "always"))["rows"]
        assert row["durability_class"] == "full"
        if row["harmed"] and row["lost"]:
            break
    assert row["harmed"] and row["lost"]
    assert any(f"{harm}: " in row["contradiction"] for harm in ("lost", "unrecovered", "torn"))
    kept = [cut["kept"] for cut in row["cuts"] if cut["kept"]]
    (folder,) = (dbbench.folder / "results").glob("cut-powercut-*")
    assert kept and all((folder / name).stat().st_size == 2**30 for name in kept)
    assert "E821" in dbbench("report", folder.name).stdout + (folder / "report.html").read_text()


@pytest.mark.needs("engine:postgres")
def test_a_lab_that_was_stopped_begins_anew_under_its_name(dbbench: Dbbench) -> None:
    """SIGTERM as soon as it works, twice: the second is not refused for what the first has left."""
    file = dbbench.plan(plan("postgres", ["ext4"]))
    for _ in range(2):
        child = dbbench.start(
            "powercut",
            file,
            "--cuts",
            "2",
            "--name",
            "again",
            "--progress",
            "json",
        )
        assert child.stderr is not None
        said = next((line for line in child.stderr if '"prepare"' in line), "")
        child.terminate()
        child.communicate(timeout=300)
        assert (bool(said), child.returncode) == (True, 143)
