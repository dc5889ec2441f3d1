"""pgbench on a real server."""

import gzip
import math
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.errors import DriverFailed, EngineDied, FileUnreadable, NoProgress
from dbbench.model import Dataset

pytestmark = pytest.mark.needs("root", "engine:postgres")


def by_hand(raw: Path, first: float, last: float) -> list[float]:
    """Latencies in ms, sorted, of transactions that ended in [first, last), from the kept logs of
    all workers.
    """
    found = []
    for path in raw.glob("pgbench_log.*.gz"):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            words = line.split()
            if first <= int(words[4]) + int(words[5]) / 1e6 < last:
                found.append(int(words[2]) / 1000)
    return sorted(found)


def test_figures_are_those_of_the_raw_logs_of_all_workers(drive: Any, postgres: Any) -> None:
    """Count and percentiles of the window, without warm-up, recomputed by hand from raw/."""
    driven = drive(postgres, "pgbench", "tpcb-like", warmup_s=1, measure_s=2, clients=4, threads=2)
    outcome = driven.outcome
    begin = driven.outcome.begin_utc
    exact = by_hand(driven.raw, begin + 1, begin + 3)
    assert len(list(driven.raw.glob("pgbench_log.*.gz"))) == 2
    # the begin is known to a microsecond or two
    assert outcome.transactions == pytest.approx(len(exact), abs=2)
    assert outcome.histogram.total == outcome.transactions
    for percent in (50, 95, 99):
        by_rank = exact[math.ceil(len(exact) * percent / 100) - 1]
        assert outcome.histogram.percentile_ms(percent) == pytest.approx(by_rank, rel=0.01)
    assert outcome.figures["max_ms"] == pytest.approx(exact[-1], rel=0.01)
    assert outcome.window_s == 2


def test_each_second_has_its_own_transactions_and_percentiles(drive: Any, postgres: Any) -> None:
    """The series begins with the warm-up and is recomputed second by second."""
    driven = drive(postgres, "pgbench", "select-only", warmup_s=1, measure_s=3, clients=2)
    series = driven.outcome.series
    begin = driven.outcome.begin_utc
    assert series.seconds == 4
    for second in range(4):
        exact = by_hand(driven.raw, begin + second, begin + second + 1)
        assert series["tps"][second] == pytest.approx(len(exact), abs=2)
        if exact:  # not where the machine stood still
            by_rank = exact[math.ceil(len(exact) * 0.95) - 1]
            assert series["p95_ms"][second] == pytest.approx(by_rank, rel=0.01)
    assert sum(series["tps"][1:]) == driven.outcome.transactions


@pytest.mark.alone
def test_tps_is_the_one_that_pgbench_prints(drive: Any, postgres: Any) -> None:
    """Without a warm-up both look at the same seconds, apart from the start and the end: in one of
    three tries, because a disk that others write to stands still for a part of a second.
    """
    apart = []
    while len(apart) < 3 and min(apart, default=1.0) > 0.2:
        driven = drive(postgres, "pgbench", "simple-update", measure_s=4, clients=4, threads=2)
        printed = re.search(
            r"^tps = ([\d.]+)",
            (driven.raw / "pgbench.out").read_text(),
            re.MULTILINE,
        )
        assert printed is not None
        first = driven.seen[0].second  # later than 1 if the machine stood still
        apart.append(
            abs(driven.outcome.transactions / 4 / float(printed[1]) - 1) if first == 1 else 1.0
        )
    assert min(apart) <= 0.2


def test_a_lost_log_of_a_worker_is_an_error(drive: Any, postgres: Any) -> None:
    """Half of the transactions is not a result."""

    def lose_one(_load: Any) -> None:
        assert not process.wait_while(
            lambda: len(list(drive.scratch.glob("pgbench_log.*"))) < 2, 60
        )
        max(drive.scratch.glob("pgbench_log.*"), key=lambda path: len(path.name)).unlink()

    with pytest.raises(DriverFailed, match="1 logs of 2 workers"):
        drive(postgres, "pgbench", "select-only", warmup_s=1, clients=2, threads=2, during=lose_one)


def test_logs_that_lack_lines_are_an_error(drive: Any, postgres: Any) -> None:
    """The transactions in the logs are compared with the number that pgbench reports."""

    def cut(load: Any) -> None:
        load.program.wait(60)
        log = next(drive.scratch.glob("pgbench_log.*"))
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))

    with pytest.raises(DriverFailed, match=r"dbbench counted .* transactions, pgbench reports"):
        drive(postgres, "pgbench", "select-only", clients=1, during=cut)


def test_a_client_that_gives_up_fails_the_trial_at_once(
    drive: Any,
    postgres: Any,
    tmp_path: Path,
) -> None:
    """pgbench would go on with one client less and exit with a result."""
    script = tmp_path / "divide.sql"
    script.write_text("\\if :client_id = 1\nSELECT 1/0;\n\\endif\nSELECT 1;\n")
    began = time.monotonic()
    with pytest.raises(DriverFailed, match=r"client 1 .*aborted.*division by zero"):
        drive(postgres, "pgbench", str(script), measure_s=120, clients=2)
    assert time.monotonic() - began < 60  # of 120


def test_a_role_that_may_not_enter_is_reported_in_pgbenchs_words(drive: Any, postgres: Any) -> None:
    """The load never began."""
    with pytest.raises(DriverFailed, match=r'no pg_hba.conf entry .* user "nobody_here"'):
        drive(postgres, "pgbench", "select-only", measure_s=20, clients=1, user="nobody_here")


def test_a_server_that_is_killed_is_reported_within_seconds(drive: Any, served: Any) -> None:
    """Not at the end of the window."""
    began = 0.0

    def kill(load: Any) -> None:
        nonlocal began
        began = time.monotonic()
        os.kill(load.task.server.pid, signal.SIGKILL)

    with (
        pytest.raises(EngineDied, match="died"),
        served("postgres", Dataset("pgbench", {"scale": 1})) as server,
    ):
        drive(server, "pgbench", "tpcb-like", warmup_s=1, measure_s=60, clients=2, during=kill)
    assert time.monotonic() - began < 40  # of 60


def test_under_a_rate_latency_counts_from_the_schedule(
    drive: Any,
    postgres: Any,
    stall: Any,
) -> None:
    """A stall of 2 s in a window of 6 delays a third of the schedule, not the one transaction per
    client that met it. On a busy machine not all of the schedule's 600 transactions end within
    the window.
    """
    outcome = drive(
        postgres,
        "pgbench",
        "select-only",
        warmup_s=1,
        measure_s=6,
        clients=2,
        rate=100,
        during=lambda load: stall(load.task.server, 2),
    ).outcome
    assert outcome.histogram.percentile_ms(95) > 1000
    assert 100 <= outcome.transactions <= 840  # two of a hundred would not be 5 %


def test_a_second_of_a_stall_is_a_zero_and_no_gap(
    drive: Any,
    postgres: Any,
    stall: Any,
) -> None:
    """The load lived and finished nothing: tps 0, no latency. Without a rate a stall is one long
    transaction each.
    """
    outcome = drive(
        postgres,
        "pgbench",
        "select-only",
        warmup_s=1,
        measure_s=6,
        clients=2,
        during=lambda load: stall(load.task.server, 2.5),
    ).outcome
    tps = outcome.series["tps"]
    still = tps.index(0.0, 1)  # the stall may begin late, but it covers a whole second
    assert outcome.series["p95_ms"][still] is None and None not in tps
    assert max(tps[still:]) > 0
    assert outcome.histogram.percentile_ms(99) < 1000 < 2000 < outcome.figures["max_ms"]


def test_a_window_without_a_transaction_is_an_error(
    drive: Any,
    postgres: Any,
    tmp_path: Path,
) -> None:
    """Zero tps is no figure. The transaction that ended after the window is named."""
    script = tmp_path / "sleep.sql"
    script.write_text("SELECT pg_sleep(1.5);\n")
    with pytest.raises(NoProgress, match="; 1 completed before or after it"):
        drive(postgres, "pgbench", str(script), measure_s=1, clients=1)


def test_an_own_script_gets_the_workloads_parameters(
    drive: Any,
    postgres: Any,
    tmp_path: Path,
) -> None:
    """A parameter that the driver does not know is a variable of the script."""
    script = tmp_path / "own.sql"
    script.write_text("SELECT 1/(:answer - 41);\n")
    assert (
        drive(
            postgres,
            "pgbench",
            str(script),
            measure_s=3,
            clients=1,
            answer=42,
        ).outcome.transactions
        > 0
    )


def test_a_missing_script_is_reported_before_anything_starts(drive: Any, postgres: Any) -> None:
    """With its name."""
    with pytest.raises(FileUnreadable, match=r"nowhere\.sql"):
        drive(postgres, "pgbench", "nowhere.sql", clients=1)


def test_an_early_end_is_an_error(drive: Any, postgres: Any) -> None:
    """If pgbench is stopped early, its transactions until then do not count as a window."""
    with pytest.raises(DriverFailed, match="ended with status"):
        drive(
            postgres,
            "pgbench",
            "select-only",
            measure_s=20,
            clients=1,
            during=lambda load: load.program.stop(),
        )


def test_nothing_of_pgbench_outlives_its_block(drive: Any, postgres: Any) -> None:
    """Whoever leaves the block early leaves no load behind."""
    pids = []

    def leave(load: Any) -> None:
        pids.extend(load.pids)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(postgres, "pgbench", "select-only", warmup_s=1, measure_s=20, clients=2, during=leave)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_first_error_of_a_client_is_shown(
    drive: Any,
    postgres: Any,
    tmp_path: Path,
) -> None:
    """Not only its consequence, that the statement was not prepared."""
    script = tmp_path / "untyped.sql"
    script.write_text("\\set days random(1, 9)\nSELECT current_date + :days;\n")
    with pytest.raises(DriverFailed, match=r"^[^\n]*operator is not unique: date \+ unknown"):
        drive(postgres, "pgbench", str(script), measure_s=20, clients=2, protocol="prepared")
    assert drive(postgres, "pgbench", str(script), measure_s=2, clients=2).outcome.transactions > 0


def test_the_window_is_one_of_pgbench_that_begins_late(drive: Any, slow_logins: Any) -> None:
    """It logs in before its first second: from the start of the program the window would be over.
    Two seconds late are counted as one or two.
    """
    driven = drive(
        slow_logins(2), "pgbench", "select-only", warmup_s=2, measure_s=2, clients=2, threads=2
    )
    assert driven.outcome.transactions > 0
