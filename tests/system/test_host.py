"""Facts about this machine, and the detection of another process that uses the CPU."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbbench import process
from dbbench.machine import host
from dbbench.machine.host import host_load, tunables
from dbbench.machine.host.proc import tasks


def test_facts_are_this_machines() -> None:
    """The few that can be had another way are the same; all is plain JSON."""
    facts = host.facts()
    assert (facts["hostname"], facts["kernel"]) == (os.uname().nodename, os.uname().release)
    assert facts["cpu_threads"] == os.cpu_count()
    assert facts["memory_bytes"] == pytest.approx(
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"), rel=0.05
    )
    assert facts["cpu_cores"] <= facts["cpu_threads"]
    assert isinstance(facts["vm_swappiness"], int)
    assert json.loads(json.dumps(facts)) == facts


def test_a_quiet_machine_does_not_change() -> None:
    """Two readings of the state are equal: nothing in it moves by itself."""
    # More than once: a test in another lane may change it just then, for example by swapon.
    assert (
        process.wait_while(lambda: tunables.differences(tunables.state(), tunables.state()), 10)
        == []
    )


@pytest.mark.needs("mkfs.ext4", "sadf")
def test_versions_are_numbers() -> None:
    """Of what is installed; what is not is left out."""
    versions = host.versions()
    assert versions["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert versions["mkfs.ext4"][0].isdigit()
    assert versions["sadf"][0].isdigit()


def named(name: str) -> list[int]:
    """Pids of the processes of that name."""
    return [found.pid for found in tasks().values() if found.name == name]


@pytest.fixture
def burner(tmp_path: Path) -> Iterator[str]:
    """Run a process outside of dbbench's process tree that uses a core, under a separate name."""
    name = f"burn{os.getpid()}"
    program = tmp_path / name
    shutil.copy("/bin/sh", program)
    # not process.run: it would wait for the end of what holds its pipes
    nothing = subprocess.DEVNULL
    argv = ["setsid", "--fork", program, "-c", "while :; do :; done"]
    subprocess.run(argv, stdin=nothing, stdout=nothing, stderr=nothing, check=True)
    deadline = time.monotonic() + 60
    while not named(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    yield name
    for pid in named(name):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.needs("setsid")
def test_a_foreign_burner_is_named(burner: str) -> None:
    """Its share and its name; CPU time of dbbench itself is not foreign."""
    began = time.monotonic()
    own = time.process_time()
    before = host_load.reading()
    while True:  # our own load, until the burner too has been given a core for a while
        found = host_load.foreign_load(before, host_load.reading())
        hits = [one for one in found.processes if one.name == burner and one.cpu_s > 0.5]
        told = [warning.id for warning in host_load.load_warnings(found)]
        if (
            hits and "W012" in told and time.process_time() - own > 1
        ) or time.monotonic() - began > 60:
            break
    (hit,) = hits
    assert hit.cpu_s < time.monotonic() - began + 0.2
    assert found.foreign_cpu_s is not None and found.foreign_cpu_s >= hit.cpu_s - 0.1
    assert os.getpid() not in {one.pid for one in found.processes}
    assert told[:1] == ["W012"]


INSIDE = """
import json, os, sys, time
from pathlib import Path
from dbbench.machine.host import host_load
proc = Path(sys.argv[1])
before, end, names = host_load.reading(proc=proc), time.monotonic() + 60, []
while sys.argv[2] not in names and time.monotonic() < end:
    names = [one.name for one in host_load.foreign_load(before, host_load.reading(proc=proc)).processes]
me = int(os.readlink(proc / "self"))
print(json.dumps([names, [pid for pid, _ in before.ours], me, os.getpid()]))
"""


@pytest.mark.needs("root", "setsid", "unshare")
def test_from_a_pid_namespace_the_outer_proc_is_read(burner: str, tmp_path: Path) -> None:
    """Inside, /proc shows only ours; the kept /proc of the machine shows the burner, and ours are
    known there.
    """
    outer = tmp_path / "host_proc"
    outer.mkdir()
    enter = (
        "import os, subprocess, sys\n"
        "subprocess.run(['mount', '--bind', '/proc', sys.argv[1]], check=True)\n"
        "os.execvp('unshare', ['unshare', '--pid', '--fork', '--mount-proc', sys.executable, '-c', "
        "*sys.argv[2:]])"
    )
    argv = [
        "unshare",
        "--mount",
        sys.executable,
        "-c",
        enter,
        str(outer),
        INSIDE,
        str(outer),
        burner,
    ]
    said = process.run(
        argv,
        env={"PYTHONPATH": str(Path(host.__file__).parents[2])},
        note=False,
    ).stdout
    names, ours, me, inside = json.loads(said)
    assert burner in names
    assert me in ours  # under the pid that it has outside
    assert inside == 1
    assert os.getpid() not in ours
