"""The insert benchmark without a server: its rows, its remark, and the time that its load
may take.
"""

import dataclasses
import re
from pathlib import Path
from typing import Final

from dbbench import results
from dbbench.compare import rows
from dbbench.compare.remarks import texts
from dbbench.drivers import insert
from dbbench.metrics.table import METRICS
from dbbench.model import Phase, Status, TrialWarning
from dbbench.model.events import Event
from dbbench.model.times import UNBOUNDED_WORK_S
from dbbench.plan import catalog
from dbbench.report.answer import answer
from dbbench.report.sentences import plain_text
from dbbench.report.verdicts import VerdictTable
from dbbench.run.record import Record
from tests.support.judged import Judged, outcome
from tests.support.runs import small_run

SHIPPED: Final = catalog.catalog().workload("insert-benchmark")


def test_the_same_rows_are_inserted_everywhere() -> None:
    """They follow from the seed and the first number; others differ. Values are in their ranges."""
    assert insert.insert(51, 50, 42) == insert.insert(51, 50, 42) != insert.insert(51, 50, 43)
    found = re.findall(r"\((\d+),(\d+),(\d+),(\d+),'([0-9a-f]{100})'\)", insert.insert(51, 50, 42))
    assert [int(number) for number, *_ in found] == list(range(51, 101))
    customers, shops, prices = ({int(row[at]) for row in found} for at in (1, 2, 3))
    assert (
        1 <= min(shops) <= max(shops) <= 1000 < max(customers) <= 100_000 < max(prices) <= 1_000_000
    )
    assert len({note for *_, note in found}) == 50


def test_a_missed_rate_is_reported_next_to_the_ratio(tmp_path: Path) -> None:
    """The trial is not suspect, because it is not disturbed; flushes are compared with the commits
    of the inserts.
    """
    warned = {
        "warnings": (TrialWarning("W153", "5 of 10"),),
        "figures": {"queries_per_s": None},
        "commits": 10,
    }
    trial = Judged(outcome=dataclasses.replace(outcome(), **warned)).trial(tmp_path)
    assert trial.status is Status.OK and trial.summary["queries_per_s"] is None
    assert trial.io is not None and trial.io.flushes_note == "2 device flushes per commit"
    found = rows([trial], "ext4", "queries_per_s")
    assert "the required rate of inserts was missed in 1 of 1 trials (W153)" in texts(
        found[0].notes
    )
    (sentence,) = answer(
        [VerdictTable("mariadb", "insert-benchmark", "", METRICS["queries_per_s"], found)]
    ).sentences
    said = plain_text(sentence)
    assert (
        said
        == "Nothing can be compared: of the baseline ext4, 1 trial missed the required rate of "
        "inserts."
    )


def test_the_load_before_the_window_has_time(tmp_path: Path) -> None:
    """Its length is not known, although that of the window is."""
    run_folder = results.create_run(tmp_path, small_run(), "")
    folder = results.RunFolder(run_folder)
    plain = folder.run.cells[0]
    loading = dataclasses.replace(plain, workload=SHIPPED)
    limits = []
    for cell in (plain, loading):
        events: list[Event] = []
        folder.run = dataclasses.replace(folder.run, cells=(cell, *folder.run.cells[1:]))
        with Record(folder, folder.run.order[0], events.append).stage(Phase.WARMUP):
            pass
        limits.append(events[0].data["deadline_s"])
    assert limits[0] < 1000 < limits[1] == UNBOUNDED_WORK_S
