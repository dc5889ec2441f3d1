"""Files of a results folder: written atomically; read by `plain_file`, which follows no link, opens
only regular files and limits what it reads, because a results folder may come from someone else.

The file is long because every way to open a file is here: what one of them refuses, the others
must refuse too.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from pydantic import ValidationError

from dbbench import errors
from dbbench.model.base import SCHEMA, adapter
from dbbench.units import inert, size_text

# The largest file of the results that is read as a whole: some kilobytes are usual, and a run.json
# of 20 000 trials has 16 MiB. `dbbench.metrics.series` limits what a series has after unpacking.
MOST_BYTES: Final = 2**25
# files that are only hashed or copied: output of tools, images of the power-loss lab
RAW: Final = 16 * 2**30
# objects and lists in a JSON file; in memory they are 100 times as large as their text
_MOST_PARTS: Final = 200_000
_MOST_VALUES: Final = 2_000_000
_LARGEST: Final = 2**64  # bound of a number in JSON: bytes, nanoseconds and seeds are smaller
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# a segment of PostgreSQL's log: a server that cannot make one has removed what it wrote
_LEAST_BYTES: Final = 2**24
_REMEDIES: Final = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        "Correct the permissions, or choose another place (--results DIR, -o FILE).",
    ),
    errno.EROFS: "The filesystem is mounted read-only. Choose another place.",
    errno.ENAMETOOLONG: "A name has at most 255 bytes. Use a shorter one.",
}
_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
}
_T = TypeVar("_T")
# Keys of strings that contain a program's output, and of SQL that is executed.
_OUTPUT: Final = ("text", "harms", "harms_at_4096", "invalid", "detail")
_EXECUTED: Final = ("during",)
_INDENT: Final = "\n" + 6 * " "
_SUM: Final = b',\n "sha256": "'


class NotRegular(OSError):
    """The path is not a regular file, or it goes through a symbolic link where none is allowed."""


class TooLarge(OSError):
    """The file exceeds the maximum size for its kind."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an OSError while writing `path` into an error of dbbench with its evidence."""
    try:
        yield
    except OSError as error:
        raise unwritable(error, path) from error


def unwritable(error: OSError, what: Path | str) -> errors.DbbenchError:
    """Return the error of dbbench for a file or stream that cannot be written: FilesystemFull,
    NotWritable.
    """
    kept = "Everything that was completed before is kept."
    if error.errno in FULL:
        remedy = "Free some disk space, then run the same command again."
        return errors.FilesystemFull(
            f"no space left while writing {what}",
            effect=kept,
            remedy=remedy,
        )
    reason = error.strerror
    remedy = _REMEDIES.get(error.errno or 0, "Choose another place (--results DIR, -o FILE).")
    if error.errno == errno.ENOENT and not Path(what).parent.exists():
        reason = f"the directory {Path(what).parent} does not exist"
        remedy = "Create it, or choose another place."
    return errors.NotWritable(
        f"{what} cannot be written: {reason}",
        effect=kept,
        remedy=remedy,
    )


@contextlib.contextmanager
def naming_full(*places: Path) -> Iterator[None]:
    """Raise FilesystemFull for any failure of the block while one of these directories has no space
    left.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise unwritable(error, error.filename or "a file") from error
        full = [place for place in places if _is_full(place)]
        if (
            isinstance(error, errors.FilesystemFull)
            or not full
            or getattr(error, "exit_code", 1) != 1
        ):
            raise
        raise errors.FilesystemFull(f"{full[0]} has no space left: {error}") from error


def _is_full(place: Path) -> bool:
    with contextlib.suppress(OSError):
        space = shutil.disk_usage(place)
        return space.free < min(_LEAST_BYTES, space.total / 20)
    return False


def try_lock(fd: int) -> bool:
    """Lock an open file until it is closed (flock(2)); return False if another process holds the
    lock.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def kept_if_used(folder: Path) -> Iterator[None]:
    """If an error ends the block, which may make the directory and its parents, remove those of them
    that are empty.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[tuple[int, bool]]:
    """Create the file and its directory if missing; yield its descriptor, and whether it could be
    locked within the block. A file that was removed meanwhile does not count as locked.
    """
    try:
        fd = own_file(path, os.O_RDWR, 0o644)
    except FileNotFoundError:
        # In this order, because another process may just be removing the empty directory.
        path.parent.mkdir(0o755, parents=True, exist_ok=True)
        fd = own_file(path, os.O_RDWR, 0o644)
    try:
        yield fd, try_lock(fd) and os.fstat(fd).st_nlink > 0
    finally:
        os.close(fd)


@contextlib.contextmanager
def exclusive(lock: Path, refused: Callable[[str], errors.DbbenchError]) -> Iterator[None]:
    """Hold a lock file with this process's id. If another process holds it, raise what `refused`
    returns for its id.
    """
    with writing(lock):
        fd = own_file(lock, os.O_RDWR, 0o600)
    try:
        if not try_lock(fd):
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip()
            raise refused(holder or "unknown")
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def own_file(path: Path, flags: int, mode: int) -> int:
    """Open a file of this user for writing and create it if it is missing; return the descriptor.
    Raises OSError for anything that could lead to another user's file: a symbolic link, a
    device, a FIFO, a second hard link.
    """
    with contextlib.suppress(FileNotFoundError):
        _check_own(path, path.lstat())
    fd = os.open(
        path,
        flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
        mode,
    )
    try:
        _check_own(path, os.fstat(fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def open_log(path: Path) -> IO[bytes]:
    """Open a file of this user to append to it. Raises NotWritable, FilesystemFull."""
    with writing(path):
        return os.fdopen(own_file(path, os.O_WRONLY | os.O_APPEND, 0o644), "ab")


def _check_own(path: Path, found: os.stat_result) -> None:
    _must_be_regular(path, found.st_mode)
    if found.st_nlink > 1:
        raise NotRegular(
            errno.EMLINK,
            "it is a hard link to a file with another name",
            str(path),
        )


def _must_be_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegular(
            errno.EINVAL,
            f"it is {kind_of(mode)}, not a regular file",
            str(path),
        )


def remove(path: Path) -> bool:
    """Remove a regular file; return False if there is none. No link in its path is followed. Raises
    OSError.
    """
    with _folder_of(path, Path("/")) as folder:
        try:
            _must_be_regular(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)
            os.unlink(path.name, dir_fd=folder)
        except FileNotFoundError:
            return False
    return True


@contextlib.contextmanager
def open_fd(
    path: str | Path,
    flags: int = os.O_RDONLY,
    mode: int = 0o600,
    dir_fd: int | None = None,
) -> Iterator[int]:
    """Yield a descriptor of the file, which is closed at the end. Raises OSError."""
    fd = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def sync(path: Path) -> None:
    """Call fsync on a file or a directory."""
    with open_fd(path) as fd:
        os.fsync(fd)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` atomically, even if power is lost."""
    with writing(path):
        if os.path.lexists(path) and not path.is_symlink():
            # the rename would replace a device by a file
            _must_be_regular(path, path.lstat().st_mode)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.unlink(missing_ok=True)
            # O_EXCL does not follow a link
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o644), "wb") as file:
                file.write(text.encode(errors="surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Replace `path` by JSON: UTF-8, no NaN."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def write_with_sum(path: Path, content: Any) -> None:
    """Replace `path` by a JSON object whose last key is the SHA-256 of everything before it."""
    body = (
        json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
        .removesuffix("\n}")
        .encode()
    )
    write_text(path, f'{body.decode()}{_SUM.decode()}{hashlib.sha256(body).hexdigest()}"\n}}\n')


def read_bytes(path: Path, below: Path) -> bytes:
    """Return the content of a file in the results folder `below`. Raises OSError, ResultNotRegular,
    ResultDamaged.
    """
    with plain_file(path, below) as file:
        return file.read()


def sha256(path: Path, below: Path) -> str:
    """Return the SHA-256 in hex of a file in the results folder `below`. Raises as `read_bytes`."""
    with plain_file(path, below, RAW) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def plain_file(
    path: Path,
    below: Path,
    most_bytes: int = MOST_BYTES,
) -> Iterator[io.BufferedReader]:
    """Open a file in the results folder `below` for reading. Raises OSError, ResultNotRegular,
    ResultDamaged. Refuses symbolic links, also in the directories above the file, and FIFOs,
    sockets and devices, which may never end.
    """
    try:
        with open_file(path, most_bytes, below) as file:
            yield file
    except NotRegular as error:
        raise errors.ResultNotRegular(
            f"{path}: {error.strerror}", effect="It was not opened."
        ) from error
    except TooLarge as error:
        raise errors.ResultDamaged(
            f"{path}: {error.strerror}", effect="It was not read."
        ) from error


def matches(folder: Path, pattern: str) -> list[Path]:
    """Return what matches below the directory, sorted, without names that could forge a line of a
    table: they may come from someone else.
    """
    paths = sorted(folder.glob(pattern))
    return [path for path in paths if str(path.relative_to(folder)).isprintable()]


def real_folder(path: Path, below: Path) -> Path:
    """Return a directory's path, which need not exist. Raises ResultNotRegular for links from
    `below` on.
    """
    places = [path, *path.parents]
    for place in places[: places.index(below)]:
        if place.is_symlink():
            raise errors.ResultNotRegular(
                f"{place} is a symbolic link", effect="Nothing was changed."
            )
    return path


def sound_json(written: bytes) -> Any:
    """Parse a JSON file of the results. Raises ValueError for content that dbbench does not write:
    NaN, numbers beyond 64 bits, duplicate keys, and nesting or sizes that would exhaust the
    memory.
    """
    if (
        written.count(b"[") + written.count(b"{") > _MOST_PARTS
        or written.count(b",") > _MOST_VALUES
    ):
        raise ValueError("it has too many parts")
    try:
        return json.loads(
            written,
            parse_constant=_number,
            parse_float=_number,
            parse_int=_number,
            object_pairs_hook=_distinct,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_as(
    kind: type[_T],
    path: Path,
    below: Path,
    missing: errors.DbbenchError | None = None,
) -> _T:
    """Read a JSON file in the results folder `below` as this dataclass. Raises `missing` if the
    file does not exist, ResultDamaged, and what `read_bytes` raises.
    """
    try:
        whole = read_bytes(path, below)
        body, mark, checksum = whole.rpartition(_SUM)
        if mark and hashlib.sha256(body).hexdigest().encode() != checksum[:64]:
            raise ValueError("its checksum does not match its content")
        return parsed_as(kind, whole)
    except (OSError, ValueError) as error:
        if missing is not None and isinstance(error, FileNotFoundError | NotADirectoryError):
            raise missing from None
        raise errors.ResultDamaged(
            f"{path} cannot be read: {str(error).splitlines()[0]}"
        ) from error


def parsed_as(kind: type[_T], written: bytes) -> _T:
    """Return the content of a JSON file of the results as this dataclass. Raises ValueError."""
    content = sound_json(written)
    if hasattr(kind, "schema") and isinstance(content, dict) and content.get("schema") != SCHEMA:
        raise ValueError(
            f"its schema is {content.get('schema')}, and this version of dbbench reads schema "
            f"{SCHEMA} only; use the version that wrote it"
        )
    # Only a file with escapes or active characters can contain what a terminal or a page obeys.
    text = written.decode()
    if "\\" in text or inert(text) != text:
        written = json.dumps(_shown(content, "")).encode()
    try:
        return adapter(kind).validate_json(written)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "content"
        says = first["msg"].replace("Input should be", "must be")
        raise ValueError(f"{where}: {says}") from error


def _shown(content: Any, key: str) -> Any:
    """Return the content with strings that cannot forge a line of a table: control characters are
    escaped, and line feeds too, except where a program's output has some; its lines are indented
    more than any line of dbbench's. `key`: where the content is.
    """
    if isinstance(content, dict):
        shown = {}
        for name, value in content.items():
            shown[_shown(name, "")] = _shown(value, key if key in _OUTPUT else name)
        return shown
    if isinstance(content, list):
        return [_shown(value, key) for value in content]
    if not isinstance(content, str):
        return content
    text = inert(content)
    if key in _EXECUTED:
        return text
    if key in _OUTPUT:
        return _INDENT.join(line.strip() for line in text.splitlines())
    return text.replace("\n", "\\u000a")


def _number(word: str) -> float:
    value = float(word)
    if not abs(value) <= _LARGEST:  # NaN is not
        raise ValueError(f"{word[:20]} is too large or not a number")
    if word.lstrip("-").isdigit():
        return int(word)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key is listed twice")
    return entries


def _too_large(path: Path, most_bytes: int) -> TooLarge:
    return TooLarge(
        errno.EFBIG,
        f"it is larger than {size_text(most_bytes)}, the limit here",
        str(path),
    )


def open_file(
    path: Path,
    most_bytes: int,
    below: Path | None = None,
) -> io.BufferedReader:
    """Open a regular file for reading, and never anything else. Raises OSError, NotRegular,
    TooLarge, also while it is read. Below the directory `below` symbolic links are refused;
    without it, links are followed as usual.
    """
    fd = _locate(path, below)  # O_PATH, so that devices and FIFOs are not opened
    try:
        status = os.fstat(fd)
        _must_be_regular(path, status.st_mode)
        if status.st_size > most_bytes:
            raise _too_large(path, most_bytes)
        opened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return io.BufferedReader(_Limited(opened, path, most_bytes))
    finally:
        os.close(fd)


class _Limited(io.FileIO):
    """A file that another account may extend faster than it is read."""

    def __init__(self, fd: int, path: Path, most_bytes: int) -> None:
        super().__init__(fd)
        self._path = path
        self._most_bytes = most_bytes

    def readinto(self, buffer: Any) -> int:
        """Raises TooLarge beyond the limit."""
        size = super().readinto(buffer)
        if self.tell() > self._most_bytes:
            raise _too_large(self._path, self._most_bytes)
        return size or 0

    # those of FileIO do not use `readinto`
    read: Any = io.RawIOBase.read
    readall = io.RawIOBase.readall


def read_input(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file that the user named; links are followed. Raises FileUnreadable."""
    remedies = {
        NotRegular: "Name a file, not a directory, FIFO or device.",
        TooLarge: f"Use a part of it, for example: head -c {most_bytes}",
    }
    try:
        with open_file(path, most_bytes) as file:
            return file.read()
    except FileNotFoundError:
        raise errors.FileUnreadable(f"{path} does not exist") from None
    except PermissionError:
        remedy = "Run as an account that may read it, or change its permissions."
        raise errors.FileUnreadable(_forbidden(path), remedy=remedy) from None
    except OSError as error:
        raise errors.FileUnreadable(
            f"{path}: {error.strerror}", remedy=remedies.get(type(error))
        ) from None


def _forbidden(path: Path) -> str:
    """Return who may not read a file, and to whom it belongs, if that is visible."""
    reader = f"{path} cannot be read by the user {user_name(os.geteuid())}"
    with contextlib.suppress(OSError):
        facts = path.stat()
        mode = stat.S_IMODE(facts.st_mode)
        return f"{reader}: it belongs to {user_name(facts.st_uid)} and has mode {mode:04o}"
    return f"{reader}, nor can its directory"


def user_name(uid: int) -> str:
    """Return the name of an account, or its number if it has no entry in passwd."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # as in some containers
        return str(uid)


def given_text(path: Path, most_bytes: int, errors_: str = "strict") -> str:
    """Return the content of a file that the user named as text. Raises PlanInvalid if it is not
    UTF-8, unless `errors_` says how `decode` treats other bytes.
    """
    try:
        return read_input(path, most_bytes).decode("utf-8", errors_)
    except UnicodeDecodeError as error:
        utf16 = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if b"\0" in error.object and not utf16:
            raise errors.PlanInvalid(
                f"{path} is a binary file, not a text",
                remedy="Name a text file; decompress it first if it is compressed.",
            ) from None
        line = 1 + error.object.count(b"\n", 0, error.start)
        found = "UTF-16" if utf16 else "not UTF-8"
        raise errors.PlanInvalid(
            f"{path}:{line}  the text is {found}; save the file as UTF-8"
        ) from None


def kind_of(mode: int) -> str:
    """Return the kind of a file that is not regular: "a FIFO", "a device"."""
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def _locate(path: Path, below: Path | None) -> int:
    if below is None:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    with _folder_of(path, below) as folder:
        fd = os.open(
            path.name,
            os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW,
            dir_fd=folder,
        )
        try:
            _must_be_of_its_folder(path, os.fstat(fd), os.fstat(folder))
        except NotRegular:
            os.close(fd)
            raise
        return fd


def _must_be_of_its_folder(path: Path, file: os.stat_result, folder: os.stat_result) -> None:
    """Raise NotRegular for a hard link that another account may have made to a file that it cannot
    read, which kernels allow without fs.protected_hardlinks.
    """
    is_shared = folder.st_mode & stat.S_IWOTH or file.st_uid != folder.st_uid
    if file.st_nlink > 1 and stat.S_ISREG(file.st_mode) and is_shared:
        raise NotRegular(errno.EPERM, "it is a hard link to a file with another name", str(path))


@contextlib.contextmanager
def _folder_of(path: Path, below: Path) -> Iterator[int]:
    """Yield a descriptor that names the directory of a file, which was reached from `below` without
    a link.
    """
    folders = path.absolute().relative_to(below.absolute()).parts[:-1]
    if ".." in folders:
        raise NotRegular(errno.EINVAL, 'its path contains ".."', str(path))
    # Each directory is opened below the one before, so that no link can be put in between.
    fd = os.open(below, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
            mode = os.fstat(fd).st_mode
            if not stat.S_ISDIR(mode):
                kind = "a regular file" if stat.S_ISREG(mode) else kind_of(mode)
                raise NotRegular(
                    errno.ENOTDIR,
                    f'"{folder}" in its path is {kind}, not a directory',
                    str(path),
                )
        yield fd
    finally:
        os.close(fd)
