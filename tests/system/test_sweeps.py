"""A plan with lists: each value is a separate cell with a separate verdict."""

import pytest

from tests.support.plans import plan
from tests.system.conftest import Dbbench


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf")
def test_each_value_is_driven_and_judged_by_itself(dbbench: Dbbench) -> None:
    """Four cells of two values; tables, the plan and the page name the values, and no pair crosses
    them.
    """
    arms = ["ext4", {"use": "ext4", "label": "again"}]
    text = plan(
        arms,
        "files",
        {"name": "small-files", "files": 500, "clients": [1, 2]},
        device={"size": "320MiB"},
    )
    said = dbbench("plan", file := dbbench.plan(text)).stdout
    assert "small-files, clients=2" in said and "4 cells" in said
    dbbench("run", file, "--name", "r")
    trials = dbbench.trials()
    assert {(trial["variant"], trial["parameters"]["clients"]) for trial in trials.values()} == {
        ("clients=1", 1),
        ("clients=2", 2),
    }
    assert set(trials) == {
        f"{arm}.files.small-files.clients={n}-b1-a1" for arm in ("ext4", "again") for n in (1, 2)
    }
    rows = dbbench.compared()
    assert [(row["variant"], row["fs_setup"]) for row in rows] == [
        ("clients=1", "ext4"),
        ("clients=1", "again"),
        ("clients=2", "ext4"),
        ("clients=2", "again"),
    ]
    own = {(trial["variant"], trial["fs_setup"]): trial["summary"] for trial in trials.values()}
    assert all(
        row["value"] == pytest.approx(own[row["variant"], row["fs_setup"]][row["metric"]])
        for row in rows
    )
    assert "files small-files, clients=2 (many small files): " in dbbench("compare", "r").stdout
    page = (dbbench.folder / "results/r/report.html").read_text()
    assert "small-files, clients=1" in page and "small-files, clients=2" in page


@pytest.mark.soak
@pytest.mark.needs("root", "engine:postgres")
def test_the_checkpoint_interval_is_a_sweep(dbbench: Dbbench) -> None:
    """Every 30 s, which is the server's least: one begins in a window of 36. Every 10 minutes: none
    does.
    """
    server = {"name": "postgres", "settings": {"checkpoint_timeout": ["30s", "10min"]}}
    load = {"name": "pgbench-simple-update", "scale": 1}
    text = plan("ext4", server, load, warmup=0, measure=36, device={"size": "1GiB"})
    dbbench("run", dbbench.plan(text), "--name", "r")
    trials = {trial["variant"]: trial for trial in dbbench.trials().values()}
    assert set(trials) == {"checkpoint_timeout=30s", "checkpoint_timeout=10min"}
    for variant, trial in trials.items():
        assert trial["effective_settings"]["checkpoint_timeout"] == variant.removeprefix(
            "checkpoint_timeout="
        )
    assert trials["checkpoint_timeout=30s"]["checkpoints"]["by_cause"].get("timed", 0) >= 1
    assert trials["checkpoint_timeout=10min"]["checkpoints"]["begun"] == 0
