"""Published figures next to measured ones, on the page."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dbbench import plan
from dbbench.model import Fault, Status, StudyOf
from dbbench.plan import studies
from dbbench.report.page.html import build, html
from dbbench.report.page.studies import is_variant, times
from dbbench.results import LoadedRun
from tests.fixtures import synthetic
from tests.support.plans import SHIPPED
from tests.unit.test_studies import loaded

COMPRESSION = (
    "pg-btrfs-compression-2015",
    ("ext4", "btrfs-lzo", "btrfs-zlib", "btrfs-zstd"),
    "scan",
)


def of_study(
    folder: Path, name: str, arms: tuple[str, ...], workload: str, **more: Any
) -> LoadedRun:
    """A run with invented figures that says it is a study's."""
    shape = synthetic.Shape(arms=arms, work=(("postgres", workload),), **more)
    found = synthetic.loaded(folder, shape)
    made = dataclasses.replace(found.run.plan, study=StudyOf(name, "tiny"))
    return dataclasses.replace(
        found, run=dataclasses.replace(found.run, plan=made, skipped={"zfs-8k": "no module"})
    )


def test_published_figures_are_next_to_measured_ones(tmp_path: Path) -> None:
    """Each arm has its figure then and now, ratios to the same baseline, and a dash where nothing
    was published; the hardware, kernel, server and durability then and here. A run of no study,
    or of one that this version does not know, has no section.
    """
    assert build([synthetic.loaded(tmp_path / "none", synthetic.Shape())]).studies == ()
    assert build([of_study(tmp_path / "other", "not-known", ("ext4", "xfs"), "scan")]).studies == ()
    model = build([of_study(tmp_path, *COMPRESSION)])
    (entry,) = model.studies
    duration = entry.tables[0]
    assert [(line.mark.name, line.then, line.then_ratio) for line in duration.lines] == [
        ("ext4", "420", "–"),
        ("btrfs-lzo", "262", "0.624\u202f×"),
        ("btrfs-zlib", "302", "0.719\u202f×"),
        ("btrfs-zstd", "–", "–"),
    ]
    rows = {row.fs_setup: row for row in model.comparisons[0].group.rows_of("duration_s")}
    for line in duration.lines:
        assert line.row == rows[line.mark.name] and line.now != "–" and not line.why
    assert times(10.0) == "10\u202f×"  # not +900 %
    assert entry.skipped == (("zfs-8k", "no module"),) and entry.scale == "tiny"
    conditions = {what: (then, now) for what, then, now in entry.conditions}
    assert conditions["kernel"] == ("3.16", "6.12.9") and conditions["memory"] == (
        "48 GB",
        "24 GiB",
    )
    assert "2 SAS disks" in conditions["hardware"][0] and "AMD EPYC" in conditions["hardware"][1]
    assert conditions["CPU flags"] == ("not published", "sse4_2 avx2")
    assert "ext4" in conditions["durability"][1] and conditions["server"][1].startswith(
        "PostgreSQL"
    )


def test_the_page_has_the_section(tmp_path: Path) -> None:
    """With its figures and its address, in a page that is well-formed; superseded figures are
    called so.
    """
    page = html(build([of_study(tmp_path, *COMPRESSION)]))
    for words in (
        "Then and now",
        "elephant on an oil diet",
        ">0.624",
        "Not run: zfs-8k (no module)",
    ):
        assert words in page
    old = html(build([of_study(tmp_path / "old", "bonnie-2011", ("ext3", "btrfs"), "bonnie")]))
    assert "Superseded:" in old and "disputed" in old


def test_the_reason_of_a_row_is_its_own(tmp_path: Path) -> None:
    """A missing trial is not run. Trials that count without the figure say that they have none, not
    why another trial does not count; where none counts, that is the reason.
    """
    (entry,) = build([of_study(tmp_path / "missing", *COMPRESSION, blocks=1, missing=1)]).studies
    assert [line.why for line in entry.tables[0].lines if line.why] == ["not run"]
    run = of_study(tmp_path, *COMPRESSION, blocks=2)
    error = Fault("E601", "measure", "x")
    trials = tuple(
        dataclasses.replace(t, status=Status.FAILED, error=error)
        if (t.fs_setup == "btrfs-lzo" and t.block == 1) or t.fs_setup == "btrfs-zlib"
        else dataclasses.replace(t, summary={**t.summary, "duration_s": None})
        if t.fs_setup == "btrfs-lzo"
        else t
        for t in run.trials
    )
    (entry,) = build([dataclasses.replace(run, trials=trials)]).studies
    why = {line.mark.name: line.why for line in entry.tables[0].lines}
    assert why["btrfs-lzo"].startswith("no trial has a result for")
    assert why["btrfs-zlib"] == "E601 in phase measure"


@pytest.mark.parametrize(
    ("scale", "shown"),
    [("tiny", ["scale 100"]), ("laptop", ["scale 100", "scale 1000", "scale 10000"])],
)
def test_a_measurement_is_shown_next_to_one_published_size(
    scale: str,
    shown: list[str],
    tmp_path: Path,
) -> None:
    """At the tiny scale there is a single size; it does not stand for the two larger ones."""
    cells = plan.expand(loaded(tmp_path, "pg-fs-benchmark", scale), SHIPPED).cells
    found = studies.study("pg-fs-benchmark")
    updates = list(
        {
            cell.title: cell for cell in cells if cell.workload.name == "pgbench-simple-update"
        }.values()
    )
    notes = [
        table.note
        for table in found.table
        if table.workload == "pgbench-simple-update"
        for cell in updates
        if is_variant(cell, studies.variant_of(table, found.scales[scale]))
    ]
    assert [note.removeprefix("published at ").partition(":")[0] for note in notes] == shown
    reads = [cell for cell in cells if cell.workload.name == "pgbench-select-only"]
    assert {cell.parameters["scale"] for cell in reads} == {1 if scale == "tiny" else 80}
