"""The recovery of disks after a cut: mount, start, look up every acknowledged commit, check tables
and indexes, stop, read the checksum of every page, check the filesystem.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dbbench import errors
from dbbench.engines import ENGINES
from dbbench.engines.port import ChecksData, Server
from dbbench.engines.sql import cursor_of
from dbbench.labs.powercut import witness
from dbbench.labs.powercut.base_images import BaseImages, Images, Lab, attach, files_of
from dbbench.labs.powercut.phases import phase, starting
from dbbench.labs.powercut.targets import LabTarget
from dbbench.run.record import stopping
from dbbench.run.stages import Volumes
from dbbench.storage import filesystems
from dbbench.storage.devices import hold
from dbbench.storage.filesystems import Stored

# Messages of PostgreSQL and InnoDB about a torn page, whose halves were written at different times.
_TORN: Final = re.compile(
    r"invalid page in block|page verification failed|checksum|[Cc]orrupt|Unable to read page|page_cleaner|"
    r"[Ii]nput/output error|could not read block|Dumping the DBLWR page",
)
HarmsOf = Callable[[Server], Mapping[str, str]]


class Killed(BaseException):
    """Ends the block of a server that is to be killed with SIGKILL; not an Exception, so that no
    handler catches it.
    """


@dataclass(frozen=True)
class Recovery:
    """The result of a recovery. `lost`: acknowledged commits that are missing. `harms` {}: nothing
    is missing.
    """

    acknowledged: int
    lost: int = 0
    harms: dict[str, str] = field(default_factory=dict)  # kind, see `model.CutFacts` -> evidence
    invalid: str = ""  # why the cut cannot be judged; `harms` is then empty
    seconds: float = 0.0


@contextlib.contextmanager
def mount(lab: Lab, target: LabTarget, volumes: Volumes) -> Iterator[Path]:
    """Yield the data directory on the target's mounted filesystems. Raises MountFailed,
    UnmountFailed.
    """
    stack = contextlib.ExitStack()
    try:
        with phase("mount"):
            for role, setup in target.setups.items():
                family = filesystems.family_of(setup)
                path = lab.workdir.mount_point(role)
                stack.enter_context(family.mounted_again(setup, volumes[role], path, lab.journal))
        yield lab.workdir.mount / "data"
    finally:
        with phase("umount"):
            stack.close()


@contextlib.contextmanager
def mounted(lab: Lab, base: BaseImages, disks: Images) -> Iterator[Path]:
    """Yield the data directory on these disks within the block. Raises as `mount`."""
    with attach(disks) as volumes, mount(lab, base.target, volumes) as datadir:
        yield datadir


@contextlib.contextmanager
def serving(
    lab: Lab,
    base: BaseImages,
    datadir: Path,
    clean: bool = False,
) -> Iterator[Server]:
    """Run the target's server within the block; then kill it with all its processes, or stop it if
    `clean`.
    """
    settings = base.target.settings
    with contextlib.suppress(Killed), contextlib.ExitStack() as stack:
        with starting(lab.server_log):
            server = stack.enter_context(base.engine.serving(datadir, settings, base.place))
        yield server
        if not clean:
            kill(server)
            raise Killed
        with phase("stop"):
            stack.close()


def kill(server: Server) -> None:
    """Kill the server's first process with SIGKILL; its other processes end with its block."""
    # the pid of a server that has ended may be of another process
    if server.pid is not None and server.alive():
        os.kill(server.pid, signal.SIGKILL)


def recover(
    lab: Lab,
    base: BaseImages,
    disks: Images,
    acknowledged: Mapping[int, int],
    quick: bool = False,
    also: HarmsOf = lambda _: {},
) -> Recovery:
    """Recover the disks and check them; `quick` omits checks that cannot clear a harmed cut (for
    controls), `also` returns more harms of the running server. A phase that exceeded its
    deadline, or a failed unmount or detach, is a fault of the lab: the result is invalid.
    """
    began = time.monotonic()
    harms = dict[str, str]()
    count = sum(acknowledged.values())
    recovery = Recovery(count)
    lab.server_log.unlink(missing_ok=True)  # the new log must be of this recovery only
    try:
        with attach(disks) as volumes:
            try:
                with mount(lab, base.target, volumes) as datadir:
                    recovery = _start_and_check(lab, base, datadir, acknowledged, also)
            except errors.MountFailed as error:
                harms["unrecovered"] = f"mount: {error}"
                recovery = Recovery(count, count)
            if not quick and not harms and not recovery.harms:
                check_filesystem(lab, base, volumes, harms)
    except (errors.DbbenchError, OSError) as error:
        if stopping(error):
            raise
        # a device may still use it, so that the next cut must be another file
        for image in files_of(disks):
            image.unlink(missing_ok=True)
        recovery = Recovery(count, invalid=f"{type(error).__name__}: {error}")
        harms = {}
    seconds = time.monotonic() - began
    return replace(recovery, harms={**recovery.harms, **harms}, seconds=seconds)


def _start_and_check(
    lab: Lab,
    base: BaseImages,
    datadir: Path,
    acknowledged: Mapping[int, int],
    also: HarmsOf,
) -> Recovery:
    engine = base.engine
    damaged = set[str]()
    try:
        with serving(lab, base, datadir, clean=True) as server:
            recovery = check_server(server, acknowledged, also)
            damaged = recovery.harms.keys() - {"lost", "schema"}
            # A clean stop takes MySQL a second longer than to write its pages. A damaged server may
            # be unable to do either.
            if engine.PROFILE.checks_killed and not damaged:
                with phase("stop"):
                    server.settle()
            if engine.PROFILE.checks_killed or damaged:
                kill(server)
                raise Killed
        if isinstance(engine, ChecksData):
            with phase("check"):
                engine.check_pages(datadir, base.target.settings, base.place)
        return recovery
    except errors.DataCorrupt as error:
        return replace(recovery, harms={**recovery.harms, "torn": f"check of every page: {error}"})
    except (errors.EngineStartFailed, errors.EngineDied) as error:
        return recovery if damaged else harm_of_start(error, acknowledged)
    except errors.DbbenchError:
        raise
    # An error of psycopg2 or mysql.connector: the server runs, but cannot read its catalogue.
    except Exception as error:
        failure = errors.EngineStartFailed(f"the server answers with an error: {error}")
        return harm_of_start(failure, acknowledged)


def harm_of_start(error: errors.DbbenchError, acknowledged: Mapping[int, int]) -> Recovery:
    """Return the result for a server that does not start, or that crashes when queried: nothing is
    accessible.
    """
    if not isinstance(error, errors.EngineStartFailed | errors.EngineDied):
        raise error
    count = sum(acknowledged.values())
    harms = {"unrecovered": str(error)}
    torn = list(filter(_TORN.search, str(error).splitlines()))
    if torn:
        harms["torn"] = torn[0].strip()
    return Recovery(count, count, harms)


def check_server(
    server: Server,
    acknowledged: Mapping[int, int],
    also: HarmsOf = lambda _: {},
) -> Recovery:
    """Query a recovered server. Raises DeadlinePassed, or EngineDied if it crashes."""
    count = sum(acknowledged.values())
    harms = dict[str, str]()
    lost = 0
    with phase("look up"), _errors_as_harms(server, "look up", harms), cursor_of(server) as cursor:
        lost = witness.missing(cursor, acknowledged)
        if lost:
            harms["lost"] = f"{lost} of {count} acknowledged commits are missing"
        unequal = witness.unequal(cursor)
        if unequal:
            harms["damaged"] = f"{unequal} balances do not match the ledger"
        harms.update(also(server))
    if any(session < 0 for session in acknowledged):
        what = "look up of changed tables"
        with (
            phase("look up"),
            _errors_as_harms(server, what, harms, "schema"),
            cursor_of(server) as cursor,
        ):
            wrong_tables = witness.wrong_tables(cursor, acknowledged)
            if wrong_tables:
                harms["schema"] = wrong_tables
    engine = ENGINES[server.engine]
    if not harms and isinstance(engine, ChecksData):
        with phase("check"), _errors_as_harms(server, "check", harms):
            engine.check_running(server)
    return Recovery(count, lost, harms)


@contextlib.contextmanager
def _errors_as_harms(
    server: Server,
    what: str,
    harms: dict[str, str],
    kind: str = "damaged",
) -> Iterator[None]:
    try:
        yield
    except errors.DbbenchError as error:
        if not isinstance(error, errors.DataCorrupt):
            raise
        harms[kind] = f"{what}: {error}"
    except Exception as error:  # an error of psycopg2 or mysql.connector
        if not server.alive():
            raise errors.EngineDied(f"the server died during a query ({what}): {error}") from error
        harms["torn" if _TORN.search(str(error)) else kind] = f"{what}: {str(error).strip()}"


def check_filesystem(
    lab: Lab,
    base: BaseImages,
    volumes: Volumes,
    harms: dict[str, str],
    mounted: bool = False,
) -> None:
    """Run the checks that require an unmounted filesystem, or those of a mounted one, which read
    everything again; add what they find as "fsck".
    """
    with phase("fsck"):
        for role, setup in base.target.setups.items():
            datadir = lab.workdir.mount_point(role) / "data"
            stored = Stored(setup, volumes[role], base.fs, datadir, lab.scratch)
            for check in filesystems.family_of(setup).checks:
                if check.mounted != mounted:
                    continue
                try:
                    with hold.lend():
                        check.run(stored)
                except errors.FilesystemDamaged as error:
                    harms["fsck"] = str(error)
