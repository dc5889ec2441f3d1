"""Setups that differ only in their tuning are the same setup for an engine that has no such tuning."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dbbench.errors import PlanInvalid
from dbbench.model import FsSetup
from dbbench.plan import Expanded, expand
from tests.support.plans import SHIPPED, plan, plan_of
from tests.support.setups import ADDED, entry

INSERTS = "sysbench-oltp-insert"
LOADS = {"postgres": "pgbench-tpcb", "mariadb": INSERTS, "mysql": INSERTS, "files": "copy"}
# Setups whose only difference from another one is their tuning, and what each is with the engines
# it is not for.
ONLY_TUNED = {
    "ext4-prealloc": ("ext4", {"postgres", "mariadb", "files"}),
    "ext4-nodoublewrite": ("ext4", {"files"}),
    "xfs-nodoublewrite": ("xfs", {"files"}),
    "btrfs-nodoublewrite": ("btrfs", {"files"}),
    "btrfs-tuned": ("btrfs", {"files"}),
    "btrfs-nowalrecycle": ("btrfs", {"mariadb", "mysql", "files"}),
    "btrfs-zstd-writezeros": ("btrfs-zstd", {"mariadb", "mysql", "files"}),
    "zfs-8k-nofpw": ("zfs-8k", {"mariadb", "mysql", "files"}),
    "zfs-16k-nodoublewrite": ("zfs-16k", {"postgres", "files"}),
}


def tuned(tmp_path: Path, engine: str, *arms: str, **keys: Any) -> Expanded:
    """What a plan of xfs and these arms expands to; `settings` are those of the engine."""
    server = {"name": engine, "settings": keys.pop("settings", {})}
    text = plan(["xfs", *map(entry, arms)], server, LOADS[engine], **keys)
    return expand(plan_of(tmp_path, text), SHIPPED)


def test_every_setup_whose_tuning_may_have_no_effect_is_known() -> None:
    """A setup with tuning is either in the table above, or its filesystem is its own."""

    def filesystem(setup: FsSetup) -> FsSetup:
        return dataclasses.replace(setup, name="", title="", tuning={})

    setups = [SHIPPED.setup(name) for name in SHIPPED.setups]
    plain = [filesystem(setup) for setup in setups if not setup.tuning]
    twins = {setup.name for setup in setups if setup.tuning and filesystem(setup) in plain}
    assert twins == {name for name in ONLY_TUNED if name not in ADDED}
    rest = {setup.name for setup in setups if setup.tuning} - twins
    assert rest == {"btrfs-nocow-attr", "btrfs-nodatacow", "raw"}


@pytest.mark.parametrize("engine", LOADS)
@pytest.mark.parametrize("setup", ONLY_TUNED)
def test_an_arm_whose_tuning_has_no_effect_is_skipped(
    setup: str,
    engine: str,
    tmp_path: Path,
) -> None:
    """It would be another setup under a name that promises something else: it has no cell, and the
    reason is given.
    """
    plain, without = ONLY_TUNED[setup]
    found = tuned(tmp_path, engine, setup)
    assert {cell.arm for cell in found.cells} == {"xfs", *(() if engine in without else (setup,))}
    assert (f"with {engine} it is the same as {plain}:" in found.skipped.get(setup, "")) is (
        engine in without
    )


def test_a_baseline_that_is_another_setup_is_refused(tmp_path: Path) -> None:
    """Every ratio would be named after a setup that was not measured."""
    with pytest.raises(PlanInvalid, match="with mariadb it is the same as ext4"):
        tuned(tmp_path, "mariadb", "ext4-prealloc", baseline="ext4-prealloc")
    assert not tuned(tmp_path, "mysql", "ext4-prealloc", baseline="ext4-prealloc").skipped


def test_two_arms_with_the_same_tuning_for_an_engine_are_one(tmp_path: Path) -> None:
    """The baseline stays, then the first; a setup that is listed twice on purpose stays twice."""
    arms = ("btrfs-tuned", "btrfs-nodoublewrite")
    assert set(tuned(tmp_path, "mariadb", *arms).skipped) == {"btrfs-nodoublewrite"}
    assert set(tuned(tmp_path, "mariadb", *arms, baseline=arms[1]).skipped) == {"btrfs-tuned"}
    assert not tuned(tmp_path, "postgres", *arms).skipped
    twice = plan(["ext4", {"use": "ext4", "label": "ext4-b"}])
    assert not expand(plan_of(tmp_path, twice), SHIPPED).skipped


def test_the_plans_own_setting_makes_an_arm_the_same(tmp_path: Path) -> None:
    """The plan's settings override those of a setup; one that is left to the setup makes it another
    arm.
    """
    off = {"full_page_writes": False}
    both = tuned(tmp_path, "postgres", "xfs-nodoublewrite", "zfs-8k-nofpw", settings=off)
    assert "it is the same as xfs" in both.skipped["xfs-nodoublewrite"]
    assert "zfs-8k-nofpw" not in both.skipped  # which also creates its log files anew
