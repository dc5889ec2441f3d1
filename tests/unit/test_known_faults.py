"""Kernels and filesystems that are known to lose data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic

from dbbench import plan
from dbbench.machine import known_faults
from dbbench.machine.known_faults import version_of
from dbbench.model import Setting
from dbbench.plan.planned_conditions import known_fault_sentences
from dbbench.report.page.html import build
from dbbench.report.trial_text import trial_text
from tests.support.plans import SHIPPED, plan_of
from tests.support.plans import plan as written


def names(host: dict[str, Any]) -> set[str]:
    """Return the names of the faults that a host with these facts may have."""
    return {fault.name for fault, _ in known_faults.of_host(host)}


def test_entries_can_be_checked() -> None:
    """Each names its report, versions in order, and what is lost in at most 25 words."""
    for fault in known_faults.known_faults():
        assert fault.source.startswith("https://")
        assert len(fault.harm.split()) <= 25
        for versions in fault.affected:
            first, last = versions.split(" to ")
            assert version_of(first) <= version_of(last)


@pytest.mark.parametrize(
    ("release", "fault", "affected"),
    [
        ("6.15.1", "btrfs-log-replay", False),
        ("6.15.4", "btrfs-log-replay", True),
        ("6.15.9-arch1-1", "btrfs-log-replay", True),
        ("6.15.10", "btrfs-log-replay", False),
        ("6.16.0", "btrfs-log-replay", True),
        ("6.16.1", "btrfs-log-replay", False),
        ("6.1.64", "ext4-direct-append", True),
        ("6.1.66", "ext4-direct-append", False),
        ("5.15.26", "ext4-fast-commit", True),
        ("5.15.27", "ext4-fast-commit", False),
        ("5.14.19", "mariadb-io-uring", False),
        ("6.6.57", "xfs-no-space", True),
        ("6.10", "xfs-no-space", False),
    ],
)
def test_releases_with_and_without_the_fix(release: str, fault: str, affected: bool) -> None:
    """The first and the last version of each branch belong to it."""
    assert (fault in names({"kernel": release})) is affected


def test_kernels_of_distributions() -> None:
    """Debian's and Ubuntu's are judged by what they are made of, others' backports not at all."""
    debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.64-1 (2023-11-30)"
    assert "ext4-direct-append" in names({"kernel": "6.1.0-14-amd64", "kernel_version": debian})
    ubuntu = {"kernel": "6.8.0-51-generic", "kernel_signature": "Ubuntu 6.8.0-51.52-generic 6.8.12"}
    assert known_faults.versions(ubuntu) == {"linux": (6, 8, 12)}
    assert known_faults.versions({"kernel": "5.14.0-503.14.1.el9_5.x86_64"}) == {}
    assert known_faults.versions({"kernel": None}) == {}


def test_zfs_is_judged_by_its_module() -> None:
    """The kernel's version does not matter."""
    assert "zfs-dirty-dnode" in names({"zfs_module": "2.1.11-1"})
    assert "zfs-dirty-dnode" not in names({"zfs_module": "2.2.2-1"})


def test_only_what_is_used_is_named() -> None:
    """Another filesystem, another server or another option does not meet the fault."""
    by_name = {fault.name: fault for fault in known_faults.known_faults()}
    assert by_name["btrfs-log-replay"].concerns("btrfs", "postgres", "")
    assert not by_name["btrfs-log-replay"].concerns("xfs", "postgres", "")
    assert not by_name["xfs-no-space"].concerns("xfs", "mariadb", "")
    fast_commit = known_faults.options_text(["-O", "fast_commit"], {})
    assert by_name["ext4-fast-commit"].concerns("ext4", "postgres", fast_commit)
    assert not by_name["ext4-fast-commit"].concerns("ext4", "postgres", "")
    single = known_faults.options_text([], {"innodb_doublewrite": "OFF"})
    assert by_name["nvme-awupf"].concerns("xfs", "mysql", single)


def test_plan_names_a_fault_of_the_kernel_and_its_filesystem(tmp_path: Path) -> None:
    """A plan with ext4 does not read about btrfs."""
    request = plan_of(tmp_path, written("btrfs", "postgres", "pgbench-tpcb"))
    cells = plan.expand(request, SHIPPED).cells
    (sentence,) = known_fault_sentences(cells, {"kernel": "6.15.4"})
    assert sentence.startswith("Linux 6.15.4 may not mount btrfs after a power loss")
    assert list(known_fault_sentences(cells, {"kernel": "6.18.0"})) == []


def test_page_names_a_fault_of_the_host_that_was_measured(tmp_path: Path) -> None:
    """The page is read on another machine, whose kernel does not matter."""
    run = synthetic.loaded(tmp_path, synthetic.Shape(blocks=1))
    run = replace(run, run=replace(run.run, host={**run.run.host, "kernel": "6.15.4"}))
    sentences = [text for text in build([run]).conditions if "Linux 6.15.4" in text]
    assert len(sentences) == 1
    assert "may not mount btrfs" in sentences[0]


@pytest.mark.parametrize(
    ("setup", "engine", "name", "value"),
    [
        ("ext4", "mariadb", "binlog_storage_engine", "innodb"),
        ("ext4", "mariadb", "innodb_log_file_mmap", True),
        ("ext4", "mariadb", "innodb_log_file_mmap", 1),
        ("ext4", "mariadb", "innodb_flush_log_at_timeout", 60),
        ("ext4", "mysql", "innodb_doublewrite_dir", "/srv/copies"),
        ("ext4", "mysql", "innodb_checksum_algorithm", "none"),
        ("ext4", "mysql", "innodb_force_recovery", 1),
        ("xfs", "postgres", "file_copy_method", "clone"),
        ("xfs", "postgres", "recovery_init_sync_method", "syncfs"),
        ("xfs", "postgres", "wal_level", "minimal"),
        ("xfs", "postgres", "io_method", "worker"),
        ("xfs", "postgres", "wal_sync_method", "open_datasync"),
        ("xfs", "postgres", "wal_sync_method", "open_sync"),
        ("xfs", "postgres", "synchronous_standby_names", "a"),
        ("xfs", "postgres", "ignore_checksum_failure", True),
        ("xfs", "postgres", "zero_damaged_pages", True),
    ],
)
def test_a_setting_that_no_class_knows_is_not_judged(
    tmp_path: Path,
    setup: str,
    engine: str,
    name: str,
    value: Any,
) -> None:
    """The class would otherwise be `full` because nobody thought of it."""
    workload = "pgbench-tpcb" if engine == "postgres" else "sysbench-oltp-write-only"
    request = plan_of(
        tmp_path, written(setup, {"name": engine, "settings": {name: value}}, workload)
    )
    sentences = list(known_fault_sentences(plan.expand(request, SHIPPED).cells, {}))
    assert any(text.startswith(f"{name}=") and "is not judged" in text for text in sentences)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("ext4", ["-O", "fast_commit"]),
        ("ext4", ["journal_async_commit"]),
        ("btrfs", ["notreelog"]),
        ("btrfs", ["flushoncommit"]),
        ("zfs", ["redundant_metadata=some"]),
    ],
)
def test_an_option_of_a_filesystem_that_no_class_knows(family: str, options: list[str]) -> None:
    """Of mkfs or mount, with any server."""
    text = known_faults.options_text(options, {})
    assert len(known_faults.unknown_options(family, "postgres", text)) == 1
    assert known_faults.unknown_options("xfs", "postgres", text) == []


def test_plan_result_and_page_name_an_option_that_no_class_knows(tmp_path: Path) -> None:
    """Only where the plan sets it: what dbbench sets by itself was examined."""
    engine = {"name": "postgres", "settings": {"file_copy_method": "clone"}}
    request = plan_of(tmp_path, written("xfs", engine, "pgbench-tpcb"))
    cells = plan.expand(request, SHIPPED).cells
    (sentence,) = known_fault_sentences(cells, {"kernel": "6.18.0"})
    assert sentence.startswith("file_copy_method=clone is not judged by the durability class")

    setting = {"file_copy_method": Setting("clone", "plan")}
    run = synthetic.loaded(tmp_path, synthetic.Shape(blocks=1))
    run = synthetic.with_trials(run, lambda trial: {"settings": setting})
    assert sentence in build([run]).conditions
    assert f"  {sentence}" in trial_text(run.trials[0], run)
