"""The journal gives back what a killed run has taken."""

from __future__ import annotations

from pathlib import Path

from dbbench.journal import Journal


def test_what_was_taken_and_not_given_back_is_outstanding(tmp_path: Path) -> None:
    """Only the last word on a path counts."""
    journal = Journal(tmp_path / "j")
    for event, path in (
        ("take", "/.dbbench-a.img"),
        ("take", "/.dbbench-b.img"),
        ("give_back", "/.dbbench-a.img"),
        ("take", "/.dbbench-c.img"),
    ):
        journal.note(event, what="image", path=path)
    journal.note("take", what="runtime", path="/tmp/dbbench-d")
    assert journal.outstanding("image") == ["/.dbbench-b.img", "/.dbbench-c.img"]


def test_line_cut_off_by_a_power_loss_is_passed_over(tmp_path: Path) -> None:
    """Half a line at the end loses nothing of what stands before it."""
    journal = Journal(tmp_path / "j")
    journal.note("take", what="image", path="/.dbbench-a.img")
    with journal.path.open("a") as file:
        file.write('{"utc": 1, "event": "give_ba')
    assert journal.outstanding("image") == ["/.dbbench-a.img"]


def test_filesystem_is_ours_only_on_the_device_it_was_made_on(tmp_path: Path) -> None:
    """The same uuid on another device, or an empty one, is somebody else's."""
    journal = Journal(tmp_path / "j")
    journal.note("made", device="S1", uuid="u-1")
    assert journal.made("S1", "u-1")
    assert not journal.made("S2", "u-1")
    assert not journal.made("S1", "")
