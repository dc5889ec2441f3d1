"""A plan with lists, driven: every value is a cell of its own, with a verdict of its own."""

from __future__ import annotations

import json

import pytest

from tests.system.conftest import Dbbench

PLAN = """\
name = "sweep"
fs_setups = ["ext4", { use = "ext4", label = "again" }]
blocks = 1
warmup = 0
measure = 1
repeat_suspect = false
[device]
size = "320MiB"
[engine]
name = "postgres"
[workload]
name = "pgbench-simple-update"
clients = [1, 2]
scale = 1
"""


@pytest.mark.needs("root", "engine:postgres")
def test_each_value_is_driven_and_judged_by_itself(dbbench: Dbbench) -> None:
    """Four cells of two values; tables, the plan and the page name the values, and no pair crosses them."""
    said = dbbench("plan", plan := dbbench.plan(PLAN)).stdout
    assert "pgbench-simple-update, clients=2" in said and "4 cells" in said
    dbbench("run", plan, "--name", "r")
    trials = dbbench.trials()
    assert {(trial["variant"], trial["parameters"]["clients"]) for trial in trials.values()} == {
        ("clients=1", 1), ("clients=2", 2),
    }  # fmt: skip
    assert set(trials) == {f"{arm}.postgres.pgbench-simple-update.clients={n}-b1-a1" for arm in ("ext4", "again")
                           for n in (1, 2)}  # fmt: skip
    rows = json.loads(dbbench("compare", "r", "--json").stdout)["rows"]
    assert [(row["variant"], row["fs_setup"]) for row in rows] == [
        ("clients=1", "ext4"), ("clients=1", "again"), ("clients=2", "ext4"), ("clients=2", "again"),
    ]  # fmt: skip
    own = {(trial["variant"], trial["fs_setup"]): trial["summary"]["tps"] for trial in trials.values()}
    assert all(row["value"] == pytest.approx(own[row["variant"], row["fs_setup"]]) for row in rows)
    assert "postgres pgbench-simple-update, clients=2: throughput" in dbbench("compare", "r").stdout
    page = (dbbench.folder / "results/r/report.html").read_text()
    assert "pgbench-simple-update, clients=1" in page and "pgbench-simple-update, clients=2" in page
