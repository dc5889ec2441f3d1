"""Facts and settings from files, changes between trials, and the processes that used the CPU."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dbbench.machine.host import host_load, tunables
from dbbench.machine.host.host_load import HostLoad, LoadReading
from dbbench.machine.host.proc import CpuTimes, Task, chosen, task
from tests.support.files import write_file


def test_state_reads_what_moves_numbers(tmp_path: Path) -> None:
    """Governor, turbo, idle states, THP, dirty limits, swap, mitigations. Without a file every
    value is None, and half of the cores in another governor is a fact, not the first one's
    value. What changed is named with both values.
    """
    assert set(tunables.state(tmp_path).values()) == {None}
    cpu = "sys/devices/system/cpu"
    for number in (0, 1):
        write_file(tmp_path / f"{cpu}/cpufreq/policy{number}/scaling_governor", "powersave\n")
    write_file(tmp_path / f"{cpu}/intel_pstate/no_turbo", "1\n")
    for number, (name, disabled) in enumerate((("POLL", 0), ("C1", 0), ("C6", 1))):
        write_file(tmp_path / f"{cpu}/cpu0/cpuidle/state{number}/name", name)
        write_file(tmp_path / f"{cpu}/cpu0/cpuidle/state{number}/disable", str(disabled))
    write_file(tmp_path / f"{cpu}/vulnerabilities/meltdown", "Mitigation: PTI\n")
    write_file(tmp_path / "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    write_file(tmp_path / "proc/sys/vm/dirty_ratio", "20\n")
    write_file(
        tmp_path / "proc/swaps",
        "Filename Type Size Used Priority\n/dev/sda2 partition 1000 0 -2\n/s file 24 0 -3\n",
    )
    state = tunables.state(tmp_path)
    assert state["governor"] == "powersave"
    assert (state["turbo"], state["c_states"]) == ("off", "POLL C1")
    assert (state["thp"], state["vm_dirty_ratio"]) == ("madvise", 20)
    assert (state["swap_kb"], state["mitigation_meltdown"]) == (1024, "Mitigation: PTI")
    write_file(tmp_path / f"{cpu}/cpufreq/policy1/scaling_governor", "performance\n")
    (tmp_path / f"{cpu}/intel_pstate/no_turbo").unlink()
    after = tunables.state(tmp_path)
    assert tunables.differences(state, dict(state)) == []
    expected = ["governor: powersave -> performance, powersave", "turbo: off -> absent"]
    assert tunables.differences(state, after) == expected and chosen(tmp_path / "none") is None


def test_names_with_brackets_and_spaces(tmp_path: Path) -> None:
    """A process may call itself anything."""
    numbers = f"2 0 0 0 0 2129988 0 0 0 0 30 12 5 7 20 -5 1 0 24 {'0 ' * 17} 50 1 0"
    write_file(tmp_path / "7/stat", f"7 (kworker) R (x)) S {numbers}")
    tick = os.sysconf("SC_CLK_TCK")
    expected = Task(
        7,
        "kworker) R (x)",
        "S",
        2,
        True,
        True,
        "-5",
        1,
        24,
        "1/50",
        42 / tick,
        12 / tick,
    )
    assert task(f"{tmp_path}/7") == expected
    assert task(f"{tmp_path}/8") is None


def times(
    pid: int,
    parent: int,
    own: float,
    reaped: float = 0.0,
    *,
    started: int = 1,
    kernel: bool = False,
) -> Task:
    """A process named after its pid."""
    return Task(pid, f"p{pid}", "S", parent, kernel, False, "0", 1, started, "0", own, reaped)


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("/usr/bin/python3 -m dbbench run plan.toml", True),
        ("/usr/bin/python3 -m dbbench.run.worker trial", True),
        ("/usr/bin/python3 /usr/local/bin/dbbench run plan.toml", True),
        ("/home/a/dbbench/.venv/bin/python -m dask_worker --preload dbbench.fleet.preload", True),
        ("/home/a/dbbench/.tox/tests/bin/python -m pytest --rootdir=/home/a/dbbench", False),
        ("make -C /home/a/dbbench test", False),
        ("vi dbbench-notes", False),
        ("ruff check dbbench tests", False),
        ("/usr/bin/python3 -m mypy dbbench", False),
    ],
)
def test_a_checkout_in_a_command_line_does_not_make_a_process_ours(
    words: str,
    ours: bool,
    tmp_path: Path,
) -> None:
    """Only what runs dbbench belongs to a trial; the load of a shell or of tests in a checkout is
    foreign.
    """
    write_file(tmp_path / "7/cmdline", words.replace(" ", "\0") + "\0")
    assert host_load._is_dbbench(tmp_path, 7) is ours


DROPPED = {"cache_drops": 1}


def cpu(busy: float, idle: float, steal: float = 0.0) -> CpuTimes:
    """Two CPUs; seconds."""
    return CpuTimes(busy, steal, 0, busy + idle + steal, 2)


KTHREADD = times(2, 0, 0)


def at(
    monotonic: float,
    machine: CpuTimes,
    ours: list[Task],
    foreign: list[Task],
    kernel: Sequence[Task] = (KTHREADD,),
) -> LoadReading:
    """A reading."""

    def keyed(some: Sequence[Task]) -> dict[tuple[int, int], Task]:
        return {(p.pid, p.started): p for p in some}

    return LoadReading(monotonic, machine, keyed(ours), keyed(foreign), keyed(kernel))


def test_the_biggest_foreign_process_is_named() -> None:
    """The share of all CPUs; threads of the kernel and dbbench's processes are excluded."""
    before = at(0, cpu(100, 100), [times(10, 1, 50)], [times(20, 1, 3), times(21, 1, 500)])
    after = at(
        10,
        cpu(118, 102),
        [times(10, 1, 60)],
        [times(20, 1, 8), times(21, 1, 501)],
        [dataclasses.replace(times(9, 2, 2.0), name="jbd2/loop7-8")],
    )
    found = host_load.foreign_load(before, after)
    assert found.foreign_cpu_s == pytest.approx(6)
    assert found.kernel_s == {"jbd2": 2.0}
    assert found.foreign_share == pytest.approx(0.3)
    assert [(p.pid, p.name, p.cpu_s) for p in found.processes] == [(20, "p20", 5), (21, "p21", 1)]
    (warning,) = host_load.load_warnings(found)
    assert (warning.id, warning.suspect) == ("W012", True)
    assert "30 %" in warning.text and "pid 20 p20" in warning.text


def test_another_dbbench_is_named_for_all_that_it_has_started(tmp_path: Path) -> None:
    """Its server used the time, and has a name that says nothing; what has started this process is
    no other run.
    """
    here = os.getpid()
    table = [times(8636, 1, 0), times(8637, 8636, 0), times(8700, 8637, 3), times(here, 1, 0)]
    for pid in (8636, 8637, here):
        write_file(tmp_path / f"{pid}/cmdline", "/usr/bin/python3\0-m\0dbbench\0")
    write_file(tmp_path / "8700/cmdline", "postgres\0")
    runs = host_load._other_runs({each.pid: each for each in table}, set(), tmp_path)
    assert runs == dict.fromkeys((8636, 8637, 8700), 8636)

    before = at(0, cpu(0, 0), [], table[:3])
    after = at(10, cpu(9, 11), [], [*table[:2], times(8700, 8637, 8)])
    load = host_load.foreign_load(before, dataclasses.replace(after, other_runs=runs))
    assert "(pid 8636 dbbench: 5.0 s)" in next(host_load.load_warnings(load)).text
    dropped = dataclasses.replace(load, foreign_share=0.0, foreign_cpu_s=0.0, events=DROPPED)
    (warning,) = host_load.load_warnings(dropped)
    assert (warning.id, "pid 8636 dbbench" in warning.text) == ("W130", True)


def test_short_lived_processes_are_in_their_parents_time() -> None:
    """A compiler run in many short processes is seen, though no process lived at both readings."""
    before = at(0, cpu(0, 0), [], [times(20, 1, 1, 100), times(22, 20, 40)])
    # 22 ended: 40 before, 5 in the window
    after = at(10, cpu(9, 11), [], [times(20, 1, 1, 100 + 45 + 4)])
    found = host_load.foreign_load(before, after)
    assert found.foreign_cpu_s == pytest.approx(9)
    (warning,) = host_load.load_warnings(found)
    assert "pid 20" not in warning.text  # the shell that started them used nothing itself


def test_a_reused_pid_is_another_process() -> None:
    """Its CPU time is its own, not the difference to the old one's. A process of dbbench whose
    parent ended is adopted by init, and is still counted as dbbench's.
    """
    before = at(0, cpu(0, 0), [], [times(20, 1, 100, started=1)])
    after = at(10, cpu(9, 11), [], [times(20, 1, 2, started=9)])
    assert [p.cpu_s for p in host_load.foreign_load(before, after).processes] == [2]
    before = at(0, cpu(0, 0), [times(30, 10, 5)], [])
    after = at(10, cpu(9, 11), [], [times(30, 1, 9)])
    assert host_load.foreign_load(before, after).foreign_cpu_s == 0


def test_in_a_container_it_is_the_rest(tmp_path: Path) -> None:
    """If other processes are not visible, busy time that is not dbbench's is foreign, of unknown
    origin. Without /proc nothing is known: None, not 0 %.
    """
    before = at(0, cpu(100, 100), [times(10, 1, 50)], [], ())
    after = at(10, cpu(112, 108), [times(10, 1, 58)], [], ())
    found = host_load.foreign_load(before, after)
    assert found.foreign_cpu_s == pytest.approx(4)
    assert "not visible" in next(host_load.load_warnings(found)).text
    found = host_load.foreign_load(
        host_load.reading(proc=tmp_path), host_load.reading(proc=tmp_path)
    )
    assert (found.foreign_share, found.steal_share, found.processes) == (None, None, ())


def test_limits_of_steal_and_of_others() -> None:
    """W015 above 2 % of steal; below it nothing. On 64 CPUs, half a CPU is less than 5 % and still
    a load by others.
    """
    found = host_load.foreign_load(at(0, cpu(0, 0), [], []), at(10, cpu(9, 10, steal=1), [], []))
    assert found.steal_share == pytest.approx(0.05)
    assert [(w.id, w.suspect) for w in host_load.load_warnings(found)] == [("W015", True)]
    assert tuple(host_load.load_warnings(HostLoad(10, 2, 0.1, 0.005, 0.01, ()))) == ()
    small = HostLoad(10, 64, 6.0, 6.0 / 640, 0.0, ())
    assert host_load.FOREIGN_SHARE > 6.0 / 640
    assert [w.id for w in host_load.load_warnings(small)] == ["W012"]


def test_what_the_machine_counts_is_reported(tmp_path: Path) -> None:
    """Throttling, dropped page cache and swapping are reported if their counters rose, and not if
    they do not exist.
    """
    counter = tmp_path / "cpus/cpu0/thermal_throttle/core_throttle_count"
    vmstat = tmp_path / "vmstat"

    def at(heat: int, drops: int, swapped: int) -> LoadReading:
        write_file(counter, f"{heat}\n")
        vmstat.write_text(
            f"nr_free_pages 5\npswpin {swapped}\npswpout 3\ndrop_pagecache {drops}\ndrop_slab 9\n"
        )
        return reading()

    def reading() -> LoadReading:
        return dataclasses.replace(
            host_load.reading(proc=tmp_path),
            events=host_load.events(tmp_path, tmp_path / "cpus"),
        )

    def said(after: LoadReading) -> list[str]:
        found = dataclasses.replace(host_load.foreign_load(first, after), seconds=10)
        return [warning.id for warning in host_load.load_warnings(found)]

    first = at(7, 2, 100)
    assert host_load.reading(proc=tmp_path).events["cache_drops"] == 2
    assert said(at(7, 2, 100)) == []
    assert said(at(9, 2, 100)) == ["W015"]
    assert said(at(7, 3, 100)) == ["W130"]
    assert said(at(7, 2, 2400)) == []
    assert said(at(7, 2, 2600)) == ["W131"]
    vmstat.unlink()
    counter.unlink()
    assert said(reading()) == []
    assert [
        w.id
        for w in host_load.load_warnings(HostLoad(10, 2, 0.1, 0.005, 0.01, (), {"throttled": 1}))
    ] == ["W015"]
    assert tuple(host_load.load_warnings(HostLoad(10, 2, 0.1, 0.005, 0.01, ()))) == ()
