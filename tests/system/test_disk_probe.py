"""`dbbench probe` and fio measure the same rates in one directory."""

import contextlib
import tempfile
from pathlib import Path

import pytest

from dbbench import process
from dbbench.labs.disk_probe import Latency
from dbbench.machine.limits import throttle
from dbbench.model import DeviceLimit
from dbbench.results.journal import Journal
from dbbench.storage.devices import loop
from dbbench.storage.devices.ceiling import parse_jobs
from dbbench.storage.small_io import METHODS, MeasuredDirectory
from tests.support.private_mounts import apart

EACH_S = 0.8
# The kernel grants a limit's I/Os in slices of 0.1 s, and some are the journal's.
MARGIN = 1.4
IOPS = 100  # a limit of the kernel, so that the load of other processes hardly matters
ROUNDS = 3  # a round that another process disturbed is repeated
NEW = ("--fallocate=none", "--size=64m")
SAME = ("--overwrite=1", "--time_based")
JOBS = {
    "append_fdatasync": (*NEW, "--bs=16k", "--fdatasync=1"),
    "append_fsync": (*NEW, "--bs=16k", "--fsync=1"),
    "overwrite_16k": (*SAME, "--bs=16k", "--size=16k", "--fdatasync=1"),
    "overwrite_1m_fsync": (*SAME, "--bs=1m", "--size=1m", "--fsync=1"),
}


@pytest.mark.alone
@pytest.mark.needs("root", "fio", "fs:ext4", "mkfs.ext4")
def test_probe_and_fio_agree(tmp_path: Path) -> None:
    """On a disk that does 100 I/Os per second; one more in each commit would be a factor of 1.5."""
    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        image = Path(memory, "image")
        with image.open("wb") as file:
            file.truncate(512 * 2**20)
        disk = stack.enter_context(loop.attach(image))
        process.run(["mkfs.ext4", "-q", disk.path])
        stack.enter_context(apart())
        process.run(["mount", disk.path, tmp_path])
        stack.callback(process.run, ["umount", tmp_path])
        directory = stack.enter_context(contextlib.closing(MeasuredDirectory(tmp_path, 1)))
        methods = [method for method in METHODS if method.name in JOBS]
        for method in methods:  # this fills the file that is overwritten
            directory.measure(method, 0.01)
        journal = Journal(tmp_path / "journal")
        limit = DeviceLimit(iops=IOPS)
        stack.enter_context(throttle.limit_disks([disk.number], limit, journal, None))
        for _ in range(ROUNDS):
            of_fio = fio_rates(tmp_path)
            ratios = {}
            for method in methods:
                per_s = Latency.of(method, directory.measure(method, EACH_S)).per_s
                ratios[method.name] = per_s / of_fio[method.name]
            if agree(ratios):
                break
    assert agree(ratios), ratios


def agree(ratios: dict[str, float]) -> bool:
    """One I/O more in each commit would be outside."""
    return all(1 / MARGIN < ratio < MARGIN for ratio in ratios.values())


def fio_rates(folder: Path) -> dict[str, float]:
    """Writes per second, each with its flush."""
    argv = ["fio", "--output-format=json"]
    for name, options in JOBS.items():
        argv += [f"--name={name}", "--stonewall", f"--directory={folder}", "--unlink=1"]
        argv += ["--ioengine=psync", "--rw=write", f"--runtime={1000 * EACH_S:.0f}ms", *options]
    jobs = parse_jobs(process.run(argv).stdout)
    return {job["jobname"]: job["write"]["iops"] for job in jobs}
