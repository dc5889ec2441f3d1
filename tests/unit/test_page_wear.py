"""The page's section on ageing by the engine: a line for each trial, and the scans."""

from pathlib import Path

import pytest
import synthetic
from synthetic import Shape

from dbbench.model import AgedScan, AgedSlope, EngineAgeFacts, OperationFacts, WrittenPoint
from dbbench.report.page.html import build, render
from dbbench.results import LoadedRun

FACTS = EngineAgeFacts(
    dataset_bytes=10**8,
    written_bytes=4 * 10**8,
    points=(
        WrittenPoint(0.0, 200.0, 10.0, 0.0, 40, 10**8, 2 * 10**8),
        WrittenPoint(0.5, 150.0, 12.0),
        WrittenPoint(1.1, 100.0, 14.0, 1.0, 400, 10**8, 2 * 10**8),
    ),
    slopes=(AgedSlope("tps", -90.0, -120.0, -60.0),),
    scans=(
        AgedScan("aged", 2.0, 50.0, 60.0, True),
        AgedScan("repaired by the engine", 1.0, 100.0, 100.0, True),
    ),
    repairs=(
        OperationFacts("repair: filesystem", None, text="no tool"),
        OperationFacts("repair: engine", 12.0),
    ),
    note="the load wrote <nothing>",
)


@pytest.fixture
def run(tmp_path: Path) -> LoadedRun:
    """A run of which each trial of btrfs was aged."""
    aged = {"btrfs": {"age_engine": FACTS}}
    loaded = synthetic.loaded(tmp_path, Shape(blocks=3, measure_s=5))
    return synthetic.with_trials(loaded, lambda trial: aged.get(trial.fs_setup, {}))


def test_an_arm_has_its_course_scans_and_repairs(run: LoadedRun) -> None:
    """Throughput and extents at the plan's factors, not in the windows between them, divided by the
    first; a note as text. A run without it has no section.
    """
    table = build([run]).wear[0]
    ((mark, cells),) = table.rows
    assert mark.name == "btrfs"
    assert cells[:2] == ("0 ×: 1, 1.10 ×: 0.500", "0 ×: 1, 1.10 ×: 10")
    assert cells[2:] == ("−90 (−120 .. −60)", "50", "–", "–", "12 s", "100")
    page = render([run])
    assert "Aged by the database" in page and "extents ÷ those at the start" in page
    assert "the load wrote &lt;nothing&gt;" in page and "<nothing>" not in page
    fresh = synthetic.with_trials(run, lambda _: {"age_engine": None})
    assert build([fresh]).wear == () and "Aged by the database" not in render([fresh])
