"""files: the engine without a server. The load uses its own files in the data directory, as an
unprivileged account.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dbbench import process
from dbbench.engines.accounts import of_server
from dbbench.engines.port import Place, Profile, Server
from dbbench.engines.serving import own
from dbbench.errors import DataCorrupt, DriverFailed, SettingRefused
from dbbench.model import Durability, Scalars, Settings

PROFILE = Profile(name="files", title="Files", has_server=False)


class Files(Server):
    """The directory in place of a server."""

    def __init__(self, datadir: Path, place: Place) -> None:
        super().__init__(PROFILE, place)
        self.datadir = datadir


def folder_of(server: Server) -> Path:
    """Return the directory for a load on files. Raises DriverFailed for a database server."""
    if not isinstance(server, Files):
        raise DriverFailed(f"a workload on files cannot use the server of {server.engine}")
    return server.datadir


def programs(bin: Path | None = None) -> tuple[str, ...]:
    """Return (): each driver names its own programs."""
    return ()


def installed_version(bin: Path | None = None) -> str | None:
    """Return an empty version: the engine is always available."""
    return ""


def refusal(settings: Settings, bin: Path | None = None) -> str:
    """Return why settings are not possible: no server would read them."""
    if settings:
        return f"{PROFILE.name} has no server that has settings"
    return ""


def account() -> process.User:
    """Return the account of the load's programs. See `accounts.of_server`."""
    return of_server("nobody")


def defaults(memory_bytes: int | None) -> Scalars:
    """Return {}: there are no settings."""
    return {}


def window_settings(warmup_s: float, measure_s: float) -> Scalars:
    """Return {}: there are no settings."""
    return {}


def create(datadir: Path, place: Place, *options: str) -> None:
    """Make an empty directory."""
    own(datadir, account())


@contextlib.contextmanager
def serving(
    datadir: Path,
    settings: Settings,
    place: Place,
) -> Iterator[Files]:
    """Yield the directory. Raises SettingRefused if a plan contains settings, which no server would
    read.
    """
    if settings:
        raise SettingRefused(f"{', '.join(settings)}: {refusal(settings)}")
    yield Files(datadir, place)


def check(datadir: Path, settings: Settings, place: Place) -> str:
    """Open every file and read its end. Raises DataCorrupt with the first file that cannot be read."""
    files = data_files(datadir)
    size_bytes = 0
    for path in files:
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                size_bytes += size
                file.seek(max(0, size - 1))
                file.read(1)
        except OSError as error:
            raise DataCorrupt(f"{path.name} cannot be read: {error.strerror}") from None
    return f"{len(files)} files, {size_bytes} bytes"


def data_files(datadir: Path) -> list[Path]:
    """Return all files that exist now, also while a load makes and removes files."""
    files = []
    for folder, _folders, names in os.walk(datadir):
        files += [Path(folder, name) for name in names]
    return sorted(files)


def durability(effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
    """Return (): the load promises nothing beyond the filesystem."""
    return ()
