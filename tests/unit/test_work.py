"""The load generator's counts compared with those of the server and the kernel: bounds and results."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbbench.compare import conditions
from dbbench.drivers import fio, sysbench
from dbbench.engines import mysql, postgres
from dbbench.engines.innodb_server import InnodbServer, to_counters
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import Place, Server
from dbbench.engines.postgres_server import PostgresServer
from dbbench.metrics.histogram import Histogram, bucket_of
from dbbench.metrics.outcome import Claim, pages_of
from dbbench.model import Status, Work, WorkFacts
from dbbench.run.evaluate import work
from dbbench.run.meter import EngineReading
from dbbench.samplers.accounting import IoClock
from tests.support.judged import IO, outcome, readings
from tests.support.work import judged

from .test_drivers_commands import cell, workload

FIO = (Path(__file__).parents[1] / "fixtures/drivers/fio.json").read_text()


@pytest.mark.parametrize(
    ("count", "custom", "counted", "error"),
    [
        ("transactions", False, 9_600, None),
        ("transactions", False, 10_100, None),
        ("transactions", False, 5_000, "E352"),
        ("transactions", False, 6, "E352"),
        ("transactions", False, 20_000, "E352"),
        ("transactions", True, 2_000, None),
        ("transactions", True, 50_000, None),
        ("transactions", True, 6, "E352"),
        ("statements", False, 4_000, "E352"),
        ("rows", False, 9_000, "E352"),
        ("table_bytes", False, 6_000, None),
        ("table_bytes", False, 100, "E352"),
        ("write_bytes", False, 5_000, "E352"),
        ("read_bytes", False, 70_000, None),
    ],
)
def test_a_count_outside_its_bounds_fails_the_trial(
    count: str,
    custom: bool,
    counted: int,
    error: str | None,
    tmp_path: Path,
) -> None:
    """Both counts and the bounds are in the message and in the result."""
    trial = judged(tmp_path, Claim(count, 10_000, custom=custom), Work(**{count: counted}))
    assert (trial.error and trial.error.id) == error
    (fact,) = trial.work
    assert (fact.count, fact.claimed, fact.counted) == (count, 10_000, counted)
    if trial.error:
        words = trial.error.text.replace(",", "").replace(";", "").split()
        assert {"10000", str(counted), str(fact.least)} <= set(words)


def test_a_count_that_nothing_confirms_is_reported(tmp_path: Path) -> None:
    """It is a warning that names the count, and neither a failure nor a bound."""
    trial = judged(tmp_path, Claim("transactions", 10_000), Work())
    assert trial.status is Status.OK
    assert trial.work == (WorkFacts("transactions", 10_000, None),)
    assert [warning.text for warning in trial.warnings if warning.id == "W150"] == [
        "transactions: neither the server nor the kernel counts them here"
    ]


@pytest.mark.parametrize(
    ("flushes", "log_bytes", "writes", "error"),
    [
        (3000, 10**6, 3000, None),
        (1300, 10**6, 3000, None),
        (4, 10**6, 3000, "E352"),
        (3000, 10_000, 3000, "E352"),  # commits that the server counted
        (3000, 10**6, None, None),
        (3000, 10_000, None, "E352"),  # changes that the load alone reports
    ],
)
def test_commits_with_too_few_flushes_or_without_log_fail_the_trial(
    flushes: int,
    log_bytes: int,
    writes: int | None,
    error: str | None,
    tmp_path: Path,
) -> None:
    """A flush serves one commit of each client at most; twice the clients would be one flush for
    four commits.
    """
    seen = Work(transactions=3000, log_bytes=log_bytes, writes=writes)
    trial = judged(tmp_path, Claim("transactions", 3000, changes=writes is None), seen, flushes)
    assert (trial.error and trial.error.id) == error
    if writes and log_bytes == 10**6:
        assert trial.work[-1].count == "flushes" and 100 < (trial.work[-1].least or 0) < 1500


def test_temporary_tables_of_a_users_script_are_a_reason_for_few_flushes(tmp_path: Path) -> None:
    """Such a trial is suspect, and says what was counted (W151)."""
    seen = Work(transactions=3000, statements=3000, log_bytes=10_000, writes=3000)
    trial = judged(tmp_path, Claim("statements", 3000, custom=True), seen, flushes=4)
    assert (trial.status, trial.error) == (Status.SUSPECT, None)
    assert [warning.text.split(";")[0] for warning in trial.warnings if warning.id == "W151"] == [
        "10000 bytes of log for 3000 commits",
        "4 device flushes for 3000 commits",
    ]


@pytest.mark.parametrize(("transactions", "least"), [(800, 121), (80_000, 12)])
def test_a_flush_serves_transactions_that_are_in_progress(transactions: int, least: int) -> None:
    """Sixteen clients at 100 or 10,000 transactions a second of 6 ms: 0.6, or all, wait at once."""
    busy = cell(workload("pgbench", "own.sql", "pgbench"), clients=16)
    load = dataclasses.replace(
        outcome(),
        window_s=8.0,
        transactions=transactions,
        histogram=Histogram({bucket_of(6000): transactions}),
    )
    seen = readings(dataclasses.replace(IO, flushes=20), Work(writes=900))
    (fact,) = work.flushes(load, seen, busy, (), 1)
    assert fact.counted == 20
    assert fact.least == pytest.approx(least, abs=5)


def test_what_the_server_does_by_itself_needs_no_log(tmp_path: Path) -> None:
    """MariaDB counts two writes during a load that only reads. It gives one identifier at the begin
    of a transaction that may write, one at its end; MySQL does not report them.
    """
    assert work.BACKGROUND >= 10 * 2
    server = InnodbServer(mysql.PROFILE, Place(tmp_path, tmp_path), Mysqld(tmp_path, "9"), None)
    rows = [
        ("Com_commit", "100"),
        ("Com_rollback", "2"),
        ("Com_insert", "60"),
        ("Com_update", "0"),
        ("Com_delete", "0"),
        ("Com_replace", "0"),
        ("Questions", "900"),
        ("Handler_write", "61"),
        ("Innodb_max_trx_id", "150"),
        ("Innodb_lsn_current", "7000"),
        ("Com_select", "5"),
    ]
    grown = to_counters(rows)
    assert server.work(grown, True) == Work(102, 900, 61, None, 7000, 48)
    assert server.work(grown, False).writes == 0  # no lower bound is known
    del grown["innodb_max_trx_id"]
    assert server.work(grown, True).writes is None
    assert server.work({}, True) == Work()


def test_an_event_of_sysbench_has_the_unit_that_its_script_makes_it() -> None:
    """Transactions end with COMMIT; single statements, and all of them with skip_trx, are
    statements.
    """

    def claimed(script: str, kind: str = "sysbench", **parameters: Any) -> Claim:
        return sysbench.claims(cell(workload("sysbench", script, kind), **parameters), 1000, 18.0)[
            0
        ]

    assert claimed("oltp_read_write") == Claim("transactions", 1000, changes=True)
    assert claimed("oltp_read_only") == Claim("transactions", 1000)
    assert claimed("oltp_read_write", skip_trx=True) == Claim("statements", 18_000)
    assert claimed("oltp_insert") == Claim("statements", 1000, changes=True)
    assert claimed("oltp_read_write", kind="source") == Claim("transactions", 1000)
    assert claimed("oltp_delete").changes is False


@pytest.mark.parametrize(
    ("script", "parameters", "rows"),
    [
        ("oltp_read_write", {}, {"read": 13_000, "updated": 2000, "deleted": 1000, "rows": 1000}),
        ("oltp_write_only", {}, {"read": 3000, "updated": 2000, "deleted": 1000, "rows": 1000}),
        ("oltp_read_only", {"point_selects": 3}, {"read": 3000}),
        (
            "oltp_read_write",
            {"index_updates": 5, "delete_inserts": 0},
            {"read": 16_000, "updated": 6000},
        ),
        ("oltp_update_non_index", {}, {"read": 1000, "updated": 1000}),
        ("oltp_insert", {}, {"rows": 1000}),
        ("oltp_point_select", {}, {"read": 1000}),
        ("oltp_delete", {}, {}),
    ],
)
def test_a_bundled_script_claims_the_rows_of_each_kind(
    script: str,
    parameters: dict[str, int],
    rows: dict[str, int],
) -> None:
    """As the script does by default, and with its options."""
    claims = sysbench.claims(
        cell(workload("sysbench", script, "sysbench"), **parameters),
        1000,
        18.0,
    )
    assert {claim.count: claim.total for claim in claims[1:] if claim.count != "pages"} == rows


def test_the_pages_of_uniform_rows_are_claimed_only_if_they_are_many() -> None:
    """Few pages could be those of the catalogue; many draws touch nearly all pages, few draws a
    page each.
    """
    assert list(pages_of(10_000, 300)) == []
    (few,), (many,) = pages_of(1000, 10**6), pages_of(10**6, 1600)
    assert few.total == pytest.approx(1000, rel=0.001) and many.total == pytest.approx(
        1600, rel=0.001
    )


@pytest.mark.parametrize(("other", "differs"), [(100, False), (108, False), (60, True), (0, True)])
def test_other_work_than_the_baselines_is_named(other: int, differs: bool) -> None:
    """Rows per transaction of a user's script: a setup that writes less is not compared without a
    word.
    """

    def trial(updated: int) -> Any:
        facts = (WorkFacts("updated", 100, updated), WorkFacts("read", 100, 7 * updated))
        return SimpleNamespace(work=facts)

    remarks = list(conditions._work([trial(100)] * 3, [trial(other)] * 3))
    assert [remark.values["what"] for remark in remarks] == [
        "rows updated per transaction"
    ] * differs


def test_postgres_counts_writes_by_transaction_identifiers(tmp_path: Path) -> None:
    """Reads have none, subtransactions have more than one, and a rollback is no commit."""
    server = PostgresServer(postgres.PROFILE, Place(tmp_path, tmp_path), "15.18", tmp_path, None)
    names = (
        "xact_commit",
        "xact_rollback",
        "xids",
        "tup_inserted",
        "blks_read",
        "blks_hit",
        "wal_bytes",
    )
    grown = dict(zip(names, (1000.0, 10.0, 210.0, 300.0, 5.0, 7.0, 9000.0), strict=True))
    assert server.work(grown, True) == Work(1010, 1010, 300, 12 * 8192, 9000, 200, read=12, pages=5)
    assert server.work({**grown, "xids": 5000.0}, True).writes == 1000
    assert server.work({}, True) == Work()


def test_the_last_count_waits_for_sessions_that_have_not_ended(tmp_path: Path) -> None:
    """PostgreSQL reports a session's last second when it ends, which may be after its client has."""

    class EndingServer(Server):
        """A session ends before each reading."""

        open_sessions = 3.0

        def counters(self) -> dict[str, float]:
            self.open_sessions = max(2.0, self.open_sessions - 1)
            return {"sessions_connected": self.open_sessions}

    server = EndingServer(postgres.PROFILE, Place(tmp_path, tmp_path))
    reading = EngineReading(server)
    server.open_sessions = 5.0
    assert reading.wait_for_sessions() == {"sessions_connected": 0.0}


def test_a_child_counts_with_its_whole_life(tmp_path: Path) -> None:
    """System calls count, or what reached the disk, whichever is more; without the file nothing is
    known.
    """
    (tmp_path / "self").mkdir()
    assert set(IoClock(proc=tmp_path).difference().values()) == {None}
    lines = (
        "rchar: {}\nwchar: {}\nsyscr: 1\nsyscw: 1\nread_bytes: {}\nwrite_bytes: {}\n"
        "cancelled_write_bytes: 0\n"
    )
    (tmp_path / "self/io").write_text(lines.format(100, 50, 0, 0))
    clock = IoClock(proc=tmp_path)
    (tmp_path / "self/io").write_text(lines.format(1100, 60, 4096, 8192))
    assert clock.difference() == {"read_bytes": 4096, "write_bytes": 8192}
    assert clock.stored() == (0, 0, 0)  # of children, and there is none


@pytest.mark.parametrize(
    ("engine", "direct", "counted"),
    [
        ("psync", "0", True),
        ("io_uring", "1", True),
        ("io_uring", "0", False),
        ("mmap", "0", False),
    ],
)
def test_bytes_of_fio_count_where_the_kernel_counts_them(
    engine: str,
    direct: str,
    counted: bool,
) -> None:
    """System calls, and asynchronous I/O that is direct."""
    report = json.loads(FIO)
    report["global options"].update(ioengine=engine, direct=direct)
    for job in report["jobs"]:
        job["job options"] = {}
    assert fio.parse(json.dumps(report)).counted is counted


def test_a_users_script_has_log_and_rows_of_each_kind(tmp_path: Path) -> None:
    """The rows are not claimed by the load generator, but reported; the log of its commits is
    compared.
    """
    counted = Work(
        statements=10_000,
        transactions=10_000,
        updated=10_000,
        writes=10_000,
        log_bytes=5_000_000,
    )
    trial = judged(tmp_path, Claim("statements", 10_000, custom=True), counted)
    assert (trial.error, trial.status) == (None, Status.OK)
    assert {"statements", "updated", "log_bytes"} <= {fact.count for fact in trial.work}
