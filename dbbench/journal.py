"""The journal: what a run has taken from the machine, so that a later start can give it back.

One JSON object a line, on disk before the deed (`take`) and after it was given back (`give_back`). The kernel
gives back mounts, loop devices and processes of a trial by itself (its namespaces end with it); the journal is
for what outlives them: images, folders on existing filesystems, and the filesystems that we made on real disks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Journal:
    """journal.jsonl of one run. A line that was cut off by a power loss is passed over."""

    path: Path

    def note(self, event: str, **facts: Any) -> None:
        """Append a line and make it durable."""
        line = json.dumps({"utc": round(time.time(), 3), "event": event, **facts}, ensure_ascii=False) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, line.encode())
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All whole lines, oldest first."""
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry

    def outstanding(self, what: str) -> list[str]:
        """Paths of kind `what` that were taken and not given back."""
        held: dict[str, None] = {}
        for entry in self.entries():
            if entry.get("what") == what and isinstance(entry.get("path"), str):
                if entry["event"] == "take":
                    held[entry["path"]] = None
                elif entry["event"] == "give_back":
                    held.pop(entry["path"], None)
        return list(held)

    def made(self, device: str, uuid: str) -> bool:
        """Whether this run made the filesystem `uuid` on the device of that identity."""
        return bool(uuid) and any(
            entry.get("event") == "made" and entry.get("device") == device and entry.get("uuid") == uuid
            for entry in self.entries()
        )
