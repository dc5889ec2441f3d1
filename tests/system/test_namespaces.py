"""The private namespaces of a trial: what is visible in them, and that nothing survives a SIGKILL."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.machine import namespaces
from dbbench.machine.mounts import mounts_of
from dbbench.storage.devices import guard, loop

pytestmark = pytest.mark.needs("root")

START = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from dbbench import process
from dbbench.machine import namespaces
from dbbench.machine.host.proc import content
from dbbench.storage.devices import loop

def say(**facts):
    print(json.dumps(facts), flush=True)

"""


@contextlib.contextmanager
def isolated(work: str, *argv: str, keep: str = "[]") -> Iterator[subprocess.Popen[str]]:
    """A process that runs the body `work` in namespaces; killed at the end if it is still there."""
    script = START + "def work():\n" + textwrap.indent(textwrap.dedent(work), "    ")
    script += f"\nsys.exit(namespaces.isolate(work, keep=[Path(p) for p in {keep}]))\n"
    with subprocess.Popen(
        [sys.executable, "-c", script, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def result(work: str, *argv: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `work` in namespaces."""
    with isolated(work, *argv) as program:
        stdout, stderr = program.communicate(timeout=120)
    return program.returncode, stdout, stderr


def first_line(program: subprocess.Popen[str]) -> dict[str, Any]:
    """The facts that it says first; what went wrong where it says nothing."""
    assert program.stdout is not None and program.stderr is not None
    line = program.stdout.readline()
    assert line, program.stderr.read()
    facts: dict[str, Any] = json.loads(line)
    return facts


def wait_until(gone: Callable[[], bool], most_s: float) -> None:
    """It fails where it takes longer than `most_s`."""
    began = time.monotonic()
    while not gone():
        assert time.monotonic() - began < most_s
        time.sleep(0.005)


def test_the_exit_status_is_the_works() -> None:
    """Its return value; 1 with the traceback after an exception; 128 + n after a signal."""
    assert result("return 7") == (7, "", "")
    status, _, stderr = result("raise ValueError('evidence')")
    assert status == 1 and "ValueError: evidence" in stderr
    assert result("os.kill(os.getpid(), signal.SIGKILL)")[0] == 128 + signal.SIGKILL


def test_within_there_is_a_machine_of_its_own() -> None:
    """Own processes, shared memory and folders; the machine's /proc stays to be read; outside
    nothing changed.
    """
    before = mounts_of(Path("/proc/self"))
    (shared := Path("/dev/shm/dbbench-test")).touch()
    work = """
        Path("/dev/shm/inside").touch()
        Path("/run/dbbench/s/socket").touch()
        say(
            pids=[p.name for p in Path("/proc").iterdir() if p.name.isdigit()],
            host=(namespaces.host_proc() / sys.argv[1]).is_dir(),
            shm=[p.name for p in Path("/dev/shm").iterdir()],
            folders=sorted(p.name for p in Path("/run/dbbench").iterdir()),
            locks=[namespaces.private_folder().stat().st_ino, namespaces.private_folder().stat().st_mode],
            queues=subprocess.run(["ipcs", "-q"], capture_output=True, text=True).stdout.count("0x"),
        )
        return 0
    """
    status, stdout, stderr = result(work, str(os.getpid()))
    shared.unlink()
    facts = json.loads(stdout)
    assert (status, stderr) == (0, "")
    assert set(facts["pids"]) == {"1", "2"}
    assert facts["host"] is True and facts["shm"] == ["inside"]
    assert facts["folders"] == ["host_proc", "host_run", "mnt", "s", "scratch"]
    outer = namespaces.private_folder().stat()
    # the same directory in and out of a trial, closed to its servers
    assert facts["locks"] == [outer.st_ino, 0o40700]
    assert not Path("/run/dbbench/s").exists() and not Path("/dev/shm/inside").exists()
    ours = {entry.point for entry in mounts_of(Path("/proc/self"))} - {
        entry.point for entry in before
    }
    assert not [point for point in ours if point == namespaces.RUNTIME]


def test_reaping_orphans_takes_no_status_from_popen() -> None:
    """Each program's exit status reaches who started it, though it left an orphan; no zombie stays."""
    work = """
        statuses = [subprocess.run(["sh", "-c", "(exec sleep 0.01) & exit 3"]).returncode for _ in range(40)]
        def zombies():
            time.sleep(0.2)
            return sum(") Z " in (content(p / "stat") or "") for p in Path("/proc").glob("[0-9]*"))  # "": gone by now
        until = time.monotonic() + 60
        while (left := zombies()) and time.monotonic() < until:
            pass
        say(statuses=statuses, zombies=left)
        return 0
    """
    facts = json.loads(result(work)[1])
    assert facts == {"statuses": [3] * 40, "zombies": 0}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_work(number: signal.Signals) -> None:
    """Pid 1 ignores what it does not handle: it passes the signal on, and the work decides, once."""
    work = """
        got = []
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda number, frame: got.append(int(number)))
        say(ready=True)
        until = time.monotonic() + 60
        while not got and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)  # once
        say(got=got)
        return 4
    """
    with isolated(work) as program:
        first_line(program)
        program.send_signal(number)
        stdout, _ = program.communicate(timeout=90)
    assert json.loads(stdout) == {"got": [int(number)]}
    assert program.returncode == 4


HOLD = """
    with loop.attach(Path(sys.argv[1])) as device:
        process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        namespaces.mount(device.path, Path("/run/dbbench/mnt"), "ext4")
        program = 'import time; f = open("/run/dbbench/mnt/f", "w"); f.write("x" * 65536); f.flush(); time.sleep(600)'
        server = subprocess.Popen([sys.executable, "-c", program, sys.argv[2]], start_new_session=True)
        while not Path("/run/dbbench/mnt/f").exists():
            time.sleep(0.01)
        say(loop=device.facts.name, direct_io=device.facts.direct_io)
        time.sleep(600)
"""


OUTER = """
import os, subprocess, sys
os.environ["DBBENCH_PARENT"] = str(os.getpid())
subprocess.run([sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
"""


def processes_with(word: str) -> list[int]:
    """Pids of the whole machine with that word on their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@pytest.mark.needs("mkfs.ext4", "fs:ext4")
@pytest.mark.parametrize("killed", ["the parent", "the middle process"])
def test_nothing_outlives_a_sigkill(killed: str, image: Path) -> None:
    """A server that called setsid, a mounted ext4 and its loop device are gone before they would
    end by themselves.
    """
    word = f"grandchild-of-{os.getpid()}-{killed.replace(' ', '-')}"
    script = (
        START + f"def work():\n{HOLD}\nsys.exit(namespaces.isolate(work, "
        "keep=[Path(sys.argv[1]).parent]))\n"
    )
    argv = [sys.executable, "-c", OUTER, script, str(image), word]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        facts = first_line_of(parent)
        name = facts["loop"]
        # parent, middle, helper that asks filesystems, first process, worker, server
        assert len(processes_with(word)) == 6
        assert Path(f"/sys/block/{name}/loop/dio").read_text() == "1\n"
        middle = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
        os.kill(parent.pid if killed == "the parent" else middle, signal.SIGKILL)
        wait_until(lambda: not processes_with(word) and is_free(name, image), 60)  # of 600
    assert not [
        entry
        for entry in mounts_of(Path("/proc/self"))
        if entry.point.is_relative_to(namespaces.RUNTIME)
    ]


def test_a_parent_that_died_early_is_missed() -> None:
    """Who is killed before its child has asked for the same fate must not leave it behind."""
    script = START + "namespaces.isolate(lambda: print('it ran'))\n"
    with subprocess.Popen(["true"]) as dead:
        pass
    env = {**os.environ, "DBBENCH_PARENT": str(dead.pid)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def first_line_of(program: subprocess.Popen[str]) -> dict[str, Any]:
    """The facts that a program with inherited stderr says first."""
    assert program.stdout is not None
    facts: dict[str, Any] = json.loads(program.stdout.readline())
    return facts


def is_free(name: str, image: Path) -> bool:
    """Whether the loop device let go of the image."""
    with contextlib.suppress(OSError):
        return Path(f"/sys/block/{name}/loop/backing_file").read_text().strip() != str(image)
    return True


@pytest.mark.needs("mkfs.ext4", "fs:ext4")
@pytest.mark.parametrize("kept", [False, True])
def test_nobody_elses_umount_is_held_up(
    kept: bool,
    image: Path,
    tmp_path: Path,
) -> None:
    """Our copy of a foreign mount is gone: its device is free at once after umount. One that we
    keep is not.
    """
    (point := tmp_path / "foreign").mkdir()
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(loop.attach(image))
        process.run(["mkfs.ext4", "-q", device.argument], pass_fds=(device.fd,))
        namespaces.mount(device.path, point, "ext4")
        keep = f"[{str(point)!r}]" if kept else "[]"
        with isolated("say(ready=True); time.sleep(600)", keep=keep) as program:
            first_line(program)
            namespaces.unmount(point)
            busy = guard.HELD in guard.reasons(device.path)
            assert busy is kept


@pytest.mark.needs("mkfs.ext4", "fs:ext4")
def test_a_mount_within_is_unseen_outside(image: Path) -> None:
    """Propagation goes inwards only; the way in is the process's own mount table."""
    with isolated(HOLD, str(image), "grandchild", keep=f"[{str(image.parent)!r}]") as program:
        name = first_line(program)["loop"]
        inside = mounts_of(Path("/proc") / str(program.pid))
        outside = mounts_of(Path("/proc/self"))
        assert [entry.fstype for entry in inside if entry.source == f"/dev/{name}"] == ["ext4"]
        assert [entry for entry in outside if entry.source == f"/dev/{name}"] == []


@pytest.mark.needs("setpriv")
def test_without_the_right_it_is_refused() -> None:
    """Where unshare is refused nothing is run, and the error says what to do."""
    script = (
        "from dbbench.machine import namespaces\n"
        "from dbbench.errors import NotRoot\n"
        "try:\n    namespaces.isolate(lambda: print('it ran'))\n"
        "except NotRoot as error:\n    print(error.id, error.remedy)\n"
    )
    done = process.run(["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", script])
    assert done.stdout.startswith("E202 Run it as root")
    assert "it ran" not in done.stdout
