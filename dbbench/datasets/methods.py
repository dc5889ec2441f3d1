"""How a golden copy comes onto the filesystem: by plain copies, as a stream of tar, or by sharing blocks (reflink).

tar: one process reads the files in their order, another one writes them, as a backup is unpacked by hand. reflink: the
copy is restored beside the data directory first, whose files then share its blocks. Nothing of them is written again
until it is changed; each first change of a block goes elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.copying import Advance, Check, Progress, Restored, free_bytes, full, needed_bytes, restored
from dbbench.datasets.manifest import BLOCK, Golden
from dbbench.errors import DbbenchError, RestoreFailed
from dbbench.process import User

FICLONE: Final = 0x40049409  # linux/fs.h
_POLL_S: Final = 0.2
_RECORD: Final = f"--blocking-factor={BLOCK // 512}"  # as much at once as plain copies; its own 10 KiB cost calls
_STREAM_S: Final = 24 * 3600.0  # a day: beyond it something hangs
_CANNOT: Final = (errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.EINVAL, errno.ENOSYS)
REFLINKING: Final = ("btrfs", "xfs", "zfs")  # families that may; of a given filesystem the kernel tells


def by_copy(golden: Golden, datadir: Path, owner: User, progress: Progress | None = None) -> Restored:
    """One file after the other, by plain writes."""
    return restored(golden, datadir, owner, progress)


def by_tar(golden: Golden, datadir: Path, owner: User, progress: Progress | None = None) -> Restored:
    """`tar --create | tar --extract`."""
    return restored(golden, datadir, owner, progress, _streamed)


def by_reflink(golden: Golden, datadir: Path, owner: User, progress: Progress | None = None) -> Restored:
    """A plain copy beside the data directory (`DATA.golden`), which stays, and files that share its blocks.

    RestoreFailed where the filesystem cannot share blocks.
    """
    beside = datadir.with_name(f"{datadir.name}.golden")
    _ask(beside.parent)
    first = restored(golden, beside, owner, progress)
    second = restored(golden, datadir, owner, None, functools.partial(_shared, beside))
    return Restored(first.bytes, first.files, first.copy_s + second.copy_s, first.seconds + second.seconds)


METHODS: Final[dict[str, Callable[[Golden, Path, User, Progress | None], Restored]]] = {
    "copy": by_copy,
    "tar": by_tar,
    "reflink": by_reflink,
}


# --- tar -------------------------------------------------------------------------------------------


def _streamed(golden: Golden, datadir: Path, owner: User, advance: Advance, check: Check) -> None:
    files = golden.manifest.of_kind("file")
    with tempfile.TemporaryDirectory(prefix="dbbench-tar-") as name:
        names = Path(name) / "names"
        names.write_bytes(b"".join(os.fsencode(entry.path) + b"\0" for entry in files))
        create = ["tar", "--create", "--file=-", _RECORD, f"--directory={golden.data}", "--null", "--no-recursion",
                  "--verbatim-files-from", f"--files-from={names}", f"--owner=:{owner.uid}",
                  f"--group=:{owner.gid}"]  # fmt: skip
        extract = ["tar", "--extract", "--file=-", _RECORD, f"--directory={datadir}", "--numeric-owner",
                   "--preserve-permissions"]  # fmt: skip
        said = Path(name) / "said"
        with (
            process.running(create, stdout=subprocess.PIPE, stderr=said) as reader,
            process.running(extract, stdin=reader.popen.stdout or subprocess.DEVNULL, stderr=said) as writer,
        ):
            if reader.popen.stdout is not None:
                fcntl.fcntl(reader.popen.stdout, fcntl.F_SETPIPE_SZ, BLOCK)
                reader.popen.stdout.close()  # else the writer's death would not be the reader's end
            seen = _watch(writer, advance)
            failed = writer.wait(_STREAM_S) or reader.wait(_STREAM_S)
        if failed:
            raise _failure(golden, datadir, said.read_text(errors="replace").strip())
    advance(golden.manifest.logical_bytes - seen)
    for entry in files:
        check(entry)


def _watch(writer: process.Running, advance: Advance) -> int:
    """Tell what the writer has written so far, by the kernel's own count, until it ends; the last that was told."""
    seen = 0
    while writer.poll() is None:
        try:
            lines = Path(f"/proc/{writer.pid}/io").read_text().splitlines()
            written = next(int(line.split()[1]) for line in lines if line.startswith("wchar"))
        except (OSError, StopIteration):
            written = seen  # it has just ended
        advance(written - seen)
        seen = written
        time.sleep(_POLL_S)
    return seen


def _failure(golden: Golden, datadir: Path, said: str) -> DbbenchError:
    if "No space left" in said or "quota" in said.lower():
        return full(golden, datadir, needed_bytes(golden.manifest), free_bytes(datadir.parent), "in the middle of it")
    return RestoreFailed(f"tar could not write {datadir}: {said.splitlines()[-1] if said else 'it said nothing'}")


# --- reflink ---------------------------------------------------------------------------------------


def _ask(folder: Path) -> None:
    """RestoreFailed where two files of the folder's filesystem cannot share a block; before anything is restored."""
    names = [folder / f".reflink-{number}" for number in (1, 2)]
    try:
        names[0].write_bytes(bytes(4096))
        names[1].touch()
        _clone(names[0], names[1])
    finally:
        for name in names:
            name.unlink(missing_ok=True)


def _shared(beside: Path, golden: Golden, datadir: Path, owner: User, advance: Advance, check: Check) -> None:
    for entry in golden.manifest.of_kind("file"):
        target = datadir / entry.path
        target.touch(0o600)
        _clone(beside / entry.path, target)
        if (owner.uid, owner.gid) != (os.geteuid(), os.getegid()):
            os.chown(target, owner.uid, owner.gid)
        target.chmod(entry.mode)
        advance(entry.size)
        check(entry)


def _clone(source: Path, target: Path) -> None:
    with source.open("rb") as from_, target.open("r+b") as to:
        try:
            fcntl.ioctl(to, FICLONE, from_.fileno())
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            raise RestoreFailed(
                f"the filesystem of {target.parent} cannot share blocks between files: {error.strerror}",
                effect="Nothing was measured.",
                remedy='restore = "copy" in the plan; btrfs and xfs can share blocks.',
            ) from None
