"""Recover a cut: mount, start, look up every acknowledged commit, check every page, check the filesystem."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from dbbench.engines import ENGINES
from dbbench.engines.port import Server
from dbbench.errors import (
    DataCorrupt,
    DbbenchError,
    EngineDied,
    EngineStartFailed,
    FilesystemDamaged,
    MountFailed,
)
from dbbench.labs.powercut import witness
from dbbench.labs.powercut.ground import Ground, Lab, mounted, phase, serving
from dbbench.run.record import stopping
from dbbench.storage import devices, filesystems
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device, Images
from dbbench.storage.filesystems import Stored

Harm = Literal["lost", "torn", "damaged", "unrecovered", "fsck"]
# PostgreSQL and InnoDB name a page whose halves are of different times in these words.
_TORN: Final = re.compile(
    r"invalid page in block|page verification failed|checksum|[Cc]orrupt|Unable to read page|page_cleaner|"
    r"[Ii]nput/output error|could not read block",
)


@dataclass(frozen=True)
class Recovery:
    """The result. `lost`: acknowledged commits that are missing. `harms` {}: nothing is missing."""

    acknowledged: int
    lost: int = 0
    harms: dict[str, str] = field(default_factory=dict)  # kind -> evidence
    invalid: str = ""  # why nothing can be said; then there are no harms
    seconds: float = 0.0


def recovered(
    lab: Lab, ground: Ground, disks: Images, acknowledged: Mapping[int, int], quick: bool = False
) -> Recovery:
    """Recover the disks and check them. `quick`: omit checks that cannot clear a harmed cut (for controls).

    A phase that exceeded its deadline, or a failed unmount or detach, makes the finding invalid: that is a fault of the
    lab, not of the filesystem.
    """
    began, harms, count = time.monotonic(), dict[str, str](), sum(acknowledged.values())
    recovery = Recovery(count)
    (lab.workdir.logs / "server.log").unlink(missing_ok=True)  # what it says is to be of this recovery
    try:
        with devices.over(disks) as device:
            try:
                with mounted(lab, ground.target, device) as datadir:
                    recovery = _served(lab, ground, datadir, acknowledged)
            except MountFailed as error:
                harms["unrecovered"] = f"mount: {error}"
                recovery = Recovery(count, count)
            if not quick and not harms and not recovery.harms:
                with phase("fsck"):
                    _fsck(lab, ground, device, harms)
    except (DbbenchError, OSError) as error:
        if stopping(error):
            raise
        return Recovery(count, invalid=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
    return Recovery(count, recovery.lost, {**recovery.harms, **harms}, "", time.monotonic() - began)


def _served(lab: Lab, ground: Ground, datadir: Path, acknowledged: Mapping[int, int]) -> Recovery:
    try:
        with serving(lab, ground, datadir) as server:
            return examined(server, acknowledged)
    except (EngineStartFailed, EngineDied) as error:
        return harm_of_start(error, acknowledged)
    except DbbenchError:
        raise
    except Exception as error:  # psycopg2's or mysql.connector's, of a server that runs and cannot read its catalogue
        return harm_of_start(EngineStartFailed(f"the server answers with an error: {error}"), acknowledged)


def harm_of_start(error: DbbenchError, acknowledged: Mapping[int, int]) -> Recovery:
    """Return the finding for a server that does not start, or that crashes when queried: nothing is accessible."""
    if not isinstance(error, EngineStartFailed | EngineDied):
        raise error
    count, evidence = sum(acknowledged.values()), str(error)
    harms = {"unrecovered": evidence, **({"torn": evidence} if _TORN.search(evidence) else {})}
    return Recovery(count, count, harms)


def examined(server: Server, acknowledged: Mapping[int, int]) -> Recovery:
    """Query a recovered server. Raises DeadlinePassed, or EngineDied if it crashes."""
    count, harms, lost = sum(acknowledged.values()), dict[str, str](), 0
    with phase("look up"), _told(server, "look up", harms):
        lost = witness.missing(server, acknowledged)
        if lost:
            harms["lost"] = f"{lost} of {count} acknowledged commits are not there"
        if wrong := witness.unequal(server):
            harms["damaged"] = f"{wrong} balances are not what the ledger says"
    if not harms:
        with phase("check"), _told(server, "check", harms):
            ENGINES[server.engine].check_running(server)
    return Recovery(count, lost, harms)


@contextlib.contextmanager
def _told(server: Server, what: str, harms: dict[str, str]) -> Iterator[None]:
    """Convert the server's errors in the block into harms with its message."""
    try:
        yield
    except DataCorrupt as error:
        harms["torn" if _TORN.search(str(error)) else "damaged"] = f"{what}: {error}"
    except DbbenchError:
        raise
    except Exception as error:  # psycopg2's or mysql.connector's
        if not server.alive():
            raise EngineDied(f"the server died of a question ({what}): {error}") from error
        harms["torn" if _TORN.search(str(error)) else "damaged"] = f"{what}: {str(error).strip()}"


def _fsck(lab: Lab, ground: Ground, device: Device, harms: dict[str, str]) -> None:
    """Run the checks that require an unmounted filesystem; a scrub reads again what the server has read."""
    for setup, volume, mount_point in lab.volumes(ground.target, device):
        stored = Stored(setup, volume, ground.fs, mount_point / "data", lab.scratch)
        for check in filesystems.family_of(setup).checks():
            if not check.mounted:
                try:
                    with hold.lent():
                        check.run(stored)
                except FilesystemDamaged as error:
                    harms["fsck"] = str(error)
