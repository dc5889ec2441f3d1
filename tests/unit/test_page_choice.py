"""Why and trade-offs on the page: what changed with a difference, and what each filesystem offers and costs."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from dbbench.model import FsSetup, Layer, Mkfs, Status
from dbbench.report.page.choose import choose
from dbbench.report.page.groups import Group, groups
from dbbench.report.page.telemetry import telemetry
from dbbench.report.page.why import Why, whys
from dbbench.results import LoadedRun, load_run
from dbbench.storage.filesystems import character

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import synthetic
from synthetic import Shape

TPCB = (("postgres", "pgbench-tpcb"),)


def run(folder: Path, *arms: str) -> LoadedRun:
    """A run of these arms with invented figures."""
    return load_run(synthetic.write(folder, Shape(arms=arms, work=TPCB, blocks=3)))


def with_figures(loaded: LoadedRun, arm: str, **figures: float | None) -> Group:
    """The run's one group, with these figures in each trial of the arm."""
    trials = tuple(
        dataclasses.replace(trial, summary={**trial.summary, **figures}) if trial.fs_setup == arm else trial
        for trial in loaded.trials
    )
    return groups([dataclasses.replace(loaded, trials=trials)])[0]


def why_of(group: Group) -> Why:
    """The panel of the group's one pair."""
    (found,) = whys(group, telemetry(group))
    return found


def test_why_names_what_moved_and_what_did_not(tmp_path: Path) -> None:
    """The farthest first, as the geometric mean of the blocks' ratios; within ten per cent is said to have stayed."""
    loaded = run(tmp_path, "ext4", "btrfs")
    base = with_figures(loaded, "ext4", cpu_ms_per_tx=1.0, flushes_per_tx=1.0)
    both = with_figures(
        dataclasses.replace(loaded, trials=base.trials), "btrfs", cpu_ms_per_tx=3.0, flushes_per_tx=1.05
    )
    found = why_of(both)
    factors = {factor.label: factor for factor in found.factors}
    assert factors["CPU per transaction"].ratio == pytest.approx(3.0)
    assert (factors["CPU per transaction"].moved, factors["flushes per transaction"].moved) == (True, False)
    moved, _, still = found.sentence.partition(" Within")
    assert "CPU per transaction (×\u202f3.00)" in moved
    assert "flushes per transaction" in still


def test_what_comes_from_nothing_has_no_ratio(tmp_path: Path) -> None:
    """Reads of an arm whose baseline read nothing: an arrow, and no number."""
    loaded = run(tmp_path, "ext4", "btrfs")
    base = with_figures(loaded, "ext4", read_kb_per_tx=0.0)
    found = why_of(with_figures(dataclasses.replace(loaded, trials=base.trials), "btrfs", read_kb_per_tx=4.0))
    (read,) = [factor for factor in found.factors if factor.label == "read per transaction"]
    assert (read.ratio, read.arrow, read.words) == (None, "right", "from zero")


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    """A figure that one side lacks is no factor, and is named."""
    group = with_figures(run(tmp_path, "ext4", "btrfs"), "ext4", flushes_per_tx=None)
    found = why_of(group)
    assert "flushes per transaction" in found.missing
    assert "flushes per transaction" not in [factor.label for factor in found.factors]


def test_a_pair_that_failed_has_no_why(tmp_path: Path) -> None:
    """Where no block has both arms, nothing moved together."""
    loaded = run(tmp_path, "ext4", "btrfs")
    failed = tuple(dataclasses.replace(t, status=Status.FAILED) if t.fs_setup == "btrfs" else t for t in loaded.trials)
    group = groups([dataclasses.replace(loaded, trials=failed)])[0]
    assert whys(group, telemetry(group)) == ()


def test_a_trade_is_held_against_the_baseline(tmp_path: Path) -> None:
    """What it gives and what it costs; the baseline has none."""
    table = choose(groups([run(tmp_path, "ext4", "btrfs")]))
    trades = {row.mark.name: row.trade for row in table.rows}
    assert trades["ext4"] == "The baseline."
    assert trades["btrfs"].startswith("Gains data checksums and snapshots; costs −4")


def test_another_durability_class_never_wins(tmp_path: Path) -> None:
    """Its row stands last, and its sentence begins with the class."""
    last = choose(groups([run(tmp_path, "ext4", "ext4-nobarrier", "xfs")])).rows[-1]
    assert (last.mark.name, last.apart) == ("ext4-nobarrier", True)
    assert last.trade.startswith("Weaker or different durability after a power loss (no-barrier)")


def of(family: str, *options: str, mount: tuple[str, ...] = (), **more: object) -> FsSetup:
    """A setup with these words for mkfs."""
    return dataclasses.replace(FsSetup(title="t", mkfs=Mkfs(family, options), mount=mount), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setup", "checksums", "repairs", "snapshots"),
    [
        (of("ext4"), "metadata", False, "no"),
        (of("ext2"), "none", False, "no"),
        (of("btrfs"), "data and metadata", False, "yes"),
        (of("btrfs", "-d", "raid1", "-m", "raid1"), "data and metadata", True, "yes"),
        (of("btrfs", "-d", "raid0", "-m", "raid1"), "data and metadata", False, "yes"),
        (of("btrfs", "-d", "raid1", mount=("nodatacow",)), "metadata", False, "yes"),
        (of("btrfs", attributes=("+C",)), "metadata", False, "yes"),
        (of("xfs", layers=(Layer("lvm"),)), "metadata", False, "by LVM"),
        (FsSetup(title="t", mkfs=Mkfs("zfs", topology="mirror")), "data and metadata", True, "yes"),
    ],
)
def test_abilities_are_those_of_the_options(setup: FsSetup, checksums: str, repairs: bool, snapshots: str) -> None:
    """A family's abilities as its options and layers leave them."""
    found = character(setup)
    assert found is not None
    assert (checksums, repairs, snapshots) == (found.checksums, found.repairs, found.snapshots)
