"""What commands write, create and remove by a name that other accounts can set, read from strace."""

import re
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

# `%file`: calls that name a file; `%process`: who starts whom; changes of the account and of the
# root directory; what is mounted privately.
CALLS: Final = "%file,%process,setuid,setreuid,setresuid,openat2"
_LINE: Final = re.compile(r"(\d+) +(\w+)\((.*)\) += +(-?\d+|\?)")
_UNFINISHED: Final = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>")
_RESUMED: Final = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)")
_NAME: Final = re.compile(r'(?:(?:AT_FDCWD|(\d+))(?:<([^>]*)>)?, )?"((?:[^"\\]|\\.)*)"')
_OPENS: Final = ("open", "openat", "openat2")
_WRITES: Final = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
_CHANGES: Final = frozenset(
    {"creat", "mkdir", "mkdirat", "mknod", "mknodat", "unlink", "unlinkat", "rmdir", "rename"}
    | {"renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "truncate", "chmod"}
    | {"fchmodat", "chown", "lchown", "fchownat", "utime", "utimes", "utimensat", "setxattr"}
    | {"lsetxattr", "removexattr"}
)
_STARTS: Final = ("clone", "clone3", "fork", "vfork")
_ACCOUNTS: Final = ("setuid", "setreuid", "setresuid")


def trace(
    argv: list[str],
    log: Path,
    folder: Path,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in that folder, with all its processes under strace."""
    command = ["strace", "-f", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(log), *argv]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )


def leaks(lines: Iterable[str]) -> list[str]:
    """Return the calls of root that change a file by a path through a folder that others can write,
    each once, without those that name it below a folder of root's by descriptor.
    """
    seen = dict[str, None]()
    for pid, call, words in _of_root(lines):
        for path in _changed(call, words):
            folder = _open_folder(path)
            if folder is not None:
                seen[f"{call} {path} (in {folder}, process {pid})"] = None
    return list(seen)


def _calls(lines: Iterable[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield pid, call, arguments and result of each finished call."""
    begun = dict[tuple[str, str], str]()
    for line in lines:
        unfinished = _UNFINISHED.match(line)
        if unfinished:
            begun[unfinished[1], unfinished[2]] = unfinished[3]
            continue
        resumed = _RESUMED.match(line)
        if resumed:
            pid, call, rest = resumed.groups()
            line = f"{pid} {call}({begun.pop((pid, call), '')}{rest}"
        whole = _LINE.match(line)
        if whole:
            yield whole[1], whole[2], whole[3], whole[4]


def _of_root(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield pid, call and arguments of what succeeds in a process of root's, on the machine's own
    files: a trial's processes have /dev/shm of their own, and servers an account of their own.
    """
    apart = set[str]()
    for pid, call, words, result in _calls(lines):
        if call in _STARTS and pid in apart:
            apart.add(result)
        if result.startswith("-"):
            continue
        account = re.search(r"[1-9]\d*$", words)
        if call in _ACCOUNTS and account:
            apart.add(pid)
        if pid not in apart:
            yield pid, call, words


def _changed(call: str, words: str) -> Iterator[str]:
    """Yield the paths that a call writes, creates or removes; relative ones with their folder."""
    writes = call in _OPENS and _WRITES.search(words)
    if not writes and call not in _CHANGES:
        return
    names = list(_NAME.finditer(words))
    if call.startswith("symlink"):
        names = names[1:]  # what it points to is not touched
    for name in names:
        descriptor, folder, path = name.groups()
        if path.startswith("/"):
            yield path
        elif folder and not (descriptor and _is_of_root(folder)):
            yield f"{folder}/{path}"


def _is_of_root(folder: str) -> bool:
    try:
        status = Path(folder).stat()
    except OSError:
        return False
    return status.st_uid == 0 and not status.st_mode & stat.S_IWOTH


def _open_folder(path: str) -> str | None:
    """Return the first folder of the path that every account can write, or None."""
    for folder in reversed(Path(path).parents):
        try:
            status = folder.stat()
        except OSError:
            return None
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH:
            return str(folder)
    return None
