"""files: no server. The load works on files of its own in the data directory; what asks for a server finds none here.

Nothing is started and nothing is settled; counters, settings and logs are empty, and the check is that the files are
there and can be opened. Programs of the load run as an account without rights of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbbench import process
from dbbench.engines.port import Place, Server
from dbbench.engines.serving import own
from dbbench.errors import DataCorrupt, DriverFailed, SettingRefused
from dbbench.model import CheckpointFacts, Durability, Scalar, Settings

NAME = "files"


@dataclass(frozen=True)
class Files:
    """What stands where a server would: a folder, and whose it is."""

    datadir: Path
    place: Place
    engine: str = NAME
    version: str = ""
    pid: int | None = None
    user: str = ""
    database: str = ""

    @property
    def socket_dir(self) -> Path:
        return self.place.sockets

    @property
    def socket(self) -> Path:
        return self.place.sockets / "none"

    @property
    def log(self) -> Path:
        """There is none; it is never written."""
        return self.place.logs / "server.log"

    @property
    def bin(self) -> Path:
        return Path("/")

    def connect(self, database: str | None = None) -> Any:
        """There is nobody to speak to; NotImplementedError."""
        raise NotImplementedError(f"{NAME} has no server; {database or 'a database'} cannot be asked for")

    def alive(self) -> bool:
        return True

    def settle(self) -> None:
        """Nothing works in the background."""

    def checkpoint(self) -> None:
        """What is dirty is the filesystem's alone: the road syncs it."""

    def counters(self) -> dict[str, float]:
        return {}

    def checkpoints(self, before: dict[str, float], after: dict[str, float]) -> CheckpointFacts:
        return CheckpointFacts(note="no server, no checkpoints")

    def written_bytes(self, before: dict[str, float], after: dict[str, float]) -> int | None:
        return None

    def hit_ratio(self, before: dict[str, float], after: dict[str, float]) -> float | None:
        return None

    def dirty_bytes(self) -> int | None:
        return None

    def effective_settings(self) -> dict[str, str]:
        return {}


def folder_of(server: Server) -> Path:
    """The folder that a load on files works in. DriverFailed for a server that has one of its own."""
    if not isinstance(server, Files):
        raise DriverFailed(f"a load on files was given a server of {server.engine}")
    return server.datadir


def programs(bin: Path | None = None) -> tuple[str, ...]:
    """None; a driver names its own."""
    return ()


def installed(bin: Path | None = None) -> str | None:
    """Always there, and without a version."""
    return ""


def account() -> process.User:
    """`nobody`, which every system has; the caller where it is not root."""
    return process.user("nobody")


def defaults(memory_bytes: int | None) -> dict[str, Scalar]:
    """None: there is nothing that reads settings."""
    return {}


def window_settings(warmup_s: float, measure_s: float) -> dict[str, Scalar]:
    """None."""
    return {}


def create(datadir: Path, place: Place) -> None:
    """An empty folder."""
    own(datadir, account())


@contextlib.contextmanager
def serving(datadir: Path, settings: Settings, place: Place) -> Iterator[Files]:
    """The folder. SettingRefused where somebody sets what no server would read."""
    if settings:
        raise SettingRefused(f"{', '.join(settings)}: {NAME} has no server that has settings")
    yield Files(datadir, place)


def check(datadir: Path, settings: Settings, place: Place) -> str:
    """Every file can be opened and its end be read; DataCorrupt names the first that cannot."""
    found = data_files(datadir)
    for path in found:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 1))
                file.read(1)
        except OSError as error:
            raise DataCorrupt(
                f"{path.name} cannot be read: {error.strerror}", effect="Its figures do not count."
            ) from None
    return f"{len(found)} files are there, {sum(map(data_bytes, found))} bytes"


def move_log(datadir: Path, to: Path) -> None:
    """There is no log; a plan that wants it elsewhere is refused before."""


def move_data(datadir: Path, device: Path) -> None:
    """There is no tablespace; a plan that wants it on a bare device is refused before."""


def log_files(datadir: Path, effective: dict[str, str]) -> list[Path]:
    """None."""
    return []


def data_files(datadir: Path) -> list[Path]:
    """All that is there at this moment, also while a load makes and removes files."""
    return sorted(Path(folder, name) for folder, _folders, names in os.walk(datadir) for name in names)


def data_bytes(file: Path) -> int:
    """The size of one of them."""
    return file.stat().st_size


def durability(effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
    """None: the load promises nothing that the filesystem does not."""
    return ()
