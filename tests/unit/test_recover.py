"""What a killed run has left is released before its plan is checked."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from dbbench import results
from dbbench.errors import DeviceUnusable, RunLocked
from dbbench.model import DeviceSpec
from dbbench.plan import Expanded
from dbbench.plan.request import PlanRequest
from dbbench.results import RunFolder
from dbbench.run.preflight import check_run
from dbbench.storage import layers
from tests.support.runs import changed, small_run


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the arrays that are taken apart."""
    names: list[str] = []

    def end(name: str) -> bool:
        names.append(name)
        return True

    monkeypatch.setattr(layers, "KINDS", {"md": SimpleNamespace(end=end)})
    return names


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Return a run on a disk that does not exist, killed when it had an array."""
    device = DeviceSpec("block", path=str(tmp_path / "disk"))
    run = changed(small_run(), "plan.device", device)
    killed = RunFolder(results.create_run(tmp_path, run, ""))
    array = f"md:dbbench-{killed.journal.tag}1f"
    killed.journal.note("take", what="layer", path=array)
    return killed


def check(folder: RunFolder) -> None:
    """Check the plan as `dbbench run` does when it resumes the run."""
    run = folder.run
    wanted = PlanRequest("", run.plan, Expanded((), ()), run.plan_sha256)
    check_run(wanted, "plan.toml", folder.path.parent, folder, ())


def test_layers_are_released_before_the_disks_are_checked(
    folder: RunFolder, ended: list[str]
) -> None:
    """Otherwise the array of the killed trial holds the disks, and they are refused as in use."""
    with pytest.raises(DeviceUnusable, match="disk is missing"):
        check(folder)
    assert ended == [f"dbbench-{folder.journal.tag}1f"]
    assert folder.journal.outstanding("layer") == []


def test_nothing_is_released_of_a_run_that_is_running(folder: RunFolder, ended: list[str]) -> None:
    """Another process holds the run: its array is in use."""
    with folder.lock(), pytest.raises(RunLocked):
        check(folder)
    assert ended == []
    assert len(folder.journal.outstanding("layer")) == 1
