"""Behaviour of PostgreSQL that other engines do not have."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench import process
from dbbench.engines import postgres
from dbbench.engines.serving import grown_between
from dbbench.errors import EngineDied, ProgramMissing, SettingRefused
from tests.support.servers import query
from tests.system.engines.conftest import Case, seen

pytestmark = pytest.mark.needs("engine:postgres")


@pytest.fixture
def cluster(case_of: Callable[[str], Case]) -> Case:
    """PostgreSQL with data of its own."""
    return case_of("postgres")


def test_a_cluster_has_checksums_and_one_locale(cluster: Case) -> None:
    """Whatever the system's locale is, sorting is the same everywhere."""
    with cluster.serving() as server:
        effective = server.effective_settings()
        assert effective["data_checksums"] == "on"
        rows = query(server, "SELECT datcollate FROM pg_database WHERE datname = 'dbbench'")
    assert rows == [("C.UTF-8",)]


def test_a_first_start_does_not_take_settings_of_another_database(cluster: Case) -> None:
    """`postgres`, which is asked until `dbbench` exists, may have some in a copy of a user's
    cluster.
    """
    with cluster.serving() as server:
        query(
            server,
            "ALTER DATABASE postgres SET jit = on",
            "DROP DATABASE dbbench",
            at="postgres",
        )
    with cluster.serving() as server:
        assert query(server, "SHOW jit") == [("off",)]


def test_the_data_directory_alone_is_not_an_open_door(cluster: Case) -> None:
    """A server that is started on the files by another user rejects all connections."""
    rules = (cluster.datadir / "pg_hba.conf").read_text().splitlines()
    assert {line.split()[-1] for line in rules if line and not line.startswith("#")} == {"reject"}


def test_a_crashed_backend_is_the_end(cluster: Case) -> None:
    """A server that restarts by itself in the middle of a window would hide the crash."""
    with pytest.raises(EngineDied, match="was terminated by signal 9"), cluster.serving() as server:
        connection = server.connect()
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while server.alive() and time.monotonic() < until:
            time.sleep(0.02)


def test_what_runs_no_autovacuum_settles_at_once(cluster: Case) -> None:
    """settle ends with a checkpoint that was asked for."""
    with cluster.serving() as server:
        before = server.counters()
        server.settle()
        # More than one if the checkpointer was still seen at work.
        assert server.checkpoints(grown_between(before, server.counters())).by_cause.keys() == {
            "requested"
        }


def test_a_checkpoint_that_is_spread_is_not_waited_for(cluster: Case) -> None:
    """The log's size begins one that would take 54 minutes; settle hurries it."""
    slow = {"checkpoint_timeout": "1h", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with cluster.serving(**slow) as server:
        before = server.counters()
        query(
            server,
            "CREATE TABLE filler AS SELECT n, repeat('x', 900) AS text FROM generate_series(1, "
            "60000) AS n",
        )
        until = time.monotonic() + 120
        while (
            not server.checkpoints(grown_between(before, server.counters())).begun
            and time.monotonic() < until
        ):
            time.sleep(0.05)
        assert server.checkpoints(grown_between(before, server.counters())).begun
        began = time.monotonic()
        server.settle()
        assert time.monotonic() - began < 600  # of 54 minutes
        # CHECKPOINT returns before its process is idle
        assert process.wait_while(server.at_work, 60) == []


def test_a_plan_cannot_open_a_port(cluster: Case) -> None:
    """Refused before the server is started."""
    with (
        pytest.raises(SettingRefused, match="listen_addresses"),
        cluster.serving(listen_addresses="*"),
    ):
        pass
    assert not cluster.log.exists()


def test_the_systems_clusters_are_not_touched(cluster: Case) -> None:
    """Nothing below the packages' folders changes by making, serving and checking."""
    folders = "/var/lib/postgresql", "/etc/postgresql", "/run/postgresql", "/usr/lib/postgresql"
    before = seen(folders)
    cluster.engine.create(cluster.datadir.with_name("fresh"), cluster.place)
    cluster.check()
    assert seen(folders) == before


def test_a_folder_without_a_server_is_named(cluster: Case, tmp_path: Path) -> None:
    """`bin` that holds no server: which folder, and what to do."""
    assert postgres.installed_version(tmp_path) is None
    with pytest.raises(ProgramMissing, match=str(tmp_path)):
        postgres._require(tmp_path)


def test_programs_are_there(cluster: Case) -> None:
    """The programs that doctor looks for exist."""
    assert [name for name in postgres.programs() if process.find(name) is None] == []


def test_timeouts_of_a_production_server_do_not_end_dbbenchs_own_sessions(cluster: Case) -> None:
    """They hold for the load, and are reported."""
    with cluster.serving(statement_timeout="1s", lock_timeout="10s") as server:
        assert server.effective_settings()["statement_timeout"] == "1s"
        assert query(server, "SHOW statement_timeout") == [("0",)]
