"""The index of the results: fast, and never wrong."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import results


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    """Two runs."""
    for name in ("one", "two"):
        synthetic.write(tmp_path, Shape(name=name, work=TPCB, blocks=1, missing=1))
    return tmp_path


def asked(results_folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows, the runs that had to be read)."""
    read = []

    def make(run: Path) -> dict[str, Any]:
        read.append(run.name)
        return {"name": run.name, "done": len(results.load_run(run).trials)}

    return results.index_rows(results_folder, results.runs(results_folder), make, "v1"), read


def test_a_run_is_read_once(results_folder: Path) -> None:
    """And again only when a trial came, run.json changed, or the index is gone. A run that is gone
    is forgotten; copied back under its name it is read anew.
    """
    first, read = asked(results_folder)
    assert read == ["one", "two"]
    assert asked(results_folder) == (first, [])
    left = results.load_run(results_folder / "one").remaining[0]
    synthetic.write(results_folder.parent / "whole", Shape(name="one", work=TPCB, blocks=1))
    shutil.copytree(
        results_folder.parent / "whole/one/trials" / left, results_folder / "one/trials" / left
    )
    assert asked(results_folder)[1] == ["one"]
    results.save_spec(results_folder / "two", results.load_spec(results_folder / "two"))
    assert asked(results_folder)[1] == ["two"]
    (results_folder / results.INDEX_NAME).unlink()
    assert asked(results_folder)[1] == ["one", "two"]
    shutil.move(results_folder / "one", results_folder.parent / "away")
    assert [row["name"] for row in asked(results_folder)[0]] == ["two"]
    shutil.move(results_folder.parent / "away", results_folder / "one")
    assert asked(results_folder)[1] == ["one"]


def test_an_index_that_came_with_its_runs_is_not_used(results_folder: Path) -> None:
    """Its rows may be anything, and the names, paths and modification times may be as they were."""
    asked(results_folder)
    shutil.move(results_folder, away := results_folder.with_name("away"))
    shutil.copytree(away, results_folder)
    assert asked(results_folder)[1] == ["one", "two"]


@pytest.mark.parametrize("damage", [b"", b"not a database" * 99])
def test_a_damaged_index_costs_time_alone(results_folder: Path, damage: bytes) -> None:
    """It is put away and made anew."""
    first, _ = asked(results_folder)
    (results_folder / results.INDEX_NAME).write_bytes(damage)
    assert asked(results_folder)[0] == first
    asked(results_folder)
    assert asked(results_folder) == (first, [])
