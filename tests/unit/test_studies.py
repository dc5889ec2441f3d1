"""Published studies: their files, their plans at each scale, and what the page makes of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dbbench import catalog, plan, studies
from dbbench.commands import checking
from dbbench.errors import PlanInvalid, StudyImpossible, UnknownName
from dbbench.metrics import METRICS
from dbbench.model import Plan, StudyOf
from dbbench.page.html import html
from dbbench.page.model import build
from dbbench.page.studies import times
from dbbench.plan.preview import preview
from dbbench.store import LoadedRun, load_run
from dbbench.units import seconds_of
from tests.fixtures import synthetic

SEVEN = ["bonnie-2011", "oracle-clone-2012", "percona-2012", "percona-2012-readers", "pg-btrfs-compression-2015",
         "pg-fs-benchmark", "raid0-copy-2012"]  # fmt: skip
EACH = [(name, scale) for name in SEVEN for scale in studies.SCALES]
SHIPPED = catalog.catalog()
GIB = 2**30


def written(folder: Path, name: str, scale: str) -> Path:
    """A study's plan as a file."""
    found = studies.study(name)
    path = folder / "plan.toml"
    path.write_text(studies.plan_text(found, scale, found.engines), encoding="utf-8")
    return path


def loaded(folder: Path, name: str, scale: str) -> Plan:
    """A study's plan, read and checked."""
    return plan.load(written(folder, name, scale), SHIPPED)


def test_all_seven_are_there() -> None:
    """None is missing, and each file can be read."""
    assert studies.names() == SEVEN
    for name in SEVEN:
        found = studies.study(name)
        assert found.title and found.address and found.did and found.differs
        assert list(found.scales) == list(studies.SCALES) and found.name == name


@pytest.mark.parametrize(("name", "scale"), EACH)
def test_every_scale_is_a_plan(name: str, scale: str, tmp_path: Path) -> None:
    """It loads, says whose it is, and each published figure belongs to an arm, a workload and a metric that it has."""
    made, found = loaded(tmp_path, name, scale), studies.study(name)
    assert made.study == StudyOf(name, scale) and made.name == f"{name}-{scale}"
    workloads = {spec.name for spec in made.workload}
    for table in found.table:
        assert table.metric in METRICS and table.workload in workloads
        assert not (table.then and table.ratios)
    assert plan.expand(made, SHIPPED).order


@pytest.mark.parametrize("name", SEVEN)
def test_every_published_arm_is_run_at_full_scale(name: str, tmp_path: Path) -> None:
    """The full scale has each arm that has a figure, and the baseline that ratios are to."""
    uses = {arm.use for arm in loaded(tmp_path, name, "full").fs_setups}
    for table in studies.study(name).table:
        assert {*table.then, *table.ratios} <= uses
    if any(table.then for table in studies.study(name).table):
        assert all(loaded(tmp_path, name, "full").baseline in table.then or not table.then
                   or table.metric == "compression_ratio" for table in studies.study(name).table)  # fmt: skip


@pytest.mark.parametrize("name", SEVEN)
def test_scales_keep_their_promise(name: str, tmp_path: Path) -> None:
    """tiny has one block and 2 GiB; laptop takes at most 8 GiB and, as estimated, a quarter of an hour."""
    tiny, laptop = loaded(tmp_path, name, "tiny"), loaded(tmp_path, name, "laptop")
    assert tiny.blocks == 1
    assert not tiny.repeat_suspect and not laptop.repeat_suspect
    told = preview(laptop, plan.expand(laptop, SHIPPED))
    assert told.disk_bytes <= 8 * GIB and told.eta_s <= 15 * 60
    assert preview(tiny, plan.expand(tiny, SHIPPED)).disk_bytes <= 2.2 * GIB


def test_published_figures_are_those_that_were_published() -> None:
    """A sample of each study's, in the metric's unit."""
    of = {(name, table.metric, table.variant): table for name in SEVEN for table in studies.study(name).table}
    assert of["pg-btrfs-compression-2015", "duration_s", ""].then == {
        "ext4": 420.0, "btrfs-lzo": 262.0, "btrfs-zlib": 302.0}  # fmt: skip
    assert of["pg-fs-benchmark", "tps", "scale=10000"].then["ext4"] in (30495, 139685)
    assert of["percona-2012", "tps", ""].ratios == {"btrfs-nobarrier": 0.2}
    assert of["raid0-copy-2012", "copy_s", ""].then["ext4-writeback-default"] == 45.7
    creates = of["bonnie-2011", "creates_per_s", ""]
    assert creates.then == {"ext3": 9964, "btrfs": 1623} and "disputed" in creates.superseded
    assert of["bonnie-2011", "block_write_mb_per_s", ""].then["ext3"] == pytest.approx(23464 * 1024 / 1e6, rel=1e-4)


def test_copy_is_timed_with_and_without_fsync() -> None:
    """The single disk was timed without the final sync: both times are in the section."""
    shown = {table.metric for table in studies.study("raid0-copy-2012").table}
    assert {"copy_s", "duration_s"} <= shown


def test_what_is_not_known_is_refused() -> None:
    """A study or scale that there is not, and an engine that is not installed."""
    with pytest.raises(UnknownName, match="percona-2012"):
        studies.study("percona-2013")
    found = studies.study("percona-2012")
    with pytest.raises(UnknownName):
        studies.plan_text(found, "huge", found.engines)
    with pytest.raises(StudyImpossible, match="mysql or mariadb"):
        studies.plan_text(found, "tiny", ["postgres"])
    assert 'name = "mariadb"' in studies.plan_text(found, "tiny", ["postgres", "mariadb"])


def test_a_plan_of_an_unknown_study_is_refused(tmp_path: Path) -> None:
    """What the page would have nothing for is told before the run."""
    path = written(tmp_path, "percona-2012", "tiny")
    path.write_text(path.read_text().replace('study = { name = "percona-2012"', 'study = { name = "perkona-2012"'))
    with pytest.raises(PlanInvalid, match='no study "perkona-2012"'):
        plan.load(path, SHIPPED)


@pytest.mark.parametrize(("name", "scale"), EACH)
def test_every_scale_fits_on_its_devices(name: str, scale: str, tmp_path: Path) -> None:
    """The datasets, with the redo that InnoDB takes for windows of that length."""
    made = loaded(tmp_path, name, scale)
    assert [error.evidence for error in checking.fits(made, plan.expand(made, SHIPPED))] == []


def test_windows_of_tiny_scales_are_seconds(tmp_path: Path) -> None:
    """A test that drives them waits for no window longer than 4 s."""
    for name in SEVEN:
        values = studies.study(name).scales["tiny"].values
        assert seconds_of(values.get("measure", "1s")) <= 4 and values["blocks"] == 1


# --- the page --------------------------------------------------------------------------------------

COMPRESSION = ("pg-btrfs-compression-2015", ("ext4", "btrfs-lzo", "btrfs-zlib", "btrfs-zstd"), "scan")


def of_study(folder: Path, name: str, arms: tuple[str, ...], workload: str, **more: Any) -> LoadedRun:
    """A run with invented figures that says it is a study's."""
    shape = synthetic.Shape(arms=arms, work=(("postgres", workload),), **more)
    found = load_run(synthetic.write(folder, shape))
    made = dataclasses.replace(found.run.plan, study=StudyOf(name, "tiny"))
    return dataclasses.replace(found, run=dataclasses.replace(found.run, plan=made, skipped={"zfs-8k": "no module"}))


def test_a_run_of_no_study_has_no_section(tmp_path: Path) -> None:
    """Nor has one of a study that this version does not know."""
    assert build([load_run(synthetic.write(tmp_path, synthetic.Shape()))]).studies == ()
    assert build([of_study(tmp_path / "other", "not-known", ("ext4", "xfs"), "scan")]).studies == ()


def test_published_stands_beside_measured(tmp_path: Path) -> None:
    """Each arm has its figure then and now, ratios to the same baseline, and a dash where nothing was published."""
    model = build([of_study(tmp_path, *COMPRESSION)])
    (entry,) = model.studies
    duration = entry.tables[0]
    assert [(line.mark.name, line.then, line.then_ratio) for line in duration.lines] == [
        ("ext4", "420", "–"), ("btrfs-lzo", "262", "0.624\u202f×"), ("btrfs-zlib", "302", "0.719\u202f×"),
        ("btrfs-zstd", "–", "–"),
    ]  # fmt: skip
    rows = {row.fs_setup: row for row in model.comparisons[0].group.rows_of("duration_s")}
    for line in duration.lines:
        assert line.row == rows[line.mark.name] and line.now != "–" and not line.why
    assert entry.skipped == (("zfs-8k", "no module"),) and entry.scale == "tiny"


def test_conditions_stand_side_by_side(tmp_path: Path) -> None:
    """Then and here: hardware, kernel, server, durability; what was not told is said not to be."""
    (entry,) = build([of_study(tmp_path, *COMPRESSION)]).studies
    rows = {what: (then, now) for what, then, now in entry.conditions}
    assert rows["kernel"] == ("3.16", "6.12.9") and rows["memory"] == ("48 GB", "24 GiB")
    assert "2 SAS disks" in rows["hardware"][0] and "AMD EPYC" in rows["hardware"][1]
    assert rows["CPU flags"] == ("not told", "sse4_2 avx2")
    assert "ext4" in rows["durability"][1] and rows["server"][1].startswith("PostgreSQL")


def test_the_three_charts_are_drawn(tmp_path: Path) -> None:
    """CPU, block transfer and iowait, a curve an arm; where there is no telemetry each says why."""
    (entry,) = build([of_study(tmp_path, *COMPRESSION)]).studies
    assert [chart.title.split(",")[0] for chart in entry.charts] == ["CPU", "Block transfer", "iowait"]
    for chart in entry.charts:
        assert len(chart.curves) == 4 and all(curve.path.startswith("M") for curve in chart.curves)
    (bare,) = build([of_study(tmp_path / "bare", *COMPRESSION, samplers=False)]).studies
    assert all(chart.why and not chart.curves for chart in bare.charts)


def test_the_page_has_the_section(tmp_path: Path) -> None:
    """With its figures and its address, in a page that is well-formed; superseded figures are called so."""
    page = html(build([of_study(tmp_path, *COMPRESSION)]))
    for words in ("Then and now", "elephant on an oil diet", ">0.624", "Not run here: zfs-8k (no module)"):
        assert words in page
    old = html(build([of_study(tmp_path / "old", "bonnie-2011", ("ext3", "btrfs"), "bonnie")]))
    assert "Superseded:" in old and "disputed" in old


def test_an_arm_without_figures_says_why(tmp_path: Path) -> None:
    """A failed or missing trial is no empty cell."""
    run = of_study(tmp_path, *COMPRESSION, blocks=1, missing=1)
    (entry,) = build([run]).studies
    gone = {line.mark.name: line.why for line in entry.tables[0].lines if line.why}
    assert list(gone.values()) == ["not driven"]


def test_ratios_are_times() -> None:
    """Ten times worse is 10 ×, not +900 %."""
    assert times(10.0) == "10\u202f×" and times(0.2) == "0.2\u202f×" and times(None) == "–"
