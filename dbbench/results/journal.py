"""The journal: what a run has acquired from the machine and does not end with its processes
(images, directories, filesystems on real disks), so that a later start can release it. Lines
about disks have a seal, the proof that this user's dbbench wrote the line for the run in this
directory: they decide what `run` may erase without confirmation, and a results folder may come
from someone else. The key is stored outside of every results folder. Without a key nothing is
sealed, and the user is asked again.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.errors import ResultDamaged
from dbbench.model import Json
from dbbench.model.plan import QUEUE
from dbbench.results import fileio
from dbbench.results.fileio import own_file, read_bytes, sync, writing

# Kind of resource -> pattern of its name; {tag} is the tag of the run. A results folder may come
# from someone else, so entries that name a resource of another run or program are ignored. Kinds
# that are not listed are checked where they are released.
OURS: Final = {
    "image": r"/(.+/)?\.dbbench-[^/]+-{tag}(-[0-9]+|-wal)?\.img",
    "runtime": r"/tmp/dbbench-{tag}-[A-Za-z0-9_]+",
    "layer": r"(md|lvm|crypt|delay):dbbench-{tag}[0-9a-f]+",
    "pool": r"dbbench-{tag}[0-9a-f]+",
    "cgroup": r"/(.+/)?dbbench-[^/]+-{tag}",
    "unit": r"dbbench-{tag}\.service",
    "throttle": r"[0-9]+:[0-9]+ [0-9]+ [0-9]+",
    "queue": rf"[0-9a-f-]+ /sys/class/block/[^/ ]+/queue/({'|'.join(QUEUE.values())}) [\w-]+ [\w-]+",
}

# These events decide which disks the run may erase without confirmation, so only sealed lines
# count.
SEALED: Final = frozenset({"wipe", "had", "making", "made"})
# below the home; without it the user confirms disks again
_KEY: Final = Path(".local/state/dbbench/journal.key")
_KEY_BYTES: Final = 32


def tag_of(folder: Path) -> str:
    """Return the tag in the names of everything that the run in this directory acquires; it is
    unique to it.
    """
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:8]


@dataclass(frozen=True)
class Journal:
    """journal.jsonl of one run. A line that was cut off by a power loss is ignored."""

    path: Path

    @property
    def tag(self) -> str:
        return tag_of(self.path.parent)

    def note(self, event: str, **facts: Any) -> None:
        """Append a line and make it durable."""
        entry = {"utc": round(time.time(), 3), "event": event, **facts}
        if event in SEALED:
            entry["seal"] = of(entry, self.tag)
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with writing(self.path):
            fd = own_file(self.path, os.O_RDWR | os.O_APPEND, 0o644)
            try:
                size = os.fstat(fd).st_size
                # After a power loss the last line may be incomplete; this line must not continue
                # it.
                cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                data = f"{chr(10) if cut else ''}{line}".encode()
                # on a nearly full disk one call writes a part, and the next call reports the error
                while data:
                    data = data[os.write(fd, data) :]
                os.fsync(fd)
                if size == 0:
                    sync(self.path.parent)  # makes the name of a new file durable
            finally:
                os.close(fd)

    def take(self, what: str, path: object) -> None:
        """Note that something of this machine is taken: a killed run is released by this line."""
        self.note("take", what=what, path=str(path))

    def release(self, what: str, path: object) -> None:
        self.note("give_back", what=what, path=str(path))

    def entries(self) -> Iterator[Json]:
        """Yield all complete lines, oldest first. Raises ResultDamaged if the file exists but
        cannot be read.
        """
        try:
            whole = read_bytes(self.path, self.path.parents[1])
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
        """Return the paths of kind `what` not released, limited to names that this run can have
        made.
        """
        return [
            path
            for kind, path in self.holdings()
            if kind == what and _is_ours(what, path, self.tag)
        ]

    def foreign(self) -> list[tuple[str, str]]:
        return [
            (kind, path) for kind, path in self.holdings() if not _is_ours(kind, path, self.tag)
        ]

    def holdings(self) -> list[tuple[str, str]]:
        """Return kind and path of what was taken and not released, in the order of taking."""
        held: dict[tuple[str, str], None] = {}
        for entry in self.entries():
            thing = (entry.get("what"), entry.get("path"))
            if isinstance(thing[0], str) and isinstance(thing[1], str):
                if entry.get("event") == "take":
                    held[thing[0], thing[1]] = None
                elif entry.get("event") == "give_back":
                    held.pop((thing[0], thing[1]), None)
        return list(held)

    def has_filesystem(self, device: str, uuid: str) -> bool:
        """Whether this run made the filesystem `uuid` on the device with that identity."""
        return bool(uuid) and any(
            entry.get("uuid") == uuid for entry in self._about(device, "made")
        )

    def making(self, device: str) -> bool:
        """Whether this run was killed while it was writing to the device with that identity."""
        return self._last(device, "making", "made") == "making"

    def has_wiped_disk(self, device: str) -> bool:
        """Whether this run has erased the device with that identity since the last permission."""
        return self._last(device, "wipe", "had") == "had"

    def _last(self, device: str, *events: str) -> str | None:
        last_events = [str(entry["event"]) for entry in self._about(device, *events)]
        return last_events[-1] if last_events else None

    def had(self, device: str) -> bool:
        return bool(self._about(device, "had"))

    def written_disks(self) -> list[str]:
        """Return the identities of the disks that this run has written to, as the journal says."""
        had = [entry for entry in self.entries() if entry.get("event") == "had"]
        return list(dict.fromkeys(str(entry.get("device")) for entry in had))

    def _about(self, device: str, *events: str) -> list[Json]:
        return [
            entry
            for entry in self.entries()
            if entry.get("event") in events
            and entry.get("device") == device
            and holds(entry, self.tag)
        ]


def _is_ours(what: str, path: str, tag: str) -> bool:
    named = OURS.get(what)
    if named is None:
        return True
    if not re.fullmatch(named.replace("{tag}", tag), path):
        return False
    parts = path.split("/")[1:]
    return ".." not in parts and "" not in parts


def of(entry: Mapping[str, Any], tag: str) -> str:
    """Return the seal of a line for the journal of the run with that tag; "" if no key can be
    stored.
    """
    with contextlib.suppress(OSError):
        return _seal(entry, tag, _key() or _new_key())
    return ""


def holds(entry: Mapping[str, Any], tag: str) -> bool:
    """Whether a line of that run's journal has this user's seal."""
    with contextlib.suppress(OSError):
        key = _key()
        if key:
            seal = str(entry.get("seal"))
            return hmac.compare_digest(seal.encode(), _seal(entry, tag, key).encode())
    return False


def _seal(entry: Mapping[str, Any], tag: str, key: bytes) -> str:
    content = {name: value for name, value in entry.items() if name != "seal"}
    text = json.dumps([tag, content], sort_keys=True)
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def _key() -> bytes:
    """Return this user's key; b"" if there is none yet. Raises OSError if other users could read
    the file.
    """
    path = Path.home() / _KEY
    try:
        with fileio.open_file(path, _KEY_BYTES, path.parent) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise PermissionError(f"{path} is accessible to other users")
            return file.read() or b""
    except FileNotFoundError:
        return b""


def _new_key() -> bytes:
    path = Path.home() / _KEY
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(fd)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()
    return _key()
