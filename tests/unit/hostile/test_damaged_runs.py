"""What is planted or damaged in a results folder is named, and hides no other run or trial."""

import hashlib
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli
from tests.support.hostile import SLOWEST_S

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
