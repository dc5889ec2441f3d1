"""Ageing by the engine: a run on btrfs, where rewriting fragments the files."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.plans import plan

pytestmark = pytest.mark.needs(
    "root", "mkfs.btrfs", "btrfs", "fs:btrfs", "engine:postgres", "sysbench", "sadf"
)

# of the load and of ageing; a disk that stalls for seconds leaves a shorter one without a
# transaction
WINDOW_S = 4


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> dict[str, Any]:
    """The only trial of such a run, and its folder."""
    dbbench = dbbench_in(tmp_path_factory.mktemp("aged"))
    load = {"name": "sysbench-oltp-write-only", "tables": 2, "table_size": 8000, "clients": 2}
    device = {"size": "768MiB"}
    ageing = {"write_factors": [0, 0.5]}
    trial = dbbench.trial(
        plan("btrfs", "postgres", load, measure=f"{WINDOW_S}s", device=device, age_engine=ageing)
    )
    folder: Path = dbbench.folder / "results/r/trials" / trial["id"]
    page = (dbbench.folder / "results/r/report.html").read_text()
    return {**trial, "folder": folder, "page": page}


def test_the_load_goes_on_until_so_much_is_written(aged: dict[str, Any]) -> None:
    """The last factor is reached, by whole windows; written bytes only grow."""
    found = aged["age_engine"]
    factors = [point["factor"] for point in found["points"]]
    assert factors[0] == 0.0 and factors == sorted(factors) and factors[-1] >= 0.5 > factors[-2]
    assert found["written_bytes"] >= 0.5 * found["dataset_bytes"] and found["note"] == ""
    assert [point["asked"] for point in found["points"] if point["asked"] is not None] == [0.0, 0.5]


def test_pieces_of_files_are_counted_at_the_factors_of_the_plan(aged: dict[str, Any]) -> None:
    """And their sizes, and nowhere else. Only checkpoints fragment them: after seconds there may be
    no more of them.
    """
    looked = [point for point in aged["age_engine"]["points"] if point["asked"] is not None]
    others = [point for point in aged["age_engine"]["points"] if point["asked"] is None]
    assert all(
        point["extents"] > 0 and point["logical_bytes"] > 0 and point["disk_bytes"] > 0
        for point in looked
    )
    assert all(point["extents"] is None for point in others)
    assert aged["summary"]["aged_extents"] == looked[1]["extents"]


def test_figures_are_those_of_the_load_generator(aged: dict[str, Any]) -> None:
    """Transactions of the kept windows are those that its threads counted in them, and of all it
    printed the total.
    """
    for point in aged["age_engine"]["points"]:
        if point["asked"] is None:
            continue
        folder = aged["folder"] / "raw/age_engine" / f"{point['asked']:g}"
        whole = re.search(r"transactions: +(\d+) ", (folder / "sysbench.out").read_text())
        with gzip.open(folder / "sysbench_events.txt.gz", "rt") as events:
            rows = [tuple(map(int, line.split())) for line in events]
        warm = 0 if point["factor"] > 0 else 1  # the first window has a warm-up before it
        counted = sum(
            value for second, what, value in rows if what >= 0 and warm <= second < warm + WINDOW_S
        )
        assert point["tps"] * WINDOW_S == pytest.approx(counted) and counted > 0
        assert whole is not None and int(whole[1]) == sum(
            value for _, what, value in rows if what >= 0
        )
    assert aged["summary"]["aged_tps"] == aged["age_engine"]["points"][-1]["tps"]


def test_repair_puts_the_tables_in_order_and_scans_go_by_proof(aged: dict[str, Any]) -> None:
    """Three scans, each cold; both repairs took their time; the data is sound in the end."""
    found = aged["age_engine"]
    assert [scan["when"] for scan in found["scans"]] == [
        "aged",
        "repaired by the filesystem",
        "repaired by the engine",
    ]
    assert all(
        scan["cold"] and scan["mb_per_s"] > 0 and scan["duration_s"] > 0 for scan in found["scans"]
    )
    first = json.loads((aged["folder"] / "raw/age_engine/scan-aged/scan.json").read_text())
    size = sum(table["size_bytes"] for table in first["tables"])
    assert found["scans"][0]["mb_per_s"] == pytest.approx(
        size / 1e6 / found["scans"][0]["duration_s"]
    )
    tool, engine = found["repairs"]
    before, after = map(int, re.findall(r"(\d+) (?:extents before|after)", tool["text"]))
    assert (
        after < before
        and tool["seconds"] > 0
        and "VACUUM (FULL, ANALYZE) of 2 tables" in engine["text"]
    )
    assert "checksums" in found["checked"]
    assert aged["summary"]["aged_scan_mb_per_s"] == found["scans"][0]["mb_per_s"]
    assert aged["summary"]["repaired_scan_mb_per_s"] == found["scans"][2]["mb_per_s"]


def test_the_trials_own_figures_are_not_touched(aged: dict[str, Any]) -> None:
    """The window of the trial was read from logs that the later loads have not overwritten."""
    assert aged["error"] is None and aged["summary"]["tps"] > 0
    assert [phase["name"] for phase in aged["phases"]][-2:] == ["space", "age_engine"]
