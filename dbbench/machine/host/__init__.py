"""Facts about the machine, read once per run. A missing file or program never raises an exception
here.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Final

from dbbench.errors import CommandFailed, DeadlinePassed, ProgramMissing
from dbbench.machine import libc
from dbbench.machine.host.proc import text
from dbbench.machine.host.tunables import state
from dbbench.model import Json
from dbbench.process import find, run

# CPU flags by which databases and filesystems choose their code for checksums and compression.
_FLAGS: Final = (
    "sse4_2",
    "pclmulqdq",
    "vpclmulqdq",
    "avx",
    "avx2",
    "avx512f",
    "sha_ni",
    "aes",
    "crc32",
    "sha2",
)

# Program -> arguments that print its version.
_TOOLS: Final[dict[str, tuple[str, ...]]] = {
    "sysbench": ("--version",),
    "pgbench": ("--version",),
    "sadf": ("-V",),
    "iostat": ("-V",),
    "fio": ("--version",),
    "mkfs.ext4": ("-V",),
    "mkfs.xfs": ("-V",),
    "mkfs.btrfs": ("--version",),
    "compsize": ("--version",),
}
# psycopg2 has another name where a distribution built it.
_PACKAGES: Final = (
    "psycopg2-binary",
    "psycopg2",
    "mysql-connector-python",
    "pydantic",
    "numpy",
    "scipy",
    "plotly",
    "jinja2",
)
# Errors of a program that gives no answer. An interruption of dbbench is not one of them.
_NO_ANSWER: Final = (CommandFailed, DeadlinePassed, ProgramMissing)
_IO_URING_SETUP: Final = 425  # the system call's number on every architecture
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+[\w.-]*")


def facts(root: Path = Path("/")) -> Json:
    """Return `state()` and the facts for the environment table: scalars, `cpu_flags` as a list,
    None for unknown.
    """
    uname = os.uname()
    # Not every system has os-release.
    release = {}
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
    return {
        "hostname": uname.nodename,
        **kernel(root),
        "architecture": uname.machine,
        "distribution": release.get("PRETTY_NAME"),
        **_cpu(root),
        "numa_nodes": len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        "memory_bytes": memory_bytes(root),
        "virtualisation": virtualisation(root),
        "second_kernel": second_kernel(root),
        "vendor": text(root / "sys/class/dmi/id/sys_vendor"),
        "product": text(root / "sys/class/dmi/id/product_name"),
        "clocksource": text(
            root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        **state(root),
    }


def kernel(root: Path = Path("/")) -> dict[str, str | None]:
    """Return the versions by which `machine.known_faults` judges a kernel."""
    uname = os.uname()
    return {
        "kernel": uname.release,
        "kernel_version": uname.version,
        "kernel_signature": text(root / "proc/version_signature"),  # only Ubuntu's kernels
        "zfs_module": text(root / "sys/module/zfs/version"),
    }


def versions() -> dict[str, str]:
    """Return the versions of the programs and Python packages that a run may use; missing ones are
    omitted.
    """
    versions_by_program = {"python": platform.python_version()}
    for program, arguments in _TOOLS.items():
        version = _printed_version(program, arguments) if find(program) else None
        if version:
            versions_by_program[program] = version
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions_by_program[package] = importlib.metadata.version(package)
    return versions_by_program


def virtualisation(root: Path = Path("/")) -> str | None:
    """Return "kvm", "vmware", "xen", "none" (bare metal), or None if it cannot be determined."""
    if find("systemd-detect-virt"):
        with contextlib.suppress(*_NO_ANSWER):
            # Status 1 means "none". --vm ignores containers, which do not withhold CPU time.
            argv = ["systemd-detect-virt", "--vm"]
            printed = run(argv, timeout_s=10, ok=(0, 1), note=False).stdout.strip()
            if printed:
                return printed
    hypervisor = text(root / "sys/hypervisor/type")
    if hypervisor:
        return hypervisor
    cpuinfo = text(root / "proc/cpuinfo") or ""
    flag = re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE)
    return "unknown hypervisor" if flag else None


def second_kernel(root: Path = Path("/")) -> str | None:
    """Return a note about numbers from user-mode Linux, or None on any other kernel."""
    cpuinfo = text(root / "proc/cpuinfo") or ""
    if "User Mode Linux" not in cpuinfo:
        return None
    return f"user-mode Linux {os.uname().release}, not comparable"


def without_io_uring(root: Path = Path("/")) -> str | None:
    """Return why the kernel refuses io_uring to a server, which is not root, or None if it does
    not.
    """
    disabled = text(root / "proc/sys/kernel/io_uring_disabled")
    if disabled in ("1", "2"):
        setting = f"sysctl kernel.io_uring_disabled is {disabled}"
        return f"the kernel refuses io_uring: {setting}; 0 permits it"
    try:
        libc.call("syscall", _IO_URING_SETUP, 1, None)
    except OSError as error:
        # EFAULT is about the null pointer: the call itself is permitted
        if error.errno != errno.EFAULT:
            return (
                f"the kernel refuses io_uring ({error.strerror}), for example by a seccomp profile"
            )
    return None


def _cpu(root: Path) -> Json:
    cpuinfo = text(root / "proc/cpuinfo") or ""
    topology = list((root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology"))
    ids = [(text(path / "physical_package_id"), text(path / "core_id")) for path in topology]
    cores = len(set(ids)) or None
    flags = _field(cpuinfo, "flags") or _field(cpuinfo, "Features")
    return {
        "cpu_model": _field(cpuinfo, "model name") or _field(cpuinfo, "CPU part"),
        "microcode": _field(cpuinfo, "microcode"),
        "cpu_sockets": len({package for package, _ in ids}) or None,
        "cpu_cores": cores,
        "cpu_threads": os.cpu_count(),
        "cpu_threads_per_core": round(len(ids) / cores) if cores else None,
        "cpu_flags": None if flags is None else [flag for flag in _FLAGS if flag in flags.split()],
    }


def _field(cpuinfo: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if match:
        return match[1].strip()
    return None


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of the machine's memory."""
    match = re.search(
        r"^MemTotal:\s+(\d+) kB$",
        text(root / "proc/meminfo") or "",
        re.MULTILINE,
    )
    if match:
        return int(match[1]) * 1024
    return None


def _printed_version(program: str, arguments: tuple[str, ...]) -> str | None:
    with contextlib.suppress(*_NO_ANSWER):
        done = run(
            [program, *arguments],
            timeout_s=10,
            ok=range(256),
            note=False,
        )
        match = _VERSION.search(done.stdout) or _VERSION.search(done.stderr)
        return match[0] if match else None
    return None
