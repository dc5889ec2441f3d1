"""The first process of the second kernel: makes a root like the machine's own, runs one command,
reports the result. The machine's root is read-only (hostfs); an overlay on a temporary disk
takes writes. Programs of the small root are in /usr/sbin. Output goes by pipes to the outer
process's terminals, so that the command does not detect a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shlex
import socket
import termios
import time
import traceback
import tty
from pathlib import Path
from typing import Any, Final, NoReturn

from dbbench import process
from dbbench.machine import libc, threads
from dbbench.machine.mounts import mounts_of
from dbbench.machine.namespaces import mount
from tests.support.second_kernel import smallroot
from tests.support.second_kernel.boot import BootOrder

MS_MOVE: Final = 0x2000
_POWER_OFF: Final = 0x4321FEDC  # LINUX_REBOOT_CMD_POWER_OFF
# nothing else loads these, because no udev runs here
_EARLY: Final = ("loop", "md-mod", "dm-mod", "zfs", "fuse")
FAULTS: Final = re.compile(r"BUG:|Oops|WARNING:|VERIFY|PANIC|Kernel panic")
_NR_OPEN: Final = 1048576  # fs.nr_open: the largest possible limit of open files
_DRAIN_S: Final = 5.0  # a daemon that still runs might keep the pipe open for ever


def main(control: str) -> NoReturn:
    """Never returns: it is process 1, and switches the machine off at the end."""
    folder = Path(control)
    answer = dict[str, Any]()
    try:
        order = BootOrder(**json.loads((folder / "order.json").read_text()))
        _furnish(order, folder)
        began = time.monotonic()  # since the kernel began
        status = _run(order)
        # Nothing else checks how the module was built.
        faults = [
            line
            for line in process.run(["dmesg"], note=False).stdout.splitlines()
            if FAULTS.search(line)
        ]
        answer = {
            "status": status,
            "boot_s": round(began, 2),
            "command_s": round(time.monotonic() - began, 2),
            "kernel": os.uname().release,
            "faults": faults,
        }
    except BaseException:
        traceback.print_exc()  # prints to the console of the kernel
    with contextlib.suppress(OSError):
        _durable(folder / "answer.json", json.dumps(answer))
    os.sync()
    with contextlib.suppress(OSError):
        libc.call("reboot", _POWER_OFF)
    os._exit(1)


def _furnish(order: BootOrder, control: Path) -> None:
    small = Path(order.root)
    room = small / smallroot.ROOM
    mount("proc", Path("/proc"), "proc")
    if "devtmpfs" not in {
        entry.fstype for entry in mounts_of(Path("/proc/self")) if entry.point == Path("/dev")
    }:
        mount("dev", Path("/dev"), "devtmpfs")
    process.run([*smallroot.small_command(small, "modprobe"), "overlay"], note=False)
    mount("/dev/ubda", room, "ext4")
    for name in ("upper", "work", "root"):
        (room / name).mkdir()
    root = room / "root"
    layers = f"lowerdir=/,upperdir={room}/upper,workdir={room}/work"
    mount("overlay", root, "overlay", data=layers)
    for name, fstype in (("proc", "proc"), ("sys", "sysfs"), ("dev", "devtmpfs"), ("run", "tmpfs")):
        mount(fstype, root / name, fstype, data="mode=0755" if fstype == "tmpfs" else "")
    for name, fstype, options in (("shm", "tmpfs", "mode=1777"), ("pts", "devpts", "")):
        (root / "dev" / name).mkdir(exist_ok=True)
        mount(fstype, root / "dev" / name, fstype, data=options)
    for shared in (*order.shared, str(control)):
        (root / shared.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mount("hostfs", root / shared.lstrip("/"), "hostfs", data=f"/host{shared}")
    os.chdir(root)
    mount(".", Path("/"), flags=MS_MOVE)
    os.chroot(".")
    os.chdir("/")
    _programs(small)
    Path("/proc/sys/kernel/modprobe").write_text("/usr/sbin/modprobe")
    socket.sethostname("second-kernel")
    process.run(["ip", "link", "set", "lo", "up"], ok=range(256), note=False)
    for module in _EARLY:
        process.run(["modprobe", module], ok=(0, 1), note=False)  # a build may lack ZFS


def _programs(small: Path) -> None:
    for name, file in {**smallroot.OWN_PROGRAMS, **smallroot.SPARE_PROGRAMS}.items():
        path = Path("/usr/sbin") / name
        if not (small / file).exists() or (name in smallroot.SPARE_PROGRAMS and process.find(name)):
            continue
        path.unlink(missing_ok=True)
        path.write_text(
            f'#!/bin/sh\nexec {shlex.join(smallroot.small_command(small, name))} "$@"\n'
        )
        path.chmod(0o755)


def _run(order: BootOrder) -> int:
    """Start the command and reap all children until it has ended; return its exit status, 128 + n
    after signal n.
    """
    pipes = [os.pipe() for _ in range(2)]
    child = os.fork()
    if child == 0:
        _become(order, [writing for _, writing in pipes])
    copiers = []
    for number, (reading, writing) in enumerate(pipes, 1):
        os.close(writing)
        copier = threads.Helper(f"copy-{number}", _forward, reading, f"/dev/tty{number}")
        copier.start()
        copiers.append(copier)
    while (ended := os.wait())[0] != child:
        pass
    for copier in copiers:
        copier.join(_DRAIN_S)
        # lost output fails the command; main() prints the reason to the console of the kernel
        copier.check()
    code = os.waitstatus_to_exitcode(ended[1])
    return code if code >= 0 else 128 - code


def _become(order: BootOrder, outputs: list[int]) -> NoReturn:
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, fd in enumerate(outputs, 1):
            os.dup2(fd, number)
        # -1 means no limit
        soft, hard = (limit if 0 < limit < _NR_OPEN else _NR_OPEN for limit in order.files)
        # The default limit of the kernel is too small for a server.
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.chdir(order.cwd)
        os.execvpe(order.argv[0], list(order.argv), order.env)
    except (OSError, ValueError) as error:
        os.write(2, f"{order.argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _forward(reading: int, terminal: str) -> None:
    """Forward bytes until the last writer has closed and everything has left this machine."""
    fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(fd)
    while part := os.read(reading, 65536):
        while part:
            part = part[os.write(fd, part) :]
    termios.tcdrain(fd)


def _durable(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
