"""A filesystem with servers and snapshots that only record their calls."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbbench.errors import CommandFailed
from dbbench.model import DeviceFacts, FsSetup, Mkfs
from dbbench.operations import StoredDatabase, backup
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.family import Mounted


class RecordingStorage:
    """Each call is a line, with the tag of the snapshot if it has one. It is also the kind of
    snapshot, the servers and their connections.
    """

    atomic = True
    name = "said"
    engine = ""
    reason: str | None = None  # why there are no snapshots
    # what a query answers
    rows = backup.ROWS
    least = 0
    description = True
    fails_at = ""  # the line after which CommandFailed is raised
    seconds = 0.0  # duration of a snapshot

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = folder, list[str]()
        facts = DeviceFacts("loop", "/dev/loop9", "loop9", 2**30)
        device = Device(Path("/dev/loop9"), -1, os.makedev(7, 9), facts, ("loop9",))
        fs = Mounted(folder, "ext4", (), (), None, (), True)
        setup = FsSetup("of the test", Mkfs("ext4"))
        self.filled = StoredDatabase(
            setup,
            device,
            fs,
            folder / "data",
            folder / "room",
            lambda: self.server("first"),
            lambda _: self.server("second"),
        )

    def say(self, line: str, filled: StoredDatabase | None = None) -> None:
        self.lines.append(f"{line} {filled.tag if filled else ''}".rstrip())
        if self.lines[-1] == self.fails_at:
            raise CommandFailed(f"planted at {self.fails_at}")

    @contextlib.contextmanager
    def server(self, name: str) -> Iterator[Any]:
        self.say(f"{name} up")
        yield self
        self.say(f"{name} down")

    def connect(self, _database: str | None = None) -> RecordingStorage:
        return self

    def cursor(self) -> RecordingStorage:
        return self

    def close(self) -> None:
        pass

    def execute(self, sql: str, _values: object = ()) -> None:
        if sql.startswith("DROP"):
            self.say("rows")
        elif "later" in sql:
            self.say("later row")
        elif sql.startswith("SELECT"):
            self.say("query")

    def fetchall(self) -> list[tuple[int, int]]:
        return [(self.rows, self.least)]

    def lacks(self, _: StoredDatabase) -> str | None:
        return self.reason

    def snapshot(self, filled: StoredDatabase) -> None:
        self.say("snapshot", filled)
        time.sleep(self.seconds)

    @contextlib.contextmanager
    def clone(self, filled: StoredDatabase) -> Iterator[Path]:
        self.say("mount", filled)
        yield self.folder
        self.say("unmount", filled)

    def taken_bytes(self, filled: StoredDatabase) -> int:
        return int(filled.tag or 1) * 4096

    def rollback(self, _: StoredDatabase) -> None:
        self.say("roll back")

    def drop(self, filled: StoredDatabase) -> None:
        self.say("drop", filled)
