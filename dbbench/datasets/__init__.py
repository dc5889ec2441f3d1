"""Datasets: built once as a golden copy, restored byte for byte on every filesystem.

Methods of restoring a golden copy: plain copies, a tar stream, or shared blocks (reflink).

tar: the files in their order as one stream for `tar --extract`, as when a backup is unpacked. reflink: the copy is
first restored next to the data directory, whose files then share its blocks. They are not written again until they are
changed, and the first change of each block goes to a new place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets import archive, generated, golden, sources
from dbbench.datasets.copying import (
    Advance,
    Check,
    Progress,
    Restored,
    free_bytes,
    full,
    needed_bytes,
    reading,
    restored,
)
from dbbench.datasets.manifest import BLOCK, Entry, Golden, open_entry, split
from dbbench.errors import DbbenchError, RestoreFailed
from dbbench.process import User

__all__ = ["METHODS", "Golden", "Restored", "archive", "generated", "golden", "restored", "sources", "split"]
FICLONE: Final = 0x40049409  # linux/fs.h
_STREAM_S: Final = 24 * 3600.0  # a day; a longer restore is stuck
# Errors of FICLONE if the filesystem cannot share blocks.
_CANNOT: Final = (errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.EINVAL, errno.ENOSYS)


def by_copy(golden: Golden, datadir: Path, owner: User, progress: Progress | None = None) -> Restored:
    """Write the files one after the other."""
    return restored(golden, datadir, owner, progress)


def by_tar(golden: Golden, datadir: Path, owner: User, progress: Progress | None = None) -> Restored:
    """Send a stream like that of `tar --create` to `tar --extract`."""
    return restored(golden, datadir, owner, progress, _streamed)


def by_reflink(golden: Golden, datadir: Path, owner: User, progress: Progress | None = None) -> Restored:
    """Restore a plain copy next to the data directory (`DATA.golden`), which stays, and files that share its blocks.

    Raises RestoreFailed if the filesystem cannot share blocks.
    """
    _ask(datadir.parent)
    first = restored(golden, _beside(datadir), owner, progress)
    second = restored(golden, datadir, owner, None, _shared)
    return Restored(first.bytes, first.files, first.copy_s + second.copy_s, first.seconds + second.seconds)


METHODS: Final[dict[str, Callable[[Golden, Path, User, Progress | None], Restored]]] = {
    "copy": by_copy,
    "tar": by_tar,
    "reflink": by_reflink,
}


# --- tar -------------------------------------------------------------------------------------------


def _streamed(golden: Golden, datadir: Path, owner: User, advance: Advance, check: Check) -> None:
    extract = ["tar", "--extract", "--file=-", f"--blocking-factor={BLOCK // tarfile.BLOCKSIZE}",
               f"--directory={datadir}", "--numeric-owner", "--preserve-permissions"]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="dbbench-tar-") as name:
        output = Path(name) / "said"
        with process.running(extract, stdin=subprocess.PIPE, stderr=output) as writer:
            assert writer.popen.stdin is not None
            with writer.popen.stdin as stream, contextlib.suppress(BrokenPipeError):  # the exit status tells why
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, BLOCK)
                for entry in golden.manifest.of_kind("file"):
                    _send(golden, entry, owner, stream.fileno(), advance)
                    check(entry)
                os.write(stream.fileno(), bytes(2 * tarfile.BLOCKSIZE))  # two empty blocks end an archive
            failed = writer.wait(_STREAM_S)
        if failed:
            raise _failure(golden, datadir, output.read_text(errors="replace").strip())


def _send(golden: Golden, entry: Entry, owner: User, stream: int, advance: Advance) -> None:
    """Send a file as a member of the archive.

    Its pages are spliced into the pipe without a copy: two copying tar programs used two cores and were a third slower
    on machines with only two.
    """
    with reading(golden, entry), os.fdopen(open_entry(golden, entry), "rb") as source:
        head = tarfile.TarInfo(entry.path)
        head.size, head.mode, head.uid, head.gid = entry.size, entry.mode, owner.uid, owner.gid
        head.mtime = int(os.fstat(source.fileno()).st_mtime)
        os.write(stream, head.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
        sent = 0
        while count := os.sendfile(stream, source.fileno(), sent, min(BLOCK, entry.size - sent)):
            sent += count
            advance(count)
        whole = -(-entry.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        while sent < whole:  # zeros up to a whole block; `check` detects a file that became shorter than its entry
            sent += os.write(stream, bytes(min(BLOCK, whole - sent)))


def _failure(golden: Golden, datadir: Path, said: str) -> DbbenchError:
    if "No space left" in said or "quota" in said.lower():
        return full(golden, datadir, needed_bytes(golden.manifest), free_bytes(datadir.parent), "during the restore")
    return RestoreFailed(f"tar could not write {datadir}: {said.splitlines()[-1] if said else 'it printed no reason'}")


# --- reflink ---------------------------------------------------------------------------------------


def _ask(folder: Path) -> None:
    """Raise RestoreFailed before the restore if two files in this directory cannot share a block."""
    names = [folder / f".reflink-{number}" for number in (1, 2)]
    try:
        names[0].write_bytes(bytes(4096))
        names[1].touch()
        _clone(names[0], names[1])
    finally:
        for name in names:
            name.unlink(missing_ok=True)


def _beside(datadir: Path) -> Path:
    return datadir.with_name(f"{datadir.name}.golden")


def _shared(golden: Golden, datadir: Path, owner: User, advance: Advance, check: Check) -> None:
    for entry in golden.manifest.of_kind("file"):
        target = datadir / entry.path
        target.touch(0o600)
        _clone(_beside(datadir) / entry.path, target)
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
                f"the filesystem of {target.parent} does not support reflinks: {error.strerror}",
                effect="Nothing was measured.",
                remedy='Set restore = "copy" in the plan, or use btrfs or xfs.',
            ) from None
