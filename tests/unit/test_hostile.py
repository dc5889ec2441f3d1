"""A results folder that somebody else made: nothing outside of it is read, written or removed, nothing of it acts."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dbbench import cli, images, store
from dbbench.commands.verdicts import as_csv, verdicts
from dbbench.errors import FileTaken, ResultDamaged, ResultsUnwritable
from dbbench.journal import Journal
from dbbench.model import Run
from dbbench.runner import give_back
from dbbench.store import index
from dbbench.store.files import write_text
from dbbench.store.trials import damage
from dbbench.units import inert

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import dataclasses

import synthetic
from synthetic import Shape

MakeRun = Callable[..., Run]
ESCAPE = "\x1b]0;owned\x07\x9b31m\u202e"
TEXT = "not of dbbench\n"


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """`cli.run` takes SIGTERM for the life of a command line."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Somebody's file, which must be as it was at the end."""
    path = tmp_path / "victim"
    path.write_text(TEXT)
    yield path
    assert path.read_text() == TEXT


@pytest.fixture
def folder(tmp_path: Path, make_run: MakeRun) -> Path:
    """The folder of a run without trials."""
    return store.create_run(tmp_path / "results", make_run(), "# plan\n")


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """The folder of a finished trial."""
    synthetic.write(tmp_path / "results", Shape(work=(("postgres", "pgbench-tpcb"),), blocks=1))
    return next((tmp_path / "results/demo/trials").iterdir())


@pytest.mark.parametrize("name", [".lock", "journal.jsonl"])
def test_links_in_place_of_our_files_are_not_written_through(name: str, folder: Path, victim: Path) -> None:
    """`clean` and `run` as root would otherwise empty or lengthen what the link names."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    with pytest.raises((ResultsUnwritable, ResultDamaged)), store.locked(folder):
        assert list(Journal(folder / "journal.jsonl").entries())
    with pytest.raises(ResultsUnwritable):
        if name == ".lock":
            with store.locked(folder):
                pass
        Journal(folder / "journal.jsonl").note("take", what="image", path="/x")


def test_a_link_of_the_temporary_name_is_replaced(tmp_path: Path, victim: Path) -> None:
    """Its name can be guessed."""
    (tmp_path / f".page.{os.getpid()}.tmp").symlink_to(victim)
    write_text(tmp_path / "page", "new")
    assert (tmp_path / "page").read_text() == "new" and not (tmp_path / "page").is_symlink()


def test_the_index_is_never_somebody_elses_database(tmp_path: Path, victim: Path) -> None:
    """It is written to, and thrown away where it is damaged."""
    (tmp_path / index.NAME).symlink_to(victim)
    run = tmp_path / "r"
    run.mkdir()
    assert index.rows(tmp_path, [run], lambda _: {"a": 1}, "m") == [{"a": 1}]
    assert (tmp_path / index.NAME).is_symlink()


HOSTILE_PATHS = {
    "image": ["/etc/passwd", "/x/../.dbbench-a.img/../../etc/passwd", "relative/.dbbench-a.img", "/dev/sda"],
    "runtime": ["/", "/home", "/tmp", "/tmp/dbbench-x/../../home", "/root/dbbench-x", "/tmp/dbbench-"],
    "layer": ["md:data", "lvm:vg0", "sh:dbbench-1", "md:dbbench-1;reboot"],
    "pool": ["tank", "-f"],
    "cgroup": ["/sys/fs/cgroup/system.slice"],
}


@pytest.mark.parametrize("what", HOSTILE_PATHS)
def test_a_journal_that_names_other_peoples_things_is_not_obeyed(what: str, tmp_path: Path) -> None:
    """What is outstanding is removed by `clean` as root."""
    journal = Journal(tmp_path / "journal.jsonl")
    for path in HOSTILE_PATHS[what]:
        journal.note("take", what=what, path=path)
    assert journal.outstanding(what) == []


def test_clean_removes_nothing_that_a_planted_journal_names(folder: Path, victim: Path, tmp_path: Path) -> None:
    """A folder and a file of somebody, and the target of a link that has a name of ours, all stay."""
    (home := tmp_path / "home").mkdir()
    (home / "letter").write_text("dear")
    (link := tmp_path / ".dbbench-a.img").symlink_to(victim)
    journal = Journal(folder / "journal.jsonl")
    for what, path in (("runtime", home), ("directory", home), ("image", victim), ("image", link)):
        journal.note("take", what=what, path=str(path))
    give_back(folder, journal)
    assert images.give_back(journal) == [link]
    assert (home / "letter").read_text() == "dear"


def test_cut_off_trials_behind_a_link_stay(folder: Path, tmp_path: Path) -> None:
    """A link in place of `trials` leads to other people's folders."""
    (tmp_path / "else/.partial-x").mkdir(parents=True)
    (folder / "trials").rmdir()
    (folder / "trials").symlink_to(tmp_path / "else")
    give_back(folder, Journal(folder / "journal.jsonl"))
    assert (tmp_path / "else/.partial-x").is_dir()


def test_a_file_in_the_images_place_is_not_replaced(tmp_path: Path, make_run: MakeRun) -> None:
    """Nor used: it may be another run's disk, or a link to one."""
    run = make_run()
    folder = store.create_run(tmp_path / "results", run, "")
    (path,) = images.of(run, folder).all  # type: ignore[union-attr]
    path.write_text(TEXT)
    journal = Journal(folder / "journal.jsonl")
    with pytest.raises(FileTaken, match="did not make it"):
        images.make(run, folder, journal, lambda what, share: None)
    assert (path.read_text(), images.give_back(journal)) == (TEXT, [])


def test_runs_of_one_name_have_images_of_their_own(tmp_path: Path, make_run: MakeRun) -> None:
    """Two results folders, one folder for images: neither takes the other's."""
    run = make_run()
    there = dataclasses.replace(run.plan.device, at=str(tmp_path))
    run = dataclasses.replace(run, plan=dataclasses.replace(run.plan, device=there))
    assert images.of(run, tmp_path / "a/r") != images.of(run, tmp_path / "b/r")


@pytest.mark.parametrize("name", ["../../victim", "/etc/passwd", "..", "a/b", ".partial-x", "a\x1b[2J", ""])
def test_names_that_lead_elsewhere_are_damage(name: str, folder: Path) -> None:
    """A trial's id and the run's name become names of files."""
    for key in ("name", "order"):
        content = json.loads((folder / "run.json").read_text())
        content.pop("sha256", None)
        if key == "name":
            content["name"] = name
        else:
            content["order"][0]["id"] = name
        (folder / "run.json").write_text(json.dumps(content))
        with pytest.raises(ResultDamaged, match="no name of a run or trial"):
            store.load_spec(folder)


def test_an_altered_run_json_is_named(folder: Path) -> None:
    """Each byte of it, however it still reads as JSON."""
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"block": 2', '"block": 3'))
    with pytest.raises(ResultDamaged, match=r"run\.json .* altered"):
        store.load_spec(folder)


@pytest.mark.parametrize("plant", ["link", "fifo", "device"])
@pytest.mark.parametrize("name", ["trial.json", "SHA256SUMS", "series.csv.gz", "histogram.json"])
def test_what_is_no_plain_file_is_damage(name: str, plant: str, trial: Path, victim: Path) -> None:
    """A FIFO would be waited for, a device never ends, a link shows other people's files."""
    path = trial / name
    path.unlink(missing_ok=True)
    if plant == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(victim if plant == "link" else "/dev/zero")
    with pytest.raises(ResultDamaged):
        found = store.load_run(trial.parents[1])
        for one in found.trials:
            assert (found.series(one), found.histogram(one)) is None
    assert damage(trial) or name in ("series.csv.gz", "histogram.json")


def test_sums_cannot_lead_out_of_the_folder(trial: Path, victim: Path) -> None:
    """Names with .. or of the whole machine are damage, whatever their sums."""
    with (trial / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  ../../../../victim\n{'0' * 64}  /dev/zero\n")
    assert [fault.split()[0] for fault in damage(trial)] == ["../../../../victim", "/dev/zero"]


def test_a_terminal_gets_no_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and texts of results are shown, in tables, JSON and errors; JSON still holds them."""
    synthetic.write(
        tmp_path,
        Shape(
            work=(("postgres", "pgbench-tpcb"),), blocks=3, hostile=ESCAPE, failed=("xfs.postgres.pgbench-tpcb-b1-a1",)
        ),
    )
    for argv in (["list"], ["show", "demo"], ["compare", "demo"], ["list", "--json"], ["compare", "demo", "--json"],
                 ["show", ESCAPE], ["explain", ESCAPE], ["compare", "demo", "--format", "md"]):  # fmt: skip
        cli.run([*argv, *(() if argv[0] == "explain" else ("--results", str(tmp_path)))])
        out, err = capsys.readouterr()
        assert inert(out) == out and inert(err) == err, argv
        assert argv != ["show", "demo"] or "\\u009b31m" in out


def test_inert_text_keeps_lines_and_tells_the_rest() -> None:
    """Tabs and lines stay; what acts is shown as JSON would."""
    assert inert("a\tb\n" + ESCAPE) == "a\tb\n\\u001b]0;owned\\u0007\\u009b31m\\u202e"


def test_a_spreadsheet_computes_nothing(tmp_path: Path) -> None:
    """A label that begins as a formula is text to it."""
    synthetic.write(tmp_path, Shape(work=(("postgres", "pgbench-tpcb"),)))
    run, formula = store.load_run(tmp_path / "demo"), '=HYPERLINK("http://x")'
    trials = tuple(dataclasses.replace(t, fs_setup=formula) if t.fs_setup == "xfs" else t for t in run.trials)
    written = as_csv(verdicts([dataclasses.replace(run, trials=trials)]))
    cells = [cell for row in list(csv.reader(io.StringIO(written)))[1:] for cell in row]
    assert "'" + formula in cells
    assert not [cell for cell in cells if cell[:1] in ("=", "@", "+")]


def test_a_journal_line_after_a_cut_one_stands_by_itself(tmp_path: Path) -> None:
    """Else what is taken next would never be given back."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.path.write_text('{"event": "take", "wh')
    journal.note("take", what="image", path="/.dbbench-a.img")
    assert journal.outstanding("image") == ["/.dbbench-a.img"]


def test_results_are_not_for_everybody_to_write(folder: Path, trial: Path) -> None:
    """Neither files nor folders."""
    for path in [*folder.parent.rglob("*"), folder.parent]:
        assert not path.lstat().st_mode & 0o022, path
