"""How the second kernel is built: Debian unstable's user-mode Linux, as packaged, and OpenZFS's module for it.

The kernel ships no headers. Its configuration is asked of it (`--showconfig`), its source gets its own version
(modules must name it), its exported symbols are read out of it (`symvers`). Runs in namespaces of its own
(`machine`): what is mounted here ends with the process.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dbbench import namespaces, process
from dbbench.errors import CommandFailed, DeadlinePassed, RehearsalBuildFailed
from dbbench.rehearsal import smallroot
from dbbench.rehearsal.symvers import symvers

STALE: Final = "DBBENCH_TEST_STALE_MIRROR"  # set by the test harness alone: package lists that have expired are taken
_DEADLINE_S: Final = 900.0  # a step; the longest took 60 s on two cores
_PACKAGES: Final = (
    "user-mode-linux", "zfsutils-linux", "kmod",  # what is kept
    "mdadm", "lvm2", "dmsetup", "thin-provisioning-tools", "cryptsetup-bin", "f2fs-tools", "nilfs-tools",
    "gcc", "make", "libc6-dev", "flex", "bison", "bc", "libelf-dev", "libssl-dev", "xz-utils", "python3", "file",
    "gawk",
)  # fmt: skip
_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy")

Tell = Callable[[str], None]


def build(making: Path, mirror: str, tell: Tell) -> str:
    """Build in the empty folder `making`; the small root `making/root` is left. Returns its key.

    The key is made of the versions. About 200 s on two cores. Raises RehearsalBuildFailed.
    """
    whole = making / "whole"
    try:
        tell(f"Debian unstable with user-mode-linux and a compiler, from {mirror}")
        _debian(whole, mirror)
        version = _inside(whole, "/usr/bin/linux.uml", "--version").strip()
        openzfs = _openzfs(whole)
        key = f"uml-{version}-{openzfs.name}"
        tell(f"headers for Linux {version}")
        source = _headers(whole, version)
        tell(f"the module of {openzfs.name}")
        _module(whole, openzfs, source)
        _keep(whole, version, openzfs).rename(making / "root")
    except (CommandFailed, DeadlinePassed, OSError, ValueError) as failure:
        raise RehearsalBuildFailed(
            f"the second kernel could not be built: {failure}",
            effect="Nothing was kept.",
            remedy="dbbench -v rehearse PLAN  says more. Its packages are Debian unstable's, which moves: try again "
            "in a few days.",
        ) from failure
    finally:
        with contextlib.suppress(OSError):
            namespaces.unmount(whole / "proc", lazy=True)  # removing must not follow a mount
        shutil.rmtree(whole, ignore_errors=True)
    return key


def _debian(root: Path, mirror: str) -> None:
    proxies = {name: value for name in _PROXIES if (value := os.environ.get(name))}
    base: process.Argv = ["debootstrap", "--variant=minbase", "--components=main,contrib", "sid", root, mirror]
    process.run(base, timeout_s=_DEADLINE_S, env=proxies)
    services = root / "usr/sbin/policy-rc.d"
    services.write_text("#!/bin/sh\nexit 101\n")  # nothing is started by what is installed here
    services.chmod(0o755)
    options = ['APT::Install-Recommends "false";', 'DPkg::Options:: "--force-unsafe-io";', *_proxies_of_apt()]
    if os.environ.get(STALE):
        options.append('Acquire::Check-Valid-Until "false";')
    (root / "etc/apt/apt.conf.d/90dbbench").write_text("\n".join(options) + "\n")
    namespaces.mount("proc", root / "proc", "proc")  # linux.uml reads /proc/self/exe
    _inside(root, "apt-get", "update", "-q", env=proxies)
    _inside(root, "apt-get", "install", "-qy", *_PACKAGES, env=proxies)
    series = ".".join(_inside(root, "/usr/bin/linux.uml", "--version").strip().split(".")[:2])
    _inside(root, "apt-get", "install", "-qy", f"linux-source-{series}", env=proxies)
    _inside(root, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "zfs-dkms", env=proxies, cwd="/tmp")


def _proxies_of_apt() -> list[str]:
    """How this machine's own apt reaches its mirror."""
    dumped = process.run(["apt-config", "dump"], note=False).stdout
    return [line for line in dumped.splitlines() if re.match(r"Acquire::https?::Proxy\b", line)]


def _openzfs(root: Path) -> Path:
    """Unpack the module's source; not installed, or it would be built for the kernel that runs. Its folder."""
    package = next((root / "tmp").glob("zfs-dkms_*.deb"))
    _inside(root, "dpkg-deb", "-x", f"/tmp/{package.name}", "/tmp/openzfs")
    return next((root / "tmp/openzfs/usr/src").glob("zfs-*"))


def _headers(root: Path, version: str) -> Path:
    """The kernel's source, prepared so that modules for this very kernel can be built with it; its folder."""
    series, _, sublevel = version.rpartition(".")
    packed = f"/usr/src/linux-source-{series}"
    _inside(root, "tar", "-C", "/usr/src", "-xf", f"{packed}.tar.xz")
    source = root / packed.lstrip("/")
    makefile = re.sub(r"^SUBLEVEL =.*$", f"SUBLEVEL = {sublevel}", (source / "Makefile").read_text(), flags=re.M)
    (source / "Makefile").write_text(re.sub(r"^EXTRAVERSION =.*$", "EXTRAVERSION =", makefile, flags=re.M))
    config = _inside(root, "/usr/bin/linux.uml", "--showconfig")
    (source / ".config").write_text(config.replace("CONFIG_LOCALVERSION_AUTO=y", ""))  # it would alter the version
    for target in ("olddefconfig", "modules_prepare"):
        _inside(root, "make", "-C", packed, "-s", _jobs(), "ARCH=um", target)
    (source / "Module.symvers").write_text(symvers((root / smallroot.KERNEL).read_bytes()))
    return source


def _module(root: Path, openzfs: Path, source: Path) -> None:
    at, linux = f"/{openzfs.relative_to(root)}", f"/{source.relative_to(root)}"
    (openzfs / "configure").chmod(0o755)
    um = {"ARCH": "um"}
    options = ("--with-config=kernel", f"--with-linux={linux}", f"--with-linux-obj={linux}")
    _inside(root, "./configure", *options, env=um, cwd=at)
    _inside(root, "make", "-s", _jobs(), env=um, cwd=at)


def _keep(root: Path, version: str, openzfs: Path) -> Path:
    """Make the small root, within the whole one because depmod is run there; its folder."""
    small = root / "small"
    smallroot.kept_of(root, small)
    modules = small / "usr/lib/modules"
    shutil.copytree(root / "usr/lib/uml/modules", modules)
    (modules / version / "extra").mkdir()
    for name in ("spl", "zfs"):
        built, stripped = f"/{openzfs.relative_to(root)}/module/{name}.ko", f"/tmp/{name}.ko"
        _inside(root, "strip", "--strip-debug", "-o", stripped, built)
        shutil.copy(root / stripped.lstrip("/"), modules / version / "extra")
    _inside(root, "depmod", "-b", "/small", version)
    return small


def _inside(root: Path, *argv: str, env: Mapping[str, str] | None = None, cwd: str = "/") -> str:
    """Run a program in the build's root; what it printed."""
    place = ["env", "-C", cwd] if cwd != "/" else []
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", **(env or {})}
    return process.run(["chroot", root, *place, *argv], timeout_s=_DEADLINE_S, env=quiet).stdout


def _jobs() -> str:
    return f"-j{os.cpu_count() or 1}"
