"""Root writes, creates and removes nothing by a name that another account can set."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.plans import plan
from tests.support.traced import leaks, trace

pytestmark = [pytest.mark.needs("root", "strace"), pytest.mark.usefixtures("nothing_left")]

COMMANDS = [
    "plan plan.toml",
    "doctor",
    "fs",
    "study",
    "workload",
    "explain full",
    "clean",
    "show",
    "show r",
    "compare r",
    "report r",
    "fleet status",
    "nightly status",
    "fleet run plan.toml --local 1 --spread --name f",
]
ENDS = (0, 1, 2)  # also commands that find nothing to show


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder of root's, below no folder of others; with a run."""
    path = Path(tempfile.mkdtemp(prefix="dbbench-names-", dir="/var/lib"))
    text = plan(
        engine="files", workload={"name": "fio-seqwrite", "file_size": "8MiB"}, measure="2s"
    )
    (path / "plan.toml").write_text(text)
    yield path
    shutil.rmtree(path)


def traced(folder: Path, command: str) -> list[str]:
    """The leaks of a command."""
    log = folder / "strace"
    environment = {**os.environ, "DBBENCH_CACHE": str(folder / "cache")}
    argv = [sys.executable, "-m", "dbbench", *command.split()]
    done = trace(argv, log, folder, environment)
    assert done.returncode in ENDS, done.stderr
    with log.open(errors="replace") as lines:
        return leaks(lines)


def test_a_planted_leak_is_found(folder: Path) -> None:
    """Control: by name in /tmp, and not by descriptor or below a folder of root's."""
    planted = (
        "import os, sys, tempfile\n"
        "folder = tempfile.mkdtemp(dir='/tmp')\n"
        "open(f'{folder}/by-name', 'w').close()\n"
        "fd = os.open(folder, os.O_DIRECTORY)\n"
        "os.close(os.open('by-descriptor', os.O_CREAT, dir_fd=fd))\n"
        "open('of-root', 'w').close()\n"
        "print(folder)\n"
    )
    log = folder / "strace"
    done = trace([sys.executable, "-c", planted], log, folder)
    with log.open(errors="replace") as lines:
        text = "\n".join(leaks(lines))
    shutil.rmtree(done.stdout.strip())
    assert "/by-name" in text
    assert "mkdir /tmp/" in text
    assert "by-descriptor" not in text
    assert "of-root" not in text


@pytest.mark.needs("fio", "mkfs.ext4", "fs:ext4", "sadf")
def test_a_run_has_no_names_of_others(folder: Path) -> None:
    """The image, the mount, the load, the samplers, and the results."""
    assert traced(folder, "run plan.toml --name r") == []


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_no_names_of_others(folder: Path, command: str) -> None:
    """Libraries too: dask's and fontconfig's files, and those of Python's `tempfile`."""
    assert traced(folder, command) == []
