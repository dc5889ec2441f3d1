"""The durability class that a plan promises before anything is made."""

from pathlib import Path
from typing import Any

import pytest

from dbbench.plan import expand
from dbbench.plan.promise import class_of, of_setup, weakening_settings
from tests.support.plans import SHIPPED, plan, plan_of
from tests.support.setups import entry


@pytest.mark.parametrize(
    ("setup", "engine", "settings", "expected"),
    [
        ("ext4", "postgres", {}, "full"),
        ("ext4-nobarrier", "postgres", {}, "no-barrier"),
        ("ext2", "mariadb", {}, "no-journal"),
        ("ext4", "postgres", {"synchronous_commit": "off"}, "async-commit"),
        ("ext4", "mariadb", {"innodb_flush_log_at_trx_commit": 2}, "async-commit"),
        ("ext4", "mysql", {"log_bin": True, "sync_binlog": 0}, "async-commit + lab-unsafe"),
        # its doublewrite is not flushed
        ("ext4", "mysql", {"innodb_flush_method": "O_DIRECT"}, "torn-pages-possible"),
        ("ext4", "mysql", {}, "lab-unsafe"),  # it does not restore each torn page
        ("btrfs", "mysql", {}, "full"),
        ("btrfs", "mysql", {"innodb_flush_method": "O_DIRECT"}, "full"),
        ("ext4", "mariadb", {}, "full"),
        ("ext4-nodoublewrite", "postgres", {}, "torn-pages-possible"),
        ("ext4-nodoublewrite", "mysql", {}, "torn-pages-possible"),
        ("btrfs-nodoublewrite", "mariadb", {}, "torn-pages-possible"),
        ("btrfs-nodoublewrite", "mysql", {}, "torn-pages-possible"),
        ("btrfs-nodoublewrite", "postgres", {}, "full"),
        # the plan's is the last
        ("btrfs-nodatacow", "postgres", {"full_page_writes": False}, "torn-pages-possible"),
        ("btrfs-nocow-attr", "mariadb", {"innodb_doublewrite": False}, "torn-pages-possible"),
        ("zfs-throughput", "mariadb", {}, "reported-unsafe"),
        ("zfs-16k-nodoublewrite", "mariadb", {}, "torn-pages-possible + reported-unsafe"),
        ("zfs-16k", "postgres", {"full_page_writes": False}, "reported-unsafe"),
        ("zfs-16k", "mariadb", {}, "full"),
        ("zfs-8k-nofpw", "postgres", {}, "full"),
        (
            "btrfs-volumes",
            "postgres",
            {"full_page_writes": False},
            "full",
        ),  # +C is on the log alone
    ],
)
def test_a_cell_promises_what_its_setup_and_settings_say(
    setup: str,
    engine: str,
    settings: dict[str, Any],
    expected: str,
    tmp_path: Path,
) -> None:
    """Claims of the filesystem and flags of the merged settings, as a trial computes them from what
    is effective.
    """
    workload = "pgbench-tpcb" if engine == "postgres" else "sysbench-oltp-insert"
    text = plan(entry(setup), {"name": engine, "settings": settings}, workload)
    (cell,) = expand(plan_of(tmp_path, text), SHIPPED).cells
    assert class_of(cell) == expected


def test_a_setup_shows_the_class_of_its_own_tuning() -> None:
    """`dbbench fs`: a setup that turns page protection off does not say full, where an engine needs
    it.
    """
    setups = {
        "ext4": "full",
        "xfs-nodoublewrite": "torn-pages-possible",
        "btrfs-tuned": "torn-pages-possible",
        "btrfs-nobarrier": "no-barrier",
    }
    assert {name: of_setup(SHIPPED.setup(name)) for name in setups} == setups


@pytest.mark.starts_processes
def test_plan_warns_of_mixed_classes(tmp_path: Path, printed: Any) -> None:
    """Within one comparison; not across engines, whose figures are not compared."""
    (path := tmp_path / "plan.toml").write_text(plan())
    assert "W022" not in printed("plan", str(path), code=None)
    path.write_text(plan(["ext4", "ext4-nobarrier"]))
    said = printed("plan", str(path), code=None)
    assert (
        "W022: durability classes differ in pgbench-tpcb on postgres" in said
        and "no-barrier" in said
    )


@pytest.mark.parametrize(
    ("engine", "settings", "expected"),
    [
        ("postgres", {"fsync": False}, {"fsync = off": "no-barrier"}),
        ("postgres", {"synchronous_commit": "off"}, {"synchronous_commit = off": "async-commit"}),
        ("postgres", {"full_page_writes": False}, {}),
        ("mariadb", {}, {}),
        (
            "mariadb",
            {"innodb_flush_log_at_trx_commit": 2},
            {"innodb_flush_log_at_trx_commit = 2": "async-commit"},
        ),
    ],
)
def test_the_setting_that_loses_commits_is_named(
    tmp_path: Path,
    engine: str,
    settings: dict[str, Any],
    expected: dict[str, str],
) -> None:
    """With the class that it causes."""
    workload = "pgbench-tpcb" if engine == "postgres" else "sysbench-oltp-insert"
    text = plan("ext4", {"name": engine, "settings": settings}, workload)
    made = plan_of(tmp_path, text)
    (cell,) = expand(made, SHIPPED).cells
    assert weakening_settings(cell) == expected
