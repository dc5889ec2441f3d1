"""Whether only the trial used the machine: stopped processes, changed settings, a clock that was
set.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbbench.machine import threads
from dbbench.machine.limits.cgroup import Groups
from dbbench.machine.mounts import Mount
from dbbench.model import TrialWarning
from dbbench.samplers.machine import Machine
from dbbench.samplers.machine_state import Processes, SettingFiles, differences
from dbbench.samplers.sampler import Sampled

ME = os.getpid()
SERVER = 4_000_001  # no pid of this machine


def process(
    proc: Path,
    pid: int,
    parent: int,
    name: str,
    state: str,
    nice: int = 0,
    flags: int = 0,
) -> None:
    """A process with one thread: its lines as of proc_pid_stat(5), and how often it has run."""
    fields = ["0"] * 48
    fields[4] = str(flags)
    fields[14], fields[15] = str(nice), "1"  # nice, num_threads
    (proc / str(pid) / "task" / str(pid)).mkdir(exist_ok=True, parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {state} {parent} " + " ".join(fields))


def ran(proc: Path, pid: int, times: int) -> None:
    """The kernel's count of how often a process was given a CPU."""
    (proc / str(pid) / "task" / str(pid) / "schedstat").write_text(f"5 5 {times}\n")


class Watch:
    """A sampler whose /proc is this folder, on a system clock and a monotonic clock that the test
    sets.
    """

    def __init__(self, folder: Path, server: int | None = None) -> None:
        self.began = self.utc = time.time()
        self.monotonic = 100.0
        of_server: Any = None if server is None else SimpleNamespace(pid=server)
        self.sampler = Machine(
            Sampled(None, of_server),
            folder / "machine.jsonl",
            folder,
            self.clocks,
        )

    def clocks(self) -> tuple[float, float]:
        return self.utc, self.monotonic

    def look(self, seconds: float = 1.0, set_by: float = 0.0) -> None:
        """Look after these seconds, in which the system clock was set."""
        self.monotonic += seconds
        self.utc += seconds + set_by
        self.sampler.look()

    def warnings(self, began: float | None = None, seconds: int = 30) -> list[TrialWarning]:
        """Those of a load that began then, by default at the begin. The series has no columns."""
        series, warnings = self.sampler.read(self.began if began is None else began, seconds)
        assert (series.seconds, series.columns) == (seconds, {})
        return warnings


def test_what_is_stopped_below_the_trial_is_named(tmp_path: Path) -> None:
    """Stopped by a signal or a tracer; not what waits for a disk, and not another user's process."""
    for pid, parent, name, state in (
        (ME, 1, "dbbench", "S"),
        (11, ME, "postgres", "T"),
        (12, 11, "postgres: walwriter", "D"),
        (13, ME, "pgbench", "S"),
        (14, 1, "vi", "T"),
        (15, ME, "a b) c", "t"),
    ):
        process(tmp_path, pid, parent, name, state)
    watch = Watch(tmp_path)
    for _ in range(2):
        watch.look()
    (found,) = watch.warnings(watch.began - 1, 10)
    assert (found.id, found.suspect, found.second) == ("W129", True, 2)
    assert (
        found.text
        == "postgres (pid 11) stopped for about 2 s; a b) c (pid 15) stopped for about 2 s"
    )
    assert len((tmp_path / "machine.jsonl").read_text().splitlines()) == 4
    assert watch.warnings(watch.began - 21, 10) == []


def test_a_quiet_trial_has_no_file_and_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    """What is found is reported although it cannot be written."""
    process(tmp_path, ME, 1, "dbbench", "S")
    quiet = Watch(tmp_path)
    quiet.look(0.0)
    assert quiet.warnings() == []
    assert not (tmp_path / "machine.jsonl").exists()
    (tmp_path / "machine.jsonl").mkdir()
    sampler = Machine(Sampled(None, None), tmp_path / "machine.jsonl", tmp_path)
    with threads.beside("machine", sampler.work):
        process(tmp_path, ME, 1, "dbbench", "T")
        time.sleep(2.5)  # it looks once a second
    assert [warning.id for warning in sampler.read(time.time() - 5, 10)[1]] == ["W129"]


def test_a_look_that_is_seconds_late_is_a_machine_that_was_stopped(tmp_path: Path) -> None:
    """Its own process was stopped, or all of the machine; a second of delay is a busy machine."""
    watch = Watch(tmp_path)
    for seconds in (1.0, 2.5, 6.5):
        watch.look(seconds)
    (found,) = watch.warnings()
    assert (found.id, found.second) == ("W129", 4)
    assert found.text == f"dbbench, or the machine (pid {ME}) stopped for about 6 s"


def test_a_change_of_the_last_second_is_noticed_by_the_next_look(tmp_path: Path) -> None:
    """It is reported in the last second of the load; what comes later is not."""
    for later, expected in ((10.5, [9]), (11.5, [])):
        watch = Watch(tmp_path)
        watch.look(later, set_by=60.0)
        assert [
            found.second for found in watch.warnings(seconds=10) if found.id == "W023"
        ] == expected


def test_a_clock_that_is_set_and_set_back_is_reported_with_its_seconds(tmp_path: Path) -> None:
    """One that is slewed, or read late by a busy machine, is not."""
    watch = Watch(tmp_path)
    for seconds, set_by in ((1.0, 0.05), (1.0, -3600.0), (2.5, 0.0), (1.0, 3600.0)):
        watch.look(seconds, set_by)
    (found,) = watch.warnings()
    assert (found.id, found.suspect, found.second) == ("W023", True, 2)
    assert found.text == (
        "the system clock was set by -3600.0 s (second 2); the system clock was set by +3600.0 s "
        "(second 5)"
    )


def test_a_nice_value_that_changes_is_reported_once_each_way(tmp_path: Path) -> None:
    """Of a process of the trial; a process that comes or ends in between is no change."""
    process(tmp_path, ME, 1, "dbbench", "S")
    process(tmp_path, 1, 0, "init", "S")
    watch = Watch(tmp_path)
    for nice in (0, 0, 10, 10, 0):
        process(tmp_path, 4_000_002, ME, "pgbench", "S", nice)
        process(tmp_path, 4_000_003, 1, "foreign", "S", nice)
        process(tmp_path, 4_000_010 + nice, ME, "new", "S", nice)
        watch.look()
    (found,) = watch.warnings()
    assert (found.id, found.suspect) == ("W133", True)
    assert found.text == (
        "nice of pgbench (pid 4000002): 0 -> 10 (second 3); nice of pgbench (pid 4000002): 10 -> "
        "0 (second 5)"
    )


@pytest.mark.parametrize(("flags", "expected"), [(0x400000, ["W133"]), (0x400004, [])])
def test_a_process_that_ends_leaves_its_control_group_without_a_warning(
    flags: int,
    expected: list[str],
    tmp_path: Path,
) -> None:
    """A version-1 hierarchy then lists it in its root; a process that continues there was moved."""
    pid = 4_000_002
    process(tmp_path, ME, 1, "dbbench", "S")
    process(tmp_path, pid, ME, "postgres", "S")
    (tmp_path / f"{pid}/cgroup").write_text("4:memory:/dbbench-r-1\n")
    watch = Watch(tmp_path)
    watch.look()
    (tmp_path / f"{pid}/cgroup").write_text("4:memory:/\n")
    process(tmp_path, pid, ME, "postgres", "S", flags=flags)
    watch.look()
    assert [warning.id for warning in watch.warnings()] == expected


@pytest.mark.parametrize(("state", "expected"), [("S", ["W129"]), ("R", [])])
def test_a_server_that_makes_no_step_is_reported(
    state: str,
    expected: list[str],
    tmp_path: Path,
) -> None:
    """No thread of it has run for seconds; one that waits for a CPU on a busy machine is no fault."""
    process(tmp_path, SERVER, ME, "postgres", "S")
    process(tmp_path, SERVER + 1, SERVER, "postgres: a", state)
    watch = Watch(tmp_path, SERVER)
    for times in (5, 6, 6, 6, 7):
        ran(tmp_path, SERVER, 1)
        ran(tmp_path, SERVER + 1, times)
        watch.look()
    found = watch.warnings()
    assert [warning.id for warning in found] == expected
    if expected:
        assert found[0].text == f"the server (pid {SERVER}) made no progress for about 2 s"


def hierarchy(point: Path, number: int, *files: tuple[str, str]) -> Mount:
    """A mounted hierarchy of control groups of version 1 (freezer) or 2 with these files."""
    for name, text in files:
        (point / name).parent.mkdir(parents=True, exist_ok=True)
        (point / name).write_text(text)
    kind, options = ("cgroup2", ("rw",)) if number == 2 else ("cgroup", ("rw", "freezer"))
    return Mount(9, 1, "0:9", point, kind, "none", options)


def test_groups_are_read_in_both_versions(tmp_path: Path) -> None:
    """Frozen by freezer.state in version 1, by cgroup.events in version 2, and by the time that it
    counts, if a group was frozen between two looks; a group of another name is not meant. Also a
    limit of an outer group holds; use that changes by itself is no limit.
    """
    old = tmp_path / "v1"
    new = tmp_path / "v2"
    groups = Groups(
        [
            hierarchy(old, 1, ("a/freezer.state", "FROZEN\n"), ("b/freezer.state", "THAWED\n")),
            hierarchy(
                new,
                2,
                ("a/cgroup.events", "populated 1\nfrozen 0\n"),
                ("b/cgroup.events", "frozen 1\n"),
                ("c/cgroup.events", "frozen 0\n"),
                ("c/cgroup.stat.local", "frozen_usec 5\n"),
            ),
        ]
    )
    assert [groups.frozen(f"6:freezer:/{one}\n0::/{two}\n") for one, two in ("aa", "ba", "bb")] == [
        True,
        False,
        True,
    ]
    assert not groups.frozen("0::/c")
    (new / "c/cgroup.stat.local").write_text("frozen_usec 900000\n")
    assert [groups.frozen("0::/c"), groups.frozen("0::/c")] == [True, False]
    mount = hierarchy(
        tmp_path,
        2,
        ("a/cpu.max", "max 100000\n"),
        ("a/b/memory.max", "max\n"),
        ("a/b/memory.current", "5\n"),
    )
    found = Groups([mount]).limits("0::/a/b")
    assert found == {f"{tmp_path}/a/cpu.max": "max 100000", f"{tmp_path}/a/b/memory.max": "max"}
    after = {**found, f"{tmp_path}/a/cpu.max": "5000 100000"}
    before, now = (
        {("W133", path): text for path, text in values.items()} for values in (found, after)
    )
    assert differences(before, now) == [
        ("W133", f"{tmp_path}/a/cpu.max: max 100000 -> 5000 100000")
    ]


@pytest.mark.parametrize("disks", [("7:1",), ()])
def test_limits_of_other_disks_are_not_compared(disks: tuple[str, ...], tmp_path: Path) -> None:
    """Another run may limit its own disk; a burst of this one ends by itself. A limit of memory
    is compared.
    """
    proc = tmp_path / "proc"
    process(proc, SERVER, ME, "postgres", "S")
    (proc / str(SERVER) / "cgroup").write_text("0::/a\n")
    groups = tmp_path / "groups"
    mount = hierarchy(groups, 2, ("a/io.max", "7:1 wiops=9\n"), ("a/memory.max", "5\n"))
    processes = Processes((SERVER,), Groups([mount]), proc, disks)
    looks = []
    for rule in ("8:0 wiops=50\n7:1 wiops=9", "7:1 wiops=9", "7:1 wiops=2"):
        (groups / "a/io.max").write_text(f"{rule}\n")
        processes.read()
        looks.append(processes.values())
    (groups / "a/memory.max").write_text("4\n")
    processes.read()
    looks.append(processes.values())
    found = [text for _, text in differences(looks[0], looks[-1])]
    limited = [f"{groups}/a/io.max: 7:1 wiops=9 -> 7:1 wiops=2"] if disks else []
    assert differences(looks[0], looks[1]) == []
    assert sorted(found) == [*limited, f"{groups}/a/memory.max: 5 -> 4"]


def test_of_what_changed_only_the_difference_is_shown(tmp_path: Path) -> None:
    """An option that went says as much as one that came. A tool that changes the block layer and
    back is reported: read-ahead of a second is enough to move a scan.
    """
    before = {("W132", "/mnt"): "ext4 on 7:0,rw,noatime,errors=remount-ro"}
    after = {("W132", "/mnt"): "ext4 on 7:0,rw,errors=remount-ro,nobarrier"}
    assert differences(before, after) == [("W132", "/mnt: noatime -> nobarrier")]
    strict = {("W132", "/mnt"): "ext4 on 7:0,rw,errors=remount-ro"}
    assert differences(before, strict) == [("W132", "/mnt: noatime -> (none)")]
    (setting := tmp_path / "read_ahead_kb").write_text("128\n")
    files = SettingFiles({"loop7: read_ahead_kb": setting, "loop7: absent": tmp_path / "absent"})
    first = files.values()
    setting.write_text("4096\n")
    during = files.values()
    assert differences(first, during) == [("W018", "loop7: read_ahead_kb: 128 -> 4096")]
    assert differences(first, files.values()) == differences(first, during)
