"""Trade-offs on the page: what each filesystem offers and costs, and the means of its waits."""

import dataclasses
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.metrics.series import Series
from dbbench.model import FsSetup, Layer, Mkfs
from dbbench.report.page.charts.telemetry import Telemetry
from dbbench.report.page.charts.timelines import PANELS
from dbbench.report.page.choose import choose
from dbbench.report.page.groups import groups
from dbbench.results import LoadedRun
from dbbench.storage.filesystems.volumes import character


def run(folder: Path, *arms: str) -> LoadedRun:
    """A run of these arms with invented figures."""
    return synthetic.loaded(folder, Shape(arms=arms, work=TPCB, blocks=3))


def test_a_wait_is_the_mean_of_all_requests(tmp_path: Path) -> None:
    """A second with a thousand requests counts a thousand times as much as one with a single
    request.
    """
    group = groups([run(tmp_path, "ext4", "btrfs")])[0]
    series = {
        trial.id: Series(
            3,
            {
                "r_await_ms": [1.0, 10.0, None],
                "r_per_s": [999.0, 1.0, 0.0],
                "aqu_sz": [1.0, 2.0, 0.0],
            },
        )
        for trial in group.trials
    }
    seconds = Telemetry(group, series, {trial.id: ["measure"] * 3 for trial in group.trials})
    assert PANELS["r_await"].mean("ext4", seconds) == pytest.approx(1.009)
    assert PANELS["queue"].mean("ext4", seconds) == pytest.approx(1.0)
    assert PANELS["w_await"].mean("ext4", seconds) is None


def test_another_durability_class_never_wins(tmp_path: Path) -> None:
    """Its row stands last."""
    last = choose(groups([run(tmp_path, "ext4", "ext4-nobarrier", "xfs")])).rows[-1]
    assert (last.arm.name, last.arm.apart) == ("ext4-nobarrier", True)
    assert last.arm.durability == "no-barrier"


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
def test_abilities_are_those_of_the_options(
    setup: FsSetup,
    checksums: str,
    repairs: bool,
    snapshots: str,
) -> None:
    """A family's abilities as its options and layers leave them."""
    found = character(setup)
    assert found is not None
    assert (checksums, repairs, snapshots) == (found.checksums, found.repairs, found.snapshots)
