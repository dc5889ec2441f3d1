"""The binary log of MariaDB and MySQL: its settings in production, its size, and its removal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dbbench.model import Scalar

# A server with replicas or point-in-time recovery: each commit is flushed to the binary log too. MariaDB's own default
# of sync_binlog is 0. Statements in the log instead of rows would make less of it.
PRODUCTION: Final[Mapping[str, Scalar]] = {"log_bin": True, "sync_binlog": 1, "binlog_format": "ROW"}
STATED: Final = ("log_bin", "sync_binlog", "binlog_format")
_ROTATED_S: Final = 5.0  # MariaDB removes a log when InnoDB has flushed its commits, a moment after the next one begins
_STEP_S: Final = 0.05


def place(effective: Mapping[str, str], datadir: Path | None = None) -> Path | None:
    """Return the path of the log's files without their numbers, or None if there is no binary log."""
    if effective.get("log_bin", "").upper() not in ("ON", "1") or not effective.get("log_bin_basename"):
        return None
    path = Path(effective["log_bin_basename"])
    return path if datadir is None else datadir / path


def files(base: Path) -> list[Path]:
    """Return the files of the log, without the index of all and MariaDB's index of each (`.idx`)."""
    return [path for path in sorted(base.parent.glob(f"{base.name}.[0-9]*")) if path.suffix[1:].isdigit()]


def size_bytes(base: Path) -> int:
    """Return the bytes of all files of the log."""
    return sum(path.stat().st_size for path in files(base))


def purge(ask: Callable[[str], list[Any]]) -> None:
    """Begin a new log and remove the others; `ask` runs a statement and returns its rows."""
    ask("FLUSH BINARY LOGS")
    until = time.monotonic() + _ROTATED_S
    while len(logs := ask("SHOW BINARY LOGS")) > 1:
        ask(f"PURGE BINARY LOGS TO '{logs[-1][0]}'")
        if time.monotonic() > until:
            return  # it is removed at the next opportunity
        time.sleep(_STEP_S)
