"""The second kernel's process: `python -m dbbench.rehearsal.machine build|boot SPEC REPORTS`, in namespaces of its own.

When it or its parent is killed, the kernel ends what was mounted and all processes of the second kernel. What it
reports goes to the descriptor REPORTS, one JSON object a line; stdout and stderr are those of the command inside.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dbbench import namespaces, process
from dbbench.errors import DbbenchError
from dbbench.rehearsal import building, smallroot
from dbbench.rehearsal.starting import Order

RUNTIME: Final = namespaces.RUNTIME
_TIES: Final = ("/dev/null", "/dev/urandom")  # what the kernel's process needs of /dev beside a tmpfs with exec


def main(argv: Sequence[str]) -> int:
    """The process itself; exit status 0 where what was asked was done."""
    verb, spec, reports = argv[0], json.loads(argv[1]), int(argv[2])

    def report(**said: Any) -> None:
        os.write(reports, (json.dumps(said) + "\n").encode())

    def work() -> int:
        try:
            if verb == "build":
                key = building.build(Path(spec["making"]), spec["mirror"], lambda what: report(tell=what))
                report(key=key)
            else:
                report(**_boot(Order(**spec)))
        except DbbenchError as error:
            report(error=type(error).__name__, evidence=error.evidence, effect=error.effect, remedy=error.remedy)
            return error.exit_code
        return 0

    keep = [Path(spec["making"])] if verb == "build" else [Path(p) for p in (spec["root"], *spec["shared"])]
    try:
        return namespaces.isolated(work, RUNTIME, keep=keep)
    except DbbenchError as error:
        report(error=type(error).__name__, evidence=error.evidence, effect=error.effect, remedy=error.remedy)
        return error.exit_code


def _boot(order: Order) -> dict[str, Any]:
    control = RUNTIME / "scratch"
    init, answer, console = control / "init", control / "answer.json", control / "console"
    control.joinpath("order.json").write_text(json.dumps(asdict(order)))
    init.write_text(_init(order, control))
    init.chmod(0o755)
    console.touch()
    small = Path(order.root)
    namespaces.mount("/", small / "host", flags=namespaces.MS_BIND | namespaces.MS_REC)
    namespaces.mount("tmpfs", small / "dev/shm", "tmpfs", data="mode=1777")  # the kernel's memory: a file with exec
    namespaces.mount("proc", small / "proc", "proc")
    for device in _TIES:
        namespaces.mount(device, small / device.lstrip("/"), flags=namespaces.MS_BIND)
    with ExitStack() as stack:
        disks = [stack.enter_context(tempfile.TemporaryFile(dir=order.scratch)).fileno()
                 for _ in (order.room_bytes, *order.disks)]  # fmt: skip
        for fd, size_bytes in zip(disks, (order.room_bytes, *order.disks), strict=True):
            os.truncate(fd, size_bytes)
        _formatted(disks[0])
        printed = stack.enter_context(console.open("wb")).fileno()
        argv: process.Argv = ["chroot", small, f"/{smallroot.KERNEL}", *_arguments(order, init, disks, printed)]
        kernel = process.running(
            argv, stdout=1, stderr=2, env={"HOME": "/root"}, pass_fds=[*disks, printed], note=False
        )
        status = stack.enter_context(kernel).popen.wait()
        lines = console.read_text(errors="replace").replace("\r", "").splitlines()
        told = json.loads(answer.read_text()) if answer.exists() else {}
        return {**told, "ended": status, "console": lines[-200:]}


def _formatted(fd: int) -> None:
    """ext4 without a journal: what lies on this disk is gone with the boot."""
    argv = ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", f"/proc/self/fd/{fd}"]
    process.run(argv, timeout_s=120, pass_fds=[fd], note=False)


def _arguments(order: Order, init: Path, disks: Sequence[int], console: int) -> list[str]:
    """The kernel's command line. Disks are unlinked files: nothing of them is left, however this ends."""
    return [
        f"mem={order.memory_bytes // 2**20}M",
        "seccomp=on",  # much faster than ptrace
        *(f"ubd{number}=/proc/self/fd/{fd}" for number, fd in enumerate(disks)),
        "ro", "rootfstype=hostfs", "rootflags=/host", f"init={init}",
        "con=null", f"con0=null,fd:{console}", "con1=null,fd:1", "con2=null,fd:2", "ssl=null",
        "quiet", "panic=1",
    ]  # fmt: skip


def _init(order: Order, control: Path) -> str:
    """The first process inside: this same program, by the same interpreter and folders."""
    return (
        f"#!{sys.executable} -B\n"
        f"# {shlex.join(order.argv)}\n"
        f"import sys\nsys.path[:] = {list(order.path)!r}\n"
        f"from dbbench.rehearsal.inside import main\nmain({str(control)!r})\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
