"""Snapshots during the load: interval, number kept, failures, and the metrics."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from dbbench.engines import ENGINES
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Series
from dbbench.model import FsSetup, Layer, Mkfs, SnapshotFacts, SnapshotSpec, SnapshotTaken, Window
from dbbench.operations.copies import Copies, without_vanishing
from dbbench.report.page.operations import snapshot_column
from dbbench.run.stages import snapshots as timed_snapshots
from tests.support.plans import flaws_of, plan, plan_of
from tests.support.stored import RecordingStorage

OPEN = Window("fixed", 2, 8)


@pytest.fixture(autouse=True)
def answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second server answers by a word."""
    monkeypatch.setattr(timed_snapshots, "query", lambda _server: "t: 7 rows")


def taken(
    said: RecordingStorage,
    seconds: float,
    keep: int = 2,
) -> timed_snapshots.SnapshotSchedule:
    """Take them for so long."""
    with timed_snapshots.taking(SnapshotSpec(0.1, keep), said.filled, said, time.time) as thread:
        time.sleep(seconds)
    return thread


def test_the_oldest_goes_and_none_is_left(said: RecordingStorage) -> None:
    """Each is started and asked; no more than `keep` stay; after the window all are dropped."""
    done = taken(said, 0.36)
    assert said.lines == [
        *(
            line
            for n in (1, 2, 3)
            for line in (f"snapshot {n}", f"mount {n}", "second up", "second down", f"unmount {n}")
        ),
        "drop 1",
        "drop 2",
        "drop 3",
    ]
    # of those that were kept to the end
    assert [one.bytes for one in done.taken] == [None, 8192, 12288]
    assert [one.drop_s is not None for one in done.taken] == [False, False, True]
    assert {one.text for one in done.taken} == {"t: 7 rows"}
    assert (done.fault, done.late) == ("", 0)
    # whose pid is alive: no second server would start
    assert not (said.folder / "postmaster.pid").exists()


@pytest.mark.parametrize("at", ["snapshot 2", "mount 2", "drop 1"])
def test_a_fault_ends_them_and_is_reported(at: str, said: RecordingStorage) -> None:
    """Wherever it happens; what was taken before stands, and what is left is dropped."""
    said.fails_at = at
    done = taken(said, 0.36, keep=1)
    assert f"planted at {at}" in done.fault
    assert done.taken[0].text == "t: 7 rows"
    assert {line for line in said.lines if line.startswith("drop")} >= {"drop 1", "drop 2"}
    assert "snapshot 3" not in said.lines


def test_late_ones_are_counted(said: RecordingStorage) -> None:
    """One that takes longer than the time between two: the next begins at once, none is made up
    for.
    """
    said.seconds = 0.15
    done = taken(said, 0.5)
    assert done.late == len(done.taken) <= 4


def test_a_load_that_fails_leaves_none(said: RecordingStorage) -> None:
    """The load's own error comes through, and everything is dropped."""
    with (
        pytest.raises(ZeroDivisionError),
        timed_snapshots.taking(SnapshotSpec(0.05, 2), said.filled, said, time.time),
    ):
        time.sleep(0.12)
        raise ZeroDivisionError
    assert said.lines[-1].startswith("drop")


def test_who_cannot_gets_the_reason(said: Any) -> None:
    """No snapshots and no reflinks; reflinks of a server without backup functions; a log that lies
    elsewhere.
    """
    assert timed_snapshots.way(said.filled, said) is said
    assert timed_snapshots.lacks(said, said.filled) is None
    elsewhere = dataclasses.replace(said.filled, log=Path("/log"))
    assert "log is on another device" in str(timed_snapshots.lacks(said, elsewhere))
    xfs = dataclasses.replace(
        said.filled, setup=FsSetup("t", Mkfs("xfs"), layers=(Layer("md", 1),))
    )
    said.engine = "mariadb"
    how = timed_snapshots.way(xfs, said)
    assert isinstance(how, Copies)
    without = dataclasses.replace(how, shares=lambda _: False)
    assert (
        "nor a layer below it has snapshots; ext4 with these options does not support reflinks"
        in str(timed_snapshots.lacks(without, xfs))
    )
    how = dataclasses.replace(how, shares=lambda _: True)
    assert "files of a running mariadb" in str(timed_snapshots.lacks(how, xfs))
    said.engine = "postgres"
    assert timed_snapshots.lacks(how, xfs) is None


def test_files_that_went_are_no_fault_of_a_copy() -> None:
    """The server removes temporary files and old log while it is copied; any other failure is
    reported.
    """
    gone = "cp: cannot stat '/m/data/./base/pgsql_tmp/pgsql_tmp77.0': No such file or directory\n"
    full = "cp: failed to clone '/m/data.copy1/base/5/16384': No space left on device\n"
    assert without_vanishing(gone * 2) == []
    assert without_vanishing(gone + full) == [full.strip()]


def facts(*spans: tuple[float, float]) -> SnapshotFacts:
    """Snapshots under way in these seconds of a load that began at 1000."""
    return SnapshotFacts(
        3,
        2,
        "btrfs",
        taken=tuple(SnapshotTaken(1000 + a, 1000 + b, 0.1, 0.5) for a, b in spans),
    )


def outcome(**columns: list[float | None]) -> Outcome:
    """A load that began at 1000."""
    length = len(next(iter(columns.values())))
    return Outcome(1000.0, float(length), 0, 0, Series(length, dict(columns)), None)


def test_cost_is_of_whole_seconds_of_the_window() -> None:
    """A second with any part of one counts to it; the warm-up counts to neither. Below three
    seconds of either kind, or where log came when it came, there is no ratio.
    """
    rates: list[float | None] = [9, 9, 10, 10, 5, 5, 10, 10, 4, 10]
    found = timed_snapshots.with_cost(facts((4.2, 5.9), (8.0, 8.9)), outcome(tps=rates), OPEN)
    assert [(one.at_s, one.until_s) for one in found.taken] == [(4.2, 5.9), (8.0, 8.9)]
    assert (found.rate_within, found.rate_beside) == (pytest.approx(14 / 3), 10)
    assert found.cost_ratio == pytest.approx(14 / 30)
    flat: list[float | None] = [10.0] * 10
    assert timed_snapshots.with_cost(facts((4.2, 4.9)), outcome(tps=flat), OPEN).cost_ratio is None
    apply = facts((1.0, 3.9))
    to_end = Window("to-completion", 0, 0)
    assert (
        timed_snapshots.with_cost(apply, outcome(tps=[], apply_kb_per_s=flat), to_end).cost_ratio
        is None
    )
    tps: list[float | None] = [None] * 10
    assert (
        timed_snapshots.with_cost(apply, outcome(tps=tps, apply_kb_per_s=flat), to_end).cost_ratio
        == 1
    )
    gaps = [*flat[:5], None, *flat[6:]]
    assert (
        timed_snapshots.with_cost(apply, outcome(tps=tps, apply_kb_per_s=gaps), to_end).cost_ratio
        is None
    )


def test_the_page_shows_what_is_known() -> None:
    """Medians over snapshots and trials; what nothing is known of has no row."""
    one = dataclasses.replace(facts((1, 2), (4, 5)), cost_ratio=0.5)
    column = snapshot_column(
        [one, dataclasses.replace(one, cost_ratio=0.7), SnapshotFacts(3, 2, note="no")]
    )
    assert column["taken"] == "4 in 2 trials"
    assert column["rate of the load during ÷ between snapshots"] == "0.600"
    assert "space held by a snapshot" not in column
    assert snapshot_column([SnapshotFacts(3, 2, note="no")]) == {}


def written(snapshots: dict[str, Any], **keys: Any) -> str:
    """A plan with these snapshots."""
    return plan(measure="60s", snapshots=snapshots, **keys)


@pytest.mark.parametrize(
    ("snapshots", "flaw"),
    [
        ({"every": "100ms"}, "\"every\" must be 1 or more, not '100ms'"),
        ({"every": "60s"}, '"every" requires a longer window than 60 s'),
        ({"every": "5s", "keep": 0}, '"keep" must be 1 or more, not 0'),
        ({"keep": 2}, "every"),
    ],
)
def test_a_plans_snapshots_are_checked(
    snapshots: dict[str, Any],
    flaw: str,
    tmp_path: Path,
) -> None:
    """Each flaw with its line."""
    assert flaw in flaws_of(tmp_path, written(snapshots))


def test_a_standby_has_no_operations_that_write(tmp_path: Path) -> None:
    """PostgreSQL is one after an apply; what only looks at the filesystem may follow. An apply
    lasts as it lasts.
    """
    wrong = written({"every": "5s"}, operations=["fsck", "snapshot"], workload="archive-apply")
    assert 'operation "snapshot" requires a server that writes' in flaws_of(tmp_path, wrong)
    right = written({"every": "5min"}, operations=["fsck", "scan"], workload="archive-apply")
    assert plan_of(tmp_path, right).snapshots == SnapshotSpec(300.0, 3)


def test_small_caches_are_of_known_settings() -> None:
    """What a second server is given is a setting that its engine has a default for."""
    for engine in ENGINES.values():
        assert engine.PROFILE.small.keys() <= engine.defaults(None).keys()
