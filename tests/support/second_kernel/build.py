"""Build the second kernel: Debian unstable's packaged user-mode Linux, with OpenZFS's module built
for it. The package has no headers: the configuration is read from the kernel (`--showconfig`),
the source gets its version (modules must name it), and the exported symbols are read from its
executable (`symvers`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import CommandFailed, DeadlinePassed
from dbbench.machine import namespaces
from tests.support.second_kernel.smallroot import (
    KERNEL_FILE,
    ZFS_PROGRAMS,
    copy_program,
    make_small_root,
)

# Kernel and programs that are kept. md, device-mapper and the other filesystems are modules of the
# kernel's package.
_PACKAGES: Final = ("user-mode-linux", "kmod")
_TOOLS: Final = (
    "mdadm",
    "lvm2",
    "dmsetup",
    "thin-provisioning-tools",
    "cryptsetup-bin",
    "f2fs-tools",
)
# ZFS's programs, and what builds its module.
_ZFS_PACKAGES: Final = (
    "zfsutils-linux",
    "gcc",
    "make",
    "libc6-dev",
    "flex",
    "bison",
    "bc",
    "libelf-dev",
    "libssl-dev",
    "xz-utils",
    "python3",
    "file",
    "gawk",
)
# file beside the small root: what a build lacks, one part with the reason per line
LEFT_OUT: Final = "left-out"
PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy")
_FAILURES: Final = (CommandFailed, DeadlinePassed, OSError, ValueError)
_JOBS: Final = f"-j{os.cpu_count() or 1}"
# sections of the kernel's executable
_TABLES: Final = ("__ksymtab", "__kflagstab", "__ksymtab_strings")
# of __ksymtab: addresses of a symbol, of its name and of its namespace
_ENTRY: Final = struct.Struct("<QQQ")
_GPL: Final = 1
Tell = Callable[[str], None]


class KernelFailed(Exception):
    """The second kernel is not available, could not be built, or died."""


def build(making: Path, mirror: str, tell: Tell) -> str:
    """Build in the empty directory `making`, which then contains the small root `making/root`;
    return its key. The key consists of the versions. Takes about 200 s on two cores. ZFS comes
    last, and is tried twice: if a package of tools or ZFS's module is not possible, the rest is
    kept, and the file LEFT_OUT says so. Raises KernelFailed.
    """
    whole = making / "whole"
    left_out = list[str]()
    try:
        tell(f"Debian unstable with user-mode-linux, from {mirror}")
        _debian(whole, mirror)
        left_out += _tools(whole)
        version = _inside(whole, "/usr/bin/linux.uml", "--version").strip()
        # within the whole one, because depmod runs there
        small = whole / "small"
        key = f"uml-{version}"
        make_small_root(whole, small)
        shutil.copytree(whole / "usr/lib/uml/modules", small / "usr/lib/modules")
        _inside(whole, "depmod", "-b", f"/{small.name}", version)
        try:
            key += f"-{_zfs_or_again(whole, small, version, tell)}"
        except _FAILURES as failure:
            left_out.append(f"ZFS: {failure}")
        for line in left_out:
            tell(f"left out {line}")
        (making / LEFT_OUT).write_text("".join(f"{' '.join(line.split())}\n" for line in left_out))
        small.rename(making / "root")
    except _FAILURES as failure:
        raise KernelFailed(f"the second kernel could not be built: {failure}") from failure
    finally:
        with contextlib.suppress(OSError):
            # so that removing the tree does not follow the mount
            namespaces.unmount(whole / "proc", lazy=True)
        shutil.rmtree(whole, ignore_errors=True)
    return key


def _debian(root: Path, mirror: str) -> None:
    proxies = _proxies()
    base: process.Argv = [
        "debootstrap",
        "--variant=minbase",
        "--components=main,contrib",
        "sid",
        root,
        mirror,
    ]
    process.run(base, timeout_s=_deadline_s(), env=proxies)
    services = root / "usr/sbin/policy-rc.d"
    # packages that are installed here must not start services
    services.write_text("#!/bin/sh\nexit 101\n")
    services.chmod(0o755)
    # The lists of a mirror that is not updated expire. Their signatures are checked, and this root
    # only runs the build.
    options = [
        'APT::Install-Recommends "false";',
        'DPkg::Options:: "--force-unsafe-io";',
        'Acquire::Check-Valid-Until "false";',
        'Acquire::Retries "3";',
    ]
    # how apt reaches its mirror
    configured = process.run(["apt-config", "dump"], note=False).stdout.splitlines()
    options += [line for line in configured if re.match(r"Acquire::https?::Proxy\b", line)]
    (root / "etc/apt/apt.conf.d/90dbbench").write_text("\n".join(options) + "\n")
    namespaces.mount("proc", root / "proc", "proc")  # linux.uml reads /proc/self/exe
    _inside(root, "apt-get", "update", "-q", env=proxies)
    _install(root, *_PACKAGES)


def _tools(root: Path) -> Iterator[str]:
    """Install the tools; yield which are left out, each with the reason."""
    for name in _TOOLS:
        try:
            _install(root, name)
        except CommandFailed as failure:
            yield f"{name}: {failure}"


def _install(root: Path, *packages: str) -> None:
    _inside(root, "apt-get", "install", "-qy", *packages, env=_proxies())


def _proxies() -> dict[str, str]:
    return {name: value for name in PROXIES if (value := os.environ.get(name))}


def _zfs_or_again(root: Path, small: Path, version: str, tell: Tell) -> str:
    """Call `_zfs`, a second time if it failed: on a busy machine a step may miss its deadline."""
    try:
        return _zfs(root, small, version, tell)
    except _FAILURES as failure:
        tell(f"building ZFS again: {failure}")
        return _zfs(root, small, version, tell)


def _zfs(root: Path, small: Path, version: str, tell: Tell) -> str:
    """Build OpenZFS's module for this kernel and add it with its programs to the small root; return
    its version.
    """
    tell("a compiler, and the sources of Linux and OpenZFS")
    _install(root, *_ZFS_PACKAGES, f"linux-source-{version.rpartition('.')[0]}")
    _inside(
        root,
        "apt-get",
        "download",
        "-q",
        "-o",
        "APT::Sandbox::User=root",
        "zfs-dkms",
        env=_proxies(),
        cwd="/tmp",
    )
    # Only unpacked: installed, it would be built for the running kernel.
    _inside(
        root,
        "dpkg-deb",
        "-x",
        f"/tmp/{next((root / 'tmp').glob('zfs-dkms_*.deb')).name}",
        "/tmp/openzfs",
    )
    openzfs = next((root / "tmp/openzfs/usr/src").glob("zfs-*"))
    tell(f"headers for Linux {version}")
    source = _headers(root, version)
    tell(f"the module of {openzfs.name}")
    folder = f"/{openzfs.relative_to(root)}"
    linux = f"/{source.relative_to(root)}"
    um = {"ARCH": "um"}
    (openzfs / "configure").chmod(0o755)
    options = ("--with-config=kernel", f"--with-linux={linux}", f"--with-linux-obj={linux}")
    _inside(root, "./configure", *options, env=um, cwd=folder)
    _inside(root, "make", "-s", _JOBS, env=um, cwd=folder)
    extra = small / "usr/lib/modules" / version / "extra"
    extra.mkdir(exist_ok=True)
    for name in ("spl", "zfs"):
        stripped = f"/tmp/{name}.ko"
        _inside(root, "strip", "--strip-debug", "-o", stripped, f"{folder}/module/{name}.ko")
        shutil.copy(root / stripped.lstrip("/"), extra)
    _inside(root, "depmod", "-b", f"/{small.name}", version)
    for name in ZFS_PROGRAMS:
        copy_program(root, small, f"usr/sbin/{name}")
    return openzfs.name


def _headers(root: Path, version: str) -> Path:
    """Prepare the kernel's source for building modules for this kernel; return its directory."""
    series, _, sublevel = version.rpartition(".")
    packed = f"/usr/src/linux-source-{series}"
    _inside(root, "tar", "-C", "/usr/src", "-xf", f"{packed}.tar.xz")
    source = root / packed.lstrip("/")
    makefile = re.sub(
        r"^SUBLEVEL =.*$",
        f"SUBLEVEL = {sublevel}",
        (source / "Makefile").read_text(),
        flags=re.M,
    )
    (source / "Makefile").write_text(
        re.sub(r"^EXTRAVERSION =.*$", "EXTRAVERSION =", makefile, flags=re.M)
    )
    config = _inside(root, "/usr/bin/linux.uml", "--showconfig")
    # This option would change the version string.
    (source / ".config").write_text(config.replace("CONFIG_LOCALVERSION_AUTO=y", ""))
    for target in ("olddefconfig", "modules_prepare"):
        _inside(root, "make", "-C", packed, "-s", _JOBS, "ARCH=um", target)
    for table in _TABLES:
        _inside(root, "objcopy", "-O", "binary", "-j", table, f"/{KERNEL_FILE}", f"/tmp/{table}")
    (source / "Module.symvers").write_text(
        symvers(*((root / "tmp" / table).read_bytes() for table in _TABLES))
    )
    return source


def _inside(
    root: Path,
    *argv: str,
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
) -> str:
    place = ["env", "-C", cwd] if cwd != "/" else []
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", **(env or {})}
    return process.run(["chroot", root, *place, *argv], timeout_s=_deadline_s(), env=quiet).stdout


def _deadline_s() -> float:
    """Return the limit of a step. The longest takes 60 s on two idle CPUs."""
    cpus = os.cpu_count() or 1
    load = max(1.0, os.getloadavg()[0] / cpus)
    return 900.0 * load * max(1.0, 2 / cpus)


def symvers(symbols: bytes, flags: bytes, strings: bytes) -> str:
    """Return the text of Module.symvers from the contents of _TABLES. Raises ValueError if they do
    not fit together.
    """
    count, rest = divmod(len(symbols), _ENTRY.size)
    if not count or rest or len(flags) < count:
        raise ValueError(
            f"__ksymtab has {len(symbols)} bytes and __kflagstab {len(flags)}: not the known shape"
        )
    entries = list(_ENTRY.iter_unpack(symbols))
    # that of the section of the strings
    begin = min(address for _symbol, *texts in entries for address in texts)
    lines = []
    for (_symbol, *texts), flag in zip(entries, flags, strict=False):
        name, namespace = (
            strings[at - begin : strings.index(b"\0", at - begin)].decode() for at in texts
        )
        export = "EXPORT_SYMBOL_GPL" if flag & _GPL else "EXPORT_SYMBOL"
        lines.append("\t".join(("0x00000000", name, "vmlinux", export, namespace)))
    return "\n".join(lines) + "\n"
