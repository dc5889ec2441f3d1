"""The user ID that a trial's servers run as."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from dbbench import process
from dbbench.engines import accounts
from dbbench.errors import NotRoot, ProgramMissing
from tests.support.files import write_file


def test_numbers_that_containers_have_are_taken(tmp_path: Path) -> None:
    """A range of /etc/subuid counts as far as it reaches into the numbers that may be used; other
    lines do not.
    """
    table = write_file(tmp_path / "subuid", "ann:60000:580\nbob:100000:65536\nbroken\n")
    assert accounts._of_ranges((table, tmp_path / "missing")) == {60578, 60579}


def test_a_number_is_reserved_once() -> None:
    """Another trial of this machine does not get it while this process lives, nor one that is in
    use or has a name.
    """
    number = next(number for number in accounts.NUMBERS if accounts._reserve(number))
    assert not accounts._reserve(number)
    assert 0 in accounts._of_processes() and accounts._has_name(0)
    assert not accounts._has_name(4_000_000_000 - 1)


@pytest.mark.parametrize(
    ("numbers", "taken"),
    [(range(2**32), accounts.NUMBERS), (range(1000), ())],
    ids=["all taken", "container"],
)
def test_without_a_free_number_nothing_is_started(numbers: range, taken: Sequence[int]) -> None:
    """All are taken by other processes, or the container has none of them (E202)."""
    with pytest.raises(NotRoot, match="60578 and 61183"):
        accounts._reserve_any([[numbers], [numbers]], taken)


def test_a_user_without_an_entry_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod may run under any number, but a database server asks for its name."""
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_000)
    with pytest.raises(ProgramMissing, match="user ID 4000000000 has no entry in /etc/passwd"):
        process.user("postgres")
