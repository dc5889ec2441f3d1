from pathlib import Path

import pytest

from dbbench.datasets import split
from dbbench.datasets.copying import restore_copy
from dbbench.errors import PlanInvalid
from dbbench.model.events import Event
from dbbench.plan import catalog
from dbbench.report.progress.state import State, copy_text
from dbbench.results.trials import ELSEWHERE, leftovers
from dbbench.run.stages.restore import pace
from tests.support.plans import plan, plan_of
from tests.unit.test_datasets_copying import ME, a_copy


def test_a_copy_is_split_into_a_folder_and_the_rest(tmp_path: Path) -> None:
    """Both are restored by themselves, and together they are the whole."""
    made = a_copy(tmp_path / "copy")
    within, rest = split(made, "base/5")
    assert {entry.path for entry in within.manifest.entries} == {"16384", "16385"}
    assert within.manifest.logical_bytes + rest.manifest.logical_bytes == made.manifest.logical_bytes
    assert not [entry.path for entry in rest.manifest.entries if entry.path.startswith("base/5")]
    restore_copy(within, tmp_path / "part", ME)
    assert (tmp_path / "part/16384").read_bytes() == (made.data / "base/5/16384").read_bytes()
    restore_copy(rest, tmp_path / "rest", ME)
    assert (tmp_path / "rest/base").is_dir()


def test_progress_tells_rate_and_time_left_once_a_second() -> None:
    """From the bytes and the clock; both renderers read the same words."""
    told: list[Event] = []
    times = iter([0.0, 0.5, 2.0, 2.1, 4.0])
    tell = pace(told.append, lambda: next(times))
    for done in (10, 100_000_000, 110_000_000, 300_000_000):
        tell(done, 400_000_000)
    assert [event.data["bytes"] for event in told] == [100_000_000, 300_000_000]
    state = State()
    state.take(told[-1], 0.0)
    assert copy_text(state.copied) == "75 % at 75 MB/s, 2 s left"


def test_operations_on_whole_copies_do_not_go_with_one_tablespace(tmp_path: Path) -> None:
    """The rest of the cluster is elsewhere."""
    workload = {"name": "pgbench-tpcb", "source": "x", "tablespace": "fast"}
    with pytest.raises(PlanInvalid, match='cannot be combined with "tablespace"'):
        plan_of(tmp_path, plan(workload=workload, operations=["snapshot"]), catalog.catalog())


def test_what_a_killed_trial_left_beside_its_filesystem_is_a_leftover(tmp_path: Path) -> None:
    """The rest of a cluster is removed by the next start and by `clean`; a link of that name is not followed."""
    (tmp_path / "trials").mkdir()
    assert leftovers(tmp_path) == []
    (beside := tmp_path / ELSEWHERE).mkdir()
    assert leftovers(tmp_path) == [beside]
    beside.rename(tmp_path / "other")
    beside.symlink_to(tmp_path / "other")
    assert leftovers(tmp_path) == []
