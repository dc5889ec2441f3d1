"""A base backup of a cluster that was never vacuumed is settled once, or scanned as it is with a
warning.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import datasets, process
from dbbench.datasets import golden, sources
from dbbench.engines import ENGINES
from dbbench.model import SourceChangeKind
from tests.support import servers
from tests.support.plans import plan
from tests.support.servers import place, query, serving, spec
from tests.system.conftest import HANGS_S

ROWS: Final = 120_000
NEEDS: Final = ("root", "engine:postgres", "mkfs.ext4", "fs:ext4")


@pytest.fixture(scope="module")
def backup() -> Iterator[Path]:
    """A base backup without data checksums. Nobody has read its rows since they were inserted and
    half of them were updated: no hint bit is set, nothing is frozen, and dead rows lie between
    the live ones.
    """
    engine = ENGINES["postgres"]
    with servers.open_folder() as folder:
        where = servers.place("postgres", folder)
        engine.create(folder / "data", where)
        checksums = Path(engine.programs()[0]).with_name("pg_checksums")
        disable = [checksums, "--disable", f"--pgdata={folder}/data"]
        # it flushes each file, as the next one does
        process.run(disable, as_user=engine.account(), timeout_s=HANGS_S)
        with servers.serving("postgres", folder / "data", where, autovacuum="off") as server:
            query(
                server,
                "CREATE TABLE orders (id int, t text)",
                "INSERT INTO orders SELECT n, repeat(md5(n::text), 4) FROM generate_series(1, "
                f"{ROWS}) n",
                "UPDATE orders SET id = -id WHERE id % 2 = 0",
            )
            process.run(
                [
                    server.bin / "pg_basebackup",
                    f"--host={server.socket_dir}",
                    f"--username={server.user}",
                    f"--pgdata={folder}/base",
                    "--wal-method=stream",
                    "--checkpoint=fast",
                ],
                timeout_s=HANGS_S,
            )
        yield folder / "base"


def scanned(
    dbbench: Any, backup: Path, name: str, **chosen: object
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run with one scan of the backup: its trial, and the plan that PostgreSQL reports for the
    scan.
    """
    load = {"name": "scan", "source": str(backup), **chosen}
    dbbench.plan(
        plan(
            ["ext4", {"use": "ext4", "label": "again"}],
            "postgres",
            load,
            blocks=1,
            warmup=None,
            measure=None,
            device={"size": "384MiB"},
        )
    )
    dbbench("run", "plan.toml", "--name", name)
    file = min((dbbench.folder / f"results/{name}/trials").glob("again*/trial.json"))
    (node,) = json.loads((file.parent / "raw/plan_orders.json").read_text())
    return json.loads(file.read_text()), node["Plan"]


@pytest.mark.needs(*NEEDS)
def test_a_physical_copy_is_settled_once(
    backup: Path,
    dbbench: Any,
    nothing_left: None,
) -> None:
    """The scan only reads, the result says what was done, and pages have no checksums, as in the
    source.
    """
    trial, node = scanned(dbbench, backup, "settled")
    assert trial["status"] == "ok" or trial["error"] is None
    assert node["Actual Rows"] == ROWS
    assert node["Shared Dirtied Blocks"] == 0
    assert "W118" not in {warning["id"] for warning in trial["warnings"]}
    assert {change["kind"] for change in trial["dataset"]["changes"]} >= {"settled", "no-checksums"}
    assert "vacuumed, frozen and analysed once, before the first trial" in trial["dataset"]["told"]
    assert trial["effective_settings"]["data_checksums"] == "off"
    assert trial["checked"].startswith("no data checksums")


@pytest.mark.needs(*NEEDS)
def test_a_copy_that_is_kept_as_it_is_writes_when_it_is_scanned(
    backup: Path,
    dbbench: Any,
    nothing_left: None,
) -> None:
    """Each block is dirtied and, with checksums, logged as a whole: W118 twice, and next to the
    ratio.
    """
    trial, node = scanned(dbbench, backup, "kept", settle=False, checksums=True)
    assert node["Shared Dirtied Blocks"] > 1000
    by_plan, by_log = sorted(
        warning["text"] for warning in trial["warnings"] if warning["id"] == "W118"
    )[::-1]
    assert by_plan.startswith("EXPLAIN reports dirtied blocks") and "MB of log" in by_log
    assert {change["kind"] for change in trial["dataset"]["changes"]} >= {
        "not-settled",
        "checksums-added",
    }
    assert trial["effective_settings"]["data_checksums"] == "on"
    assert "the scan also wrote (W118)" in " ".join(
        dbbench("compare", "results/kept").stdout.split()
    )


# The secondary index is in random order, and the buffer pool of the source is smaller than the
# table.
FILLED: Final = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id int PRIMARY KEY, k int, t char(200), KEY (k)) ENGINE=InnoDB",
    "SET SESSION max_recursive_iterations = 1000000",
    "INSERT INTO shop.orders WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n "
    "WHERE i < 60000) SELECT i, crc32(i) >> 1, 'x' FROM n",
)


def behind(data: Path, folder: Path) -> tuple[int, int]:
    """Return the transactions that wait for purge, and the pages of the change buffer beside its
    root, of a stopped server: it is started without any background work.
    """
    folder.mkdir()
    with serving("mariadb", data, place("mariadb", folder), innodb_force_recovery=2) as server:
        ((_, _, text),) = query(server, "SHOW ENGINE INNODB STATUS", at="")
    history = re.search(r"History list length (\d+)", text)
    buffered = re.search(r"^Ibuf: size (\d+)", text, re.MULTILINE)  # MariaDB 11 has none
    assert history is not None
    return int(history[1]), int(buffered[1]) - 1 if buffered else 0


@pytest.mark.long
@pytest.mark.needs("root", "engine:mariadb")
def test_purge_and_change_buffer_end_before_a_copy_becomes_golden() -> None:
    """Half of the rows are deleted under a snapshot that keeps purge from removing them, and the
    server is stopped so. A trial that started with that would do this work of the source beside
    its load. The restored copy has no transaction that waits for purge, and nothing in the
    change buffer.
    """
    engine = ENGINES["mariadb"]
    with servers.open_folder() as folder:
        (folder / "1").mkdir()
        engine.create(folder / "data", where := place("mariadb", folder / "1"))
        with serving(
            "mariadb",
            folder / "data",
            where,
            innodb_buffer_pool_size=8 * 2**20,
        ) as server:
            query(server, *FILLED, at="")
            buffers = query(server, "SHOW VARIABLES LIKE 'innodb_change_buffering'", at="")
            query(server, *["SET GLOBAL innodb_change_buffering = 'all'"] * len(buffers), at="")
            reader = server.connect("shop")
            reader.cursor().execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            query(
                server,
                *[f"DELETE FROM orders WHERE id % 20 = {n}" for n in range(0, 20, 2)],
                at="shop",
            )
        waiting, _ = behind(folder / "data", folder / "2")
        assert waiting > 0
        dataset = sources.look(folder / "data").dataset()
        (folder / "3").mkdir()
        copy = golden.ensure(
            golden.recipe(spec("mariadb"), dataset),
            place("mariadb", folder / "3"),
            cache=folder / "cache",
        )
        assert {change.kind for change in copy.manifest.changes} >= {SourceChangeKind.SETTLED}
        datasets.restore_copy(copy, folder / "restored", engine.account())
        assert behind(folder / "restored", folder / "4") == (0, 0)
