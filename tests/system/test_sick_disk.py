"""A disk fails, or stops answering, during the window of a real trial: no such trial is
marked ok.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbbench.labs.powercut import unavailable
from dbbench.storage import devices
from tests.support.leftovers import GONE_S, left_of
from tests.support.plans import plan
from tests.support.sick_disk import Sick, sick_disk
from tests.support.window_faults import mount_of

pytestmark = [
    pytest.mark.needs(
        "root",
        "mkfs.ext4",
        "fs:ext4",
        "engine:postgres",
        "sadf",
        "iostat",
        "losetup",
    ),
    pytest.mark.skipif(
        unavailable() is not None, reason=f"no disk of the lab's kind: {unavailable()}"
    ),
]

SILENT_S = 6.8  # five whole seconds of iostat's, wherever they begin


def ordered(faults: str) -> Callable[[Sick, int], None]:
    """The disk has these faults from now on."""
    return lambda disk, _pid: disk.order(faults)


def unreadable(disk: Sick, pid: int) -> None:
    """Reads fail, and what the page cache holds of the tables is dropped: they are read again."""
    tables = list((mount_of(pid) / "data/base").rglob("*"))
    disk.order("fail read")
    for path in tables:
        with contextlib.suppress(OSError), path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def silent(disk: Sick, _pid: int) -> None:
    """No request ends for some seconds; then all is as before."""
    disk.order("hold any")
    time.sleep(SILENT_S)
    disk.order()


GONE = {"E316", "E402", "E403", "E601"}
# name: (what is done in mid-window, seconds of the window, the mark, IDs of which one is told)
FAULTS: dict[str, tuple[Callable[[Sick, int], None], int, str, set[str]]] = {
    "disk-write-errors": (ordered("fail write"), 3, "failed", GONE),
    "disk-flush-errors": (ordered("fail flush"), 3, "failed", GONE),
    "disk-read-errors": (unreadable, 3, "failed", GONE),
    "disk-silent": (silent, 10, "suspect", {"W106"}),
}
# the others in every test run: one that fails, one that waits
SOAK = {"disk-flush-errors", "disk-read-errors"}


def on_a_sick_disk(dbbench: Any, name: str) -> tuple[int, dict[str, Any], set[str]]:
    """Drive the one trial whose disk gets that fault: exit status, trial.json, all IDs that it
    tells.
    """
    plant, measure, _, _ = FAULTS[name]
    with sick_disk(Path(tempfile.mkdtemp(dir=dbbench.folder))) as disk:
        server = {"name": "postgres", "settings": {"shared_buffers": "1MB"}}
        dbbench.plan(
            plan(
                engine=server,
                measure=f"{measure}s",
                device={"kind": "block", "path": str(disk.path)},
            )
        )
        # where a process hides its files, a blank disk too wants it typed
        word = devices.identity(disk.path)
        status, said = dbbench.run_and(
            "plan.toml",
            dbbench.in_window,
            lambda pid: plant(disk, pid),
            "--wipe",
            word,
        )
    trials = dbbench.trials()
    assert len(trials) == 1, said[-2000:]
    (trial,) = trials.values()
    told = {warning["id"] for warning in trial["warnings"]} | (
        {trial["error"]["id"]} if trial["error"] else set()
    )
    return status, trial, told


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.soak) if name in SOAK else name for name in FAULTS],
)
def test_a_sick_disk_in_mid_window_is_not_a_good_trial(name: str, dbbench: Any) -> None:
    """The trial is marked as its row of docs/dev/faults.md says, and everything is released."""
    _, _, mark, ids = FAULTS[name]
    # if the machine stands still too, iostat has a gap and not five seconds in a row
    for _ in range(3):
        status, trial, told = on_a_sick_disk(dbbench, name)
        if told & ids or name != "disk-silent":
            break
        shutil.rmtree(dbbench.folder / "results")
    assert trial["status"] == mark, (trial["status"], told)
    assert told & ids, (told, trial["error"])
    assert status == (1 if mark == "failed" else 0)
    assert mark == "failed" or "W020" not in told
    assert left_of(dbbench.folder, within_s=GONE_S) == []
