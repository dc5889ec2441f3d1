"""Runs with a budget of time, on real filesystems."""

import json
import os
import signal
from typing import Any

import pytest

from tests.support.plans import plan

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf"),
]
LOAD = {"name": "pgbench-tpcb", "scale": 1, "clients": 1}
PAIR = ["ext4", {"use": "ext4", "label": "ext4-b"}]


def text(budget: str | None, **keys: Any) -> str:
    """A plan of two cells whose trials take some seconds."""
    return plan(
        PAIR,
        "postgres",
        LOAD,
        **{
            "blocks": None,
            "budget": budget,
            "warmup": "0s",
            "measure": "3s",
            "repeat_suspect": True,
            "device": {"size": "400MiB"},
            **keys,
        },
    )


def slowest(run: dict[str, Any]) -> float:
    """How long a trial may take, by those that the run has seen; each of its figures is a mean of
    several.
    """
    return 4 * max(run["budget"]["cell_s"].values())


def blocks_of(run: dict[str, Any]) -> list[int]:
    """How many blocks each cell has in the order."""
    return [
        sum(s["cell"] == c["id"] and s["attempt"] == 1 for s in run["order"]) for c in run["cells"]
    ]


def test_a_run_takes_as_many_whole_blocks_as_fit(dbbench: Any) -> None:
    """It says beforehand how many to expect, and afterwards how many there were and why it ended;
    the same command runs nothing more, and a larger budget continues it.
    """
    dbbench.plan(text("1min"))
    said = dbbench("run", "plan.toml", "--name", "r", "--progress", "plain", "--json")
    assert "the budget of 60 s gives about " in said.stderr
    run = dbbench.spec()
    budget = run["budget"]
    assert budget["used_s"] <= 60 + slowest(run) or budget["ended"] == "first"
    assert blocks_of(run) == [budget["blocks"]] * 2 >= [3, 3]
    assert json.loads(said.stdout)["budget"] == {"budget_s": 60.0, **budget}
    assert "budget 60 s: " in (dbbench.folder / "results/r/report.html").read_text()
    again = dbbench("run", "plan.toml", "--name", "r", "--progress", "none")
    assert dbbench.spec()["order"] == run["order"]
    assert "budget 60 s: " in again.stdout
    dbbench("run", "plan.toml", "--name", "r", "--progress", "none", "--budget", "100s")
    longer = dbbench.spec()
    assert longer["budget"]["blocks"] >= budget["blocks"]
    if longer["budget"]["blocks"] > budget["blocks"]:
        assert budget["used_s"] < longer["budget"]["used_s"] <= 100 + slowest(longer)


def test_a_killed_run_keeps_what_is_left(dbbench: Any) -> None:
    """What was used before counts, also the time of a trial that was stopped; every cell has as
    many trials.
    """
    dbbench.plan(text("80s"))
    for number in (signal.SIGTERM, signal.SIGKILL):
        dbbench.run_and(
            "plan.toml",
            dbbench.in_window,
            lambda pid, number=number: os.kill(pid, number),
        )
    before = dbbench.spec()["budget"]["used_s"]
    assert before > 0
    dbbench("run", "plan.toml", "--name", "r", "--progress", "none")
    run = dbbench.spec()
    assert before < run["budget"]["used_s"]
    assert run["budget"]["used_s"] <= 80 + slowest(run) or run["budget"]["ended"] == "first"
    assert blocks_of(run) == [run["budget"]["blocks"]] * 2 >= [3, 3]
