"""A full disk under a real server: how it answers, and that no acknowledged commit is lost."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dbbench import process
from dbbench.engines.sql import execute
from dbbench.errors import DbbenchError, FilesystemFull
from dbbench.labs.harm import full_disk
from dbbench.labs.harm.full_disk import ROW_BYTES, fill_disk
from dbbench.labs.harm.rows import RowWriter, create_table
from dbbench.labs.powercut.base_images import BaseImages, Lab, attach
from dbbench.labs.powercut.recovery import mount, serving
from dbbench.model import HarmCount
from tests.support.labs import copied, lab_of
from tests.support.setups import shipped

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]


def counts_of(
    setup: str,
    engine: str,
    rounds: int = 1,
) -> dict[str, dict[str, HarmCount]]:
    """Fill a disk so many times: the counts by column and word. Only the base's disks remain."""
    shipped(setup)
    with lab_of(setup, engine) as (lab, base):
        counts = fill_disk(lab, base, rounds)
        if engine == "postgres":  # and not the small segments with which cuts are made
            with attach(base.images) as volumes, mount(lab, base.target, volumes) as data:
                assert {path.stat().st_size for path in data.glob("pg_wal/0*")} == {16 * 2**20}
    by_column: dict[str, dict[str, HarmCount]] = {}
    for count in counts:
        by_column.setdefault(count.column, {})[count.word] = count
    for column, words in by_column.items():
        assert {count.of for count in words.values()} == {
            sum(count.count for count in words.values())
        }, column
    return by_column


@pytest.mark.needs("engine:postgres")
@pytest.mark.parametrize(
    "setup",
    [
        pytest.param("ext4", marks=pytest.mark.needs("mkfs.ext4")),
        pytest.param("btrfs", marks=pytest.mark.needs("mkfs.btrfs", "fs:btrfs")),
    ],
)
def test_postgres_recovers_from_a_full_disk(setup: str) -> None:
    """It dies if there is no space for its log, and then fails to start until there is; it may
    refuse rows before.
    """
    rounds = 2 if setup == "ext4" else 1
    counts = counts_of(setup, "postgres", rounds)
    assert {*counts[full_disk.FULL]} <= {"dies", "refuses"}, counts
    assert counts[full_disk.AFTER]["recovers"].count == rounds, counts
    if died := counts[full_disk.FULL].get("dies"):
        assert sum(count.count for count in counts[full_disk.START].values()) == died.count
        assert "No space left on device" in died.detail


@pytest.mark.needs("mkfs.xfs", "fs:xfs")
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_innodb_refuses_rows_and_continues(engine: str) -> None:
    """InnoDB returns an error, accepts rows again after a file was deleted, and has all that it
    acknowledged.
    """
    counts = counts_of("xfs", engine)
    assert counts[full_disk.FULL]["refuses"].count == 1, counts
    assert full_disk.START not in counts
    assert counts[full_disk.AFTER]["recovers"].count == 1, counts


@contextmanager
def mounted() -> Iterator[tuple[Lab, BaseImages, Path]]:
    """A copy of the lab's disks with PostgreSQL on ext4, and the data directory."""
    with (
        lab_of("ext4") as (lab, base),
        attach(copied(lab, base)) as volumes,
        mount(lab, base.target, volumes) as data,
    ):
        yield lab, base, data


@pytest.mark.needs("engine:postgres", "mkfs.ext4")
def test_rows_that_are_missing_or_changed_are_counted() -> None:
    """Planted: an acknowledged transaction is deleted, half of another one is changed; half of one that
    was not acknowledged is inserted. A balance is wrong.
    """
    writer = RowWriter("seed", ROW_BYTES)
    with mounted() as (lab, base, data):
        with serving(lab, base, data) as server:
            create_table(server)
            with writer.writing(server):
                assert not process.wait_while(
                    lambda: min(map(len, writer.acknowledged.values())) < 3, 120
                )
        with serving(lab, base, data) as server:
            assert writer.harms(server) == {}
            execute(
                server,
                "DELETE FROM filling WHERE session = 1 AND n = 0",
                "UPDATE filling SET content = 'x' WHERE session = 2 AND n = 1 AND part = 0",
                "INSERT INTO filling VALUES (0, -1, 0, '')",
            )
            assert writer.harms(server) == {
                "lost": f"2 of {writer.count} acknowledged commits are missing",
                "damaged": "of 1 unacknowledged transactions a part is there",
            }
        assert full_disk._look_up(lab, base, data, writer, True).word == "lost"
        with serving(lab, base, data) as server:
            execute(server, "TRUNCATE filling", "UPDATE account SET balance = 1 WHERE id = 5")
        assert (
            full_disk._look_up(lab, base, data, RowWriter("none", ROW_BYTES), True).word
            == "damaged"
        )


@pytest.mark.needs("engine:postgres", "mkfs.ext4")
def test_an_error_with_free_space_is_not_a_full_disk() -> None:
    """Planted: the table does not exist, so the server refuses every row. That is a failure of the
    lab.
    """
    writer = RowWriter("seed", ROW_BYTES)
    error = pytest.raises(DbbenchError, match=r'did not become full: .* "filling" does not exist')
    with (
        mounted() as (lab, base, data),
        serving(lab, base, data) as server,
        writer.writing(server),
        error,
    ):
        full_disk.observe(lab, server, writer, [lab.workdir.mount])


@pytest.mark.needs("chattr")
def test_a_file_that_cannot_be_deleted_is_reported(tmp_path: Path) -> None:
    """An immutable file stands for one whose deletion needs space."""
    ballast = tmp_path / "ballast"
    ballast.touch()
    subprocess.run(["chattr", "+i", ballast], check=True)
    try:
        with pytest.raises(FilesystemFull, match="cannot be deleted"):
            full_disk.delete([ballast])
    finally:
        subprocess.run(["chattr", "-i", ballast], check=True)
