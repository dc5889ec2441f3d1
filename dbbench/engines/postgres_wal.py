"""PostgreSQL's write-ahead log: what production does with it, and its files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dbbench.engines.serving import moved, own
from dbbench.engines.settings import switched_on
from dbbench.model import Scalar, Settings
from dbbench.model.base import PRODUCTION, STANDALONE
from dbbench.process import User

SLOT: Final = "dbbench.replication_slot"  # of our own: the server has no setting for it
SLOT_NAME: Final = "dbbench"

_PRODUCTION: Final[Mapping[str, Scalar]] = {"wal_level": "replica", "archive_mode": "off", "huge_pages": "try"}
SETTINGS_PROFILES: Final[Mapping[str, Mapping[str, Scalar]]] = {
    PRODUCTION: _PRODUCTION,
    f"{PRODUCTION}-archive": {**_PRODUCTION, "archive_mode": "on"},  # each segment is copied beside the data
    f"{PRODUCTION}-slot": {**_PRODUCTION, SLOT: True},  # no segment is recycled or removed
    STANDALONE: {},
}
# A control group does not count huge pages, so the server would have more memory than the plan allows.
LIMITED: Final[Mapping[str, Scalar]] = {"huge_pages": "off"}
STATED: Final = ("wal_level", "archive_mode", SLOT, "huge_pages", "huge_pages_status")


def archiving(settings: Settings, datadir: Path, owner: User) -> dict[str, Scalar]:
    """Return the private settings of a local archive if the settings ask for one without naming their own command.

    The archive is a directory beside the data, on the filesystem under test.
    """
    own_command = not {"archive_command", "archive_library"}.isdisjoint(settings)
    if own_command or not switched_on(settings, "archive_mode"):
        return {}
    archive = own(datadir.with_name(f"{datadir.name}.archive"), owner)
    target = f"{shlex.quote(str(archive))}/%f"
    return {"archive_command": f"test ! -f {target} && cp %p {target}"}


def move_log(datadir: Path, to: Path, owner: User) -> None:
    """Move pg_wal and leave a link, as `initdb --waldir` does."""
    log = datadir / "pg_wal"
    moved(sorted(log.iterdir()), to, owner)
    log.rmdir()
    log.symlink_to(to)


def log_files(datadir: Path) -> list[Path]:
    """Return WAL segments and related files by their real paths."""
    return sorted(path.resolve() for path in (datadir / "pg_wal").iterdir() if path.is_file())


def huge_pages(pid: int) -> str:
    """Return "on" or "off" by the huge pages of the process; what PostgreSQL 17 and later report themselves."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "unknown"
    sizes = [line.split()[1] for line in lines if line.startswith("HugetlbPages:")]
    return "unknown" if not sizes else "on" if int(sizes[0]) else "off"
