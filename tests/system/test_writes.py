"""The estimate of bytes written agrees with the counters of real devices."""

from typing import Any

import pytest

from tests.support.plans import plan

AGE = {"fill": 0.3, "churn": 1.0}


@pytest.mark.needs("root", "engine:postgres", "mkfs.ext4", "fs:ext4", "mkfs.btrfs", "fs:btrfs")
def test_the_estimate_is_within_a_factor_of_two(dbbench: Any, nothing_left: None) -> None:
    """Ageing, a mirror, operations and a load that runs to its end; two image files on one disk are
    named as that.
    """
    load = {"name": "copy-in", "tables": 2, "file_bytes": "8MiB"}
    dbbench.plan(
        plan(
            ["ext4", "btrfs-raid1"],
            "postgres",
            load,
            age=AGE,
            operations=["clone"],
            warmup=None,
            measure=None,
            device={"size": "768MiB", "count": 2},
        )
    )
    planned = dbbench("plan", "plan.toml").stdout
    assert "number of devices differs: ext4 1, btrfs-raid1 2" in " ".join(planned.split())
    dbbench("run", "plan.toml", "--name", "r")
    trials = {trial["fs_setup"]: trial for trial in dbbench.trials("r").values()}
    for trial in trials.values():
        facts = trial["writes"]
        assert trial["error"] is None
        assert facts["counted_bytes"] / 2 < facts["estimated_bytes"] < facts["counted_bytes"] * 2, (
            trial["fs_setup"]
        )
    assert "W119" in {warning["id"] for warning in trials["btrfs-raid1"]["warnings"]}
    assert "W119" not in {warning["id"] for warning in trials["ext4"]["warnings"]}
    assert "differ by more than a factor" not in dbbench("show", "r").stdout
    said = " ".join(dbbench("compare", "results/r").stdout.split())
    assert (
        "number of devices differs (2; baseline: 1)" in said and "one physical disk (W119)" in said
    )
