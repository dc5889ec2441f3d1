"""A results folder made by someone else: nothing outside of it is read, written, removed or
shown, and its texts cannot command a terminal or a spreadsheet.
"""

import csv
import io
import json
import os
import re
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli, results
from dbbench.errors import NotWritable, ResultDamaged, ResultNotRegular
from dbbench.report.verdict_table import as_csv
from dbbench.report.verdicts import verdicts
from dbbench.results.fileio import read_bytes, write_text
from dbbench.results.journal import Journal
from dbbench.results.trials import damage
from dbbench.storage.devices.image import give_back_images, images_of, make_images
from dbbench.units import inert
from tests.support.hostile import TEXT
from tests.support.runs import changed, small_run
from tests.unit.hostile.test_damaged_runs import PLANTS, unsummed

ESCAPE = "\x1b]0;owned\x07\x9b31m\u202e"


@pytest.mark.parametrize("name", [".lock", "journal.jsonl"])
def test_links_in_place_of_our_files_are_not_written_through(
    name: str,
    folder: Path,
    victim: Path,
) -> None:
    """`clean` and `run` as root would otherwise empty or lengthen what the link names."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    journal = Journal(folder / "journal.jsonl")
    with pytest.raises((NotWritable, ResultDamaged)), results.lock(folder):
        list(journal.entries())
    with pytest.raises(NotWritable), results.lock(folder):
        journal.note("take", what="image", path="/x")


def test_a_link_of_the_temporary_name_is_replaced(tmp_path: Path, victim: Path) -> None:
    """Its name can be guessed."""
    (tmp_path / f".page.{os.getpid()}.tmp").symlink_to(victim)
    write_text(tmp_path / "page", "new")
    assert (tmp_path / "page").read_text() == "new" and not (tmp_path / "page").is_symlink()


def test_the_index_is_never_somebody_elses_database(tmp_path: Path, victim: Path) -> None:
    """It is written to, and thrown away where it is damaged."""
    (tmp_path / results.INDEX_NAME).symlink_to(victim)
    run = tmp_path / "r"
    run.mkdir()
    assert results.index_rows(tmp_path, [run], lambda _: {"a": 1}, "m") == [{"a": 1}]
    assert not (tmp_path / results.INDEX_NAME).is_symlink()


def test_a_file_in_the_images_place_is_not_replaced(tmp_path: Path) -> None:
    """Nor used: it may be another run's disk, or a link to one. Runs of one name in two results
    folders have images of their own in the same folder.
    """
    run = small_run()
    folder = results.create_run(tmp_path / "results", run, "")
    (path,) = images_of(run, folder)["data"]
    path.write_text(TEXT)
    journal = Journal(folder / "journal.jsonl")
    with pytest.raises(NotWritable, match="not created by this run"):
        make_images(run, folder, journal, lambda what, share: None)
    assert (path.read_text(), give_back_images(journal)) == (TEXT, [])
    run = changed(run, "plan.device.at", str(tmp_path))
    assert images_of(run, tmp_path / "a/r") != images_of(run, tmp_path / "b/r")


@pytest.mark.parametrize(
    "name", ["../../victim", "/etc/passwd", "..", "a/b", ".partial-x", "a\x1b[2J", ""]
)
def test_names_that_lead_elsewhere_are_damage(name: str, folder: Path) -> None:
    """A trial's id and the run's name become names of files."""
    whole = json.loads((folder / "run.json").read_text())
    del whole["sha256"]
    for content in (
        {**whole, "name": name},
        {**whole, "order": [{**whole["order"][0], "id": name}]},
    ):
        (folder / "run.json").write_text(json.dumps(content))
        with pytest.raises(ResultDamaged, match="not a valid name of a run or trial"):
            results.load_spec(folder)


def test_an_altered_run_json_is_named(folder: Path) -> None:
    """Each byte of it, however it still reads as JSON."""
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"block": 2', '"block": 3'))
    with pytest.raises(ResultDamaged, match=r"run\.json .*checksum"):
        results.load_spec(folder)


@pytest.mark.parametrize("plant", ["link", "fifo", "device"])
@pytest.mark.parametrize("name", ["trial.json", "SHA256SUMS", "series.csv.gz", "histogram.json"])
def test_what_is_not_a_plain_file_is_damage(
    name: str,
    plant: str,
    trial: Path,
    victim: Path,
    tmp_path: Path,
) -> None:
    """A FIFO would be waited for, a device never ends, a link shows other people's files."""
    path = trial / name
    path.unlink(missing_ok=True)
    PLANTS["link" if plant == "device" else plant](
        path, Path("/dev/zero") if plant == "device" else victim
    )
    if name in ("series.csv.gz", "histogram.json"):
        unsummed(path)
    with pytest.raises(ResultNotRegular, match=name):
        found = results.load_run(trial.parents[1])
        for one in found.trials:
            assert (found.series(one), found.histogram(one)) is None
    with pytest.raises(ResultNotRegular):
        read_bytes(path, tmp_path)


def test_sums_cannot_lead_out_of_the_folder(trial: Path, victim: Path) -> None:
    """Names with .. or of the whole machine are damage, whatever their sums."""
    with (trial / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  ../../../../victim\n{'0' * 64}  /dev/zero\n")
    assert [fault.split()[0] for fault in damage(trial)] == ["../../../../victim", "/dev/zero"]


def test_a_terminal_gets_no_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and texts of results are shown, in tables, JSON and errors, as in JSON; tabs and lines
    stay.
    """
    assert inert("a\tb\n" + ESCAPE) == "a\tb\n\\u001b]0;owned\\u0007\\u009b31m\\u202e"
    assert inert("\u061c\u200e\u200f") == "\\u061c\\u200e\\u200f"
    synthetic.write(
        tmp_path, Shape(work=TPCB, hostile=ESCAPE, failed=("xfs.postgres.pgbench-tpcb-b1-a1",))
    )
    for argv in (
        ["show"],
        ["show", "demo"],
        ["compare", "demo"],
        ["show", "--json"],
        ["compare", "demo", "--json"],
        ["show", ESCAPE],
        ["explain", ESCAPE],
        ["compare", "demo", "--format", "markdown"],
    ):
        cli.run([*argv, *(() if argv[0] == "explain" else ("--results", str(tmp_path)))])
        out, err = capsys.readouterr()
        assert inert(out) == out and inert(err) == err, argv
        assert argv != ["show", "demo"] or "\\u009b31m" in out


def test_a_result_forges_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line feed in a name or a text does not begin a line, and the page has no escape."""
    forged = f"x\nFORGED {ESCAPE}"
    synthetic.write(
        tmp_path, Shape(work=TPCB, hostile=forged, failed=("xfs.postgres.pgbench-tpcb-b1-a1",))
    )
    for argv in (
        ["show"],
        ["show", "demo"],
        ["compare", "demo"],
        ["compare", "demo", "--format", "markdown"],
        ["compare", "demo", "--format", "csv"],
        ["report", "demo"],
    ):
        cli.run([*argv, "--results", str(tmp_path)])
        out, err = capsys.readouterr()
        lines = [*out.splitlines(), *err.splitlines()]
        assert [line for line in lines if re.match(r" {0,5}FORGED", line)] == [], argv
    page = (tmp_path / "demo/report.html").read_text()
    assert "\x1b" not in page


def test_a_spreadsheet_computes_nothing(tmp_path: Path) -> None:
    """A label that begins as a formula is text to it."""
    run = synthetic.loaded(tmp_path, Shape(work=TPCB))
    formula = '=HYPERLINK("http://x")'
    run = synthetic.with_trials(
        run, lambda trial: {"fs_setup": trial.fs_setup.replace("xfs", formula)}
    )
    written = as_csv(verdicts([run]))
    cells = [cell for row in list(csv.reader(io.StringIO(written)))[1:] for cell in row]
    assert "'" + formula in cells
    assert not [cell for cell in cells if cell[:1] in ("=", "@", "+")]


def test_results_are_not_for_everybody_to_write(folder: Path, trial: Path) -> None:
    """Neither files nor folders."""
    for path in [*folder.parent.rglob("*"), folder.parent]:
        assert not path.lstat().st_mode & 0o022, path
