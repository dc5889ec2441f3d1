"""Requests that fail below a real server: who notices, and what is left. Planted: a disk that loses
a write, and a server that ignores errors of flushes.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbbench.errors import DbbenchError
from dbbench.labs.faults import parse
from dbbench.labs.harm.disk_faults import CONTROL, GIVEN, fail_disks, fail_once
from dbbench.labs.harm.rows import MARK
from dbbench.labs.powercut.base_images import BaseImages, Lab
from dbbench.model import HarmCount, HarmOutcome
from tests.support.labs import lab_of
from tests.support.setups import shipped
from tests.support.swallowing import swallowing

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]
POSTGRES = pytest.mark.needs("mkfs.ext4", "engine:postgres")

# A lab in its own mount namespace, with unwritten data on a mounted disk.
LAB = """
import subprocess, sys, time
from pathlib import Path
from dbbench.machine import libc, namespaces
from tests.support.sick_disk import sick_disk
libc.call("unshare", namespaces.CLONE_NEWNS)
namespaces.mount("none", Path("/"), flags=namespaces.MS_REC | namespaces.MS_SLAVE)
folder = Path(sys.argv[1])
with sick_disk(folder) as disk:
    subprocess.run(["mkfs.xfs", "-q", "-f", disk.path], check=True)
    (folder / "mnt").mkdir()
    namespaces.mount(disk.path, folder / "mnt", "xfs")
    (folder / "mnt/data").write_bytes(bytes(2**24))
    print(disk.path, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can enter."""
    path = Path(tempfile.mkdtemp(prefix="dbbench-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def words(counts: list[HarmCount]) -> dict[str, HarmOutcome]:
    """The outcome of each column, in which there was one attempt."""
    assert all(count.of == 1 and count.detail for count in counts), counts
    return {count.column: count.word for count in counts}


def outcomes(lab: Lab, base: BaseImages, faults: str) -> list[HarmCount]:
    """The outcomes of one attempt with these faults."""
    return fail_once(GIVEN, lambda _: parse(faults), lab, base, "seed")


@POSTGRES
def test_a_failed_flush_ends_postgres_and_loses_no_commit() -> None:
    """It does not rely on another flush; the control without a fault is unharmed."""
    with lab_of("ext4") as (lab, base):
        counts = fail_disks(lab, base, 1, parse("fail flush 3"))
    assert words(counts) == {
        CONTROL: HarmOutcome.UNHARMED,
        GIVEN: HarmOutcome.DIES,
        f"after {GIVEN}": HarmOutcome.RECOVERS,
    }
    assert "could not fdatasync file" in counts[1].detail


@pytest.mark.needs("mkfs.xfs", "fs:xfs", "engine:mariadb")
def test_a_write_that_a_disk_loses_is_a_lost_commit() -> None:
    """Planted: it is acknowledged and not carried out, which no server can notice. Whether a commit
    or a part of a page is missing afterwards depends on what the third write was.
    """
    shipped("xfs")
    with lab_of("xfs", "mariadb") as (lab, base):
        counts = outcomes(lab, base, f"lose write 3 with {MARK}")
    assert words(counts)[GIVEN] is HarmOutcome.NOBODY, counts
    harmed = (HarmOutcome.LOST, HarmOutcome.TORN, HarmOutcome.UNRECOVERED)
    assert words(counts)[f"after {GIVEN}"] in harmed, counts


@POSTGRES
@pytest.mark.needs("cc")
def test_a_server_that_ignores_an_error_loses_commits(folder: Path) -> None:
    """Planted: only the kernel's log tells of the write that failed, and its commit is lost."""
    with lab_of("ext4") as (lab, base):
        counts = outcomes(lab, swallowing(base, folder), f"fail write 3 with {MARK}")
    assert words(counts) == {GIVEN: HarmOutcome.LOGS, f"after {GIVEN}": HarmOutcome.LOST}, counts


@POSTGRES
def test_a_failed_read_is_an_error_of_the_client() -> None:
    """PostgreSQL returns it and continues; a table that was read before would not be read."""
    with lab_of("ext4") as (lab, base):
        counts = outcomes(lab, base, "fail read")
    assert words(counts) == {
        GIVEN: HarmOutcome.REFUSES,
        f"after {GIVEN}": HarmOutcome.RECOVERS,
    }, counts
    assert "Input/output error" in counts[0].detail


@pytest.mark.needs("mkfs.ext4", "engine:mariadb")
def test_the_page_cache_has_what_the_disk_lacks() -> None:
    """A server that is started again after a failed write of its log reads what was never written,
    and loses commits with it; the evidence names the file.
    """
    with lab_of("ext4", "mariadb") as (lab, base):
        for number in (7, 5, 11, 3):
            counts = outcomes(lab, base, f"fail write {number} with {MARK}")
            # A write of a table instead of the log is only logged.
            if words(counts)[GIVEN] is HarmOutcome.DIES:
                break
    assert words(counts) == {GIVEN: HarmOutcome.DIES, f"after {GIVEN}": HarmOutcome.LOST}, counts
    assert "blocks of ib_logfile0 were in the page cache, but not on the disk" in counts[1].detail


@POSTGRES
def test_a_fault_that_no_request_meets_is_no_outcome() -> None:
    """It says which fault."""
    error = "no request met the fault: fail write of 0-0"
    with lab_of("ext4") as (lab, base), pytest.raises(DbbenchError, match=error):
        outcomes(lab, base, "fail write of 0-0")


@pytest.mark.needs("mkfs.xfs", "fs:xfs")
def test_a_killed_lab_whose_disk_ends_last_leaves_no_process(folder: Path) -> None:
    """The last process of a mount namespace unmounts what is in it. If that was the disk itself, it
    waited for its own answer for ever, and so did everybody who asked for loop devices.
    """
    paths = [str(Path(__file__).parents[2]), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    argv = [sys.executable, "-c", LAB, folder]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as lab:
        assert lab.stdout is not None
        device = lab.stdout.readline().strip()
        find = ["pgrep", "--full", f"{folder}/fuse"]
        (disk,) = subprocess.run(find, capture_output=True, text=True).stdout.split()
        lab.kill()
    os.kill(int(disk), signal.SIGKILL)
    assert ends(int(disk))
    subprocess.run(["losetup", "--detach", device], check=True)


def ends(pid: int) -> bool:
    """Whether the process ends within 20 s."""
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()
