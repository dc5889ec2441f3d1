"""A results folder made by someone else: nothing outside of it is read, written, removed or
executed.
"""

import csv
import hashlib
import io
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli, results
from dbbench.errors import NotWritable, ResultDamaged, ResultNotRegular
from dbbench.fleet import fleet_files
from dbbench.fleet.fleet_files import Fleet
from dbbench.report.verdict_table import as_csv
from dbbench.report.verdicts import verdicts
from dbbench.results.fileio import read_bytes, write_text
from dbbench.results.journal import Journal, tag_of
from dbbench.results.trials import damage
from dbbench.run.recover import give_back
from dbbench.storage.devices.image import give_back_images, images_of, make_images
from dbbench.units import inert
from tests.support.files import write_file
from tests.support.runs import changed, small_run

ESCAPE = "\x1b]0;owned\x07\x9b31m\u202e"
TEXT = "not of dbbench\n"
SLOWEST_S = 5.0  # of what takes some 10 ms on a machine that is not busy


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Yield a file of another user, which must be unchanged at the end."""
    path = write_file(tmp_path / "victim", TEXT)
    yield path
    assert path.read_text() == TEXT


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """Yield a file whose content must not be shown, and which must be unchanged at the end."""
    path = write_file(tmp_path / "secret", SECRET)
    yield path
    assert path.read_text() == SECRET


@pytest.fixture
def copy(two_runs: Path, tmp_path: Path) -> Path:
    """A results folder with the runs `good` and `bad`, for this test alone."""
    return Path(shutil.copytree(two_runs, tmp_path / "r"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run without trials."""
    return results.create_run(tmp_path / "results", small_run(), "# plan\n")


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """The folder of a finished trial."""
    synthetic.write(tmp_path / "results", Shape(work=TPCB, blocks=1))
    return next((tmp_path / "results/demo/trials").iterdir())


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


HOSTILE_PATHS = {  # {other}: the tag of another run; {own}: of the run whose journal it is
    "image": [
        "/etc/passwd",
        "/x/../.dbbench-a-{own}.img/../../etc/passwd",
        "relative/.dbbench-a-{own}.img",
        "/dev/sda",
        "/x/.dbbench-a-{other}.img",
        "/x/.dbbench-a.img",
        "/x/.dbbench-{own}-{other}.img",
        "/.dbbench-{own}.img",
        "/x/../.dbbench-a-{own}.img",
        "/.dbbench-a-{own}.img/x",
        "/.dbbench-a-{own}.img\n",
    ],
    "runtime": [
        "/",
        "/home",
        "/tmp",
        "/tmp/dbbench-{own}-x/../../home",
        "/root/dbbench-{own}-x",
        "/tmp/dbbench-{own}-",
        "/tmp/dbbench-{other}-x",
        "/tmp/dbbench-x",
    ],
    "layer": [
        "md:data",
        "lvm:vg0",
        "sh:dbbench-{own}1",
        "md:dbbench-{own}1;reboot",
        "lvm:dbbench-{other}1a2b3c4d",
    ],
    "pool": ["tank", "-f", "dbbench-{other}1a2b3c4d", "dbbench-{own}1/tank"],
    "cgroup": [
        "/sys/fs/cgroup/system.slice",
        "/sys/fs/cgroup/dbbench-r-{other}",
        "/dbbench-r-{own}/../x",
    ],
}


@pytest.mark.parametrize("what", HOSTILE_PATHS)
def test_a_journal_that_names_other_peoples_things_is_not_obeyed(what: str, tmp_path: Path) -> None:
    """What is outstanding is removed by `clean` as root; the things of another run are no less
    foreign.
    """
    (tmp_path / "other").mkdir()
    journal = Journal(tmp_path / "journal.jsonl")
    paths = [
        path.format(own=journal.tag, other=tag_of(tmp_path / "other"))
        for path in HOSTILE_PATHS[what]
    ]
    for path in paths:
        journal.note("take", what=what, path=path)
    assert journal.outstanding(what) == []
    assert journal.foreign() == [(what, path) for path in paths]


def test_clean_of_one_run_leaves_what_another_has(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its image, its temporary folder and its trials, whatever the journal says; what is left alone
    is named.
    """
    good = Journal(copy / "good/journal.jsonl")
    bad = Journal(copy / "bad/journal.jsonl")
    image = copy / f"good/.dbbench-good-{good.tag}.img"
    runtime = Path(tempfile.mkdtemp(prefix=f"dbbench-{good.tag}-", dir="/tmp"))
    (partial := copy / "good/trials/.partial-x").mkdir()
    (copy / "bad/trials/.partial-x").symlink_to(partial)
    image.write_text(TEXT)
    for what, path in (("image", image), ("runtime", runtime), ("layer", "md:dbbench-1")):
        bad.note("take", what=what, path=str(path))
    try:
        assert cli.run(["clean", "bad", "--results", str(copy)]) == 0
        assert image.read_text() == TEXT and runtime.is_dir() and partial.is_dir()
        out, err = capsys.readouterr()
        assert (
            out.splitlines()[0] == "nothing to remove"
            and err.count("does not belong to this run") == 3
        )
    finally:
        runtime.rmdir()


@pytest.mark.parametrize("plant", ["link", "fifo", "sparse"])
def test_a_fleets_lock_is_not_written_through(
    plant: str,
    copy: Path,
    victim: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is in the place of the coordinator's lock stays as it is."""
    fleet_files.save(copy, Fleet("f", "spread", "2026-01-01T00:00:00Z", "x", ("bad",)))
    PLANTS[plant](copy / ".fleet/f/.lock", victim)
    for argv in (["show", "bad"], ["show"], ["clean"]):
        began = time.process_time()
        cli.run([*argv, "--results", str(copy)])
        out, err = capsys.readouterr()
        assert "E999" not in err and time.process_time() - began < SLOWEST_S, (argv, err)
        assert argv == ["clean"] or "bad" in out


@pytest.mark.parametrize("linked", [".fleet", ".fleet/f", ".fleet/f/hosts", ".fleet/f/hosts/h"])
def test_clean_follows_no_link_of_a_fleet(linked: str, tmp_path: Path) -> None:
    """What is behind a link is another's results."""
    results_folder = tmp_path / "r"
    elsewhere = tmp_path / "elsewhere"
    synthetic.write(results_folder, Shape(name="f", arms=("ext4", "xfs"), work=TPCB, blocks=1))
    fleet = Fleet("f", "spread", "2026-01-01T00:00:00Z", "x", ("h",), finished=True)
    fleet_files.save(results_folder, fleet)
    shutil.copytree(results_folder / "f", results_folder / ".fleet/f/hosts/h/f")
    partial = results_folder / ".fleet/f/hosts/h/f/trials/.partial-x"
    partial.mkdir()
    (results_folder / linked).rename(elsewhere)
    (results_folder / linked).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    cli.run(["clean", "--results", str(results_folder)])
    assert [path for path in sorted(elsewhere.rglob("*")) if path.name != ".lock"] == before
    assert (results_folder / linked).is_symlink()


def test_clean_removes_nothing_that_a_planted_journal_names(
    folder: Path,
    victim: Path,
    tmp_path: Path,
) -> None:
    """A folder and a file of another user, and the target of a link with a name of dbbench,
    remain.
    """
    (home := tmp_path / "home").mkdir()
    (home / "letter").write_text("dear")
    journal = Journal(folder / "journal.jsonl")
    (link := tmp_path / f".dbbench-a-{journal.tag}.img").symlink_to(victim)
    for what, path in (("runtime", home), ("directory", home), ("image", victim), ("image", link)):
        journal.note("take", what=what, path=str(path))
    give_back(folder, journal)
    (folder / "in").symlink_to(tmp_path)  # the folder of an image, as somebody else has it
    real = write_file(tmp_path / f".dbbench-b-{journal.tag}.img", TEXT)
    journal.note("take", what="image", path=str(folder / "in" / real.name))
    assert give_back_images(journal) == [] and link.is_symlink()
    assert (home / "letter").read_text() == "dear" and real.read_text() == TEXT
    (tmp_path / "else/.partial-x").mkdir(parents=True)
    (folder / "trials").rmdir()
    (folder / "trials").symlink_to(tmp_path / "else")  # unfinished trials of another run
    give_back(folder, journal)
    assert (tmp_path / "else/.partial-x").is_dir()


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


SECRET = "root:$6$secret:20000:0:99999:7:::\n"
PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, secret: path.symlink_to(secret),
    "dangling": lambda path, secret: path.symlink_to(secret.with_name("gone")),
    "fifo": lambda path, _: os.mkfifo(path),
    "socket": lambda path, _: socket.socket(socket.AF_UNIX).bind(os.path.relpath(path)),
    "device": lambda path, _: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),  # /dev/zero
    "sparse": lambda path, _: (path.touch(), os.truncate(path, 2**40)),
    "directory": lambda path, _: path.mkdir(),
    "noise": lambda path, _: path.write_bytes(b"\0\xff[" * 1000),
}
OF_RUN = (
    "run.json",
    "plan.toml",
    "journal.jsonl",
    "ceiling.json",
    "powercut.json",
    "trials",
    "report.html",
    ".lock",
)
OF_TRIAL = (
    "trial.json",
    "SHA256SUMS",
    "series.csv.gz",
    "histogram.json",
    "raw/pgbench.out",
    "raw",
    ".",
)
OF_RESULTS = (
    "baselines.json",
    "nightly/p.jsonl",
    ".fleet/f/fleet.json",
    ".dbbench-index.json",
)
COMMANDS = (
    ["show"],
    ["nightly", "status"],
    ["show", "bad"],
    ["compare", "good", "bad"],
    ["nightly", "baseline"],
    ["compare", "bad", "--format", "junit"],
    ["clean", "--dry-run"],
    ["clean"],
)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the runs `good` and `bad`, to be copied."""
    results_folder = tmp_path_factory.mktemp("two") / "results"
    for name in ("good", "bad"):
        synthetic.write(results_folder, Shape(name=name, arms=("ext4", "xfs"), work=TPCB, blocks=1))
    return results_folder


def unsummed(path: Path) -> None:
    """Leave a file of a trial out of the checksums."""
    sums = path.parent / "SHA256SUMS"
    sums.write_text(
        "".join(line for line in sums.read_text().splitlines(True) if path.name not in line)
    )


def planted(results_folder: Path, name: str, plant: str, secret: Path) -> Path:
    """Put something else in the place of a file of the results folder, of its run `bad`, or of a
    trial of that.
    """
    run = results_folder / "bad"
    place = (
        results_folder
        if name in OF_RESULTS
        else run
        if name in OF_RUN
        else sorted((run / "trials").iterdir())[0]
    )
    path = place / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    PLANTS[plant](path, secret)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", [*OF_RUN, *OF_TRIAL, *OF_RESULTS])
def test_what_is_planted_is_named_and_hides_nothing(
    name: str,
    plant: str,
    copy: Path,
    secret: Path,
    capsys: pytest.CaptureFixture[str],
    here: Path,
) -> None:
    """Every command ends at once, with an error that has an ID and names the run; the other run is
    shown, and the content of a file elsewhere never is.
    """
    path = planted(copy, name, plant, secret)
    for argv in COMMANDS:
        began = time.process_time()
        status = cli.run([*argv, "--results", "r"])
        out, err = capsys.readouterr()
        assert time.process_time() - began < SLOWEST_S, argv
        assert "E999" not in err and "$6$" not in out + err, (argv, err)
        assert bool(status) == ("error E" in err), (argv, status, err)
        if argv in (["show"], ["compare", "good", "bad"]):
            assert "good" in out or "ext4" in out, (argv, out, err)
        if argv == ["show", "bad"] and name in OF_TRIAL:
            assert "xfs.postgres.pgbench-tpcb-b1-a1" in out, (out, err)
        if status and argv == ["show", "bad"]:
            assert "bad" in err, err
    assert os.path.lexists(path)


@pytest.mark.parametrize("name", ["plan.toml", "series.csv.gz", "nightly/p.jsonl"])
def test_a_page_shows_no_file_from_elsewhere(
    name: str,
    copy: Path,
    secret: Path,
    tmp_path: Path,
    printed: Any,
) -> None:
    """What a link leads to is not in it; the other run is."""
    path = planted(copy, name, "link", secret)
    page = tmp_path / "page.html"
    if name in OF_TRIAL:
        unsummed(path)
    assert "error E801" in printed(
        "report",
        "bad",
        "good",
        "-o",
        str(page),
        "--results",
        str(copy),
        code=1,
    )
    assert "$6$" not in page.read_text() and ">good<" in page.read_text()


@pytest.mark.parametrize("name", ["trial.json", "series.csv.gz", "histogram.json"])
def test_a_damaged_trial_hides_no_other_of_its_run(
    name: str,
    copy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command goes on with the other trials, says which was left out and why, and ends with
    1; the page says it too. A baseline has to be whole.
    """
    bad = planted(copy, name, "noise", tmp_path).parent.name
    page = tmp_path / "page.html"
    for argv in (
        ["show", "bad"],
        ["compare", "bad"],
        ["compare", "bad", "--json"],
        ["report", "bad", "-o", str(page)],
        ["compare", "bad", "--format", "markdown"],
    ):
        assert cli.run([*argv, "--results", str(copy)]) == 1
        out, err = capsys.readouterr()
        assert (
            f"{bad}: " in err
            and name in err
            and len(re.findall('error E801|"id": "E801"', err)) == 1
        ), (argv, err)
        assert argv[0] == "report" or "xfs" in out, (argv, out)
    assert f"{bad} (E801)" in page.read_text() and "1 damaged" in page.read_text()
    assert cli.run(["nightly", "baseline", "bad", "--results", str(copy)]) == 1


FIGURES: dict[str, Callable[[str], str]] = {
    "nan": lambda text: text.replace('"position": ', '"position": NaN, "x": ', 1),
    "1e308": lambda text: text.replace('"position": ', '"position": 1e308, "x": ', 1),
    "overflow": lambda text: text.replace('"position": ', '"position": 1e999, "x": ', 1),
    "digits": lambda text: text.replace('"position": ', f'"position": {"9" * 10**5}, "x": ', 1),
    "nested": lambda text: text.replace('"position": ', f'"x": {"[" * 10**5}, "position": ', 1),
    "twice": lambda text: text.replace('"position": ', '"position": 1, "position": ', 1),
    "huge": lambda text: text,
}


@pytest.mark.parametrize("kind", FIGURES)
def test_a_trial_that_cannot_be_hides_no_other(
    kind: str,
    copy: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where the checksums are right: the trial is named, at once, and the other one is
    shown.
    """
    trial = sorted((copy / "bad/trials").iterdir())[0]
    before = (trial / "trial.json").read_text()
    (trial / "trial.json").write_text(after := FIGURES[kind](before))
    assert after != before or kind == "huge"
    if kind == "huge":
        os.truncate(trial / "trial.json", 2**28)
    else:
        sums = (trial / "SHA256SUMS").read_text()
        old, new = (hashlib.sha256(text.encode()).hexdigest() for text in (before, after))
        (trial / "SHA256SUMS").write_text(sums.replace(old, new))
    for argv in (["show", "bad"], ["compare", "bad"], ["show"]):
        began = time.process_time()
        assert cli.run([*argv, "--results", str(copy)]) == (0 if argv == ["show"] else 1)
        out, err = capsys.readouterr()
        assert time.process_time() - began < SLOWEST_S
        if argv != ["show"]:
            assert f"{trial.name}: " in err and "error E801" in err, err
        assert "xfs" in out, (argv, out)


def test_a_series_that_cannot_be_read_hides_no_other_trial(
    copy: Path,
    tmp_path: Path,
    printed: Any,
) -> None:
    """Also where the checksums know nothing of the damage: the page has the other trials of its
    run.
    """
    path = planted(copy, "series.csv.gz", "noise", tmp_path)
    page = tmp_path / "page.html"
    unsummed(path)
    assert f"{path.parent.name}: " in printed(
        "report",
        "bad",
        "-o",
        str(page),
        "--results",
        str(copy),
        code=1,
    )
    assert f"{path.parent.name} (E801)" in page.read_text()


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
