"""A host with hundreds of disks, thousands of mounts and tens of thousands of processes: the work of
`doctor`, `plan` and the sampler grows with each number, and with no product of two. Counted are
calls of functions, which are the same in each repetition, not seconds.
"""

import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from dbbench import process
from dbbench.commands import doctor
from dbbench.machine import questions
from dbbench.machine.host import proc
from dbbench.machine.limits.cgroup import Groups
from dbbench.samplers.machine_state import Processes
from dbbench.storage.devices import configured, guard, naming, sysfs, used
from tests.support.files import write_file
from tests.support.sys_tree import add

Work = Callable[[Path, list[str]], object]
WAITING: Final = [each.__file__ for each in (process, questions, subprocess, selectors)]
KINDS: Final = ("disks", "loops", "btrfs", "swaps", "mounts", "processes")
MOUNT: Final = "36 35 0:{0} / /snap/{0} ro shared:1 - squashfs /dev/squash{0} ro\n"
SWAP: Final = "/dev/none{0} partition 1024 0 -2\n"


@pytest.fixture(autouse=True)
def alone(
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without units, and without lsblk; blkid knows nothing."""
    monkeypatch.setattr(configured, "_UNITS", ())
    write_file(programs / "blkid", "#!/bin/sh\n").chmod(0o755)


def make(root: Path, **numbers: int) -> list[str]:
    """Make /sys and /proc of a host with so many of KINDS; return its disks."""
    disks = [f"sd{number}" for number in range(numbers["disks"])]
    loops = [f"loop_{number}" for number in range(numbers["loops"])]
    for number, name in enumerate(disks + loops):
        folder = root / "sys/devices" / name
        add(root / "sys", name, f"8:{number}", folder)
        write_file(folder / "device/serial", f"serial {name}\n")
        (root / "sys/block").mkdir(exist_ok=True)
        (root / "sys/block" / name).symlink_to(folder)
    for name in loops:
        write_file(root / "sys/devices" / name / "loop/backing_file", "/snap\n")
    for number in range(numbers["btrfs"]):
        write_file(root / f"sys/fs/btrfs/{number}/devices/sd_none")
    mounts = "".join(map(MOUNT.format, range(numbers["mounts"])))
    for pid in range(1, numbers["processes"] + 1):
        _add_process(root / f"proc/{pid}", mounts)
    swaps = "".join(map(SWAP.format, range(numbers["swaps"])))
    write_file(root / "proc/swaps", "Filename Type Size Used Priority\n" + swaps)
    (root / "proc/self").symlink_to("1")
    return disks


def _add_process(folder: Path, mounts: str) -> None:
    """All are in the same mount namespace, and have two files open."""
    write_file(folder / "comm", "program\n")
    write_file(folder / "mountinfo", mounts)
    (folder / "ns").mkdir()
    (folder / "ns/mnt").symlink_to("mnt:[1]")
    (folder / "fd").mkdir()
    for fd in ("0", "1"):
        (folder / "fd" / fd).symlink_to("/dev/null")


def as_doctor(_root: Path, _disks: list[str]) -> object:
    """The list of devices of `dbbench doctor`."""
    return list(doctor._devices())


def as_plan(root: Path, disks: list[str]) -> object:
    """What `dbbench plan` looks for if all disks are in the plan."""
    names = naming.DiskNames()
    found = guard._uses([0] * len(disks), disks, [[]] * len(disks), set(), root)
    return found, [naming.names_of(disk, names) for disk in disks]


def calls(work: Callable[[], object]) -> Counter[str]:
    """Count the calls of functions of Python and of C by their names, without those that wait for
    another process.
    """
    counted = Counter[str]()

    def count(frame: FrameType, event: str, function: Any) -> None:
        if frame.f_code.co_filename in WAITING:
            return
        if event == "c_call":
            counted[function.__name__] += 1
        elif event == "call":
            counted[frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize("work", [as_doctor, as_plan])
@pytest.mark.starts_processes
def test_the_work_grows_with_no_product_of_two_numbers(
    work: Work,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If all numbers grow by the same amount, twice, the calls of each function do, too."""

    def cost(most: int) -> Counter[str]:
        root = tmp_path / str(most)
        disks = make(root, **dict.fromkeys(KINDS, most))
        monkeypatch.setattr(sysfs, "SYS", root / "sys")
        monkeypatch.setattr(naming, "BY_ID", root / "by-id")
        for module in (guard, used):
            monkeypatch.setattr(module, "host_proc", lambda: root / "proc")
        return calls(lambda: work(root, disks))

    cost(2)  # what is done only once
    few, more, most = map(cost, (3, 6, 9))
    steeper = {name: most[name] - 2 * more[name] + few[name] for name in most}
    # A loop device or swap area that cannot be examined is listed for each disk.
    steeper.pop("append")
    assert {name: number for name, number in steeper.items() if number} == {}


def test_the_sampler_reads_a_process_of_others_once(tmp_path: Path) -> None:
    """Each second it lists the processes, and opens no file of those that it knows."""
    for pid in range(2, 40):
        write_file(tmp_path / f"{pid}/stat", f"{pid} (program) S 1 {'0 ' * 48}")
    processes = Processes((1,), Groups(()), tmp_path)
    processes.read()
    write_file(tmp_path / "40/stat", f"40 (program) S 1 {'0 ' * 48}")
    assert calls(processes.read)["open"] == 1


def test_a_long_list_of_processes_is_read_less_often(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was found is read each second, a new one is found later."""
    for pid in (1, 2):
        write_file(tmp_path / f"{pid}/stat", f"{pid} (program) S 1 {'0 ' * 48}")
    monkeypatch.setattr(proc, "_LOOKING_SHARE", 1e-12)
    family = proc.ProcessFamily(tmp_path)
    assert list(family.read((1,))) == [1, 2]
    write_file(tmp_path / "3/stat", f"3 (program) S 1 {'0 ' * 48}")
    (tmp_path / "2/stat").unlink()
    assert list(family.read((1,))) == [1]
    monkeypatch.setattr(family, "_due", 0.0)
    assert list(family.read((1,))) == [1, 3]
