"""The leak check finds what a test leaves behind, and ignores the resources of other processes."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dbbench.storage.devices import loop
from tests.support.leftovers import a_loop_device_is_found, leaving_nothing

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def sysbench(tmp_path: Path) -> str:
    """A shell of that name: a `sleep` may be one program with all others, which does what its name
    says.
    """
    return shutil.copy("/bin/sh", tmp_path / "sysbench")


def test_a_process_that_stays_is_found(tmp_path: Path, sysbench: str) -> None:
    """A load generator that outlives the block is named with its pid."""
    program: subprocess.Popen[bytes] | None = None
    with (
        pytest.raises(AssertionError, match=r"sysbench \(pid \d+\)"),
        leaving_nothing(tmp_path, within_s=0.2),
    ):
        program = subprocess.Popen([sysbench, "-c", "read line"], stdin=subprocess.PIPE)
    assert program is not None
    program.kill()
    program.wait()


def test_a_loop_device_that_stays_is_found(tmp_path: Path, image: Path) -> None:
    """A loop device over a file of the folder is named."""
    a_loop_device_is_found(tmp_path, image)


def test_what_others_have_is_not_blamed(
    tmp_path: Path,
    image: Path,
    sysbench: str,
) -> None:
    """Another process's loop device, and another's load generator, may come while the block lasts."""
    (tmp_path / "folder").mkdir()
    others = {**os.environ, "PATH": "/usr/bin"}
    held: Any = loop.attach(image)
    with leaving_nothing(tmp_path / "folder"):
        held.__enter__()
        program = subprocess.Popen([sysbench, "-c", "read line"], stdin=subprocess.PIPE, env=others)
    held.__exit__(None, None, None)
    program.kill()
    program.wait()
