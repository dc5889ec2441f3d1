"""The harm table without a server: what is counted, and how it is shown."""

import time
from pathlib import Path

import pytest

from dbbench.errors import Interrupted, MountFailed
from dbbench.labs.harm import Attempt, count_harms
from dbbench.labs.powercut.recovery import BaseImages, Lab
from dbbench.labs.powercut.targets import LabTarget
from dbbench.model import EngineSpec, HarmCount
from dbbench.plan.catalog import catalog
from dbbench.run.workdir import WorkDir
from dbbench.storage.filesystems import Mounted

FOUND = HarmCount("flip", "database", 2, 3, "page 7")


def base_on(folder: Path) -> BaseImages:
    """Disks of ext4 that are not there: what no attempt of these tests reads."""
    workdir = WorkDir(folder)
    target = LabTarget("ext4", catalog().setup("ext4"), EngineSpec("postgres"), {})
    return BaseImages(target, {}, workdir.place(target.engine), (), "17", Mounted.__new__(Mounted))


def fails(error: BaseException) -> Attempt:
    """An attempt that raises the error."""

    def attempt(lab: Lab, base: BaseImages, rounds: int) -> list[HarmCount]:
        raise error

    return attempt


def test_what_cannot_be_tried_is_counted_with_its_reason(tmp_path: Path) -> None:
    """An attempt that fails is one row with the reason, and the next one still runs; a stop is no outcome."""
    told: list[str] = []
    lab, base = Lab(WorkDir(tmp_path), tmp_path, 1, told.append), base_on(tmp_path)
    attempts: dict[str, Attempt] = {"fill": fails(MountFailed("no space")), "flip": lambda *_: [FOUND]}
    counts = list(count_harms(lab, base, 3, attempts))
    assert counts == [HarmCount("fill", "untried", 0, 0, "no space"), FOUND]
    assert [what.split(": ")[1] for what in told] == ["fill", "flip"]
    with pytest.raises(Interrupted):
        list(count_harms(lab, base, 3, {"fill": fails(Interrupted("stopped"))}))


def test_without_time_nothing_is_tried(tmp_path: Path) -> None:
    """A part whose time is used up says so in place of its outcomes."""
    lab = Lab(WorkDir(tmp_path), tmp_path, 1, lambda _: None, until=time.monotonic() - 1)
    (only,) = count_harms(lab, base_on(tmp_path), 1, {"flip": fails(AssertionError())})
    assert (only.word, only.of, only.detail) == ("untried", 0, "the time was used up")
