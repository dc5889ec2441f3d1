"""Data loads and maintenance statements as complete trials: phases, figures and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.plans import plan

pytestmark = pytest.mark.needs(
    "root",
    "mkfs.xfs",
    "fs:xfs",
    "engine:postgres",
    "engine:mariadb",
    "sysbench",
    "sadf",
)


TABLES = {"engines": ["postgres"], "tables": 2, "table_size": 8000}
LOADS: list[Any] = [
    {"name": "copy-in", "engines": ["mariadb"], "tables": 2, "file_bytes": "2MiB"},
    {"name": "index-build", **TABLES},
    {"name": "drop-table", **TABLES, "large_bytes": "48MiB", "clients": 2, "during_at": 0.5},
]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> dict[str, dict[str, Any]]:
    """The trials of such a run by workload, each with its folder."""
    dbbench = dbbench_in(tmp_path_factory.mktemp("dba"))
    # Five seconds before the drop: its ratio needs transactions in most of them, also if the
    # machine stops for two.
    dbbench.plan(
        plan("xfs", ["postgres", "mariadb"], LOADS, measure="10s", device={"size": "768MiB"})
    )
    dbbench("run", "plan.toml", "--name", "r")
    root: Path = dbbench.folder / "results/r/trials"
    return {
        trial["workload"]: {**trial, "folder": root / name}
        for name, trial in dbbench.trials().items()
    }


def test_every_trial_has_its_primary_figure(trials: dict[str, dict[str, Any]]) -> None:
    """None failed."""
    assert {name: trial["error"] for name, trial in trials.items()} == dict.fromkeys(trials)
    wanted = {"copy-in": "rows_per_s", "index-build": "mb_per_s", "drop-table": "during_tps_ratio"}
    assert all(trials[name]["summary"][metric] > 0 for name, metric in wanted.items())


def test_what_is_made_before_the_window_is_not_a_part_of_it(
    trials: dict[str, dict[str, Any]],
) -> None:
    """Untimed steps stand in a phase of their own; the devices' rates are of the timed ones."""
    trial = trials["copy-in"]
    names = [phase["name"] for phase in trial["phases"]]
    assert names[names.index("start") :][:4] == ["start", "warmup", "measure", "drain"]
    steps = json.loads((trial["folder"] / "raw/statements.json").read_text())["steps"]
    assert [(step["step"], step["timed"]) for step in steps] == [("create", False), ("load", True)]
    summary = trial["summary"]
    assert summary["duration_s"] == steps[1]["seconds"]
    assert summary["drained_s"] == pytest.approx(summary["duration_s"] + summary["drain_s"])
    written = trial["io"]["write_bytes"] / 1e6 / summary["duration_s"]
    assert summary["device_write_mb_per_s"] == pytest.approx(written)
    assert trial["io"]["write_bytes"] > 4e6  # rows and log of both tables


def test_an_index_is_built_from_a_cold_cache(trials: dict[str, dict[str, Any]]) -> None:
    """The table came from the device: at least its own bytes were read in the window."""
    trial = trials["index-build"]
    (step,) = json.loads((trial["folder"] / "raw/statements.json").read_text())["steps"]
    assert trial["cache"]["proved"] and trial["io"]["read_bytes"] >= 0.9 * step["bytes"] > 2e6


def test_a_drop_beside_the_load_is_in_the_window(trials: dict[str, dict[str, Any]]) -> None:
    """The large table lies in the dataset; the statement began in the window, and its seconds are a
    figure.
    """
    trial = trials["drop-table"]
    said = json.loads((trial["folder"] / "raw/during.json").read_text())
    assert 1 < said["began_s"] < 11 and trial["summary"]["during_s"] == pytest.approx(
        said["during_s"]
    )
    assert trial["summary"]["dataset_bytes"] > 48 * 2**20
    assert trial["summary"]["during_max_ms"] <= trial["summary"]["max_ms"] * 1.001
