"""Files that are whole or not there: temporary name, fsync, rename, fsync of the folder.

A results folder may come from somebody else: no link in it is followed, and only plain files are read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dbbench.errors import DbbenchError, FilesystemFull, ResultsUnwritable

_SUM: Final = b',\n "sha256": "'


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write `path` into an error with its evidence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FilesystemFull(
                f"no space left while writing {path}",
                effect="What was finished before is kept.",
                remedy="Free some disk space and type the same command again; it resumes.",
            ) from error
        raise ResultsUnwritable(
            f"{path} cannot be written: {error.strerror}",
            effect="What was finished before is kept.",
            remedy="Name another folder with --results DIR.",
        ) from error


@contextlib.contextmanager
def exclusive(lock: Path, refused: Callable[[str], DbbenchError]) -> Iterator[None]:
    """Hold that lock file while the block lasts, with our process id in it. Where another process holds it, raise
    what `refused` makes of its id."""
    with writing(lock):
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refused(os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def sync(path: Path) -> None:
    """fsync a file or a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` as a whole, also through a power cut."""
    with writing(path):
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # O_EXCL: a link of that name is no way out
            with os.fdopen(os.open(temporary, flags, 0o644), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Replace `path` by JSON: UTF-8, no NaN."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def write_summed(path: Path, content: Any) -> None:
    """Replace `path` by a JSON object whose last key is the SHA-256 of all before it: for what is replaced by turns."""
    body = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False).removesuffix("\n}").encode()
    write_text(path, f'{body.decode()}{_SUM.decode()}{hashlib.sha256(body).hexdigest()}"\n}}\n')


def read_summed(path: Path) -> bytes:
    """The JSON that `write_summed` wrote. OSError; ValueError where it was altered."""
    whole = read_bytes(path)
    body, mark, told = whole.rpartition(_SUM)
    if mark and hashlib.sha256(body).hexdigest().encode() != told[:64]:
        raise ValueError("it was altered: its checksum is not that of its content")
    return whole


def read_bytes(path: Path) -> bytes:
    """The content of a plain file. OSError, also for a link, a FIFO or a device."""
    with plain_file(path) as file:
        return file.read()


def sha256(path: Path) -> str:
    """The SHA-256 of a plain file in hex. OSError, also for a link, a FIFO or a device."""
    with plain_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain_file(path: Path) -> io.BufferedReader:
    """The file, open for reading, if it is a plain one: a link leads elsewhere, a FIFO or device may never end."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    raise OSError(errno.EINVAL, "not a plain file", str(path))
