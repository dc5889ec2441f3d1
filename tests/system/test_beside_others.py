"""Loop devices, mounts, control groups and servers of others come and go, and another dbbench runs:
no run is disturbed by them, disturbs them, or is blamed for what they have.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import engine_bin
from tests.support.leftovers import GONE_S, a_loop_device_is_found, leaving_nothing, left_of
from tests.support.others import others_at_work
from tests.support.plans import plan
from tests.system.conftest import HANGS_S, Dbbench

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "losetup", "engine:postgres", "sadf")


@pytest.fixture(autouse=True)
def others() -> Iterator[None]:
    """They are at work during each test, and are not disturbed."""
    programs = engine_bin("postgres")
    assert programs is not None
    with others_at_work(programs):
        yield


def test_two_runs_at_once_are_whole(tmp_path: Path, dbbench_in: Callable[[Path], Dbbench]) -> None:
    """Each has its trial without an error, and both leave nothing. Others may make a trial suspect,
    no more.
    """
    runs = [dbbench_in(tmp_path / name) for name in ("first", "second")]
    for dbbench in runs:
        dbbench.folder.mkdir()
        dbbench.plan(plan(device={"size": "384MiB"}))
    with leaving_nothing(tmp_path):
        children = [
            dbbench.start("run", "plan.toml", "--name", "r", "--progress", "none")
            for dbbench in runs
        ]
        said = [child.communicate(timeout=HANGS_S) for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    for dbbench in runs:
        (trial,) = dbbench.trials().values()
        assert trial["error"] is None
        assert trial["cache"]["proved"] and trial["summary"]["tps"] > 0
        assert left_of(dbbench.folder) == []


def test_a_killed_run_leaves_nothing_and_is_resumed(dbbench: Any) -> None:
    """SIGKILL in the window of the second trial: after a moment nothing of it runs, is mounted or
    attached. The same command runs that trial again, and not the first one.
    """
    dbbench.plan(plan(blocks=2, device={"size": "384MiB"}))
    second = []

    def at(event: dict[str, Any]) -> bool:
        second.append(event["kind"] == "trial_begin" and event["position"] == 2)
        return any(second) and dbbench.in_window(event)

    status, _ = dbbench.run_and("plan.toml", at, lambda pid: os.kill(pid, signal.SIGKILL))
    assert status == -signal.SIGKILL
    assert left_of(dbbench.folder, within_s=GONE_S) == []
    ((name, first),) = dbbench.trials().items()
    dbbench("run", "plan.toml", "--name", "r")
    assert [trial["error"] for trial in dbbench.trials().values()] == [None, None]
    assert dbbench.trials()[name] == first
    assert list((dbbench.folder / "results/r/trials").glob(".partial-*")) == []
    assert left_of(dbbench.folder, within_s=GONE_S) == []


def test_leftovers_are_those_of_the_test_alone(tmp_path: Path, image: Path) -> None:
    """While others come and go nothing is found, and what is really left is found."""
    (tmp_path / "elsewhere").mkdir()
    with leaving_nothing(tmp_path / "elsewhere"):
        time.sleep(2)
    a_loop_device_is_found(tmp_path, image)
