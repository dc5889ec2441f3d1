"""Build and boot the second kernel: `main(["build" or "boot", SPEC, REPORTS])` in a separate Python
process in private namespaces, started by `run_child`, which reads its reports. The kernel is
Debian unstable's packaged user-mode Linux, with OpenZFS's module built for it. The package has
no headers: the configuration is read from the kernel (`--showconfig`), the source gets its
version (modules must name it), and the exported symbols are read from its executable
(`symvers`).

The small root is what is kept of the build: the kernel, its modules, and programs that run on
any root, started with its own ld.so and libraries (`small_command`); nothing is installed on the
machine. OWN_PROGRAMS belong to this kernel and take precedence inside; SPARE_PROGRAMS are used
if the machine has none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import CommandFailed, DbbenchError, DeadlinePassed
from dbbench.machine import namespaces

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
_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy")
_FAILURES: Final = (CommandFailed, DeadlinePassed, OSError, ValueError)
_GRACE_S: Final = 10.0
_JOBS: Final = f"-j{os.cpu_count() or 1}"
# Not started with `-m`: the package imports this module, and Python would warn about the second
# import.
_PROGRAM: Final = f"import sys; from {__name__} import main; sys.exit(main(sys.argv[1:]))"
_PASSED: Final = (
    "XDG_CACHE_HOME",
    *_PROXIES,
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
    "COVERAGE_FILE",
)
# sections of the kernel's executable
_TABLES: Final = ("__ksymtab", "__kflagstab", "__ksymtab_strings")
# of __ksymtab: addresses of a symbol, of its name and of its namespace
_ENTRY: Final = struct.Struct("<QQQ")
_GPL: Final = 1
# devices that the process of the kernel needs, besides a tmpfs with exec
_TIES: Final = ("/dev/null", "/dev/urandom")
KERNEL_FILE: Final = "usr/bin/linux.uml"
ROOM: Final = "room"  # an empty folder, on which the second kernel mounts its own disk
# size of this disk, a sparse file that takes everything that is written
ROOM_BYTES: Final = 24 * 2**30
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
_LOADER: Final = "lib64/ld-linux-x86-64.so.2"
# pthread_exit loads this at run time, so ldd does not list it
_DLOPENED: Final = ("libgcc_s.so.1",)
_KMOD: Final = "usr/bin/kmod"
_LVM: Final = (
    "lvm",
    "pvcreate",
    "pvremove",
    "pvs",
    "pvscan",
    "vgcreate",
    "vgremove",
    "vgchange",
    "vgs",
    "vgextend",
    "lvcreate",
    "lvremove",
    "lvchange",
    "lvs",
    "lvextend",
    "lvconvert",
    "lvdisplay",
)
# name -> path of its file
ZFS_PROGRAMS: Final = ("zfs", "zpool", "zdb")
OWN_PROGRAMS: Final[dict[str, str]] = {
    **{name: f"usr/sbin/{name}" for name in ZFS_PROGRAMS},
    **dict.fromkeys(("modprobe", "insmod", "rmmod", "lsmod"), _KMOD),
}
SPARE_PROGRAMS: Final[dict[str, str]] = {
    **dict.fromkeys(_LVM, "usr/sbin/lvm"),
    **dict.fromkeys(("thin_check", "thin_dump", "thin_repair"), "usr/sbin/pdata_tools"),
    **{
        name: f"usr/sbin/{name}"
        for name in (
            "mdadm",
            "dmsetup",
            "cryptsetup",
            "mkfs.f2fs",
            "fsck.f2fs",
            "dump.f2fs",
        )
    },
}

Tell = Callable[[str], None]


def import_path() -> tuple[str, ...]:
    """Return the directories from which this process imports, then the checkout: pytest imports
    `tests` without it, and a program that is tested is an installed one.
    """
    checkout = str(Path(__file__).resolve().parents[3])
    return (*filter(None, sys.path), checkout)


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
    return {name: value for name in _PROXIES if (value := os.environ.get(name))}


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
        _copy_program(root, small, f"usr/sbin/{name}")
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


def small_command(small: Path, name: str) -> list[str]:
    """Return the argv that starts a program of the small root from any other root."""
    file = {**SPARE_PROGRAMS, **OWN_PROGRAMS}[name]
    # modules of the second kernel, not of the machine
    first = ["-d", str(small)] if name == "modprobe" else []
    return [
        str(small / _LOADER),
        "--library-path",
        str(small / _LIBRARIES),
        "--argv0",
        name,
        str(small / file),
        *first,
    ]


def make_small_root(root: Path, small: Path) -> None:
    """Make the small root in `small` from a whole `root`."""
    for folder in (
        "usr/bin",
        "usr/sbin",
        _LIBRARIES,
        "lib64",
        "host",
        "proc",
        "dev/shm",
        "tmp",
        "root",
        ROOM,
    ):
        (small / folder).mkdir(parents=True, exist_ok=True)
    for name in ("dev/null", "dev/urandom"):
        (small / name).touch()  # the machine's files are mounted over these
    (small / "lib").symlink_to("usr/lib")
    shutil.copy(root / _LOADER, small / _LOADER)
    for program in dict.fromkeys((KERNEL_FILE, _KMOD, *SPARE_PROGRAMS.values())):
        if program not in SPARE_PROGRAMS.values() or (root / program).exists():
            _copy_program(root, small, program)
    for name in _DLOPENED:
        shutil.copy(root / _LIBRARIES / name, small / _LIBRARIES / name)


def _copy_program(root: Path, small: Path, program: str) -> None:
    """Copy a program with its libraries. Raises OSError if the root does not have it."""
    shutil.copy(root / program, small / program)
    # status 1: a static program
    listed = process.run(["chroot", root, "ldd", f"/{program}"], ok=(0, 1)).stdout
    for line in listed.splitlines():
        words = line.split()
        if len(words) > 2 and words[1] == "=>" and words[2].startswith("/"):
            library = root / words[2].lstrip("/")
            shutil.copy(library, small / _LIBRARIES / library.name)
