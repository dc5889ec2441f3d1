"""The journal: what a run has taken from the machine, so that a later start can give it back.

One JSON object a line, on disk before the deed (`take`) and after it was given back (`give_back`). The kernel
gives back mounts, loop devices and processes of a trial by itself (its namespaces end with it); the journal is
for what outlives them: images, folders on existing filesystems, and the filesystems that we made on real disks.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.errors import ResultDamaged
from dbbench.store.files import read_bytes, sync, writing

# What each kind of thing that we take is called. A results folder may come from somebody else: a journal that names
# other people's files is not obeyed. Kinds without a row have guards of their own where they are given back.
OURS: Final = {
    "image": re.compile(r"/(.+/)?\.dbbench-[^/]+\.img"),
    "runtime": re.compile(r"/tmp/dbbench-[A-Za-z0-9_]+"),
    "layer": re.compile(r"(md|lvm|crypt):dbbench-[A-Za-z0-9-]+"),
    "pool": re.compile(r"dbbench-[A-Za-z0-9._-]+"),
    "cgroup": re.compile(r"/(.+/)?dbbench-[^/]+"),
}


@dataclass(frozen=True)
class Journal:
    """journal.jsonl of one run. A line that was cut off by a power loss is passed over."""

    path: Path

    def note(self, event: str, **facts: Any) -> None:
        """Append a line and make it durable."""
        line = json.dumps({"utc": round(time.time(), 3), "event": event, **facts}, ensure_ascii=False) + "\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with writing(self.path):
            fd = os.open(self.path, flags, 0o644)
            try:
                size = os.fstat(fd).st_size
                cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # by a power loss: it must not swallow this line
                _write_whole(fd, f"{chr(10) if cut else ''}{line}".encode())
                os.fsync(fd)
                if size == 0:
                    sync(self.path.parent)  # its name in the folder
            finally:
                os.close(fd)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All whole lines, oldest first. ResultDamaged where the file is there and cannot be read."""
        try:
            whole = read_bytes(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ResultDamaged(
                f"{self.path} cannot be read: {error.strerror}", effect="Nothing was changed."
            ) from error
        for line in whole.decode(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield entry

    def outstanding(self, what: str) -> list[str]:
        """Paths of kind `what` that were taken and not given back; no others than such as we make."""
        held: dict[str, None] = {}
        for entry in self.entries():
            if entry.get("what") == what and isinstance(entry.get("path"), str):
                if entry.get("event") == "take" and _is_ours(what, entry["path"]):
                    held[entry["path"]] = None
                elif entry.get("event") == "give_back":
                    held.pop(entry["path"], None)
        return list(held)

    def made(self, device: str, uuid: str) -> bool:
        """Whether this run made the filesystem `uuid` on the device of that identity."""
        return bool(uuid) and any(
            entry.get("event") == "made" and entry.get("device") == device and entry.get("uuid") == uuid
            for entry in self.entries()
        )

    def had(self, device: str) -> bool:
        """Whether this run has had the device of that identity to itself."""
        return any(entry.get("event") == "had" and entry.get("device") == device for entry in self.entries())


def _is_ours(what: str, path: str) -> bool:
    named = OURS.get(what)
    return named is None or (named.fullmatch(path) is not None and ".." not in path.split("/"))


def _write_whole(fd: int, data: bytes) -> None:
    """Write all of it; a disk that is nearly full takes a part, and tells so at the next call."""
    while data:
        data = data[os.write(fd, data) :]
