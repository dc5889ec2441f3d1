"""Starts the second kernel's process (`machine`) and hears its reports."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import errors, namespaces, process
from dbbench.rehearsal import building

_GRACE_S: Final = 10.0
_PASSED: Final = ("XDG_CACHE_HOME", "PYTHONPATH", "http_proxy", "https_proxy", "no_proxy", building.STALE,
                  "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_FILE")  # fmt: skip


@dataclass(frozen=True)
class Order:
    """A command to run inside, and what it finds there. All paths are the same inside and outside."""

    root: str  # the small root
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    shared: tuple[str, ...]  # folders that are the machine's own, writable; all else that is written is lost
    disks: tuple[int, ...]  # bytes of the empty disks /dev/ubdb, /dev/ubdc ...
    room_bytes: int  # of the sparse disk that takes what is written
    memory_bytes: int
    scratch: str  # where the disks' files lie, unlinked
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    files: tuple[int, ...] = field(default_factory=lambda: resource.getrlimit(resource.RLIMIT_NOFILE))  # as outside


def built(making: Path, mirror: str, tell: Callable[[str], None]) -> str:
    """Build in `making`; the key of what was built. RehearsalBuildFailed."""
    key = ""
    for said in _child("build", {"making": str(making), "mirror": mirror}, None):
        if "tell" in said:
            tell(said["tell"])
        key = said.get("key", key)
    return key


def booted(order: Order, timeout_s: float, stdout: Path | int, stderr: Path | int) -> dict[str, Any]:
    """Run the order in the second kernel; what `inside` reported, and `console`, what the kernel printed.

    An empty `status` means that it died. Raises DeadlinePassed after `timeout_s`: all of it is killed then.
    """
    report: dict[str, Any] = {}
    for said in _child("boot", asdict(order), timeout_s, stdout, stderr):
        report.update(said)
    return report


def _child(verb: str, spec: dict[str, Any], timeout_s: float | None, stdout: Path | int = subprocess.DEVNULL,
           stderr: Path | int = 2) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Start `machine` as a process; what it reports. Raises the error that it reports."""
    reading, writing = os.pipe()
    env = {name: os.environ[name] for name in _PASSED if name in os.environ}
    argv = [sys.executable, "-m", "dbbench.rehearsal.machine", verb, json.dumps(spec), str(writing)]
    with os.fdopen(reading) as reports, process.running(
        argv,
        stdout=stdout,
        stderr=stderr,
        env={**env, "PYTHONDONTWRITEBYTECODE": "1", namespaces.PARENT: str(os.getpid())},
        pass_fds=[writing],
        grace_s=_GRACE_S,
        note=False,
        own_session=True,  # Ctrl-C reaches this process, which then ends that one
    ) as child:  # fmt: skip
        os.close(writing)
        if timeout_s is not None:
            child.wait(timeout_s)  # its few reports fit into the pipe
        for line in reports:
            said = json.loads(line)
            if "error" in said:
                kind = getattr(errors, said.pop("error"))
                raise kind(said.pop("evidence"), **said)
            yield said
        child.wait(_GRACE_S)
