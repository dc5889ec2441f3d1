"""Copies of the files of a running server have what it had written before."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dbbench.engines.port import Server
from dbbench.labs.harm import ATTEMPTS, count_harms, online_copies
from dbbench.labs.harm.online_copies import COLUMNS, SNAPSHOT, copy_once
from dbbench.labs.harm.rows import RowWriter, create_table
from dbbench.labs.powercut.base_images import BaseImages, Lab, attach, files_of, name_files
from dbbench.labs.powercut.disk import Log, read_log, serve_disks
from dbbench.labs.powercut.disk_images import BLOCK, Cut, Media
from dbbench.labs.powercut.recovery import mount, recover, serving
from dbbench.model import HarmOutcome
from tests.support.labs import copied, lab_of
from tests.support.servers import query
from tests.support.setups import shipped

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]


@pytest.mark.needs("mkfs.ext4", "engine:postgres")
def test_a_copy_with_a_block_of_zeros_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as OpenZFS 2.2.0 copied files that had just been written."""

    def punch(how: str, source: Path, target: Path) -> list[str]:
        messages = copy(how, source, target)
        if target.name == "copy":
            for log in target.glob("pg_wal/0*"):
                log.write_bytes(bytes(log.stat().st_size))
        return messages

    copy = online_copies._copy
    monkeypatch.setattr(online_copies, "_copy", punch)
    with lab_of("ext4") as (lab, base):
        (count,) = copy_once("copy by read", "never", lab, base, "seed")
    assert count.word is HarmOutcome.LOST, count
    assert not count.detail.startswith("0 of")


@pytest.mark.long
@pytest.mark.needs("mkfs.btrfs", "fs:btrfs", "engine:mariadb")
def test_btrfs_copies_what_was_written() -> None:
    """By every means, and in a snapshot on which a server starts."""
    shipped("btrfs")
    with lab_of("btrfs", "mariadb") as (lab, base):
        counts = list(count_harms(lab, base, 1, {"copies": ATTEMPTS["copies"]}))
    words = {count.column: count.word for count in counts}
    assert words == dict.fromkeys((*COLUMNS, SNAPSHOT), HarmOutcome.UNHARMED), counts


@pytest.mark.long
@pytest.mark.needs("engine:postgres-18", "mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs")
@pytest.mark.parametrize("setup", ["xfs", "btrfs"])
def test_a_database_that_postgres_cloned_survives_a_power_loss(setup: str) -> None:
    """With `file_copy_method=clone`, all rows are in it after everything unflushed is lost; not if
    the disk has ignored flushes, which is the control.
    """
    shipped(setup)
    with lab_of(setup, "postgres-18") as (lab, base):
        log, (began_ns, acknowledged_ns), rows = record_clone(lab, base)

        def lacks(server: Server) -> dict[str, str]:
            ((found,),) = query(server, "SELECT COUNT(*) FROM filling", at="cloned")
            return {} if found == rows else {"lost": f"{found} of {rows}"}

        def harms(log: Log) -> dict[str, str]:
            disks = lab.disks("cut", base.target)
            media = Media(files_of(base.images), log, files_of(lab.disks("medium", base.target)))
            media.cut(Cut("drop", log.at(acknowledged_ns), BLOCK, 0.0, "clone"), files_of(disks))
            recovery = recover(lab, base, disks, {}, also=lacks)
            assert not recovery.invalid
            return recovery.harms

        assert harms(log) == {}
        assert harms(at_once(log.without_flushes(), began_ns, acknowledged_ns))


def at_once(log: Log, began_ns: int, ended_ns: int) -> Log:
    """The log of a disk that writes nothing of this time by itself, however slow the machine was."""
    entries = [
        replace(entry, ns=ended_ns - 1) if began_ns <= entry.ns < ended_ns else entry
        for entry in log.entries
    ]
    return replace(log, entries=tuple(entries))


def record_clone(lab: Lab, base: BaseImages) -> tuple[Log, tuple[int, int], int]:
    """Clone a database with rows. Return what reached the disk, when the clone began and when the
    server acknowledged it, and its number of rows.
    """
    live = copied(lab, base)
    folder = lab.scratch / "log"
    folder.mkdir()
    writer = RowWriter("clone", 6_000)
    with (
        serve_disks(lab.workdir.root, files_of(live), folder, lab.workdir.logs / "disk") as files,
        attach(name_files(live, files)) as volumes,
        mount(lab, base.target, volumes) as datadir,
        serving(lab, base, datadir) as server,
    ):
        create_table(server)
        with writer.writing(server):
            time.sleep(1)
        clone = f"CREATE DATABASE cloned STRATEGY file_copy TEMPLATE {server.database}"
        began_ns = time.monotonic_ns()
        query(server, "SET file_copy_method = clone", clone)
        acknowledged_ns = time.monotonic_ns()
    return read_log(folder), (began_ns, acknowledged_ns), 2 * writer.count
