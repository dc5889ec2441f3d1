"""Run work in private mount, pid and ipc namespaces, so that the kernel cleans up in every case.

`isolated` turns one process into three: the caller (called the middle one here), the first
process of a new pid namespace, which only reaps orphans and forwards signals, and the worker.
Each of them dies with the one above it (PR_SET_PDEATHSIG). When the first process of a pid
namespace ends, the kernel kills all others in it, including those that called setsid; when the
last process of the mount namespace ends, its mounts and the autoclear loop devices below them
are released. Killing process groups, or only the parent, is not enough.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

from dbbench import process
from dbbench.errors import DbbenchError, NotRoot
from dbbench.machine import libc, questions
from dbbench.machine.mounts import Mount, mount_holding, mounts_of

# short, because the path of a unix socket has at most 107 bytes
RUNTIME: Final = Path("/run/dbbench")
_OUTER: Final = "host_run"  # within a trial: the directory that its tmpfs covers
# environment variable: the expected parent's pid, see `die_with_parent`
PARENT: Final = "DBBENCH_PARENT"

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWPID: Final = 0x20000000
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SLAVE: Final = 0x80000
MNT_DETACH: Final = 0x2
UMOUNT_NOFOLLOW: Final = 0x8
# What helps if namespaces cannot be made.
CAPABLE: Final = "Run it as root; in a container, with CAP_SYS_ADMIN (docker run --privileged)."
_CAP_SYS_ADMIN: Final = 21  # capability.h
_PR_SET_NO_NEW_PRIVS: Final = 38

# Filesystems of the kernel itself: a copy of such a mount keeps no device busy.
_KERNEL: Final = frozenset(
    (
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "proc",
        "pstore",
        "ramfs",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tmpfs",
        "tracefs",
    )
)
# a container's mounts below these are kept
_TREES: Final = tuple(Path(p) for p in ("/proc", "/sys", "/dev", "/etc"))
_NEEDED: Final = (
    "/",
    "/usr",
    "/usr/lib",
    "/usr/local",
    "/lib",
    "/bin",
    "/sbin",
    "/opt",
    "/var",
    "/var/lib",
    "/var/tmp",
    "/tmp",
    "/run",
)
_WATCHED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)

# whether this process has private mounts; set where they are made, because /proc may hide pid 1
_private = False


def mount(
    source: str | Path,
    target: Path,
    fstype: str = "",
    flags: int = 0,
    data: str = "",
) -> None:
    """Call mount(2). Raises OSError with the errno of the kernel and `target`."""
    words = [os.fsencode(str(word)) or None for word in (source, target, fstype, data)]
    libc.call("mount", *words[:3], flags, words[3], path=target)


def unmount(path: Path, lazy: bool = False) -> None:
    """Call umount2(2) without following a symlink; `lazy` detaches it at once. Raises OSError."""
    libc.call(
        "umount2",
        os.fsencode(path),
        UMOUNT_NOFOLLOW | (MNT_DETACH if lazy else 0),
        path=path,
    )


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread of the parent that started it ends; at once
    if it is gone. PARENT in the environment is its expected pid.
    """
    expected = int(os.environ.pop(PARENT, "") or os.getppid())
    libc.end_with_parent()
    if os.getppid() != expected:
        os.kill(os.getpid(), signal.SIGKILL)


def has_capability() -> bool:
    """Return whether this process may make namespaces and mount: CAP_SYS_ADMIN, which the root of a
    container may lack.
    """
    status = Path("/proc/self/status").read_text(errors="replace")
    effective = re.search(r"^CapEff:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return effective is None or bool(int(effective[1], 16) >> _CAP_SYS_ADMIN & 1)


def host_proc() -> Path:
    """Return the /proc of the whole machine; inside `isolated` its own /proc shows only the run."""
    kept = RUNTIME / "host_proc"
    return kept if os.access(kept / "1", os.X_OK) else Path("/proc")  # only root may enter RUNTIME


def isolate(work: Callable[[], int], *, keep: Sequence[Path] = ()) -> int:
    """Run `work` in new namespaces; return its value, 1 after an exception, or 128 + n after signal
    n.

    Call this from the main thread of a separate process that was started by a thread which lives
    as long as its process: a SIGKILL of either ends everything (see die_with_parent). Inside,
    RUNTIME is a tmpfs with mnt, s and scratch; its `host_proc` is the machine's /proc, and
    `host_run` the user's directory of locks. Foreign filesystems are detached, except those of
    the system, Python, this program, the home and current directories, and `keep`. SIGINT and
    SIGTERM are forwarded to `work`, whose processes are a separate session: Ctrl-C reaches them
    once. Raises NotRoot.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "isolated() belongs into the main thread: PR_SET_PDEATHSIG follows the thread"
        )
    # From here on the end of the parent is the end of this process.
    die_with_parent()
    questions.prepare()
    try:
        RUNTIME.mkdir(0o700, parents=True, exist_ok=True)
        libc.call("unshare", CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC)
    except OSError as error:
        raise _refusal(str(error)) from None
    # Signals wait until the processes exist that will receive them.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise each process would print what is buffered
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    # Two pipes: one tells the first process that we live, the other brings its complaint.
    alive, hold = os.pipe()  # `hold` closes when the middle process ends
    complaint, complain = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(hold)
        os.close(complaint)
        _first_process(work, keep, alive, complain, before)
    os.close(alive)
    os.close(complain)
    try:
        with os.fdopen(complaint) as reader:
            # returns when the first process has made its mounts or has ended
            complaint_text = reader.read()
        status = _supervise(first, first)
    finally:
        os.close(hold)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if complaint_text:
        raise _refusal(complaint_text)
    return status


def private_folder() -> Path:
    """Make the user's folder of locks and keys, closed to other accounts. Raises OSError,
    PermissionError.
    """
    folder = RUNTIME
    outer = RUNTIME / _OUTER
    if os.geteuid() != 0:
        folder = Path.home() / ".local/state/dbbench" / os.uname().nodename
    elif outer.is_dir():
        return outer
    folder.mkdir(0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(
            errno.EPERM,
            "it is not a directory of this user",
            str(folder),
        )
    folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def temporary_folder(elsewhere: Path | None = None) -> Iterator[Path]:
    """Make a directory for the block. That of root's is where no other account can set a name;
    `elsewhere`: of another account.
    """
    import tempfile  # 10 ms, which few commands need

    parent = private_folder() if os.geteuid() == 0 else elsewhere
    with tempfile.TemporaryDirectory(prefix="temporary-", dir=parent) as folder:
        yield Path(folder)


def mounts_are_private() -> bool:
    """Whether the mounts of this process are invisible to other processes and end with it."""
    return _private


def detach_foreign(keep: Iterable[Path]) -> list[str]:
    """Detach foreign filesystems from this mount namespace, where they would keep devices busy
    after the owner's umount; return the mount points for which that failed. Only for a namespace
    that propagates no mounts (MS_SLAVE).
    """
    left = []
    for entry in foreign(mounts_of(Path("/proc/self")), keep):
        try:
            unmount(entry.point, lazy=True)
        except OSError as error:
            # these: it is gone with the mount above it
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                left.append(f"{entry.point}: {error.strerror}")
    return left


def foreign(table: Sequence[Mount], keep: Iterable[Path]) -> list[Mount]:
    """Return the mounts of `table` that are neither the kernel's own nor needed for one of the
    paths, deepest first.
    """
    by_id = {entry.id: entry for entry in table}
    needed: set[int] = set()
    for path in keep:
        holds: Mount | None = mount_holding(path, table)
        while holds is not None and holds.id not in needed:
            needed.add(holds.id)
            holds = by_id.get(holds.parent)
    # busy in any case, also with other bind mounts or subvolumes
    devices = {by_id[number].device for number in needed}

    def stays(entry: Mount) -> bool:
        in_place = any(tree == entry.point or tree in entry.point.parents for tree in _TREES)
        return entry.id in needed or entry.device in devices or entry.fstype in _KERNEL or in_place

    return [entry for entry in reversed(table) if not stays(entry)]


def _first_process(
    work: Callable[[], int],
    keep: Sequence[Path],
    alive: int,
    complain: int,
    mask: Iterable[int],
) -> NoReturn:
    """Run as pid 1: wait for the worker, and reap orphans but not the children of the worker's
    Popen objects.
    """
    status = 1
    try:
        libc.end_with_parent()
        # end of file: the middle process died before prctl
        if select.select([alive], [], [], 0)[0]:
            os._exit(128 + signal.SIGKILL)
        # A session of its own: Ctrl-C reaches the trial through its parent only.
        os.setsid()
        try:
            _furnish(keep)
        except OSError as error:
            os.write(complain, str(error).encode())
            os._exit(1)
        # The other side goes on when this end is closed.
        os.close(complain)
        worker = os.fork()
        if worker == 0:
            process.end_with(_worker, work, mask)
        status = _supervise(worker, -1)
    finally:
        os._exit(status)


def _furnish(keep: Sequence[Path]) -> None:
    # Mounts made here are not seen outside; what the trial does not need is detached.
    mount("none", Path("/"), flags=MS_REC | MS_SLAVE)
    paths = [Path(word) for word in (*_NEEDED, *sys.path, sys.prefix, sys.base_prefix)]
    paths += [Path.cwd(), Path.home(), *keep]
    for left in detach_foreign(path.resolve() for path in paths):
        print(
            f"dbbench: left in the trial's namespace: {left}",
            file=sys.stderr,
            flush=True,
        )
    # the tmpfs covers it
    outer = os.open(private_folder(), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mount("tmpfs", RUNTIME, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for name in ("mnt", "s", "scratch", "host_proc", _OUTER):
        (RUNTIME / name).mkdir(0o755)
    mount(f"/proc/self/fd/{outer}", RUNTIME / _OUTER, flags=MS_BIND)
    os.close(outer)
    # The machine's processes remain visible at a second place.
    mount("/proc", RUNTIME / "host_proc", flags=MS_BIND)
    mount(
        "proc",
        Path("/proc"),
        "proc",
        MS_NOSUID | MS_NODEV | MS_NOEXEC,
    )
    shared = Path("/dev/shm").resolve()
    if shared.is_dir():  # a small container may have none
        mount("tmpfs", shared, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def _worker(work: Callable[[], int], mask: Iterable[int]) -> int:
    global _private
    _private = True
    # no program that it starts gains privileges by setuid
    libc.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return work()


def _supervise(child: int, reap: int) -> int:
    """Forward SIGINT and SIGTERM to `child` until it ends; reap `reap` (-1: any process); return
    its exit status.
    """
    while True:
        number = signal.sigwait(_WATCHED)
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
            continue
        while (ended := os.waitpid(reap, os.WNOHANG)) != (0, 0):
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                return code if code >= 0 else 128 - code


def _refusal(evidence: str) -> DbbenchError:
    return NotRoot(
        f"private mount, pid and ipc namespaces could not be made: {evidence}",
        remedy=CAPABLE,
    )
