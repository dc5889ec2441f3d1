"""Two copies of the same setup under each condition: no condition affects only one of them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.plans import plan

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf", "fio"),
]

CONDITIONS: Final[dict[str, dict[str, Any]]] = {  # of a device with a condition the path is added
    "none": {},
    "memory": {"memory": "128MiB"},
    "readahead": {"equal_readahead": "1MiB"},
    "log": {"checkpoints": "log"},
    "cores": {"engine": {"name": "postgres", "cpus_server": "0", "cpus_client": "1"}},
    "wal": {"device": {"size": "512MiB", "wal": {"fs_setup": "ext4", "size": "512MiB"}}},
    "aged": {"age": {"fill": 0.3, "churn": 1.0}},
    "discard": {"device": {"kind": "block", "condition": "discard"}},
    "precondition": {"device": {"kind": "block", "condition": "precondition"}},
}
SELF: Final = ["ext4", {"use": "ext4", "label": "again"}]
TPCB: Final = {"name": "pgbench-tpcb", "scale": 2, "clients": 2}
MOST: Final = 2  # false alarms of ten, each 71 of 1000 at most: three or more are 3 in 100


@pytest.fixture
def disk(image: Path) -> Iterator[str]:
    """Yield a loop device in place of a user's disk."""
    attach = ["losetup", "--find", "--show", "--direct-io=on", str(image)]
    device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


def wiping(dbbench: Any, disk: str, run: tuple[str, ...]) -> tuple[str, ...]:
    """The words that permit it, as the refusal of a disk with something on it prints them."""
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    return ("--wipe", dbbench(*run, status=5).stderr.split("--wipe ")[1].split()[0])


def test_a_setup_is_neither_faster_nor_slower_than_itself(dbbench: Any, disk: str) -> None:
    """Five blocks under each condition, all trials good or suspect by name; at most two alarms in
    all of them.
    """
    seed = os.environ.get("DBBENCH_SOAK_SEED", "1")
    told = {}
    for name, given in CONDITIONS.items():
        on_disk = "condition" in given.get("device", {})
        keys = {**given, "device": {**given["device"], "path": disk}} if on_disk else given
        dbbench.plan(
            plan(
                SELF,
                workload=TPCB,
                blocks=5,
                seed=int(seed),
                measure="4s",
                repeat_suspect=None,
                **keys,
            )
        )
        run = ("run", "plan.toml", "--name", name, "--progress", "none")
        dbbench(*run, *(wiping(dbbench, disk, run) if on_disk else ()), timeout_s=1800)
        trials = dbbench.trials(name).values()
        assert len({trial["fs_setup"] for trial in trials}) == 2
        assert all(trial["error"] is None for trial in trials), name
        if on_disk:
            # of a block its first
            found = [trial["condition"]["how"] for trial in trials if trial["condition"]]
            assert len(found) >= 5 and set(found) == {name}
        (row,) = (row for row in dbbench.compared(name) if row["fs_setup"] == "again")
        told[name] = f"{row['verdict']} {row['ratio']:.3f} [{row['lo']:.3f}, {row['hi']:.3f}]"
        print(f"{name:14}{told[name]}", flush=True)
    alarms = {name: line for name, line in told.items() if line.split()[0] in ("faster", "slower")}
    assert len(alarms) <= MOST, alarms
