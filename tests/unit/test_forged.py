"""Strings of results cannot forge lines of what dbbench prints, or bring escapes into the page."""

import json
from pathlib import Path

import pytest

from dbbench.commands.finding import folder_of
from dbbench.errors import FleetInsecure, RunMissing
from dbbench.fleet import fleet_files, security
from dbbench.model import Trial
from dbbench.model.base import plain
from dbbench.nightly.history import every_plan
from dbbench.results import runs
from dbbench.results.fileio import parsed_as
from dbbench.results.trials import SUMS, damage
from tests.support.trials import trial

ESCAPE = "\x1b[2K"
FORGED = "x\nerror E999: forged\u2028\r"  # a name that someone else gave to a file


def read(**changes: object) -> Trial:
    """A trial as read from a file with these values."""
    content = {**plain(trial()), **changes}
    return parsed_as(Trial, json.dumps(content).encode())


def test_a_line_feed_in_a_name_is_escaped() -> None:
    """It would end the line of a table and begin another."""
    found = read(fs_setup=f"ext4\nxfs  9,999 {ESCAPE}")
    assert found.fs_setup == "ext4\\u000axfs  9,999 \\u001b[2K"


def test_other_ends_of_lines_are_escaped() -> None:
    """Some terminals and pagers obey those of Unicode."""
    found = read(fs_setup="a\r\v\f\x85\u2028\u2029b")
    assert found.fs_setup == r"a\u000d\u000b\u000c\u0085\u2028\u2029b"


def test_lines_of_a_programs_output_are_indented() -> None:
    """Further than any line of dbbench's own."""
    error = {"id": "E402", "text": "the server ended:\n  a\nb", "phase": "load"}
    found = read(status="failed", error=error)
    assert found.error is not None
    assert found.error.text == "the server ended:\n      a\n      b"


def test_names_of_values_are_escaped_too() -> None:
    """Keys become columns and headings."""
    found = read(effective_settings={"a\nb": "on\n"})
    assert found.effective_settings == {"a\\u000ab": "on\\u000a"}


def test_what_has_no_escapes_is_read_as_it_is() -> None:
    """Nothing is replaced in an ordinary file."""
    assert read() == trial()


def test_a_folder_that_cannot_be_printed_is_not_listed(tmp_path: Path) -> None:
    """Nor is a fleet, the results of its host, or a history of nights."""
    hosts = tmp_path / ".fleet" / "f" / fleet_files.HOSTS
    (hosts / FORGED / "run").mkdir(parents=True)
    (hosts / FORGED / "run" / "run.json").touch()
    for folder in (tmp_path, tmp_path / ".fleet"):
        (folder / FORGED).mkdir(parents=True)
    (tmp_path / FORGED / "run.json").touch()
    (tmp_path / ".fleet" / FORGED / "fleet.json").touch()
    (tmp_path / "nightly").mkdir()
    (tmp_path / "nightly" / f"{FORGED}.jsonl").touch()
    assert runs(tmp_path) == []
    assert fleet_files.fleets(tmp_path) == []
    assert fleet_files.local_runs(tmp_path, "f") == []
    assert every_plan(tmp_path, None) == {}


def test_a_run_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    """As a shell gives it for `results/*`."""
    (tmp_path / FORGED).mkdir()
    (tmp_path / FORGED / "run.json").touch()
    with pytest.raises(RunMissing, match=r"^x error E999: forged is not the name of a run"):
        folder_of(tmp_path, FORGED)


def test_a_name_in_the_checksums_is_one_line(tmp_path: Path) -> None:
    """It is part of the error."""
    (tmp_path / SUMS).write_text(f"{'0' * 64}  a\rerror E999: forged\n", newline="")
    assert damage(tmp_path, tmp_path)[0] == "a error E999: forged points outside the folder"


@pytest.mark.parametrize("address", ["tls://[x", "tls://host:99999", FORGED + "]["])
def test_an_address_of_a_scheduler_that_is_none_is_refused(address: str) -> None:
    """That of fleet.json may come from someone else, too."""
    with pytest.raises(FleetInsecure, match=r"\A[^\n\r\u2028]+\Z"):
        security.parts(address)
