"""Trials with the servers and tools of other releases, compared with those of this machine's, or of
Debian 12.

The comparison needs two roots, which are built if they are missing (some minutes), and two
minutes of trials. DBBENCH_RELEASES names other releases than Debian 13. Tests of servers alone
need no such root (`tests/server_roots.py`), and half a minute each.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import releases
from tests.conftest import engine_bin
from tests.releases import Found
from tests.server_roots import RECIPES
from tests.support.plans import plan

RELEASES = os.environ.get("DBBENCH_RELEASES", "debian13").split()
FILESYSTEMS = ["ext4", "xfs", "btrfs"]
LOADS = {
    "postgres": "pgbench-tpcb",
    "mariadb": "sysbench-oltp-read-write",
    "mysql": "sysbench-oltp-read-write",
}
MARIADB_ALONE = {
    "binlog_commits_per_s",
    "innodb_deadlocks_per_s",
    "innodb_max_trx_id_per_s",
}  # MySQL does not count them
Trials = Callable[[str], Found]

pytestmark = [pytest.mark.long, pytest.mark.needs("root", "fs:ext4", "fs:xfs", "fs:btrfs")]


@pytest.mark.needs("debootstrap", "fs:overlay")
@pytest.mark.parametrize("name", RELEASES)
def test_a_release_has_the_columns_and_facts_of_debian_12(name: str, tmp_path: Path) -> None:
    """No column is empty and no fact is null with its servers and tools that Debian 12's trials
    have.
    """
    assert releases.compared(name, tmp_path) == []


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> Trials:
    """What a trial on each filesystem has with a server: "postgres" is this machine's,
    "postgres-18" another.
    """

    @functools.cache
    def run(name: str) -> Found:
        dbbench = dbbench_in(tmp_path_factory.mktemp(name))
        engine = name.partition("-")[0]
        server = {"name": engine, "bin": str(engine_bin(name)) if name in RECIPES else None}
        text = plan(FILESYSTEMS, server, LOADS[engine], device={"size": "1GiB"})
        dbbench("run", dbbench.plan(text), "--name", "r", "--progress", "none")
        return releases.read(dbbench.folder / "results/r")

    return run


@pytest.mark.needs("engine:postgres", "engine:mariadb")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(f"engine:{name}")) for name in RECIPES]
)
def test_a_server_has_the_columns_and_facts_of_this_machines(name: str, trials: Trials) -> None:
    """On each filesystem no column is empty and no fact is null that this machine's release has;
    MySQL has those of MariaDB.
    """
    engine = name.partition("-")[0]
    reference = trials("postgres" if engine == "postgres" else "mariadb")
    if engine == "mysql":
        columns = {
            (engine, column) for _, column in reference.columns if column not in MARIADB_ALONE
        }
        facts = {(trial.replace("mariadb", engine), fact) for trial, fact in reference.facts}
        reference = Found(columns, facts, [])
    assert releases.lost(reference, trials(name)) == []
