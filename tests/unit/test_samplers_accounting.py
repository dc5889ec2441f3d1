"""CPU and disk accounting on a /proc and a /sys of plain files."""

import os
from pathlib import Path

import pytest

from dbbench.samplers.accounting import CpuClock, DiskClock, TaskClock, cpu_ms, files_elsewhere
from dbbench.storage.devices import sysfs

TICK = 1 / os.sysconf("SC_CLK_TCK")
# A line of the kernel's: pid, name, state, parent, ..., utime stime cutime cstime at 14-17, start
# at 22.
STAT = (
    "{pid} ({name}) R {parent} 25655 25655 12130 0 -1 4194304 100 0 0 0 {utime} {stime} {cutime} "
    "{cstime} 20 0 1 0 239108 3133440 392 18446744073709551615 94725195739136 94725195759017 "
    "140722013947544 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94725195775024 94725195776640 94725199159296 "
    "140722013952698 140722013952718 0 0 0\n"
)


def machine(
    proc: Path, user: int, nice: int, system: int, irq: int, softirq: int, *rest: int
) -> None:
    """/proc/stat; `rest` are idle, iowait, steal, guest, guest_nice."""
    idle, iowait, steal, guest, guest_nice = rest
    numbers = f"{user} {nice} {system} {idle} {iowait} {irq} {softirq} {steal} {guest} {guest_nice}"
    (proc / "stat").write_text(f"cpu  {numbers}\ncpu0 {numbers}\ncpu1 {numbers}\nintr 1 2 3\n")


def process(
    proc: Path,
    pid: int,
    parent: int,
    utime: int,
    stime: int = 0,
    reaped: int = 0,
) -> None:
    """One process; times in ticks."""
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(
        STAT.format(
            pid=pid,
            name="a (b) c",
            parent=parent,
            utime=utime,
            stime=stime,
            cutime=reaped,
            cstime=0,
        )
    )


def test_the_sum_is_the_servers_and_the_kernels(tmp_path: Path) -> None:
    """System total less client and dbbench; steal, iowait and guests are no part of it."""
    me = os.getpid()
    machine(tmp_path, 1000, 0, 1000, 0, 0, 9000, 0, 0, 0, 0)
    for pid, parent in ((me, 1), (50, me), (51, 50), (60, me), (61, 60), (70, me)):
        process(tmp_path, pid, parent, 100)
    clock = CpuClock(client=(50,), server=60, proc=tmp_path)
    machine(tmp_path, 1500, 10, 1200, 5, 25, 9500, 700, 300, 40, 0)
    process(tmp_path, me, 1, 103)
    process(tmp_path, 50, me, 150, 10)
    process(tmp_path, 51, 50, 120)
    process(tmp_path, 60, me, 200)
    process(tmp_path, 61, 60, 300, 0, 25)
    process(tmp_path, 70, me, 101)  # a sampler
    found = {name: None if v is None else round(v / TICK) for name, v in clock.difference().items()}
    assert found["system_cpu_s"] == 500 - 40 + 10 + 200 + 5 + 25
    assert found["client_cpu_s"] == 60 + 20
    assert found["dbbench_cpu_s"] == 3 + 1
    assert clock.difference()["cpus"] == 2
    assert cpu_ms(clock.difference()) == pytest.approx(
        1000 * TICK * (500 - 40 + 10 + 200 + 5 + 25 - 80 - 4)
    )
    # the load is within dbbench, which is known
    assert CpuClock(proc=tmp_path).difference()["client_cpu_s"] == 0.0


def test_a_client_that_has_ended_counts_to_its_end(tmp_path: Path) -> None:
    """Its whole life is in its parent's `cutime`; what it used before the window is taken off,
    once.
    """
    me = os.getpid()
    machine(tmp_path, 1000, 0, 1000, 0, 0, 9000, 0, 0, 0, 0)
    process(tmp_path, me, 1, 100, 0, 30)
    process(tmp_path, 50, me, 400)
    clock = CpuClock(client=(50,), proc=tmp_path)
    process(tmp_path, me, 1, 102, 0, 30 + 400 + 90)
    (tmp_path / "50/stat").unlink()
    found = clock.difference()
    assert found["client_cpu_s"] == pytest.approx(90 * TICK)
    assert found["dbbench_cpu_s"] == pytest.approx(2 * TICK)


def test_what_is_not_known_is_none(tmp_path: Path) -> None:
    """A client whose exit status was already collected, and a /proc that cannot be read. Context
    switches without schedstat, and memory without status, are None too, not 0.
    """
    process(tmp_path, os.getpid(), 1, 100)
    process(tmp_path, 50, 1, 400)
    clock = CpuClock(client=(50,), proc=tmp_path)
    (tmp_path / "50/stat").unlink()
    found = clock.difference()
    assert found["client_cpu_s"] is found["system_cpu_s"] is cpu_ms(found) is None
    process(tmp_path, 60, 1, 1)
    tasks_of = TaskClock(server=60, proc=tmp_path)
    tasks_of.read(10.0)
    tasks_of.read(11.0)
    assert (tasks_of.switches_per_s(), tasks_of.server_bytes) == (None, None)


def tasks(proc: Path, runs: dict[int, int], parents: dict[int, int]) -> None:
    """Processes of one thread with how often each was given a CPU; each has 1 MiB for itself and
    shares 4 MiB.
    """
    for pid, count in runs.items():
        process(proc, pid, parents[pid], 1)
        folder = proc / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"1 2 {count}\n")
        (proc / str(pid) / "status").write_text(
            "Name:\tpostgres\nVmRSS:\t9999 kB\nRssAnon:\t1024 kB\nRssFile:\t7000 kB\n"
            "RssShmem:\t4096 kB\n"
            "HugetlbPages:\t0 kB\n"
        )


def test_context_switches_are_those_of_server_and_load(tmp_path: Path) -> None:
    """A second in which the load has ended does not count; a thread that is new counts with all it
    did; another process does not count. Shared memory is counted once.
    """
    parents = {50: 1, 60: 1, 61: 60, 62: 60, 70: 1}
    tasks(tmp_path, {50: 100, 60: 10, 61: 500, 70: 10_000}, parents)
    clock = TaskClock(client=(50,), server=60, proc=tmp_path)
    clock.read(10.0)
    assert clock.switches_per_s() is None
    tasks(tmp_path, {50: 120, 60: 11, 61: 530, 62: 7, 70: 90_000}, parents)
    clock.read(11.0)
    (tmp_path / "50/stat").unlink()
    tasks(tmp_path, {60: 5000, 61: 5000}, parents)
    clock.read(12.0)
    assert clock.switches_per_s() == pytest.approx(20 + 1 + 30 + 7)
    assert clock.server_bytes == 2**20 * (3 + 4)


def test_threads_of_the_load_have_a_cpu_or_wait_for_one(tmp_path: Path) -> None:
    """Two of the load, on average; the server's time is not the load's."""
    runs = {50: 1, 51: 1, 60: 1}
    tasks(tmp_path, runs, {50: 1, 51: 50, 60: 1})
    clock = TaskClock(client=(50,), server=60, proc=tmp_path)
    for second in range(3):
        for pid in runs:
            schedstat = tmp_path / f"{pid}/task/{pid}/schedstat"
            schedstat.write_text(f"{second * 250_000_000} {second * 500_000_000} {second + 1}\n")
        clock.read(10.0 + second)
    assert clock.client_threads() == {"cpu": 0.5, "queue": 1.0}


def test_the_cpu_of_a_load_elsewhere_is_not_counted(tmp_path: Path) -> None:
    """Its threads are not on this machine."""
    tasks(tmp_path, {60: 10}, {60: 1})
    clock = TaskClock(server=60, proc=tmp_path)
    clock.read(10.0)
    clock.read(11.0)
    assert clock.client_threads() == {}


def test_disks_are_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of a reused loop device do not begin at 0; sectors are of 512 bytes; flushes are
    field 16. Nothing below, or a disk that cannot be read, is not measurable.
    """
    monkeypatch.setattr(sysfs, "SYS", tmp_path)
    nothing = dict.fromkeys(
        ("read_bytes", "write_bytes", "read_operations", "write_operations", "flushes")
    )
    assert DiskClock(()).difference() == DiskClock(("nvme9n9",)).difference() == nothing
    for disk in ("loop7", "loop8"):
        folder = tmp_path / "class/block" / disk
        (folder / "queue").mkdir(parents=True)
        (folder / "queue/write_cache").write_text("write back\n")
        (folder / "stat").write_text(
            "1547 62 54721 158 1183 13236 1271928 303 0 152 483 2 0 2097160 2 225 19\n"
        )
    clock = DiskClock(("loop7", "loop8"))
    (tmp_path / "class/block/loop7/stat").write_text(
        "1557 62 54821 158 1283 13236 1272928 303 0 152 483 2 0 2097160 2 230 19\n"
    )
    assert clock.difference() == {
        "read_bytes": 100 * 512,
        "write_bytes": 1000 * 512,
        "read_operations": 10,
        "write_operations": 100,
        "flushes": 5,
    }


def test_files_of_a_process_outside_of_its_places(tmp_path: Path) -> None:
    """Open for writing, or at all; neither directories nor deleted files count, nor does a name
    that only begins alike. A program that has just started reads files for a moment; the load's
    own files are open a second later too.
    """
    inside = tmp_path / "fs"
    outside = tmp_path / "fs2"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "table").write_text("rows")
    places = [str(inside)]
    with (
        (inside / "table").open("r+b"),
        (outside / "table").open("rb"),
        (outside / "gone").open("wb"),
    ):
        (outside / "gone").unlink()
        read = files_elsewhere([os.getpid()], places, only_written=False)
        assert {path for path in read if path.startswith(str(tmp_path))} == {str(outside / "table")}
        written = files_elsewhere([os.getpid()], places, only_written=True)
        assert not any(path.startswith(str(tmp_path)) for path in written)
        with (outside / "log").open("ab"):
            written = files_elsewhere([os.getpid()], places, only_written=True)
            assert {path for path in written if path.startswith(str(tmp_path))} == {
                str(outside / "log")
            }
    # a process that is gone
    assert files_elsewhere([2**22 + 1], places, only_written=False) == set()
    clock = TaskClock(client=(os.getpid(),), places=[tmp_path / "fs"])
    with (tmp_path / "table").open("w"):
        with (tmp_path / "module").open("w"):
            clock.read(10.0)
        assert clock.elsewhere() == set()  # one reading is not enough
        clock.read(11.0)
    # On a busy machine, a load begins only later.
    with (tmp_path / "late").open("w"):
        assert str(tmp_path / "late") not in clock.elsewhere()
        clock.read(12.0)
        clock.read(13.0)
    assert {path for path in clock.elsewhere() if path.startswith(str(tmp_path))} == {
        str(tmp_path / "table"),
        str(tmp_path / "late"),
    }
