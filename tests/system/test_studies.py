"""Published studies at their smallest scale, through the command line: plan, run, and the section
of the page.

`make test` runs one study, `make test-all` another, and the soak the others.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dbbench.plan import studies
from tests.conftest import engine_bin

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "sadf", "fio")

TINY_S = 60.0  # what the documents promise of the scale, on a quiet machine
BUSY = 12  # × that on one that is not: a scale that was meant for an hour takes longer still

# for the studies that require a newer server than that of the distribution
NEWER = ("postgres-18",)
SERVERS = {
    "versions-and-filesystems": (
        "postgres",
        "postgres-17",
        "postgres-18",
        "postgres-19",
        "mariadb",
        "mariadb-11.8",
        "mysql-9.7",
    )
}

EACH = [
    pytest.param("raid0-copy-2012", marks=pytest.mark.needs("fs:btrfs", "mkfs.btrfs")),
    pytest.param(
        "pg-btrfs-compression-2015",
        marks=[pytest.mark.long, pytest.mark.needs("engine:postgres", "fs:btrfs", "mkfs.btrfs")],
    ),
    pytest.param(
        "bonnie-2011", marks=[pytest.mark.soak, pytest.mark.needs("bonnie++", "fs:btrfs")]
    ),
    pytest.param(
        "oracle-clone-2012",
        marks=[pytest.mark.soak, pytest.mark.needs("engine:postgres", "fs:btrfs")],
    ),
    pytest.param(
        "oracle-clone-2012-binlog",
        marks=[pytest.mark.soak, pytest.mark.needs("engine:mariadb", "fs:btrfs")],
    ),
    pytest.param(
        "percona-2012",
        marks=[pytest.mark.soak, pytest.mark.needs("engine:mariadb", "fs:btrfs", "sysbench")],
    ),
    pytest.param(
        "percona-2012-readers",
        marks=[pytest.mark.soak, pytest.mark.needs("engine:mariadb", "fs:xfs", "sysbench")],
    ),
    pytest.param(
        "binlog-and-filesystems",
        marks=[pytest.mark.soak, pytest.mark.needs("engine:mariadb", "sysbench")],
    ),
    pytest.param(
        "compression-of-growth",
        marks=[pytest.mark.long, pytest.mark.needs("engine:postgres-18", "fs:btrfs")],
    ),
    pytest.param(
        "io-method-and-filesystems",
        marks=[pytest.mark.soak, pytest.mark.needs("engine:postgres-18")],
    ),
    pytest.param(
        "mkfs-vintages", marks=[pytest.mark.soak, pytest.mark.needs("engine:postgres", "fs:xfs")]
    ),
    pytest.param(
        "raid0-copy-2012-mirror",
        marks=[
            pytest.mark.soak,
            pytest.mark.needs("mdadm", "vgcreate", "kernel:raid1", "kernel:dm-mod"),
        ],
    ),
    pytest.param(
        "versions-and-filesystems",
        marks=[
            pytest.mark.long,
            pytest.mark.needs(
                "engine:postgres",
                "engine:mariadb",
                "sysbench",
                "fs:xfs",
                "fs:btrfs",
            ),
        ],
    ),
    pytest.param(
        "pg-fs-benchmark", marks=[pytest.mark.soak, pytest.mark.needs("engine:postgres", "fs:xfs")]
    ),
]


@pytest.mark.parametrize("name", EACH)
def test_a_study_runs_at_its_smallest_scale(name: str, dbbench: Any) -> None:
    """Every arm is driven and none fails; the page has each published metric with a figure of each
    arm. A server of another release that this machine cannot fetch is left out; `test_releases`
    names it.
    """
    servers = SERVERS.get(name, NEWER if studies.study(name).servers else ())
    bins = [str(bin) for server in servers if (bin := engine_bin(server))]
    words = (
        "study",
        "run",
        name,
        "--scale",
        "tiny",
        "--name",
        "s",
        "--progress",
        "none",
        *(word for bin in bins for word in ("--bin", bin)),
    )
    began = time.monotonic()
    said = dbbench(*words, "--json")
    took_s = time.monotonic() - began
    told = json.loads(said.stdout)
    assert told["failed"] == 0 and not told["skipped"]
    assert (dbbench.folder / "results" / f"{name}-tiny.toml").is_file()
    assert took_s < TINY_S * max(1, len(bins) / 2) * BUSY
    page = Path(told["report"]).read_text(encoding="utf-8")
    found = studies.study(name)
    assert f"Then and now: {found.title}" in page
    trials = dbbench.trials("s").values()
    if bins:
        assert len({(trial["engine"], trial["engine_version"]) for trial in trials}) == len(bins)
    for table in found.table:
        known = [trial for trial in trials if trial["workload"] == table.workload]
        assert known and all(table.metric in trial["summary"] for trial in known)
    again = dbbench(*words)
    assert "already finished" in again.stderr


@pytest.mark.soak
@pytest.mark.needs("engine:postgres", "fs:xfs", "fs:btrfs", "sysbench")
def test_claims_are_judged_by_a_real_run(dbbench: Any) -> None:
    """Commits that do not wait for the disk are faster and unsafe, whatever the machine; what needs
    ZFS is named where there is none.
    """
    printed = dbbench("study", "run", "claims", "--scale", "tiny", "--progress", "none").stdout
    lines = [line for line in printed.splitlines() if line.startswith("Do not wait for the log")]
    assert len(lines) == 1
    assert "unsafe" in lines[0]
    assert "async-commit" in lines[0]
    untried = [line for line in printed.splitlines() if line.startswith("not tried: ")]
    assert all("zfs" in line for line in untried)


@pytest.mark.long
@pytest.mark.needs("engine:postgres", "fs:btrfs", "mkfs.btrfs", "sysbench")
@pytest.mark.usefixtures("nothing_left")
def test_the_harm_study_ends_with_its_table(dbbench: Any) -> None:
    """Trials for the price, the lab, and one document with a row per setup; the page has it, and
    again it is shown.
    """
    words = (
        "study",
        "run",
        "harm",
        "--scale",
        "tiny",
        "--progress",
        "none",
        "--bin",
        str(engine_bin("postgres")),
    )
    told = json.loads(dbbench(*words, "--json").stdout)
    table = {row["fs_setup"]: row for row in told["table"]}
    assert (
        list(table) == ["ext4", "btrfs-nodoublewrite"] and told["complete"] and not told["failed"]
    )
    for row in table.values():
        counts = {one["column"]: one for one in row["counts"]}
        assert (
            counts["cut during DML"]["word"] == "unharmed" and counts["cut during DML"]["of"] >= 1
        )
        assert {one["column"] for one in row["counts"]} >= {
            "cut during DML",
            "cut after DDL",
            "kill",
        }
        assert row["price"]["tps"]["value"] > 0 and row["price"]["flushes_per_tx"]["value"] > 0
        assert row["durability_class"] == "full"
    page = (dbbench.folder / told["report"]).read_text(encoding="utf-8")
    assert "Then and now" in page and "cut after DDL" in page
    again = dbbench(*words)
    assert (
        "already finished" in again.stderr and "btrfs-nodoublewrite with PostgreSQL" in again.stdout
    )


def test_studies_are_listed_and_shown(dbbench: Any) -> None:
    """All by name, and whether they can run here or why not; one with its figures and a plan that
    can be loaded as printed.
    """
    rows = json.loads(dbbench("study", "--json").stdout)["studies"]
    assert [row["name"] for row in rows] == studies.names()
    assert all(row["runs"] is (row["reason"] is None) for row in rows)
    shown = json.loads(dbbench("study", "pg-fs-benchmark", "--scale", "full", "--json").stdout)
    dbbench.plan(shown["plan"], "full.toml")
    planned = dbbench("plan", "full.toml", status=None).stdout  # 2 without the disk space
    assert "scale=10000" in planned
    text = dbbench("study", "bonnie-2011").stdout
    assert "superseded" in text and "laptop" in text


def test_an_unknown_study_is_refused(dbbench: Any) -> None:
    """With what was meant, and nothing is written."""
    said = dbbench("study", "run", "percona-2013", status=2)
    assert "E002" in said.stderr and "percona-2012" in said.stderr
    assert not (dbbench.folder / "results").exists()


def test_a_server_that_is_too_old_is_refused(dbbench: Any) -> None:
    """With the release that the study requires and the one that is there; --bin names another
    server, or none.
    """
    said = dbbench(
        "study",
        "run",
        "io-method-and-filesystems",
        "--bin",
        str(dbbench.folder),
        status=2,
    )
    assert (
        "E201" in said.stderr and "postgres 18 or later" in said.stderr and "--bin" in said.stderr
    )
    assert not (dbbench.folder / "results").exists()
