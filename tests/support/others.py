"""Other users of the machine: `python others.py FOLDER PROGRAMS` creates and removes resources,
again and again.

Each round has a loop device, a mounted filesystem, a control group and a PostgreSQL server; its
files are in FOLDER, and its programs in PROGRAMS. It prints "ready" after the first round,
continues until its stdin is closed, and exits with 0 only if nothing was disturbed.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

NOBODY = 65534
PAUSE_S = 0.3  # between two rounds
WAIT_S = 120.0  # for a step that takes milliseconds on an idle machine


def as_user(uid: int, work: Callable[[], object]) -> str:
    """What the work raises, or returns, in a process of that number; "" for None."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            said = "" if (result := work()) is None else repr(result)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return pipe.read()


def as_reader(uid: int) -> list[str]:
    """The words before a command that run it as that number, with the right to read a checkout that
    is closed to others.
    """
    read = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *read]


def ran(*argv: object) -> str:
    """Run a program that must succeed and return its output."""
    words = [str(word) for word in argv]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


@contextlib.contextmanager
def filesystem(folder: Path) -> Iterator[Path]:
    """Mount an ext4 on a loop device."""
    image = folder / "disk"
    point = folder / "mnt"
    image.write_bytes(b"")
    os.truncate(image, 16 * 2**20)
    point.mkdir(exist_ok=True)
    loop = ran("losetup", "--find", "--show", image)
    try:
        ran("mkfs.ext4", "-q", loop)
        ran("mount", loop, point)
        try:
            yield point
            backing = Path("/sys/block", Path(loop).name, "loop/backing_file").read_text().strip()
            assert backing == str(image), f"{loop} is over {backing}"
        finally:
            ran("umount", point)
    finally:
        ran("losetup", "--detach", loop)


@contextlib.contextmanager
def group() -> Iterator[Path]:
    """Create a control group with a process in it."""
    memory = Path("/sys/fs/cgroup/memory")  # exists with cgroup v1
    path = (memory if memory.is_dir() else memory.parent) / f"others-{os.getpid()}"
    path.mkdir()
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        (path / "cgroup.procs").write_text(str(sleeper.pid))
        yield path
        assert (path / "cgroup.procs").read_text().split() == [str(sleeper.pid)]
    finally:
        sleeper.kill()
        sleeper.wait()
        until = time.monotonic() + WAIT_S
        while path.is_dir():
            try:
                path.rmdir()
            except OSError:  # the kernel has not yet removed the process
                assert time.monotonic() < until
                time.sleep(0.01)


@contextlib.contextmanager
def server(folder: Path, programs: Path) -> Iterator[None]:
    """Run PostgreSQL on the cluster in the folder."""
    settings = [
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
        "-c",
        "shared_buffers=1MB",
        "-k",
        str(folder / "data"),
    ]
    words = [str(programs / "postgres"), "-D", str(folder / "data"), *settings]
    with subprocess.Popen(words, user=NOBODY, group=NOBODY, stderr=subprocess.DEVNULL) as process:
        lines = folder / "data/postmaster.pid"
        until = time.monotonic() + WAIT_S
        while not (lines.exists() and "ready" in lines.read_text()):
            assert process.poll() is None and time.monotonic() < until, "the server does not start"
            time.sleep(0.02)
        yield
        assert process.poll() is None, f"the server ended with {process.returncode}"
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


def one_round(folder: Path, programs: Path) -> None:
    """Create all resources, verify them and remove them."""
    with filesystem(folder) as point, group(), server(folder, programs):
        content = os.urandom(2**16)
        (point / "theirs").write_bytes(content)
        os.sync()
        time.sleep(PAUSE_S)
        assert (point / "theirs").read_bytes() == content


def main(folder: Path, programs: Path) -> None:
    """Run rounds until stdin is closed."""
    (folder / "data").mkdir(mode=0o700)
    shutil.chown(folder / "data", NOBODY, NOBODY)
    words = [str(programs / "initdb"), "--no-sync", "--auth=trust", "-D", str(folder / "data")]
    subprocess.run(words, user=NOBODY, group=NOBODY, check=True, stdout=subprocess.DEVNULL)
    one_round(folder, programs)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        one_round(folder, programs)


@contextlib.contextmanager
def others_at_work(programs: Path) -> Iterator[None]:
    """Run this script within the block, and assert that nothing of it was disturbed."""
    folder = Path(tempfile.mkdtemp(prefix="others-", dir="/var/tmp"))
    folder.chmod(0o755)
    # Without the token of the tests, so that the leak check ignores these processes.
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    words = [sys.executable, __file__, str(folder), str(programs)]
    with (folder / "log").open("w+") as log:
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=env,
        ) as other:
            assert other.stdin is not None and other.stdout is not None
            assert other.stdout.readline() == b"ready\n", (folder / "log").read_text()
            yield
            other.stdin.close()
            status = other.wait(WAIT_S)
        assert status == 0, (folder / "log").read_text()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
