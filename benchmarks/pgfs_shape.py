"""The shape of a published comparison beside what this machine gives: pgbench on ext4, xfs, btrfs
and ZFS.

    python benchmarks/pgfs_shape.py [--blocks 5] [--scale 100] [--clients 8] [--warmup 30]
    [--measure 120]
                                    [--memory 2GiB] [--size 16GiB] [--at FOLDER]      (root,
                                                                                      PostgreSQL)

It writes a plan and asks dbbench itself: `dbbench run`, then `dbbench compare --json`. ext4 is
the baseline, and ext4 under a second label the arm that must never be called different. Prints
the ratio of each arm to ext4 with its interval beside the least and the largest published one;
ratios, because the machines differ. Ends with 1 where ext4 against itself is called different,
or where the arms do not have the same durability class; not where the shape is another one: that
is a finding.

Published: T. Vondra's pg-fs-benchmark (2022; Xeon 2 x E5-2620 v3, 64 GB, NVMe, 32 clients;
read-write is `pgbench -N`) and the same author's second machine (i5, 8 GB, 6 SSD as RAID0, 16
clients). Kernels, versions and scales are not ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

WRITE = "pgbench-simple-update"
READ = "pgbench-select-only"
BASELINE = "ext4"
TWIN = "ext4-b"
# Transactions per second on two machines: read-write at three scales, read-only at the largest.
PUBLISHED: Final[list[tuple[str, dict[str, float]]]] = [
    (
        WRITE,
        {
            "ext4": 85291,
            "xfs": 85765,
            "btrfs": 33352,
            "zfs-8k": 61028,
            "zfs-8k-nofpw": 62376,
        },
    ),
    (
        WRITE,
        {
            "ext4": 58736,
            "xfs": 58991,
            "btrfs": 27952,
            "zfs-8k": 32568,
            "zfs-8k-nofpw": 36488,
        },
    ),
    (
        WRITE,
        {
            "ext4": 30495,
            "xfs": 30977,
            "btrfs": 6541,
            "zfs-8k": 3822,
            "zfs-8k-nofpw": 6457,
        },
    ),
    (
        READ,
        {
            "ext4": 139685,
            "xfs": 143471,
            "btrfs": 125503,
            "zfs-8k": 93711,
            "zfs-8k-nofpw": 93782,
        },
    ),
    (
        WRITE,
        {
            "ext4": 20777,
            "xfs": 20241,
            "btrfs": 8097,
            "zfs-8k": 19352,
            "zfs-8k-nofpw": 19144,
        },
    ),
    (
        WRITE,
        {
            "ext4": 7707,
            "xfs": 7650,
            "btrfs": 3508,
            "zfs-8k": 5803,
            "zfs-8k-nofpw": 6607,
        },
    ),
    (
        WRITE,
        {
            "ext4": 5826,
            "xfs": 5891,
            "btrfs": 2199,
            "zfs-8k": 3064,
            "zfs-8k-nofpw": 3964,
        },
    ),
    (
        READ,
        {
            "ext4": 40145,
            "xfs": 40528,
            "btrfs": 34906,
            "zfs-8k": 22720,
            "zfs-8k-nofpw": 22763,
        },
    ),
]
# Expected ratios with current kernels, from the same and newer sources.
TODAY: Final = {
    (WRITE, "xfs"): (0.96, 1.04),
    (READ, "xfs"): (0.96, 1.04),
    (WRITE, "btrfs"): (0.21, 0.48),
    (READ, "btrfs"): (0.83, 1.0),
    (READ, "zfs-8k"): (0.56, 0.84),
    (READ, "zfs-8k-nofpw"): (0.56, 0.84),
}
PLAN: Final = """
name = "pgfs"
fs_setups = {setups}
baseline = "ext4"
blocks = {blocks}
warmup = "{warmup}s"
measure = "{measure}s"
{memory}
[device]
size = "{size}"

[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-simple-update"
scale = {scale}
clients = {clients}
[[workload]]
name = "pgbench-select-only"
scale = {scale}
clients = {clients}
"""


def dbbench(folder: Path, *words: str, ok: tuple[int, ...] = (0,)) -> str:
    """Run a command of dbbench and return its stdout; its progress is printed."""
    done = subprocess.run(
        [sys.executable, "-m", "dbbench", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in ok:
        raise SystemExit(f"dbbench {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def arms(folder: Path) -> tuple[list[Any], list[str]]:
    """Return the entries of `fs_setups` that work here with the durability class of the baseline,
    and why the others do not.
    """
    setups = {row["name"]: row for row in json.loads(dbbench(folder, "fs", "--json"))}
    missing = {}
    for name in PUBLISHED[0][1]:
        durability = setups[name]["durability_class"]
        if not setups[name]["works"]:
            missing[name] = setups[name]["reason"]
        elif durability != setups[BASELINE]["durability_class"]:
            missing[name] = f"its class here is {durability}, not that of {BASELINE}"
    names: list[Any] = [name for name in PUBLISHED[0][1] if name not in missing]
    return [*names, {"use": BASELINE, "label": TWIN}], [
        f"{name}: {reason}" for name, reason in missing.items()
    ]


def published(workload: str, arm: str) -> tuple[float, float]:
    """Return the smallest and the largest published ratio to ext4."""
    ratios = [tps[arm] / tps[BASELINE] for name, tps in PUBLISHED if name == workload]
    return min(ratios), max(ratios)


def line(row: dict[str, Any]) -> str:
    """Return the line of an arm and workload: published and measured."""
    arm = row["fs_setup"]
    workload = row["workload"]
    interval = f"{row['lo']:.2f}..{row['hi']:.2f}" if row["lo"] is not None else "–"
    then = "1 by definition" if arm == TWIN else "{:.2f}..{:.2f}".format(*published(workload, arm))
    low, high = TODAY.get((workload, arm), (None, None))
    today = f"{low:g}..{high:g}" if low is not None else "–"
    ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else "–"
    return (
        f"{workload:<24}{arm:<15}{row['value'] or 0:>9.0f}{ratio:>8}  "
        f"{interval:<13}{row['verdict']:<21}{then:<17}"
        f"{today:<12}{row['durability_class']}"
    )


def faults(rows: list[dict[str, Any]]) -> list[str]:
    """Return the errors: ext4 differs from itself, or arms have different durability classes."""
    twins = [
        row for row in rows if row["fs_setup"] == TWIN and row["verdict"] in ("faster", "slower")
    ]
    mixed = [row for row in rows if row["mixed_durability"]]
    return [f"{row['workload']}: ext4 is called {row['verdict']} than itself" for row in twins] + [
        f"{row['workload']}: {row['fs_setup']} has the class {row['durability_class']}"
        for row in mixed
    ]


def main() -> int:
    """Run, compare and print; return 1 if there are errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, value in (
        ("blocks", 5),
        ("scale", 100),
        ("clients", 8),
        ("warmup", 30),
        ("measure", 120),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument(
        "--memory",
        default="",
        help="of the server; default: all",
    )
    parser.add_argument(
        "--size",
        default="16GiB",
        help="of the loop file",
    )
    parser.add_argument(
        "--at",
        default="/var/tmp",
        help="where loop file and results lie",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dbbench-pgfs-", dir=given.at) as name:
        folder = Path(name)
        setups, missing = arms(folder)
        entries = ", ".join(
            f'{{ use = "{s["use"]}", label = "{s["label"]}" }}' if isinstance(s, dict) else f'"{s}"'
            for s in setups
        )
        memory = f'memory = "{given.memory}"' if given.memory else ""
        text = PLAN.format(**{**vars(given), "setups": f"[{entries}]", "memory": memory})
        (folder / "plan.toml").write_text(text)
        dbbench(folder, "run", "plan.toml", "--name", "r", ok=(0, 1))
        rows = json.loads(dbbench(folder, "compare", "r", "--json"))["rows"]
    print(
        f"{'workload':<24}{'filesystem':<15}{'tx/s':>9}{'ratio':>8}  "
        f"{'interval':<13}{'verdict':<21}{'published':<17}"
        f"{'expected':<12}durability"
    )
    for row in rows:
        if row["fs_setup"] != BASELINE:
            print(line(row))
    for reason in missing:
        print(f"left out: {reason}")
    lines = faults(rows)
    print(
        "\n".join(lines)
        or "ext4 is not called different from itself; all arms have one durability class"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
