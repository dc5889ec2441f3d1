"""Files that are whole or not there: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dbbench.errors import DbbenchError, FilesystemFull, ResultsUnwritable


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write `path` into an error with its evidence."""
    try:
        yield
    except OSError as error:
        if error.errno == 28:  # ENOSPC
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
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            with temporary.open("w", encoding="utf-8") as file:
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


def sha256(path: Path) -> str:
    """The file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
