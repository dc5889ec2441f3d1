"""Conditions of a plan before its run: sizes by memory, contradictions, and a sentence for each."""

from pathlib import Path
from typing import Any

import pytest

from dbbench import plan
from dbbench.errors import PlanInvalid
from dbbench.model import (
    Cell,
    Plan,
)
from dbbench.plan import planned_conditions
from dbbench.storage.layers import delay
from tests.support import plans
from tests.support.plans import SHIPPED, Table

GIB = 2**30


def loaded(
    tmp_path: Path, workload: Table | None = None, engine: Table | None = None, **keys: Any
) -> tuple[Plan, tuple[Cell, ...]]:
    """The plan with these keys, and its cells."""
    asked = {"name": "pgbench-tpcb", **(workload or {})}
    text = plans.plan(
        "ext4",
        {"name": "postgres", **(engine or {})},
        asked,
        **{"measure": "60s", "device": {}, **keys},
    )
    found = plans.plan_of(tmp_path, text)
    return found, plan.expand(found, SHIPPED).cells


def test_size_sets_the_scale_by_the_memory(tmp_path: Path) -> None:
    """Three times 1 GiB in units of 15.7 MB; a list of sizes is a sweep; nothing of the word
    reaches the tool.
    """
    _, (one,) = loaded(tmp_path, {"size": "io-bound"}, memory="1GiB")
    assert one.dataset.parameters["scale"] == one.parameters["scale"] == round(3 * GIB / 15_700_000)
    assert "size" not in one.parameters
    _, several = loaded(tmp_path, {"size": ["cached", "edge", "io-bound"]}, memory="1GiB")
    scales = [int(c.parameters["scale"]) for c in several]
    assert scales == sorted(scales) and len(set(scales)) == 3


@pytest.mark.parametrize(
    ("workload", "keys", "told"),
    [
        ({"size": "edge"}, {}, 'for example memory = "2GiB"'),
        (
            {"size": "edge", "scale": 3},
            {"memory": "1GiB"},
            '"size" cannot be combined with "scale"',
        ),
        ({"size": "huge"}, {"memory": "1GiB"}, "must be one of"),
        (
            {},
            {"equal_readahead": "1MiB", "device": {"kind": "dir", "paths": {"ext4": "/mnt/a"}}},
            "has no effect",
        ),
        ({}, {"checkpoints": "never"}, "checkpoints"),
    ],
)
def test_flaws_of_conditions_are_reported(
    tmp_path: Path,
    workload: Table,
    keys: Table,
    told: str,
) -> None:
    """Before anything is done."""
    with pytest.raises(PlanInvalid) as caught:
        loaded(tmp_path, workload, **keys)
    assert told in caught.value.evidence


def test_each_condition_is_a_sentence(tmp_path: Path) -> None:
    """What `dbbench plan` prints: memory beside the tables, cores, checkpoints, warm-up, what fio
    takes.
    """
    found, cells = loaded(
        tmp_path,
        {"size": "io-bound"},
        memory="1GiB",
        measure="120s",
        warmup="9s",
    )
    flaws = (
        '"numa_node" must be 0 or more.*\n.*"cpus_server" must be a list of CPUs such as "0-3,8"'
    )
    with pytest.raises(PlanInvalid, match=flaws):
        loaded(tmp_path, engine={"cpus_server": "a-b", "numa_node": -1})
    said = planned_conditions.sentences(found, cells)
    assert any("1 GiB" in line and "io-bound" in line for line in said)
    assert any("cores" in line for line in said)
    assert any(line.startswith("Each window of 120 s contains two checkpoints") for line in said)
    assert "Limits of this plan: a warm-up of 9 s (W001)." in said
    assert "Before the first trial, fio measures the bare device for 14 s." in said


def test_delays_that_the_kernel_rounds_are_a_condition(tmp_path: Path) -> None:
    """With what becomes of them: dm-delay counts the kernel's ticks, of 1 to 10 ms."""
    tick = delay.tick_ms()
    whole = round(20 * tick)
    device = {"size": "512MiB", "limit": {"flush_ms": [0, 1, whole]}}
    said = planned_conditions.sentences(*loaded(tmp_path, device=device))
    rounded = [line for line in said if line.startswith("This kernel delays by whole ticks")]
    longer = tick > 1.2
    assert len(rounded) == longer
    assert all(f": 1 ms becomes {tick:.3g} ms (W157)" in line for line in rounded)


@pytest.mark.parametrize(("scale", "shares"), [(3, True), (4, False)])
def test_more_clients_than_rows_are_a_condition(
    tmp_path: Path,
    scale: int,
    shares: bool,
) -> None:
    """The default of four clients updates as many branches as `scale` has."""
    said = planned_conditions.sentences(*loaded(tmp_path, {"scale": scale}))
    assert any("share 3 rows that each transaction locks" in line for line in said) == shares
