"""pgbench: recorded logs and output of pgbench 15, 17 and 18."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from dbbench.drivers import pgbench, pgbench_log
from dbbench.drivers.protocol import Live
from dbbench.drivers.tool import PIECE_BYTES, pack, read_counts
from dbbench.errors import DriverFailed
from tests.support.files import write_file

FIXTURES = Path(__file__).parents[1] / "fixtures" / "drivers/pgbench-15"
LOGS = [FIXTURES / "pgbench_log.4711", FIXTURES / "pgbench_log.4711.1"]
WORDS = FIXTURES / "pgbench_words.4712"
VERSIONS = ("15", "16", "17", "18", "19")


def begin_of(*paths: Path) -> float:
    """The whole second in which the first transaction ended."""
    return float(
        min(int(line.split()[4]) for path in paths for line in path.read_text().splitlines())
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_pgbench_agrees_with_its_logs(version: str) -> None:
    """Processed, failed and skipped transactions are in the logs of its workers as often as in its
    summary.
    """
    folder = FIXTURES.with_name(f"pgbench-{version}")
    for prefix in ("pgbench_log", "pgbench_words"):
        logs = pgbench_log.log_files(folder, prefix)
        counts, skipped = pgbench_log.parse(logs, begin_of(*logs), 5)
        told = read_counts(
            pgbench.COUNTS, (folder / f"{prefix.replace('_log', '')}.out").read_text()
        )
        summary = (told["processed"], told["failed"], told["skipped"] or 0)
        assert (
            counts.all_transactions,
            counts.all_errors,
            skipped,
        ) == summary and counts.all_transactions > 0
    assert counts.all_errors > 0
    lines = (folder / "pgbench.err").read_text().splitlines()
    assert [live.second for line in lines if (live := pgbench.live(line))] == [1]


def test_only_the_files_of_the_workers_are_logs(tmp_path: Path) -> None:
    """PREFIX.PID and PREFIX.PID.N, whatever else lies beside them."""
    for name in ("p.12", "p.12.1", "p.12.10", "p.out", "p.12.gz", "q.12"):
        (tmp_path / name).touch()
    assert [path.name for path in pgbench_log.log_files(tmp_path, "p")] == [
        "p.12",
        "p.12.1",
        "p.12.10",
    ]


def test_a_transaction_counts_in_the_second_of_its_end() -> None:
    """Seconds begin at the load's begin, not at the clock's."""
    rows = [line.split() for line in LOGS[0].read_text().splitlines()]
    begin = begin_of(*LOGS) + 0.25
    expected = np.bincount(
        [int(float(r[4]) + float(r[5]) / 1e6 - begin + 1) for r in rows], minlength=4
    )
    counts, _ = pgbench_log.parse(LOGS[:1], begin, 3)
    assert expected[1:4].tolist() == counts.transactions.tolist()
    assert expected[0] == counts.outside


def test_latency_is_the_time_column_which_has_the_schedule_lag_in_it() -> None:
    """Under a rate the column "time" counts from the schedule: nothing is added to it."""
    times = [int(line.split()[2]) for path in LOGS for line in path.read_text().splitlines()]
    counts, _ = pgbench_log.parse(LOGS, begin_of(*LOGS), 5)
    assert max(times) / 1000 == counts.measure(0, 5).longest_ms
    exact = float(np.sort(times)[int(np.ceil(0.95 * len(times))) - 1]) / 1000
    assert counts.measure(0, 5).histogram.percentile_ms(95) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("word", ["failed", "serialization", "deadlock"])
def test_failed_and_skipped_transactions_are_none(tmp_path: Path, word: str) -> None:
    """A failed one is an error, a skipped one is skipped; neither has a latency.
    `--failures-detailed` writes the cause where else "failed" stands.
    """
    log = write_file(tmp_path / "log", WORDS.read_text().replace("failed", word))
    counts, skipped = pgbench_log.parse([log], begin_of(WORDS), 3)
    told = read_counts(pgbench.COUNTS, (FIXTURES / "pgbench_words.out").read_text())
    assert (told["processed"], told["failed"], told["skipped"]) == (79, 35, 42)
    assert (counts.all_transactions, counts.all_errors, skipped, counts.latencies.sum()) == (
        79,
        35,
        42,
        79,
    )


def test_chunks_end_with_a_line(tmp_path: Path) -> None:
    """A log that is read in several pieces gives the same counts as its parts."""
    part = "".join(path.read_text() for path in (*LOGS, WORDS))
    times = 2 * PIECE_BYTES // len(part) + 1
    log = write_file(tmp_path / "log", part * times)
    pieces = pgbench_log.parse([log], begin_of(*LOGS), 4)[0]
    whole = pgbench_log.parse([*LOGS, WORDS], begin_of(*LOGS), 4)[0]
    assert (times * whole.latencies == pieces.latencies).all()
    assert times * whole.all_transactions == pieces.all_transactions


@pytest.mark.parametrize(
    "line", ["1 2 3", "0 1 what 0 1795258550 461244", "0 1 12034 0 1795258550 46.5"]
)
def test_a_line_that_pgbench_does_not_print_is_an_error(tmp_path: Path, line: str) -> None:
    """It is not passed over."""
    log = write_file(tmp_path / "log", f"0 1 12034 0 1795258550 461244\n{line}\n")
    with pytest.raises(DriverFailed, match="not a pgbench log"):
        pgbench_log.parse([log], 0.0, 1)


def test_kept_logs_are_the_same_bytes(tmp_path: Path) -> None:
    """raw/ has all that the figures were made of."""
    log = write_file(tmp_path / "pgbench_log.1", LOGS[0].read_bytes())
    (tmp_path / "raw").mkdir()
    pack([log], tmp_path / "raw" / f"{log.name}.gz")
    assert LOGS[0].read_bytes() == gzip.decompress(
        (tmp_path / "raw" / "pgbench_log.1.gz").read_bytes()
    )
    assert not log.exists()


def test_a_client_that_gave_up_is_seen() -> None:
    """pgbench continues without the client; the line on stderr shows it. Progress lines have second
    and tps, and no percentile; output without a summary has no totals: None, not zero.
    """
    progress = (FIXTURES / "pgbench.err").read_text().splitlines()
    assert [live for line in progress if (live := pgbench.live(line))] == [Live(1, 49.0, None)]
    assert set(read_counts(pgbench.COUNTS, "pgbench (15.18)\n").values()) == {None}
    lines = (FIXTURES / "pgbench_aborted.err").read_text().splitlines()
    assert [pgbench.is_abort(line) for line in lines] == [True, True]
    assert not any(map(pgbench.is_abort, progress))


def test_scripts_have_latencies_of_their_own(tmp_path: Path) -> None:
    """The fourth column of a log is the script's number; a failed transaction has no latency."""
    log = tmp_path / "p.1"
    log.write_text("0 1 1000 0 100 5\n0 2 3000 1 100 6\n0 3 3000 1 101 6\n0 4 failed 1 101 7\n")
    counts, _ = pgbench_log.parse([log], 100.0, 2, scripts=2)
    of_script = counts.measure(0, 2).kind_histograms
    assert {script: each.total for script, each in of_script.items()} == {0: 1, 1: 2}
    assert of_script[1].percentile_ms(100) == pytest.approx(3.0, rel=0.01)
