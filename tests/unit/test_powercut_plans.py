"""The power-loss lab apart from its cuts: the cells that it tests, its input and its results."""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import pytest
import synthetic

from dbbench import plan
from dbbench.commands.powercut import folder_of_lab
from dbbench.errors import DeadlinePassed, EngineStartFailed, ResultDamaged, RunNameTaken
from dbbench.labs.powercut import MEMORY_BYTES, base_images, phases
from dbbench.labs.powercut.base_images import Lab, files_of
from dbbench.labs.powercut.base_images import disks as disks_of
from dbbench.labs.powercut.targets import targets
from dbbench.model import Cell, FsSetup, Setting
from dbbench.plan.request import PlanRequest
from dbbench.results import create_run, load_lab, save_lab
from dbbench.run.workdir import WorkDir
from tests.support.plans import SHIPPED, plan_of
from tests.support.plans import plan as written
from tests.support.runs import small_run


def cells_of(tmp_path: Path, fs_setups: list[Any], **keys: Any) -> tuple[Cell, ...]:
    """Those of a plan of PostgreSQL; `keys` as for `tests.support.plans.plan`."""
    return plan.expand(plan_of(tmp_path, written(fs_setups, **keys)), SHIPPED).cells


def all_work(_setup: FsSetup) -> None:
    """Find no obstacle on this machine."""


def test_cells_that_differ_in_what_decides_are_examined_apart(tmp_path: Path) -> None:
    """A setup under an engine is examined once, whatever the workloads, unless a deciding setting
    differs.
    """
    engine = {"name": "postgres", "settings": {"full_page_writes": "off"}}
    arms = ["ext4", {"use": "ext4", "label": "again"}]
    loads = ["pgbench-tpcb", "pgbench-select-only"]
    cells = cells_of(tmp_path, arms, engine=engine, workload=loads)
    other = dataclasses.replace(cells[0].engine, settings={"synchronous_commit": "off"})
    cells = (*cells, dataclasses.replace(cells[0], engine=other))
    found, skipped = targets(cells, 1, all_work)
    assert skipped == {}
    assert [one.key for one in found] == [
        "ext4 postgres full_page_writes=off",
        "again postgres full_page_writes=off",
        "ext4 postgres synchronous_commit=off",
    ]
    for one in found:
        assert one.settings["shared_buffers"] == Setting("32MB", "lab")


def test_layers_are_not_examined(tmp_path: Path) -> None:
    """What the lab has no disks for is named with its reason."""
    found, skipped = targets(
        cells_of(tmp_path, ["ext4-md1"], device={"size": "1GiB", "count": 2}), 2
    )
    assert (found, skipped) == ([], {"ext4-md1": "layers (md): the lab supports plain disks only"})


@pytest.mark.parametrize("given", [4, 6])
def test_setups_of_several_devices_have_as_many_disks(given: int, tmp_path: Path) -> None:
    """Those that a trial would take of the plan's, and the log's own beside them."""
    device = {"size": "1GiB", "count": given, "wal": {"fs_setup": "xfs", "size": "1GiB"}}
    cells = cells_of(tmp_path, ["btrfs-raid10", {"use": "ext4", "wal": False}], device=device)
    found, skipped = targets(cells, given, all_work)
    assert skipped == {}
    assert [(one.arm, one.disks, one.log and one.log.name) for one in found] == [
        ("btrfs-raid10+wal:xfs", given, "xfs"),
        ("ext4", 1, None),
    ]
    images = [path.name for path in files_of(disks_of(tmp_path, "cut", found[0]))]
    assert images == [*(f"cut-{number}.img" for number in range(given)), "cut-wal.img"]
    assert [path.name for path in files_of(disks_of(tmp_path, "cut", found[1]))] == ["cut.img"]


def test_what_does_not_work_here_is_not_examined(tmp_path: Path) -> None:
    """Neither where it is the data's filesystem nor where it is the log's."""
    cells = cells_of(
        tmp_path,
        ["xfs"],
        device={"size": "1GiB", "wal": {"fs_setup": "ext4", "size": "1GiB"}},
    )
    expected = ([], {"xfs+wal:ext4": "no ext4"})
    assert targets(cells, 1, lambda setup: "no ext4" if setup.name == "ext4" else None) == expected


@pytest.mark.parametrize("name", ["x.img", "x-recording/data"])
def test_altered_lab_is_damaged(name: str, tmp_path: Path) -> None:
    """powercut.json, the kept images and recordings are compared with their checksums."""
    kept = tmp_path / "powercut" / name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"image")
    assert load_lab(tmp_path) is None
    save_lab(tmp_path, synthetic.lab())
    assert load_lab(tmp_path) == synthetic.lab()
    kept.write_bytes(b"imagE")
    with pytest.raises(ResultDamaged, match=f"powercut/{name} is altered"):
        load_lab(tmp_path)
    assert load_lab(tmp_path, verify=False) == synthetic.lab()


def test_name_of_a_lab_that_was_stopped_is_free_until_it_holds_a_cut(tmp_path: Path) -> None:
    """A folder of the same plan with nothing, or with controls alone, is gone on with; one with
    cuts, of another plan, or that is no run's is refused.
    """
    run = small_run("l")
    whole = synthetic.lab()
    expanded = plan.Expanded(run.cells, run.order)
    wanted = PlanRequest("# plan\n", run.plan, expanded, "cafe")
    folder = create_run(
        tmp_path,
        dataclasses.replace(run, plan_sha256="powercut-cafe", order=()),
        "# plan\n",
    )
    assert folder_of_lab(tmp_path, wanted, "l") == folder
    save_lab(folder, dataclasses.replace(whole, rows=(), complete=False))
    assert folder_of_lab(tmp_path, wanted, "l") == folder
    save_lab(folder, dataclasses.replace(whole, complete=False))
    with pytest.raises(RunNameTaken):
        folder_of_lab(tmp_path, wanted, "l")
    (folder / "powercut.json").unlink()
    with pytest.raises(RunNameTaken):
        folder_of_lab(tmp_path, dataclasses.replace(wanted, sha256="beef"), "l")
    (tmp_path / "theirs").mkdir()
    with pytest.raises(RunNameTaken):
        folder_of_lab(tmp_path, wanted, "theirs")


def test_each_process_needs_memory_and_no_pool(tmp_path: Path) -> None:
    """One more than cores. A pool of ZFS has one name on a machine; a lab whose time is over starts
    nothing.
    """
    (ext4,), _ = targets(cells_of(tmp_path, ["ext4"]), 1, all_work)
    zfs = dataclasses.replace(ext4, setup=SHIPPED.setup("zfs-8k"))
    lab = Lab(WorkDir(tmp_path), tmp_path, 1, lambda _: None)
    assert lab.process_count(ext4, 2, math.inf) == 3
    assert lab.process_count(ext4, 64, math.inf) == base_images.MOST_PROCESSES
    assert lab.process_count(ext4, 2, 3 * MEMORY_BYTES - 1) == 2
    assert lab.process_count(ext4, 2, 0) == 1
    assert lab.process_count(zfs, 2, math.inf) == 1
    lab.until = 0.0
    assert lab.process_count(ext4, 2, math.inf) == 1


def test_images_of_the_last_target_are_removed(tmp_path: Path) -> None:
    """Those of all processes, and the logs; data directories are used again."""
    (ext4,), _ = targets(cells_of(tmp_path, ["ext4"]), 1, all_work)
    lab = Lab(WorkDir(tmp_path / "lab"), tmp_path, 1, lambda _: None)
    scratches = [tmp_path / "lab" / process / "scratch" for process in ("", "2", "3")]
    for scratch in scratches:
        (scratch / "template").mkdir(parents=True)
        (scratch / "log").mkdir()
        for image in files_of(disks_of(scratch, "cut", ext4)):
            image.touch()
    lab.remove_images()
    assert [[path.name for path in scratch.iterdir()] for scratch in scratches] == [
        ["template"]
    ] * 3


def test_a_phase_has_a_deadline() -> None:
    """What takes longer is ended; a look every POLL_S may end it before."""
    with (
        pytest.raises(DeadlinePassed, match="stop took longer"),
        phases.phase("stop", deadline_s=0.05, poll_s=0.01),
    ):
        time.sleep(60)

    def look() -> None:
        raise EngineStartFailed("unreadable")

    with pytest.raises(EngineStartFailed), phases.phase("start", look, poll_s=0.01):
        time.sleep(60)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[ERROR] [MY-011971] Unable to apply log to corrupted page 7", EngineStartFailed),
        ("[Note] starting crash recovery", DeadlinePassed),
    ],
)
def test_a_server_that_reads_a_torn_page_for_ever_is_harmed(
    line: str,
    kind: type[Exception],
    tmp_path: Path,
) -> None:
    """MySQL does not end, but logs why; otherwise the cut would be invalid."""
    (tmp_path / "server.log").write_text(f"{line}\n")
    with pytest.raises(kind), phases.starting(tmp_path / "server.log", 0.05, 0.01):
        time.sleep(60)
