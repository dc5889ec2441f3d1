"""Blocks are added until the requested precision is reached, on real filesystems."""

from typing import Any

import pytest

from tests.support.plans import plan


@pytest.mark.long
@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")
def test_a_finished_run_continues_until_its_pair_is_settled(dbbench: Any) -> None:
    """One block, then asked for a width that a quiet machine has after five pairs: what was driven
    is recorded; the same command drives nothing.
    """
    # With a rate that a busy machine reaches too, pairs differ little enough.
    load = {"name": "pgbench-tpcb", "scale": 1, "clients": 1, "rate": 50}
    pair = ["ext4", {"use": "ext4", "label": "ext4-b"}]
    dbbench.plan(plan(pair, "postgres", load, warmup="0s", measure="4s", device={"size": "400MiB"}))
    dbbench("run", "plan.toml", "--name", "p", "--progress", "none")
    assert len(dbbench.trials("p")) == 2
    asked = ("run", "plan.toml", "--name", "p", "--progress", "none", "--until-precision", "99%")
    dbbench(*asked)
    driven = len(dbbench.trials("p"))
    run = dbbench.spec("p")
    assert run["precision"] == 0.99
    question = run["questions"]["ext4-b.postgres.pgbench-tpcb"]
    assert question["kind"] in ("settled", "decided") and 3 <= question["pairs"] == driven / 2 <= 5
    assert "already finished" in dbbench(*asked).stderr
    assert len(dbbench.trials("p")) == driven
