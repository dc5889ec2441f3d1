"""Applying a log: rate per second, its end, and the message about tables that differ."""

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

from dbbench.datasets import generated
from dbbench.drivers import apply
from dbbench.drivers.apply import ApplyLoad, Archive, LogFile, differences, lsn, position
from dbbench.drivers.apply import load_archive as load
from dbbench.drivers.apply import save_archive as save
from dbbench.drivers.protocol import LoadTask
from dbbench.drivers.tool import rates_of
from dbbench.errors import DriverFailed, EngineDied, NoProgress
from dbbench.metrics import steadiness
from dbbench.metrics.series import Clock
from dbbench.model import Dataset

BINLOG = Path(__file__).parent.parent / "fixtures" / "binlog"
LOGS = tuple(LogFile(f"{number}", 100, 0) for number in range(4))


class Fake:
    """A server that applies a log: everything at once, unless it is told not to."""

    pids = (7,)
    pid = 1

    def __init__(self) -> None:
        self.offered: list[str] = []
        self.stands = False
        self.lives = True
        self.said = ""

    def offer(self, logs: Any, last: bool) -> None:
        self.offered += [log.name for log in logs] + (["last"] if last else [])

    def applied_bytes(self) -> int:
        return 0 if self.stands else 100 * len([name for name in self.offered if name != "last"])

    def caught_up(self) -> bool:
        return not self.stands

    @property
    def fault(self) -> str:
        return self.said

    def alive(self) -> bool:
        return self.lives


def loaded(fake: Fake, interval_s: float = 0.0, batch: int = 1) -> ApplyLoad:
    """An apply of four logs."""
    task = LoadTask(cast(Any, fake), cast(Any, None), 1, Clock(), Path(), Path())
    return ApplyLoad(task, Archive(LOGS, 0, {}), fake, interval_s, batch)


def test_a_rate_is_of_whole_seconds() -> None:
    """Between two looks the log is spread evenly; a second that has not ended has no rate."""
    assert rates_of([(0.0, 0), (0.5, 1000), (1.5, 3000), (2.0, 3000), (2.4, 9000)], 2) == [
        2000,
        1000,
    ]
    assert rates_of([(0.0, 0), (3.0, 6000)], 3) == [2000, 2000, 2000]
    assert rates_of([(0.0, 0), (0.4, 100)], 0) == []


def test_batches_have_their_time() -> None:
    """The first at once, each of the others an interval after the one before; the rate counts no
    time between. Without an interval all is handed over at once, in the order of the log.
    """
    loaded(fake := Fake())
    assert fake.offered == ["0", "1", "2", "3", "last"]
    fake = Fake()
    seen = []
    driven = loaded(fake, interval_s=0.3, batch=2)
    assert fake.offered == ["0", "1"]
    driven.wait(seen.append)
    assert fake.offered == ["0", "1", "2", "3", "last"]
    outcome = driven.outcome()
    assert 0.25 < (outcome.figures["duration_s"] or 0) < 5
    assert outcome.figures["applied_bytes"] == 400
    rate = outcome.figures["kb_per_s"]
    even = 0.4 / (outcome.figures["duration_s"] or 1)
    assert rate is not None and rate > 1.2 * even  # each batch was applied by the next look
    assert seen


def test_a_standby_that_does_not_advance_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how far it came."""
    monkeypatch.setattr(apply, "STUCK_S", 0.2)
    fake = Fake()
    fake.stands = True
    with pytest.raises(
        NoProgress, match="stopped after 0 bytes of 400: nothing was applied for 0 s"
    ):
        loaded(fake).wait(lambda _: None)


def test_the_process_that_died_is_named() -> None:
    """A client that gives up is the load generator's failure, unless the server is gone."""
    fake = Fake()
    driven = loaded(fake)
    fake.stands = True
    fake.said = "ERROR 1062"
    with pytest.raises(DriverFailed, match="ERROR 1062"):
        driven.wait(lambda _: None)
    fake.lives = False
    with pytest.raises(EngineDied, match="ERROR 1062"):
        driven.wait(lambda _: None)


def test_tables_are_compared_by_name() -> None:
    """Another checksum, a missing table and one too many are each reported; equal ones are not."""
    primary = {"a": "1", "b": "2", "c": "3"}
    standby = {"a": "1", "b": "9", "d": "4"}
    assert differences(primary, primary) == []
    assert differences(primary, standby) == [
        "b: 9; on the primary 2",
        "c: missing; on the primary 3",
        "d: 4; on the primary missing",
    ]


@pytest.mark.parametrize(("name", "last"), [("mariadb-10.11.txt", 2689), ("mysql-9.7.txt", 1909)])
def test_the_place_in_a_binary_log(name: str, last: int) -> None:
    """Of the last event in what mysqlbinlog and mariadb-binlog print; a text without one changes
    nothing. PostgreSQL's has a high and a low half, in hexadecimal.
    """
    assert (lsn("0/3000060"), lsn("16/B374D848")) == (0x3000060, 0x16B374D848)
    text = (BINLOG / name).read_bytes()
    assert position(text, 0) == last
    assert position(text[: text.index(b"# at 4\n") + 7], 0) == 4
    assert position(b"BINLOG '\n# at 77", 5) == 5  # cut off: the rest comes with the next text


def test_an_archives_dataset_has_what_its_engine_knows(tmp_path: Path) -> None:
    """pgbench's scale for PostgreSQL, sysbench's tables for the others: equal ones have equal keys.
    archive.json keeps all of an archive.
    """
    save(tmp_path, archive := Archive(LOGS, 17, {"t": "3 rows, 4"}))
    assert load(tmp_path) == archive
    asked = Dataset("archive", {"scale": 3, "tables": 2, "table_size": 10, "log_bytes": "1MiB"})
    assert set(generated.fill_in(asked, "postgres").parameters) == {"scale", "seed", "log_bytes"}
    assert set(generated.fill_in(asked, "mysql").parameters) == {
        "tables",
        "table_size",
        "seed",
        "log_bytes",
    }
    other = dataclasses.replace(asked, parameters={**asked.parameters, "tables": 9})
    assert generated.fill_in(asked, "postgres") == generated.fill_in(other, "postgres")
    built = generated.size_bytes(Dataset("pgbench", {"scale": 3}), "postgres")
    assert generated.building_bytes(asked, "postgres") > 2 * built


def test_decay_has_an_interval() -> None:
    """A line that falls is found with its slope a minute; a level one has zero within; short ones
    have none.
    """
    falling = [1000 - 2 * second + (second % 3) for second in range(120)]
    found = steadiness.slope_per_min(falling)
    assert found is not None
    assert found.slope == pytest.approx(-120, abs=1) and found.low < -119 and found.high > -121
    level = steadiness.slope_per_min([500.0 + (second * 7919 % 13) for second in range(90)])
    assert level is not None and level.low < 0 < level.high
    assert steadiness.slope_per_min([1.0] * 11) is None


def test_a_line_has_its_interval() -> None:
    """Exact points have none; scattered ones hold the true slope; two points, or one place, are no
    line.
    """
    exact = steadiness.line([0, 1, 2, 4], [10, 8, 6, 2])
    assert exact is not None and exact.slope == pytest.approx(-2) and exact.high - exact.low < 1e-6
    rough = steadiness.line([0, 1, 2, 3, 4], [10, 9, 5, 4, 3])
    assert rough is not None and rough.low < -1.9 < rough.high < 0
    assert steadiness.line([0, 1], [1, 2]) is None
    assert steadiness.line([1, 1, 1], [1, 2, 3]) is None
