"""The harm table without a server: what is counted, and how it is shown."""

import dataclasses
import time
from pathlib import Path

import pytest

from dbbench.commands.options import Options
from dbbench.commands.powercut import conclude, concluding
from dbbench.errors import DeadlinePassed, Interrupted, LabContradicts, MountFailed
from dbbench.labs.harm import Attempt, count_harms
from dbbench.labs.powercut.base_images import BaseImages, Lab
from dbbench.labs.powercut.conclusions import add_up
from dbbench.labs.powercut.targets import LabTarget
from dbbench.model import TIME_USED_UP, Conclusion, Durability, EngineSpec, HarmCount, HarmOutcome
from dbbench.report.harm_table import HarmTable
from dbbench.results import save_lab
from dbbench.run.workdir import WorkDir
from dbbench.storage.filesystems import Mounted
from tests.fixtures import synthetic
from tests.fixtures.synthetic import Shape
from tests.support.plans import SHIPPED
from tests.support.runs import changed

FOUND = HarmCount("flip", HarmOutcome.DATABASE, 2, 3, "page 7")


def base_on(folder: Path) -> BaseImages:
    """Disks of ext4 that are not there: what no attempt of these tests reads."""
    workdir = WorkDir(folder)
    target = LabTarget("ext4", SHIPPED.setup("ext4"), EngineSpec("postgres"), {})
    return BaseImages(
        target,
        {},
        workdir.place(target.engine),
        (),
        (),
        "17",
        Mounted.__new__(Mounted),
    )


def fails(error: BaseException) -> Attempt:
    """An attempt that raises the error."""

    def attempt(lab: Lab, base: BaseImages, rounds: int) -> list[HarmCount]:
        raise error

    return attempt


def test_what_cannot_be_tried_is_counted_with_its_reason(tmp_path: Path) -> None:
    """An attempt that fails is one row with the reason, and the next one still runs; a stop is no
    outcome.
    """
    told: list[str] = []
    lab = Lab(WorkDir(tmp_path), tmp_path, 1, told.append)
    base = base_on(tmp_path)
    attempts: dict[str, Attempt] = {
        "fill": fails(MountFailed("no space")),
        "flip": lambda *_: [FOUND],
    }
    counts = list(count_harms(lab, base, 3, attempts))
    assert counts == [HarmCount("fill", "untried", 0, 0, "no space"), FOUND]
    assert [what.split(": ")[1] for what in told] == ["fill", "flip"]
    with pytest.raises(Interrupted):
        list(count_harms(lab, base, 3, {"fill": fails(Interrupted("stopped"))}))


def test_an_attempt_that_the_lab_could_not_make_is_not_counted() -> None:
    """Its reason is kept; the others are counted without it."""
    died = HarmCount("failed write", HarmOutcome.DIES, 1, 1, "PANIC")
    untried = HarmCount("failed write", HarmOutcome.UNTRIED, 0, 0, "the unmount failed")
    both = dataclasses.replace(died, count=2, of=2)
    assert add_up([died, untried, died]) == [both, untried]


def test_the_documentation_describes_every_outcome() -> None:
    """By the word that the table has."""
    text = (Path(__file__).parents[2] / "docs/durability.md").read_text()
    assert [
        word for word in HarmOutcome if f"`{word}`" not in text and f"**{word}**" not in text
    ] == []


def test_the_table_is_read_in_two_halves(tmp_path: Path) -> None:
    """Power losses and kills, then everything else."""
    assert table_of(tmp_path).halves == [
        ("power and kills", ["cut during DML"]),
        ("errors and copies", ["disk full"]),
    ]


def test_without_time_nothing_is_tried(tmp_path: Path) -> None:
    """A part whose time is used up says so in place of its outcomes."""
    lab = Lab(WorkDir(tmp_path), tmp_path, 1, lambda _: None, until=time.monotonic() - 1)
    (only,) = count_harms(lab, base_on(tmp_path), 1, {"flip": fails(AssertionError())})
    assert (only.word, only.of, only.detail) == ("untried", 0, "the time was used up")


def table_of(tmp_path: Path, **queue: str) -> HarmTable:
    """The table of a run with trials on two setups; `queue`: attributes of the device of their
    filesystems.
    """
    loaded = synthetic.loaded(tmp_path, Shape(arms=("ext4", "xfs"), work=synthetic.TPCB))
    lab = synthetic.lab()
    loaded = synthetic.with_trials(
        loaded, lambda t: {"filesystem": changed(t.filesystem, "queue", queue)}
    )
    return HarmTable(dataclasses.replace(loaded, lab=lab), lab)


def test_a_row_has_words_with_counts_and_intervals_and_its_price(tmp_path: Path) -> None:
    """What was not tried has its reason; the baseline has no change; what was not run is listed."""
    table = table_of(tmp_path)
    base, other = table.lines
    assert table.columns == ["cut during DML", "disk full"] and table.prices[0] == "tps"
    assert base.cells("cut during DML") == [
        ("torn 3/40", "2.58–19.9 %", "unit 512 B: 3 of 9; page 7")
    ]
    assert (
        base.cells("disk full") == [("untried", "", "the time was used up")]
        and base.cells("no such") == []
    )
    assert base.price_text("tps") == "baseline" and base.price_text("no such") == "–"
    assert other.price_text("tps").endswith("%)") and ".." in other.price_text("tps")
    assert table.exclusions[0] == "ext4-md1: layers (md)"
    assert (
        table.exclusions[1]
        == "ext4 with PostgreSQL 15.18, defaults, disk full: the time was used up"
    )
    assert table.price_headings[:2] == ["throughput", "written per transaction, kB"]
    first, second = table.document()
    assert [(one["word"], one["lo"]) for one in first["counts"]] == [
        ("torn", pytest.approx(0.0258, abs=1e-4)),
        ("untried", None),
    ]
    assert (
        second["price"]["tps"]["lo"]
        < second["price"]["tps"]["ratio"]
        < second["price"]["tps"]["hi"]
    )


def test_public_reports_stand_next_to_the_counts_of_the_lab(tmp_path: Path) -> None:
    """With both counts, whether the lab found harm or none; the class names the unit and the
    report.
    """
    table = table_of(tmp_path)
    (cell, *_), rows = table.run.run.cells, table.lab.rows
    options = ("recordsize=16K", "logbias=throughput")
    setup = dataclasses.replace(SHIPPED.setup("zfs-16k"), mount=options)
    run = dataclasses.replace(table.run.run, cells=(dataclasses.replace(cell, setup=setup),))
    flags = (Durability.REPORTED_UNSAFE, Durability.TORN_PREVENTED)
    for conclusion, text in (
        (Conclusion.UNHARMED, "this test does not confirm it"),
        (Conclusion.HARMED, "this test found harm too"),
        (Conclusion.BLIND, ""),
    ):
        row = dataclasses.replace(rows[0], durability_flags=flags, conclusion=conclusion)
        other = dataclasses.replace(
            table,
            run=dataclasses.replace(table.run, run=run),
            lab=dataclasses.replace(table.lab, rows=(row,)),
        )
        assert (
            other.lines[0].durability
            == "reported-unsafe + torn-prevented (unit 8192, aligned) (openzfs/zfs#18996)"
        )
        expected = (
            'ext4 with PostgreSQL 15.18, defaults: openzfs/zfs#18996 reports a "possible loss" in 2 of 2 power '
            f"losses right after TRUNCATE PARTITION; {text}: 0 of 223 cuts (< 1.3 % at 95 %)"
        )
        assert other.published == ([expected] if text else [])
    assert table.published == [] and table.lines[0].durability == "full"


def test_what_a_lab_that_ended_early_did_not_reach_is_listed(tmp_path: Path) -> None:
    """By setup and server, so that none is left out silently."""
    table = table_of(tmp_path)
    early = dataclasses.replace(
        table, lab=dataclasses.replace(table.lab, rows=table.lab.rows[:1], complete=False)
    )
    assert early.exclusions[-1] == "xfs with PostgreSQL: the test ended before it"
    assert not [text for text in table.exclusions if "ended before" in text]


def test_a_lab_that_hangs_prints_what_it_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of the setups that were tested, then the error."""
    folder = synthetic.write(tmp_path, Shape(arms=("ext4", "xfs"), work=synthetic.TPCB))
    with pytest.raises(DeadlinePassed), concluding(Options(quiet=True), folder):
        save_lab(folder, dataclasses.replace(synthetic.lab(arms=("ext4",)), complete=False))
        raise DeadlinePassed("mount")
    printed = capsys.readouterr().out
    assert "torn 3/40" in printed and "xfs with PostgreSQL: the test ended before it" in printed


def test_a_blind_control_says_why(tmp_path: Path) -> None:
    """E821 says of each control that lost too little whether the time was used up before it had all
    its cuts.
    """
    folder = synthetic.write(tmp_path, Shape(arms=("ext4", "xfs"), work=synthetic.TPCB))
    lab = synthetic.lab(blind=True)
    rare = lab.controls[0]
    late = dataclasses.replace(lab.controls[0], name="fsync=off", note=TIME_USED_UP)
    save_lab(folder, dataclasses.replace(lab, controls=(rare, late)))
    with pytest.raises(LabContradicts) as caught:
        conclude(Options(quiet=True), folder)
    too_few = (
        "controls lost data in too few cuts: nobarrier (postgres), fsync=off (postgres; the time "
        "was used up)"
    )
    assert str(caught.value) == too_few


def test_a_lab_without_trials_has_no_price(tmp_path: Path) -> None:
    """The table then has the harm alone, and no device to describe."""
    table = table_of(tmp_path)
    alone = dataclasses.replace(table, run=dataclasses.replace(table.run, trials=()))
    assert (alone.prices, alone.unit, [line.price for line in alone.lines]) == ([], "", [{}, {}])


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        (
            {"atomic_write_unit_max_bytes": "16384", "physical_block_size": "4096"},
            "atomic writes of up to 16 KiB",
        ),
        (
            {"atomic_write_unit_max_bytes": "0", "physical_block_size": "512"},
            "no atomic writes: cuts with power-fail units above its physical block of 512 B",
        ),
        ({"physical_block_size": "4096"}, "above its physical block of 4 KiB"),
    ],
)
def test_the_device_says_which_cuts_apply(
    queue: dict[str, str],
    said: str,
    tmp_path: Path,
) -> None:
    """Those with a power-fail unit that it has by its own account."""
    assert said in table_of(tmp_path, **queue).unit
