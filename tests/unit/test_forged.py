"""Strings of results cannot forge lines of what dbbench prints, or bring escapes into the page."""

import json

from dbbench.model import Trial
from dbbench.model.base import plain
from dbbench.results.fileio import parsed_as
from tests.support.trials import trial

ESCAPE = "\x1b[2K"


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
