"""Limits of a server: control groups of both versions on trees of plain files."""

import contextlib
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbbench.errors import CommandFailed, EngineDied, KernelLacks
from dbbench.machine import host
from dbbench.machine.limits import ControlGroup, cgroup, confine, throttle
from dbbench.model import DeviceLimit
from dbbench.process import wait_while
from dbbench.results.journal import Journal
from tests.support.files import write_file
from tests.support.runs import small_run

V2 = "31 23 0:27 / {} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 / {} rw,relatime - cgroup cgroup rw,memory\n"


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """These trees are plain files: the answer is the same for everybody."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def process(tmp_path: Path, mountinfo: str, groups: str) -> Path:
    """A folder of /proc."""
    folder = tmp_path / "self"
    folder.mkdir()
    (folder / "mountinfo").write_text(mountinfo)
    (folder / "cgroup").write_text(groups)
    return folder


def test_version_2_is_used_beside_our_own_group(tmp_path: Path) -> None:
    """A group with processes cannot have groups with controllers in it, so the new one is next to
    dbbench's.
    """
    point = tmp_path / "cg"
    (point / "user/session").mkdir(parents=True)
    (point / "cgroup.controllers").write_text("cpu io memory pids\n")
    me = process(tmp_path, V2.format(point), "0::/user/session\n")
    found = cgroup.hierarchy(process=me)
    assert found == cgroup.Hierarchy(2, point / "user/session", point)
    (point / "cgroup.subtree_control").write_text("cpu memory pids\n")
    journal = Journal(tmp_path / "j")
    with cgroup.make_group(found, "dbbench-g", journal) as group:
        assert group.path == point / "user/dbbench-g"
        assert (point / "user/cgroup.subtree_control").read_text() == "+memory"
    # only what was enabled is disabled again
    assert (point / "user/cgroup.subtree_control").read_text() == "-memory"
    assert (point / "cgroup.subtree_control").read_text() == "cpu memory pids\n"


def test_version_1_is_used_within_our_own_group(tmp_path: Path) -> None:
    """Its limit holds for the server too; a hierarchy of version 2 without the memory controller is
    passed over. A missing limit is not a failure; the reason is reported.
    """
    (tmp_path / "none").mkdir()
    assert "no control group" in str(cgroup.hierarchy(process=process(tmp_path / "none", "", "")))
    one = tmp_path / "memory"
    two = tmp_path / "unified"
    (one / "box").mkdir(parents=True)
    two.mkdir()
    (two / "cgroup.controllers").write_text("hugetlb\n")
    me = process(tmp_path, V2.format(two) + V1.format(one), "4:memory:/box\n0::/\n")
    assert cgroup.hierarchy(process=me) == cgroup.Hierarchy(1, one / "box", one)


@pytest.mark.parametrize(("version", "name"), [(2, "memory.max"), (1, "memory.limit_in_bytes")])
def test_a_limit_of_the_container_is_the_memory(
    version: int,
    name: str,
    tmp_path: Path,
) -> None:
    """The smallest limit of the process's group and those above it, and never more than the machine
    has.
    """
    point = tmp_path / "cg"
    (group := point / "pod/box").mkdir(parents=True)
    (point / "cgroup.controllers").write_text("memory\n")
    mounted, groups = (V2, "0::/pod/box\n") if version == 2 else (V1, "4:memory:/pod/box\n")
    me = process(tmp_path, mounted.format(point), groups)
    assert cgroup.usable_bytes(me) == host.memory_bytes()
    (group / name).write_text("max\n" if version == 2 else f"{2**63 - 4096}\n")
    assert cgroup.usable_bytes(me) == host.memory_bytes()
    (group.parent / name).write_text(f"{2**21}\n")
    assert cgroup.usable_bytes(me) == 2**21
    (group / name).write_text(f"{2**20}\n")
    assert cgroup.usable_bytes(me) == 2**20


@pytest.mark.parametrize(
    ("version", "files"),
    [(2, {"memory.max": "4096", "memory.swap.max": "0"}), (1, {"memory.limit_in_bytes": "4096"})],
)
def test_limit_is_set_without_swap_and_journalled_first(
    tmp_path: Path,
    version: int,
    files: dict[str, str],
) -> None:
    """Swap would be a second memory. The journal has the group before it is there."""
    journal = Journal(tmp_path / "j")
    where = cgroup.Hierarchy(version, tmp_path, tmp_path)
    name = f"dbbench-g-{journal.tag}"
    with cgroup.make_group(where, name, journal, 4096) as group:
        assert journal.outstanding("cgroup") == [str(tmp_path / name)]
        assert {name: (group.path / name).read_text() for name in files} == files
        assert group.limit_bytes == 4096
        for path in group.path.iterdir():
            path.unlink()  # the kernel's files go with their folder
    assert journal.outstanding("cgroup") == [] and not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("version", "file", "said"),
    [
        (2, "memory.events", "low 0\noom 3\noom_kill 2\n"),
        (1, "memory.oom_control", "under_oom 0\noom_kill 2\n"),
    ],
)
def test_kills_are_read_from_both_versions(
    tmp_path: Path,
    version: int,
    file: str,
    said: str,
) -> None:
    """`oom_kill` counts processes; `oom` and `under_oom` are something else."""
    group = ControlGroup(version, tmp_path, tmp_path)
    assert group.oom_kills is None
    (tmp_path / file).write_text(said)
    assert group.oom_kills == 2


def test_kill_for_want_of_memory_is_named_in_place_of_what_it_looked_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the memory limit, not the server's death that was noticed first."""
    (tmp_path / "memory.oom_control").write_text("oom_kill 1\n")
    group = ControlGroup(1, tmp_path, tmp_path)
    monkeypatch.setattr("dbbench.machine.limits._group", lambda *_: (group, ""))
    with (
        pytest.raises(
            EngineDied, match=r"killed 1 of the server's(.|\n)*first symptom: it is gone"
        ),
        confine(small_run().cells[0], "r", Journal(tmp_path / "j"), None),
    ):
        raise RuntimeError("it is gone")


LIMIT = DeviceLimit(iops=500, mb_per_s=12.5)


def io_hierarchy(
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    point: Path,
) -> Journal:
    """A hierarchy with the controller for I/O, in which this process has a group; a journal.
    Version 0: none.
    """
    (home := point / "box").mkdir(exist_ok=True)
    where = cgroup.Hierarchy(version, home, point, "io")
    answer = where if version else "only root may make control groups"
    monkeypatch.setattr(cgroup, "hierarchy", lambda *_, controller: answer)
    return Journal(point / "j")


def test_version_1_limits_a_disk_in_the_root_and_in_our_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root has the writes of kernel threads. Reads and writes have the same limit, which ends
    with the block.
    """
    journal = io_hierarchy(monkeypatch, 1, tmp_path)
    # `dbbench plan` says it, for example in a container
    assert throttle.obstacle() == f"{tmp_path} is not writable"
    (tmp_path / "cgroup.procs").touch()
    assert throttle.obstacle() == ""
    with throttle.limit_disks(["7:2"], LIMIT, journal, None) as enforced:
        assert enforced == "cgroup v1"
        assert journal.outstanding("throttle") == ["7:2 500 12500000"]
        for group in (tmp_path, tmp_path / "box"):
            of_group = {
                path.name.split(".")[-1]: path.read_text()
                for path in group.glob("blkio.throttle.*")
            }
            assert of_group == {
                "read_iops_device": "7:2 500",
                "write_iops_device": "7:2 500",
                "read_bps_device": "7:2 12500000",
                "write_bps_device": "7:2 12500000",
            }
    assert journal.outstanding("throttle") == []
    assert {path.read_text() for path in tmp_path.rglob("blkio.throttle.*")} == {"7:2 0"}


def test_a_limit_that_another_process_changed_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run has left its limit, and the number of its loop device has a new owner."""
    journal = io_hierarchy(monkeypatch, 1, tmp_path)
    journal.note("take", what="throttle", path="7:2 500 12500000")
    for side in ("read", "write"):
        (tmp_path / f"blkio.throttle.{side}_iops_device").write_text("7:1 9\n7:2 700\n")
    throttle.give_back(journal)
    assert {path.read_text() for path in tmp_path.glob("blkio.throttle.*")} == {"7:1 9\n7:2 700\n"}
    assert journal.outstanding("throttle") == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_burst_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Its rate comes first, then the lasting one; both are in the journal of version 1, for a kill."""
    journal = io_hierarchy(monkeypatch, version, tmp_path)
    group = tmp_path / ("" if version == 1 else f"dbbench-io-{journal.tag}")
    file = group / ("blkio.throttle.write_iops_device" if version == 1 else "io.max")
    limit = replace(LIMIT, burst_iops=900, burst_s=1)
    with throttle.limit_disks(["7:2"], limit, journal, None):
        assert "900" in file.read_text()
        taken = ["7:2 900 12500000", "7:2 500 12500000"] if version == 1 else []
        assert journal.outstanding("throttle") == taken
        assert not wait_while(lambda: "900" in file.read_text(), 20)
        assert "500" in file.read_text()
        for path in [*group.iterdir()] if version == 2 else []:
            path.unlink()
    assert journal.outstanding("throttle") == []


def test_version_2_limits_the_group_that_has_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the group of the server, if its memory is limited."""
    journal = io_hierarchy(monkeypatch, 2, tmp_path)
    (memory := tmp_path / "memory").mkdir()
    group = tmp_path / f"dbbench-io-{journal.tag}"
    limit = DeviceLimit(iops=500)
    with contextlib.ExitStack() as stack:
        stack.enter_context(throttle.limit_disks(["7:2"], limit, journal, None))
        stack.enter_context(throttle.limit_group(ControlGroup(2, memory, memory), ["7:2"], limit))
        rules = {(path / "io.max").read_text() for path in (group, memory)}
        assert rules == {"7:2 riops=500 wiops=500 rbps=max wbps=max"}
        assert (group / "cgroup.procs").read_text() == "0"
        for path in group.iterdir():
            path.unlink()
    assert not group.exists()


def delegated(point: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service of systemd with Delegate=yes: this process is in a group below the unit's."""
    unit = point / "system.slice/nightly.service"
    (unit / "dbbench").mkdir(parents=True)
    (unit / "cgroup.controllers").write_text("cpu io memory pids\n")
    (unit / "cgroup.procs").write_text("")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1" if path == unit else missing())
    monkeypatch.setattr(cgroup, "SYSTEMD", point)
    return unit


def missing() -> bytes:
    """Answer as for a group without that attribute."""
    raise OSError("no such attribute")


def test_groups_of_a_delegated_unit_are_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its MemoryMax= also holds for the server."""
    unit = delegated(tmp_path, monkeypatch)
    where = cgroup.Hierarchy(2, unit / "dbbench", tmp_path, "memory")
    with cgroup.make_group(where, "dbbench-g", Journal(tmp_path / "j")) as group:
        assert group.path == unit / "dbbench-g"
    assert (unit / "cgroup.subtree_control").read_text() == "+memory"


def test_before_systemd_254_a_process_alone_in_a_delegated_unit_makes_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As DelegateSubgroup= does later. Processes that share the unit stay where they are."""
    unit = delegated(tmp_path, monkeypatch)
    where = cgroup.Hierarchy(2, unit, tmp_path, "memory")
    monkeypatch.setattr(cgroup, "hierarchy", lambda: where)
    for pids, moved in ((f"{os.getpid()}\n", True), (f"1\n{os.getpid()}\n", False)):
        (unit / "dbbench/cgroup.procs").unlink(missing_ok=True)
        (unit / "cgroup.procs").write_text(pids)
        cgroup._leave_unit()
        assert (unit / "dbbench/cgroup.procs").exists() == moved


@pytest.mark.parametrize(
    ("home", "slice_name"),
    [
        ("system.slice/run-u1.service", "system.slice"),
        ("system.slice/nightly.service/dbbench", "system.slice"),
        ("user.slice/user-0.slice/session-1.scope", "system.slice"),
        ("db.slice/db-test.slice/a.scope", "db-test.slice"),
        ("", "system.slice"),
    ],
)
def test_below_systemd_groups_are_in_a_delegated_unit(
    home: str,
    slice_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the limits of this process. It is journalled before it is started, and stopped."""
    unit = delegated(tmp_path, monkeypatch)
    (unit / "cgroup.procs").write_text("1\n")  # it has processes, so that none can be made in it
    monkeypatch.setattr(cgroup, "usable_bytes", lambda: 2**20)
    journal = Journal(tmp_path / "j")
    name = f"dbbench-{journal.tag}.service"
    slices = {"db-test.slice": "db.slice/db-test.slice"}.get(slice_name, slice_name)
    own = tmp_path / slices / name
    commands: list[list[str]] = []

    def run(argv: list[str], **_: Any) -> None:
        assert journal.outstanding("unit") == [name]
        commands.append(argv)
        if argv[0] == "systemd-run":
            own.mkdir(parents=True)
            (own / "cgroup.procs").write_text("")
            (own / "cgroup.controllers").write_text("cpu io memory pids\n")

    monkeypatch.setattr("dbbench.process.run", run)
    where = cgroup.Hierarchy(2, tmp_path / home, tmp_path, "memory")
    write_file(where.home / "cpu.max", "50000 100000\n")
    write_file(where.home / "io.max", "8:0 rbps=max wbps=1048576 riops=max wiops=99\n")
    monkeypatch.setattr(cgroup, "hierarchy", lambda **_: where)
    with cgroup.unit(journal), cgroup.make_group(where, "dbbench-g", journal) as group:
        assert group.path == own / "dbbench-g"
        assert (own / "cgroup.subtree_control").read_text() in ("+memory", "+io")
    started, stopped = commands
    assert {f"--slice={slice_name}", "--property=Delegate=yes"} < {*started}
    assert {"--property=MemoryMax=1048576", "--property=CPUQuota=50%"} < {*started}
    assert [word for word in started if word.startswith("--property=IO")] == [
        "--property=IOWriteBandwidthMax=/dev/block/8:0 1048576",
        "--property=IOWriteIOPSMax=/dev/block/8:0 99",
    ]
    assert stopped == ["systemctl", "stop", name]
    assert journal.outstanding("unit") == []


def test_a_unit_that_cannot_be_started_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` and `run` try the limit before a device is touched, and leave nothing."""
    delegated(tmp_path, monkeypatch)
    where = cgroup.Hierarchy(2, tmp_path / "user.slice/a.scope", tmp_path, "io")
    monkeypatch.setattr(cgroup, "hierarchy", lambda **_: where)

    def run(argv: list[str], **_: Any) -> None:
        raise CommandFailed("Failed to connect to bus")

    monkeypatch.setattr("dbbench.process.run", run)
    cgroup.obstacle.cache_clear()
    assert throttle.obstacle() == "the kernel refused a control group: Failed to connect to bus"
    cgroup.obstacle.cache_clear()


def test_a_limit_that_the_kernel_does_not_keep_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read back, it is another rate. Without a hierarchy the reason is in the error."""
    journal = io_hierarchy(monkeypatch, 1, tmp_path)
    sides = ("read", "write")
    units = ("iops", "bps")
    for folder, side, unit in itertools.product((tmp_path, tmp_path / "box"), sides, units):
        (folder / f"blkio.throttle.{side}_{unit}_device").symlink_to("/dev/null")
    for version, said in ((1, "limit of device 7:2"), (0, "only root")):
        io_hierarchy(monkeypatch, version, tmp_path)
        with (
            pytest.raises(KernelLacks, match=said),
            throttle.limit_disks(["7:2"], LIMIT, journal, None),
        ):
            pass
