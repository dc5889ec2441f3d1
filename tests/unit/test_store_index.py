"""The index beside the results: quick, and never wrong."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import synthetic
from synthetic import Shape

from dbbench import store
from dbbench.store import index

WORK = (("postgres", "pgbench-tpcb"),)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs."""
    for name in ("one", "two"):
        synthetic.write(tmp_path, Shape(name=name, work=WORK, blocks=1, missing=1))
    return tmp_path


def asked(results: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows, the runs that had to be read)."""
    read = []

    def make(run: Path) -> dict[str, Any]:
        read.append(run.name)
        return {"name": run.name, "done": len(store.load_run(run).trials)}

    return index.rows(results, store.runs(results), make, "v1"), read


def test_a_run_is_read_once(results: Path) -> None:
    """And again only when a trial came, run.json changed, or the index is gone."""
    first, read = asked(results)
    assert read == ["one", "two"]
    assert asked(results) == (first, [])
    left = store.load_run(results / "one").unfinished[0]
    shutil.copytree(next((results / "two/trials").iterdir()), results / "one/trials" / left)
    assert asked(results)[1] == ["one"]
    store.save_spec(results / "two", store.load_spec(results / "two"))
    assert asked(results)[1] == ["two"]
    (results / index.NAME).unlink()
    assert asked(results)[1] == ["one", "two"]


def test_a_run_that_is_gone_is_forgotten(results: Path) -> None:
    """Copied back under its name it is read anew."""
    asked(results)
    shutil.move(results / "one", results.parent / "away")
    assert [row["name"] for row in asked(results)[0]] == ["two"]
    shutil.move(results.parent / "away", results / "one")
    assert asked(results)[1] == ["one"]


@pytest.mark.parametrize("damage", [b"", b"not a database" * 99])
def test_a_damaged_index_costs_time_alone(results: Path, damage: bytes) -> None:
    """It is put away and made anew."""
    first, _ = asked(results)
    (results / index.NAME).write_bytes(damage)
    assert asked(results)[0] == first
    asked(results)
    assert asked(results) == (first, [])
