"""Why and trade-offs on the page: what changed with a difference, and what each filesystem offers
and costs.
"""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.metrics.series import Series
from dbbench.model import FsSetup, Layer, Mkfs, Status
from dbbench.report.page.charts.telemetry import Telemetry, telemetry
from dbbench.report.page.charts.timelines import mean_of_panel
from dbbench.report.page.charts.why import whys
from dbbench.report.page.choose import choose
from dbbench.report.page.groups import Group, groups
from dbbench.results import LoadedRun
from dbbench.storage.filesystems.volumes import character


def run(folder: Path, *arms: str) -> LoadedRun:
    """A run of these arms with invented figures."""
    return synthetic.loaded(folder, Shape(arms=arms, work=TPCB, blocks=3))


def with_figures(loaded: LoadedRun, arm: str, **figures: float | None) -> Group:
    """The run's one group, with these figures in each trial of the arm."""
    added = {arm: figures}
    run = synthetic.with_trials(
        loaded, lambda t: {"summary": {**t.summary, **added.get(t.fs_setup, {})}}
    )
    return groups([run])[0]


def why_of(group: Group, seconds: Telemetry | None = None) -> SimpleNamespace:
    """The panel of the group's one pair."""
    (found,) = whys(group, seconds or telemetry(group))
    return found


def test_why_names_what_moved_and_what_did_not(tmp_path: Path) -> None:
    """The largest share times change first; within ten per cent is said to have stayed. Reads of an
    arm whose baseline read nothing have an arrow, and no number. A figure that one side lacks is
    no factor, and is named. Where no block has both arms, nothing moved together.
    """
    loaded = run(tmp_path, "ext4", "btrfs")
    found = why_of(with_figures(loaded, "ext4", flushes_per_tx=None))
    assert "flushes per transaction" in found.missing
    assert "flushes per transaction" not in [factor.label for factor in found.factors]
    base = with_figures(
        loaded,
        "ext4",
        cpu_ms_per_tx=1.0,
        cpu_pct=30.0,
        flushes_per_tx=1.0,
        read_kb_per_tx=0.0,
    )
    loaded = dataclasses.replace(loaded, trials=base.trials)
    figures = {"cpu_ms_per_tx": 3.0, "cpu_pct": 60.0}
    found = why_of(
        with_figures(loaded, "btrfs", **figures, flushes_per_tx=1.05, read_kb_per_tx=4.0)
    )
    factors = {factor.label: factor for factor in found.factors}
    assert factors["CPU per transaction"].ratio == pytest.approx(3.0)
    assert (
        factors["CPU per transaction"].has_changed_much
        and not factors["flushes per transaction"].has_changed_much
    )
    read = factors["read per transaction"]
    assert (read.ratio, read.arrow, read.words) == (None, "right", "from zero")
    moved, _, still = found.sentence.partition(" Within")
    assert "CPU per transaction (×\u202f3.00)" in moved
    assert "flushes per transaction" in still
    failed = {"btrfs": {"status": Status.FAILED}}
    group = groups([synthetic.with_trials(loaded, lambda trial: failed.get(trial.fs_setup, {}))])[0]
    assert whys(group, telemetry(group)) == ()


# a read-only scan: what it costs per GiB, and its device in each second
SCAN: dict[str, dict[str, float]] = {
    "ext4": {
        "read_kb_per_gib": 1e6,
        "write_kb_per_gib": 0.4,
        "flushes_per_gib": 0.001,
        "cpu_ms_per_gib": 900.0,
        "cpu_pct": 40.0,
        "r_await_ms": 5.0,
        "r_per_s": 1500,
        "w_await_ms": 1.0,
        "w_per_s": 0.5,
        "f_await_ms": 0.5,
        "f_per_s": 0.2,
        "cpu_system_pct": 25.0,
    },
    "btrfs": {
        "read_kb_per_gib": 1e6,
        "write_kb_per_gib": 2.3,
        "flushes_per_gib": 0.009,
        "cpu_ms_per_gib": 2200.0,
        "cpu_pct": 60.0,
        "r_await_ms": 15.0,
        "r_per_s": 1600,
        "w_await_ms": 13.0,
        "w_per_s": 0.6,
        "f_await_ms": 9.0,
        "f_per_s": 0.3,
        "cpu_system_pct": 45.0,
    },
}


def test_why_of_a_scan_is_about_reads_and_leaves_out_what_is_nearly_zero(tmp_path: Path) -> None:
    """Waits for writes and flushes grew thirteen times and more, but are no hundredth of the time
    or of the bytes.
    """
    group = groups([run(tmp_path, "ext4", "btrfs")])[0]
    trials = tuple(
        dataclasses.replace(t, summary={"tps": t.summary["tps"], **SCAN[t.fs_setup]})
        for t in group.trials
    )
    loaded = dataclasses.replace(group.loaded, trials=trials)
    group = groups([loaded])[0]
    series = {}
    for trial in trials:
        columns = {
            name: [value] * 4
            for name, value in SCAN[trial.fs_setup].items()
            if not name.endswith("gib")
        }
        series[trial.id] = Series(4, {"tps": [100.0] * 4, **columns})
    found = why_of(group, Telemetry(group, series, {trial.id: ["measure"] * 4 for trial in trials}))
    assert [factor.label for factor in found.factors][:3] == [
        "wait for a read",
        "CPU per scanned GiB",
        "CPU in the kernel",
    ]
    assert (
        "Also changed: wait for a read (×\u202f3), CPU per scanned GiB (×\u202f2.44)"
        in found.sentence
    )
    small = {
        "wait for a write",
        "wait for a flush",
        "written per scanned GiB",
        "flushes per scanned GiB",
    }
    assert small <= set(found.negligible)
    assert not set(found.negligible) & {factor.label for factor in found.factors}
    assert not [label for label in found.negligible if label in found.sentence]


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
    assert mean_of_panel("r_await", "ext4", seconds) == pytest.approx(1.009)
    assert mean_of_panel("queue", "ext4", seconds) == pytest.approx(1.0)
    assert mean_of_panel("w_await", "ext4", seconds) is None


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
