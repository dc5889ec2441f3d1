"""files: the engine without a server. The load uses its own files in the data directory.

Nothing is started and there is nothing to settle. Counters, settings and logs are empty, and the check is whether the
files exist and can be read. Programs of the load run as an unprivileged account.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbbench import process
from dbbench.engines.accounts import of_server
from dbbench.engines.port import Place, Profile, Server, Sessions
from dbbench.engines.serving import own
from dbbench.errors import DataCorrupt, DriverFailed, SettingRefused
from dbbench.model import CheckpointFacts, Durability, Scalar, Settings, TrialWarning, Work

NAME = "files"
PROFILE = Profile(name=NAME, title="Files", has_server=False)


@dataclass(frozen=True)
class Files:
    """The directory in place of a server, and its owner."""

    datadir: Path
    place: Place
    engine: str = NAME
    version: str = ""
    pid: int | None = None
    user: str = ""
    database: str = ""

    @property
    def env(self) -> dict[str, str]:
        return {}

    @property
    def socket_dir(self) -> Path:
        return self.place.sockets

    @property
    def socket(self) -> Path:
        return self.place.sockets / "none"

    @property
    def log(self) -> Path:
        """Return a path that is never written."""
        return self.place.logs / "server.log"

    @property
    def bin(self) -> Path:
        return Path("/")

    def connect(self, database: str | None = None) -> Any:
        """Raise NotImplementedError: there is no server."""
        raise NotImplementedError(f"{NAME} has no server; {database or 'a database'} cannot be requested")

    def alive(self) -> bool:
        return True

    def settle(self) -> None:
        """Do nothing: there is no background work."""

    def checkpoint(self) -> None:
        """Do nothing: all dirty data is the filesystem's, and the trial syncs it."""

    def purge_log(self) -> None:
        """Do nothing: there is no log."""

    def counters(self) -> dict[str, float]:
        return {}

    def sessions(self) -> Sessions:
        return Sessions({})

    def checkpoints(self, before: dict[str, float], after: dict[str, float]) -> CheckpointFacts:
        return CheckpointFacts(note="no server, no checkpoints")

    def written_bytes(self, before: dict[str, float], after: dict[str, float]) -> int | None:
        return None

    def work(self, before: dict[str, float], after: dict[str, float], explicit: bool) -> Work:
        """Return a record without counts: there is no server."""
        return Work()

    def hit_ratio(self, before: dict[str, float], after: dict[str, float]) -> float | None:
        return None

    def dirty_bytes(self) -> int | None:
        return None

    def recovery_bytes(self) -> int | None:
        return None

    def warnings(self) -> tuple[TrialWarning, ...]:
        """Return (): nothing is expected of a directory."""
        return ()

    def effective_settings(self) -> dict[str, str]:
        return {}


def folder_of(server: Server) -> Path:
    """Return the directory for a load on files. Raises DriverFailed for a database server."""
    if not isinstance(server, Files):
        raise DriverFailed(f"a workload on files cannot use the server of {server.engine}")
    return server.datadir


def programs(bin: Path | None = None) -> tuple[str, ...]:
    """Return (): each driver names its own programs."""
    return ()


def installed(bin: Path | None = None) -> str | None:
    """Return an empty version: the engine is always available."""
    return ""


def refused(settings: Settings, bin: Path | None = None) -> str:
    """Return why settings are not possible: no server would read them."""
    return f"{NAME} has no server that has settings" if settings else ""


def account() -> process.User:
    """Return the account of the load's programs. See `accounts.of_server`."""
    return of_server("nobody")


def defaults(memory_bytes: int | None) -> dict[str, Scalar]:
    """Return {}: there are no settings."""
    return {}


def window_settings(warmup_s: float, measure_s: float) -> dict[str, Scalar]:
    """Return {}: there are no settings."""
    return {}


def create(datadir: Path, place: Place) -> None:
    """Make an empty directory."""
    own(datadir, account())


@contextlib.contextmanager
def serving(datadir: Path, settings: Settings, place: Place) -> Iterator[Files]:
    """Yield the directory. Raises SettingRefused if a plan contains settings, which no server would read."""
    if settings:
        raise SettingRefused(f"{', '.join(settings)}: {refused(settings)}")
    yield Files(datadir, place)


def check(datadir: Path, settings: Settings, place: Place) -> str:
    """Open every file and read its end. Raises DataCorrupt with the first file that cannot be read."""
    files = data_files(datadir)
    for path in files:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 1))
                file.read(1)
        except OSError as error:
            raise DataCorrupt(
                f"{path.name} cannot be read: {error.strerror}", effect="The trial is marked failed."
            ) from None
    return f"{len(files)} files, {sum(map(data_bytes, files))} bytes"


def check_running(server: Server) -> None:
    """Do nothing: no server runs."""


def backup(server: Server, room: Path) -> list[str] | str:
    """Return why there is no backup command."""
    return f"{NAME} has no server"


def move_log(datadir: Path, to: Path) -> None:
    """Do nothing: there is no log, and a plan that moves it is refused earlier."""


def move_data(datadir: Path, device: Path) -> None:
    """Do nothing: there is no tablespace, and a plan that moves it is refused earlier."""


def log_files(datadir: Path, effective: dict[str, str]) -> list[Path]:
    """Return []: there is no log."""
    return []


def data_files(datadir: Path) -> list[Path]:
    """Return all files that exist now, also while a load makes and removes files."""
    return sorted(Path(folder, name) for folder, _folders, names in os.walk(datadir) for name in names)


def data_bytes(file: Path) -> int:
    """Return the size of a file."""
    return file.stat().st_size


def durability(effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
    """Return (): the load promises nothing beyond the filesystem."""
    return ()
