"""The same setup against itself under each condition: what a condition does to one arm it does to the other."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf", "fio"),
]

PLAN: Final = """
name = "null"
fs_setups = ["ext4", {{ use = "ext4", label = "again" }}]
blocks = 5
seed = {seed}
warmup = "1s"
measure = "4s"
{plan}
[device]
{device}
[[engine]]
name = "postgres"
{engine}
[[workload]]
name = "pgbench-tpcb"
scale = 2
clients = 2
{tables}
"""
LOOP: Final = 'size = "512MiB"'
CONDITIONS: Final[dict[str, dict[str, str]]] = {
    "none": {},
    "memory": {"plan": 'memory = "128MiB"'},
    "readahead": {"plan": 'equal_readahead = "1MiB"'},
    "log": {"plan": 'checkpoints = "log"'},
    "tar": {"plan": 'restore = "tar"'},
    "cores": {"engine": 'cpus_server = "0"\ncpus_client = "1"'},
    "wal": {"tables": '[device.wal]\nfs_setup = "ext4"\nsize = "512MiB"'},
    "aged": {"tables": "[age]\nfill = 0.3\nchurn = 1.0"},
    "discard": {"device": 'kind = "block"\npath = "{disk}"\ncondition = "discard"'},
    "precondition": {"device": 'kind = "block"\npath = "{disk}"\ncondition = "precondition"'},
}
MOST: Final = 2  # false alarms of ten, each 71 of 1000 at most: three or more are 3 in 100


@pytest.fixture
def disk(image: Path) -> Iterator[str]:
    """A loop device as somebody's disk."""
    attach = ["losetup", "--find", "--show", "--direct-io=on", str(image)]
    device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


def wiping(dbbench: Any, disk: str, run: tuple[str, ...]) -> tuple[str, ...]:
    """The words that permit it, as the refusal of a disk with something on it prints them."""
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    return ("--wipe", dbbench(*run, status=5).stderr.split("--wipe ")[1].split()[0])


def test_a_setup_is_neither_faster_nor_slower_than_itself(dbbench: Any, disk: str) -> None:
    """Five blocks under each condition, all trials good or suspect by name; at most two alarms in all of them."""
    seed, told = os.environ.get("DBBENCH_SOAK_SEED", "1"), {}
    for name, given in CONDITIONS.items():
        parts = dict.fromkeys(("plan", "engine", "tables"), "") | {"device": LOOP} | given
        parts["device"] = parts["device"].format(disk=disk)
        dbbench.plan(PLAN.format(seed=seed, **parts))
        run = ("run", "plan.toml", "--name", name, "--progress", "none")
        dbbench(*run, *(wiping(dbbench, disk, run) if disk in parts["device"] else ()), timeout_s=1800)
        trials = dbbench.trials(name).values()
        assert len({trial["fs_setup"] for trial in trials}) == 2
        assert all(trial["error"] is None for trial in trials), name
        if disk in parts["device"]:
            found = [trial["condition"]["how"] for trial in trials if trial["condition"]]  # of a block its first
            assert len(found) >= 5 and set(found) == {name}
        (row,) = (row for row in json.loads(dbbench("compare", name, "--json").stdout)["rows"]
                  if row["fs_setup"] == "again")  # fmt: skip
        told[name] = f"{row['verdict']} {row['ratio']:.3f} [{row['lo']:.3f}, {row['hi']:.3f}]"
        print(f"{name:14}{told[name]}", flush=True)
    alarms = {name: line for name, line in told.items() if line.split()[0] in ("faster", "slower")}
    assert len(alarms) <= MOST, alarms
