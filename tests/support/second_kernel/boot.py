"""Boot the second kernel: `main(["build" or "boot", SPEC, REPORTS])` in a separate Python process in
private namespaces, started by `run_child`, which reads its reports.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import DbbenchError
from dbbench.machine import namespaces
from tests.support.second_kernel.build import PROXIES, KernelFailed, Tell, build
from tests.support.second_kernel.smallroot import KERNEL_FILE

_GRACE_S: Final = 10.0
# Not started with `-m`: the package imports this module, and Python would warn about the second
# import.
_PROGRAM: Final = f"import sys; from {__name__} import main; sys.exit(main(sys.argv[1:]))"
_PASSED: Final = (
    "XDG_CACHE_HOME",
    *PROXIES,
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
    "COVERAGE_FILE",
)
# devices that the process of the kernel needs, besides a tmpfs with exec
_TIES: Final = ("/dev/null", "/dev/urandom")
# size of this disk, a sparse file that takes everything that is written
ROOM_BYTES: Final = 24 * 2**30


def import_path() -> tuple[str, ...]:
    """Return the directories from which this process imports, then the checkout: pytest imports
    `tests` without it, and a program that is tested is an installed one.
    """
    checkout = str(Path(__file__).resolve().parents[3])
    return (*filter(None, sys.path), checkout)


@dataclass(frozen=True)
class BootOrder:
    """A command to run inside, and its environment. All paths are the same inside and outside."""

    root: str  # path of the small root
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    # folders of the machine that are writable inside; everything else that is written is lost
    shared: tuple[str, ...]
    disks: tuple[int, ...]  # sizes in bytes of the empty disks /dev/ubdb, /dev/ubdc ...
    memory_bytes: int
    path: tuple[str, ...] = field(default_factory=import_path)
    # The same limits as outside.
    files: tuple[int, ...] = field(
        default_factory=lambda: resource.getrlimit(resource.RLIMIT_NOFILE)
    )


def run_child(
    verb: str,
    spec: dict[str, Any],
    tell: Tell,
    timeout_s: float | None = None,
    stdout: Path | int = subprocess.DEVNULL,
    stderr: Path | int = 2,
) -> dict[str, Any]:
    """Build (return `key`) or boot (return the report of `inside`, and `console`, the kernel's
    output; without `status` the kernel died) in a process of its own. Raises KernelFailed;
    DeadlinePassed after `timeout_s`, when all of it is killed.
    """
    result: dict[str, Any] = {}
    reading, writing = os.pipe()
    env = {name: os.environ[name] for name in _PASSED if name in os.environ}
    argv = [sys.executable, "-c", _PROGRAM, verb, json.dumps(spec), str(writing)]
    with (
        os.fdopen(reading) as reports,
        process.running(
            argv,
            stdout=stdout,
            stderr=stderr,
            env={
                **env,
                "PYTHONPATH": os.pathsep.join(import_path()),
                "PYTHONDONTWRITEBYTECODE": "1",
                namespaces.PARENT: str(os.getpid()),
            },
            pass_fds=[writing],
            grace_s=_GRACE_S,
            note=False,
            own_session=True,  # Ctrl-C reaches only this process, which then ends the other
        ) as child,
    ):
        os.close(writing)
        if timeout_s is not None:
            child.wait(timeout_s)  # the few reports fit into the pipe, so nothing blocks
        for line in reports:
            answer = json.loads(line)
            if "error" in answer:
                raise KernelFailed(answer["error"])
            if "tell" in answer:
                tell(answer["tell"])
            else:
                result |= answer
        child.wait(_GRACE_S)
    return result


def main(argv: Sequence[str]) -> int:
    """Run the process; exit status 0 if the request succeeded."""
    verb = argv[0]
    spec = json.loads(argv[1])
    reports = int(argv[2])

    def report(**words: Any) -> None:
        os.write(reports, (json.dumps(words) + "\n").encode())

    def work() -> int:
        if verb == "build":
            report(key=build(Path(spec["making"]), spec["mirror"], lambda what: report(tell=what)))
        else:
            report(**_boot(BootOrder(**spec)))
        return 0

    def reporting(function: Callable[[], int]) -> int:
        try:
            return function()
        except (KernelFailed, DbbenchError) as error:
            report(error=str(error))
            return 1

    keep = (
        [Path(spec["making"])]
        if verb == "build"
        else [Path(p) for p in (spec["root"], *spec["shared"])]
    )
    return reporting(lambda: namespaces.isolate(lambda: reporting(work), keep=keep))


def _boot(order: BootOrder) -> dict[str, Any]:
    control = namespaces.RUNTIME / "scratch"
    init = control / "init"
    answer = control / "answer.json"
    console = control / "console"
    control.joinpath("order.json").write_text(json.dumps(asdict(order)))
    init.write_text(_init(order, control))
    init.chmod(0o755)
    console.touch()
    small = Path(order.root)
    namespaces.mount("/", small / "host", flags=namespaces.MS_BIND | namespaces.MS_REC)
    # Memory of the kernel: a file on a mount with exec.
    namespaces.mount("tmpfs", small / "dev/shm", "tmpfs", data="mode=1777")
    namespaces.mount("proc", small / "proc", "proc")
    for device in _TIES:
        namespaces.mount(device, small / device.lstrip("/"), flags=namespaces.MS_BIND)
    sizes = (ROOM_BYTES, *order.disks)
    with ExitStack() as stack:
        disks = [
            stack.enter_context(tempfile.TemporaryFile(dir=small.parent)).fileno() for _ in sizes
        ]
        for fd, size_bytes in zip(disks, sizes, strict=True):
            os.truncate(fd, size_bytes)
        # Without a journal: the content of this disk is discarded after the boot.
        mkfs = [
            "mkfs.ext4",
            "-q",
            "-F",
            "-m",
            "0",
            "-O",
            "^has_journal",
            f"/proc/self/fd/{disks[0]}",
        ]
        process.run(mkfs, timeout_s=120, pass_fds=disks[:1], note=False)
        printed = stack.enter_context(console.open("wb")).fileno()
        argv: process.Argv = [
            "chroot",
            small,
            f"/{KERNEL_FILE}",
            *_arguments(order, init, disks, printed),
        ]
        kernel = process.running(
            argv,
            stdout=1,
            stderr=2,
            env={"HOME": "/root"},
            pass_fds=[*disks, printed],
            note=False,
        )
        status = stack.enter_context(kernel).popen.wait()
        lines = console.read_text(errors="replace").replace("\r", "").splitlines()
        boot_answer = json.loads(answer.read_text()) if answer.exists() else {}
        return {**boot_answer, "ended": status, "console": lines[-200:]}


def _arguments(
    order: BootOrder,
    init: Path,
    disks: Sequence[int],
    console: int,
) -> list[str]:
    """Return the kernel's command line. Disks are unlinked files, which disappear however this
    ends.
    """
    return [
        f"mem={order.memory_bytes // 2**20}M",
        "seccomp=on",  # much faster than ptrace
        *(f"ubd{number}=/proc/self/fd/{fd}" for number, fd in enumerate(disks)),
        "ro",
        "rootfstype=hostfs",
        "rootflags=/host",
        f"init={init}",
        "con=null",
        f"con0=null,fd:{console}",
        "con1=null,fd:1",
        "con2=null,fd:2",
        "ssl=null",
        "quiet",
        "panic=1",
    ]


def _init(order: BootOrder, control: Path) -> str:
    """Return the first process inside: this program, with the same interpreter and directories."""
    return (
        f"#!{sys.executable} -B\n"
        f"# {shlex.join(order.argv)}\n"
        f"import sys\nsys.path[:] = {list(order.path)!r}\n"
        f"from tests.support.second_kernel.inside import main\nmain({str(control)!r})\n"
    )
