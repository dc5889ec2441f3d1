"""Real fleets on this machine: their commands, what they print, and their processes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil

DEADLINE_S: Final = 400.0
ENDED_S: Final = 60.0


def matching(*words: str) -> list[psutil.Process]:
    """Return the processes whose command line has all of the words."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if all(word in line for word in words):
            found.append(process)
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """Send SIGKILL to each; one may have ended with another."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def still_running(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """Return what `find` still finds after a minute at most."""
    end = time.monotonic() + ENDED_S
    while (left := find()) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def free_address() -> str:
    """Return a loopback address with a free port."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tls://127.0.0.1:{probe.getsockname()[1]}"


def trials_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return trial.json of each finished trial of a run's folder."""
    return {
        path.parent.name: json.loads(path.read_text())
        for path in folder.glob("trials/[!.]*/trial.json")
    }


class Daemon:
    """A command of dbbench in the background, whose output is in a file."""

    def __init__(self, dbbench: Any, name: str, *words: str, **env: str) -> None:
        self.path = dbbench.folder / f"{name}.log"
        with self.path.open("w") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "dbbench", *words],
                stdout=log,
                stderr=log,
                cwd=dbbench.folder,
                env={**dbbench.env, **env},
            )

    def printed(self) -> str:
        """Return what it has printed."""
        return str(self.path.read_text())

    def kill(self) -> None:
        """Kill it, as the kernel does when the memory is exhausted."""
        self.child.kill()
        self.child.wait()

    def wait(self) -> int:
        """Return its exit status."""
        return int(self.child.wait(DEADLINE_S))

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until something holds while it runs; return it."""
        end = time.monotonic() + DEADLINE_S
        while not (value := holds()):
            assert time.monotonic() < end and self.child.poll() is None, self.printed()
            time.sleep(0.1)
        return value


def measuring(results: Path) -> list[Path]:
    """Return the results folders of hosts below `results` whose trial is in its load."""
    hosts = []
    for server in matching("dbbench.run.worker", f"{results}/"):
        with contextlib.suppress(psutil.NoSuchProcess):
            children = server.children(recursive=True)
            # Not the one that builds a dataset, which is no trial yet.
            loads = [each for each in children if each.name() == "pgbench"]
            if any("--initialize" not in each.cmdline() for each in loads):
                hosts.append(Path(server.cmdline()[-1]).parent)
    return hosts


@contextlib.contextmanager
def ending(folder: Path) -> Iterator[None]:
    """End all processes that name a folder after the block."""
    try:
        yield
    finally:
        own = psutil.Process(os.getpid())
        kill(process for process in matching(str(folder)) if process.pid != own.pid)
