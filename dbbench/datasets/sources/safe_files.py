"""The files of a source, copied or unpacked without following a link out of it: whoever made it
could have put links into it that lead to files which only root can read or write.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import signal
import stat
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from dbbench import process
from dbbench.datasets.sources.source import damaged
from dbbench.errors import DbbenchError, SourceRefused, SourceUnusable
from dbbench.results.fileio import NotRegular, kind_of, open_file

LOAD_S: Final = 24 * 3600.0  # a day; a longer copy or load is stuck
_PYTHON: Final[dict[str, Callable[[IO[bytes]], Any]]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
_PROGRAMS: Final = {".zst": "zstd", ".lz4": "lz4"}
_END: Final = 2 * tarfile.BLOCKSIZE  # bytes: two empty blocks end an archive
_PIECE: Final = 2**20
Leave = Callable[[PurePosixPath], bool]  # whether a path relative to the source is left out


# Everything is opened relative to its directory with O_NOFOLLOW; links and special files are
# refused.
def copy_tree(
    source: Path,
    target: Path,
    leave: Leave = lambda _: False,
) -> None:
    """Copy a directory, or a file as `target`. Raises SourceRefused for links and special files,
    SourceUnusable.
    """
    source = source.resolve()
    try:
        if not source.is_dir():
            return _copy(
                source.name,
                os.open(source.parent, os.O_PATH),
                target,
                source,
            )
        for folder, folders, files, fd in os.fwalk(source):
            below = PurePosixPath(os.path.relpath(folder, source))
            (target / below).mkdir(0o700, exist_ok=True)
            folders[:] = [name for name in folders if not leave(below / name)]
            for name in folders:
                _check(
                    os.stat(name, dir_fd=fd, follow_symlinks=False),
                    Path(folder, name),
                    stat.S_ISDIR,
                )
            for name in files:
                if not leave(below / name):
                    _copy(name, fd, target / below / name, Path(folder, name))
    except OSError as error:
        raise SourceUnusable(
            f"{error.filename or source} cannot be read: {error.strerror}"
        ) from error


def hand_over(tree: Path, account: process.User) -> None:
    """Make the account the owner of all files, which others cannot read."""
    for path in (tree, *tree.rglob("*")):
        if os.geteuid() == 0:
            os.lchown(path, account.uid, account.gid)
        path.chmod(0o700 if path.is_dir() else 0o600)


def _copy(name: str, folder: int, target: Path, path: Path) -> None:
    _check(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    fd = os.open(
        name,
        os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
        dir_fd=folder,
    )
    with os.fdopen(fd, "rb") as file, target.open("xb") as copy:
        status = os.fstat(fd)
        _check(status, path)
        # not what its owner appends meanwhile, maybe without end
        for _ in range(0, status.st_size, _PIECE):
            copy.write(file.read(_PIECE))


def _check(
    status: os.stat_result,
    path: Path,
    kind: Callable[[int], bool] = stat.S_ISREG,
) -> None:
    if not kind(status.st_mode):
        to = f" to {path.readlink()}" if stat.S_ISLNK(status.st_mode) else ""
        raise unsafe(f"{path} is {kind_of(status.st_mode)}{to}")


def unsafe(why: str) -> DbbenchError:
    """Return the error for a source that leads out of itself."""
    remedy = "Replace it by what it leads to, or use another backup or a dump."
    return SourceRefused(f"{why}; a copy does not follow it", remedy=remedy)


def open_plain(path: Path, folder: Path) -> IO[bytes]:
    """Open a regular file below `folder` through no link. Raises SourceRefused, OSError."""
    try:
        return open_file(path, sys.maxsize, folder)
    except NotRegular as error:
        raise unsafe(f"{path}: {error.strerror}") from error


def resolve_link(folder: Path, source: Path) -> Path:
    """Return the directory of a server's log or tablespace, which may be outside of the source if
    it belongs to the source's owner: only the owner, or root, could have put the link there.
    Raises SourceRefused.
    """
    target = folder.resolve()
    owner = source.resolve().stat().st_uid
    if not target.is_relative_to(source.resolve()) and target.stat().st_uid != owner:
        raise unsafe(f"{folder} leads to {target}, which does not belong to the owner of {source}")
    return target


@contextlib.contextmanager
def decompress(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Yield the content of a file, decompressed as its name says. Raises SourceUnusable if it is
    truncated.
    """
    suffix = Path(name).suffix
    try:
        if suffix in _PYTHON:
            with _PYTHON[suffix](file) as stream:
                yield stream
        elif suffix in _PROGRAMS:
            argv = [_PROGRAMS[suffix], "-dc"]
            with process.running(
                argv,
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as program:
                assert program.popen.stdout is not None
                yield program.popen.stdout
                program.popen.stdout.close()  # ends a program of which not everything was read
                if program.wait(LOAD_S) not in (0, -signal.SIGPIPE):
                    raise EOFError(f"{argv[0]} could not decompress it")
        else:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise damaged(name, error) from error


class _Counted:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.size = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.size += len(data)
        return data


def unpack(tar: Path, target: Path) -> None:
    """Unpack a tar file, compressed or not, beneath `target`. Raises SourceRefused, SourceUnusable."""
    with tar.open("rb") as file, decompress(file, tar.name) as content:
        stream = _Counted(content)
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    _unpack(archive, member, target, tar)
                while stream.read(_PIECE):
                    pass
        except tarfile.TarError as error:
            raise damaged(tar, error) from error
    if stream.size < archive.offset + _END:
        raise damaged(tar, "the blocks that end an archive are missing")


def _unpack(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    target: Path,
    tar: Path,
) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise unsafe(f'"{member.name}" in {tar} leads out of the archive')
    if member.isdir():
        (target / name).mkdir(0o700, parents=True, exist_ok=True)
    elif member.isreg():
        # there is no link in `target` that it could follow
        archive.extract(member, target, set_attrs=False)
    else:
        to = f" to {member.linkname}" if member.linkname else ""
        raise unsafe(f'"{member.name}" in {tar} is a {"link" if to else "special file"}{to}')
