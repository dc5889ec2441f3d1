"""Ageing by the engine: its end, the fitted line, and the keys of a plan."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dbbench.errors import PlanInvalid
from dbbench.metrics import steadiness, summary
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Series
from dbbench.model import (
    CacheFacts,
    DeviceFacts,
    EngineAgeFacts,
    EngineAgeing,
    FsSetup,
    Mkfs,
    Window,
    WrittenPoint,
)
from dbbench.operations import StoredDatabase
from dbbench.run.stages import age_engine
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.port import Mounted
from tests.support.plans import plan, plan_of

MIB = 2**20


class Fake:
    """A server and loads: each window writes `grows` bytes."""

    def __init__(self, grows: int) -> None:
        self.grows, self.written, self.windows, self.scans = grows, 0, list[Window](), list[str]()

    def checkpoint(self) -> None:
        pass

    def purge_log(self) -> None:
        pass

    def counters(self) -> dict[str, float]:
        return {"written": float(self.written)}

    def written_bytes(self, grown: dict[str, float]) -> int:
        return int(grown["written"])

    def oltp(self, _server: Any, window: Window, _name: str) -> Outcome:
        self.windows.append(window)
        self.written += self.grows
        tps = 100 - len(self.windows)
        return Outcome(0.0, 2.0, 2 * tps, 0, Series(2), Histogram({500: 10}))

    def scan(self, _server: Any, name: str) -> Outcome:
        self.scans.append(name)
        return Outcome(0.0, 2.0, 1, 0, Series(2), None, {"duration_s": 2.0, "mb_per_s": 0.5})


def filled(folder: Path, fake: Fake) -> StoredDatabase:
    """One data file of a MiB on a family without a tool."""
    (folder / "t").write_bytes(b"x" * MIB)
    device = Device(
        Path("/dev/loop9"), -1, os.makedev(7, 9), DeviceFacts("loop", "/dev/loop9", "loop9", 1), ()
    )
    fs = Mounted(folder, "nilfs2", (), (), None, (), True)

    @contextlib.contextmanager
    def serving(_datadir: Path) -> Iterator[Any]:
        yield fake

    return StoredDatabase(
        FsSetup("of the test", Mkfs("nilfs2")),
        device,
        fs,
        folder,
        folder,
        serving,
        serving,
        cold=lambda files: CacheFacts("posix_fadvise", 1, 0, 1, 1, True),
        data_files=lambda _: [folder / "t"],
    )


def aged(folder: Path, fake: Fake, window: Window) -> EngineAgeFacts:
    """Aged to once the data's bytes, without repairs."""
    asked = EngineAgeing((0.0, 1.0), repair=False)
    return age_engine.age_tables(filled(folder, fake), asked, window, cast(Any, fake))


def test_windows_go_on_until_the_factor_is_reached(tmp_path: Path) -> None:
    """400 KiB a window: three to pass 1 ×; only the first has a warm-up; the windows between are
    points too. A load that writes nothing ends it: this is said, and does not go on for ever.
    """
    fake = Fake(400 * 1024)
    found = aged(tmp_path, fake, Window("fixed", 3, 2))
    assert [window.warmup_s for window in fake.windows] == [3, 0, 0, 0]
    assert [point.asked for point in found.points] == [0.0, None, None, 1.0]
    assert found.points[-1].factor == pytest.approx(1200 / 1024)
    assert (found.dataset_bytes, found.written_bytes) == (MIB, 4 * 400 * 1024)
    assert fake.scans == ["scan aged"] and found.scans[0].cold
    assert {one.metric for one in found.slopes} == {"tps", "p99_ms"}
    tps = next(one for one in found.slopes if one.metric == "tps")
    assert (
        tps.per_factor == pytest.approx(-1 * 1024 / 400) and tps.low <= tps.per_factor <= tps.high
    )
    figures = summary.ageing_summary(found)
    assert figures["aged_tps"] == 96 and figures["repaired_scan_mb_per_s"] is None
    assert figures["aged_tps_slope"] == pytest.approx(-2.56 / 99)
    fake = Fake(10)
    found = aged(tmp_path, fake, Window("fixed", 0, 2))
    assert len(fake.windows) == 2 and "does not age the tables" in found.note
    assert summary.ageing_summary(found)["aged_tps_slope"] is None


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
    assert list(age_engine.slopes([WrittenPoint(0, 1, None), WrittenPoint(1, 2, None)])) == []


@pytest.mark.parametrize(
    ("factors", "workload", "says"),
    [
        ([0, 1], "scan", 'workload "scan" runs to completion'),
        *(
            (wrong, "pgbench-tpcb", "different numbers from 0 to 1000")
            for wrong in ([], [0, -1], [1, 1])
        ),
    ],
)
def test_what_cannot_age_is_a_flaw_of_the_plan(
    factors: list[int], workload: str, says: str, tmp_path: Path
) -> None:
    """With the plan's other flaws, before anything is done; whole numbers are taken as they are."""
    with pytest.raises(PlanInvalid, match=says):
        plan_of(tmp_path, plan(workload=workload, age_engine={"write_factors": factors}))
    good = plan_of(tmp_path, plan(age_engine={"write_factors": [0, 2.5]}))
    assert good.age_engine == EngineAgeing((0.0, 2.5))
