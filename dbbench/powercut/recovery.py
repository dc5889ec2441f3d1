"""What a cut has left: mount, start, look up every acknowledged commit, check every page, check the filesystem."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from dbbench import devices
from dbbench.devices.port import Device, Images
from dbbench.engines import innodb, postgres
from dbbench.engines.innodb_server import InnodbServer
from dbbench.engines.port import Server
from dbbench.engines.postgres_server import PostgresServer
from dbbench.errors import (
    DataCorrupt,
    DbbenchError,
    EngineDied,
    EngineStartFailed,
    FilesystemDamaged,
    MountFailed,
)
from dbbench.operations import Filled, abilities
from dbbench.powercut import witness
from dbbench.powercut.ground import Ground, Lab, mounted, serving
from dbbench.powercut.phases import phase
from dbbench.record import stopping

Harm = Literal["lost", "torn", "damaged", "unrecovered", "fsck"]
# PostgreSQL and InnoDB name a page whose halves are of different times in these words.
_TORN: Final = re.compile(
    r"invalid page in block|page verification failed|checksum|[Cc]orrupt|Unable to read page|page_cleaner|"
    r"[Ii]nput/output error|could not read block",
)


@dataclass(frozen=True)
class Finding:
    """What was found. `lost`: acknowledged commits that are not there. `harms` {} : nothing is missing."""

    acknowledged: int
    lost: int = 0
    harms: dict[str, str] = field(default_factory=dict)  # kind -> evidence
    invalid: str = ""  # why nothing can be said; then there are no harms
    seconds: float = 0.0


def recovered(lab: Lab, ground: Ground, disks: Images, acknowledged: Mapping[int, int], quick: bool = False) -> Finding:
    """Recover the disks and look. `quick`: no check of what cannot turn a harmed cut into a sound one (controls).

    A phase that passed its deadline, an unmount or a detachment that failed make the finding invalid: it would be one
    of the lab, not of the filesystem.
    """
    began, harms, count = time.monotonic(), dict[str, str](), sum(acknowledged.values())
    found = Finding(count)
    (lab.room.logs / "server.log").unlink(missing_ok=True)  # what it says is to be of this recovery
    try:
        with devices.over(disks) as device:
            try:
                with mounted(lab, ground.target, device) as datadir:
                    found = _served(lab, ground, datadir, acknowledged)
            except MountFailed as error:
                harms["unrecovered"] = f"mount: {error}"
                found = Finding(count, count)
            if not quick and not harms and not found.harms:
                with phase("fsck"):
                    _fsck(lab, ground, device, harms)
    except (DbbenchError, OSError) as error:
        if stopping(error):
            raise
        return Finding(count, invalid=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
    return Finding(count, found.lost, {**found.harms, **harms}, "", time.monotonic() - began)


def _served(lab: Lab, ground: Ground, datadir: Path, acknowledged: Mapping[int, int]) -> Finding:
    try:
        with serving(lab, ground, datadir) as server:
            return examined(server, acknowledged)
    except (EngineStartFailed, EngineDied) as error:
        return harm_of_start(error, acknowledged)
    except DbbenchError:
        raise
    except Exception as error:  # psycopg2's or mysql.connector's, of a server that runs and cannot read its catalogue
        return harm_of_start(EngineStartFailed(f"the server answers with an error: {error}"), acknowledged)


def harm_of_start(error: DbbenchError, acknowledged: Mapping[int, int]) -> Finding:
    """A server that does not come up, or goes down when it is asked: nothing that it held can be had."""
    if not isinstance(error, EngineStartFailed | EngineDied):
        raise error
    count, said = sum(acknowledged.values()), str(error)
    harms = {"unrecovered": said, **({"torn": said} if _TORN.search(said) else {})}
    return Finding(count, count, harms)


def examined(server: Server, acknowledged: Mapping[int, int]) -> Finding:
    """Ask a server that has recovered. DeadlinePassed; EngineDied where it falls over a question."""
    count, harms, lost = sum(acknowledged.values()), dict[str, str](), 0
    with phase("look up"), _told(server, "look up", harms):
        lost = witness.missing(server, acknowledged)
        if lost:
            harms["lost"] = f"{lost} of {count} acknowledged commits are not there"
        if wrong := witness.unequal(server):
            harms["damaged"] = f"{wrong} balances are not what the ledger says"
    if not harms:
        with phase("check"), _told(server, "check", harms):
            _check(server)
    return Finding(count, lost, harms)


@contextlib.contextmanager
def _told(server: Server, what: str, harms: dict[str, str]) -> Iterator[None]:
    """The server's own errors in the block are harms, named by what they say."""
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


def _check(server: Server) -> None:
    """Every page of heap and indexes, each against the other. DataCorrupt."""
    if isinstance(server, InnodbServer):
        innodb.checked(server)
    elif isinstance(server, PostgresServer):
        postgres.amchecked(server, "--heapallindexed")


def _fsck(lab: Lab, ground: Ground, device: Device, harms: dict[str, str]) -> None:
    """The checks that want the filesystem unmounted; a scrub reads again what the server has read."""
    for setup, one, at in lab.volumes(ground.target, device):
        able = abilities.of(abilities.CHECKED, setup)
        filled = Filled(setup, one, ground.fs, at / "data", lab.scratch, _no_server, _no_server)
        for check in able.checks(filled) if able else ():
            if not check.mounted:
                try:
                    check.run(filled)
                except FilesystemDamaged as error:
                    harms["fsck"] = str(error)


def _no_server(_data: Path) -> AbstractContextManager[Server]:
    raise AssertionError("a check of an unmounted filesystem starts no server")
