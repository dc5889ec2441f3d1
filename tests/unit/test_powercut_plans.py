"""The power-cut lab around its cuts: what of a plan is examined, what travels to it, what it leaves."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench import catalog, plan
from dbbench.commands.durability import folder_of_lab
from dbbench.commands.planning import Asked
from dbbench.errors import ResultDamaged, RunNameTaken
from dbbench.model import Run, Setting
from dbbench.powercut.starting import Order
from dbbench.powercut.targets import targets
from dbbench.store import create_run, load_lab, save_lab

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import synthetic

MakeRun = Callable[..., Run]


def test_cells_that_differ_in_what_decides_are_examined_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setup under an engine is examined once, whatever the workloads, unless a deciding setting differs."""
    path = tmp_path / "plan.toml"
    path.write_text("""
name = "p"
fs_setups = ["ext4", { use = "ext4", label = "again" }]
[[engine]]
name = "postgres"
settings = { full_page_writes = "off" }
[[workload]]
name = "pgbench-tpcb"
[[workload]]
name = "pgbench-select-only"
""")
    known = catalog.catalog()
    cells = plan.expand(plan.load(path, known), known).cells
    other = dataclasses.replace(cells[0].engine, settings={"synchronous_commit": "off"})
    cells = (*cells, dataclasses.replace(cells[0], engine=other))
    monkeypatch.setattr("dbbench.powercut.targets.works", lambda setup: None)
    found, skipped = targets(cells)
    assert skipped == {}
    assert [one.key for one in found] == [
        "ext4 postgres full_page_writes=off", "again postgres full_page_writes=off",
        "ext4 postgres synchronous_commit=off"]  # fmt: skip
    for one in found:
        assert one.settings["shared_buffers"] == Setting("32MB", "lab")


def test_layers_are_not_examined(tmp_path: Path) -> None:
    """What the lab has no disk for is named with its reason."""
    path = tmp_path / "plan.toml"
    path.write_text("""
name = "p"
fs_setups = ["ext4-md1", "btrfs-raid0"]
[device]
count = 2
[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
""")
    known = catalog.catalog()
    found, skipped = targets(plan.expand(plan.load(path, known), known).cells)
    assert found == []
    assert skipped == {"ext4-md1": "layers (md): the lab cuts one plain disk",
                       "btrfs-raid0": "it takes 2 devices: the lab cuts one plain disk"}  # fmt: skip


def test_a_log_on_a_device_of_its_own_is_not_examined(tmp_path: Path) -> None:
    """What was asked for is another disk than the lab's: it is named, not quietly left out."""
    path = tmp_path / "plan.toml"
    path.write_text("""
name = "p"
fs_setups = ["xfs"]
[device.wal]
fs_setup = "ext4"
[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
""")
    known = catalog.catalog()
    found, skipped = targets(plan.expand(plan.load(path, known), known).cells)
    assert found == []
    assert skipped == {"xfs+wal:ext4": "a device of its own for the log: the lab cuts one plain disk"}


def test_order_travels_as_text() -> None:
    """The lab's process gets what was asked for."""
    order = Order(7, 12, None, ("nobarrier",), True)
    assert Order.parsed(order.text) == order
    assert Order.parsed(Order(1).text) == Order(1)


def test_altered_lab_is_damaged(tmp_path: Path) -> None:
    """powercut.json and the kept images are held against their checksums."""
    (tmp_path / "powercut").mkdir()
    (tmp_path / "powercut/x.img").write_bytes(b"image")
    assert load_lab(tmp_path) is None
    save_lab(tmp_path, synthetic.lab())
    assert load_lab(tmp_path) == synthetic.lab()
    (tmp_path / "powercut/x.img").write_bytes(b"imagE")
    with pytest.raises(ResultDamaged, match=r"powercut/x.img was altered"):
        load_lab(tmp_path)
    assert load_lab(tmp_path, verify=False) == synthetic.lab()


def test_name_of_a_lab_that_was_stopped_is_free_until_it_holds_a_cut(tmp_path: Path, make_run: MakeRun) -> None:
    """A folder of the same plan with nothing, or with controls alone, is gone on with; one with cuts, of another plan,
    or that is no run's is refused."""
    run, whole = make_run("l"), synthetic.lab()
    expanded = plan.Expanded(run.cells, run.order)
    wanted = Asked("# plan\n", run.plan, expanded, "cafe")
    folder = create_run(tmp_path, dataclasses.replace(run, plan_sha256="powercut-cafe", order=()), "# plan\n")
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
