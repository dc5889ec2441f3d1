"""The durability class, and what device flushes say of it."""

from __future__ import annotations

import pytest

from dbbench import durability
from dbbench.model import Durability

BARRIER, JOURNAL, ASYNC, TORN = Durability


def test_flags_of_filesystem_and_server_come_together_worst_first() -> None:
    """Each once, in the order of the enumeration, whoever brought it."""
    assert durability.combined((JOURNAL,), (TORN, ASYNC)) == (JOURNAL, ASYNC, TORN)
    assert durability.combined((BARRIER,), (BARRIER,)) == (BARRIER,)
    assert durability.combined((), ()) == ()


@pytest.mark.parametrize("flags", [(), (TORN,), (JOURNAL,)])
def test_no_flush_under_a_class_that_promises_commits_is_a_fault(flags: tuple[Durability, ...]) -> None:
    """Torn pages and a missing journal do not explain commits without a flush."""
    text, failed = durability.flushes_verdict(0, "", 1000, flags)
    assert failed
    assert "0 device flushes for 1000 commits" in text


@pytest.mark.parametrize("flags", [(BARRIER,), (ASYNC,), (BARRIER, TORN)])
def test_no_flush_is_what_a_setup_without_barriers_says_of_itself(flags: tuple[Durability, ...]) -> None:
    """The class that needs no flush is borne out by none."""
    assert durability.flushes_verdict(0, "", 1000, flags)[1] is False


def test_what_is_not_measurable_is_never_a_failure() -> None:
    """No counter and no commits say so, with the reason."""
    assert durability.flushes_verdict(None, "loop7 has write_cache write through", 10, ()) == (
        "not measurable (loop7 has write_cache write through)",
        False,
    )
    for commits in (0, None):
        text, failed = durability.flushes_verdict(0, "", commits, ())
        assert (text, failed) == ("not measurable (no commits in the window)", False)


def test_flushes_per_commit_are_said() -> None:
    """Group commit makes less than one, a filesystem's log more; both are a measurement, not a fault."""
    assert durability.flushes_verdict(150, "", 100, ()) == ("1.5 device flushes per commit", False)
    assert durability.flushes_verdict(25, "", 100, ()) == ("0.25 device flushes per commit", False)
