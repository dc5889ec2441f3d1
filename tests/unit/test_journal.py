"""The journal releases what a killed run has acquired."""

import json
from pathlib import Path

import pytest

from dbbench.results import journal as journals
from dbbench.results.journal import Journal
from dbbench.storage.devices.guard import Permit, Reason


@pytest.fixture(autouse=True)
def home(tmp_path: Path, environ: dict[str, str]) -> Path:
    """The key of the seals is that of a user of the test's own."""
    environ["HOME"] = str(tmp_path / "home")
    return tmp_path / "home"


def image(name: str, journal: Journal) -> str:
    """The path of an image as the journal's run makes it."""
    return f"/.dbbench-{name}-{journal.tag}.img"


def test_what_was_taken_and_not_given_back_is_outstanding(tmp_path: Path) -> None:
    """Only the last word on a path counts. Half a line that a power loss has cut off loses nothing
    of what is before it, and the next line stands by itself.
    """
    journal = Journal(tmp_path / "j")
    for event, name in (("take", "a"), ("take", "b"), ("give_back", "a"), ("take", "c")):
        journal.note(event, what="image", path=image(name, journal))
    journal.note("take", what="runtime", path=f"/tmp/dbbench-{journal.tag}-d")
    with journal.path.open("a") as file:
        file.write('{"utc": 1, "event": "give_ba')
    assert journal.outstanding("image") == [image("b", journal), image("c", journal)]
    journal.note("take", what="image", path=image("d", journal))
    assert journal.outstanding("image") == [image(name, journal) for name in "bcd"]


def test_a_typed_identity_holds_until_the_device_was_erased(tmp_path: Path) -> None:
    """And what a killed trial left unfinished is the run's own, until something was finished there.
    A filesystem is dbbench's only on the device that it was made on.
    """
    journal = Journal(tmp_path / "journal.jsonl")
    assert not journal.has_wiped_disk("S1") and not journal.making("S1")
    for event, erased, making in (
        ("wipe", False, False),
        ("had", True, False),
        ("making", True, True),
        ("made", True, False),
        ("wipe", False, False),
    ):
        journal.note(event, device="S1", uuid="u-1")
        assert (journal.has_wiped_disk("S1"), journal.making("S1")) == (erased, making)
    assert not journal.has_wiped_disk("S2")
    known = [journal.has_filesystem(*at) for at in (("S1", "u-1"), ("S2", "u-1"), ("S1", ""))]
    assert known == [True, False, False]


def believed(journal: Journal) -> bool:
    """Whether the run of that journal may erase what is on the disk S1 without being asked."""
    permit = Permit((), journal)
    content = (Reason("signature", "", "u-1"), Reason("signature", "", "other"), Reason("data", ""))
    return any(permit.is_ours(reason, "S1") for reason in content)


@pytest.mark.parametrize("event", ["made", "making", "had"])
def test_a_line_about_a_disk_that_another_user_wrote_is_not_believed(
    event: str, tmp_path: Path
) -> None:
    """Written by hand, without a seal or with that of another line; the run's own line is
    believed.
    """
    journal = Journal(tmp_path / "journal.jsonl")
    journal.note(event, device="S2", uuid="u-1")
    own = next(journal.entries())
    for seal_of_it in ({}, {"seal": own["seal"]}, {"seal": ""}, {"seal": None}, {"seal": "é"}):
        with journal.path.open("a") as file:
            file.write(json.dumps({**own, "device": "S1", "seal": None, **seal_of_it}) + "\n")
        assert not believed(journal)
    journal.note(event, device="S1", uuid="u-1")
    assert believed(journal)


def test_the_journal_of_another_run_is_not_believed(tmp_path: Path) -> None:
    """A copy of it in the folder of this run permits nothing."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    journal = Journal(tmp_path / "a/journal.jsonl")
    journal.note("made", device="S1", uuid="u-1")
    journal.note("had", device="S1")
    (tmp_path / "b/journal.jsonl").write_bytes(journal.path.read_bytes())
    assert believed(journal) and not believed(Journal(tmp_path / "b/journal.jsonl"))


def test_the_journal_of_another_user_is_not_believed(
    tmp_path: Path,
    home: Path,
    environ: dict[str, str],
) -> None:
    """Neither where the key is another one, nor where others can read or have planted it."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.note("made", device="S1", uuid="u-1")
    (key,) = home.rglob("journal.key")
    assert believed(journal) and key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    assert not believed(journal)
    key.chmod(0o600)
    kept = key.rename(key.with_name("kept"))
    key.symlink_to(kept)
    assert not believed(journal)
    environ["HOME"] = str(tmp_path / "another")
    assert not believed(journal)
    Journal(tmp_path / "journal.jsonl").note("had", device="S2")
    assert not believed(journal)


def test_without_a_place_for_the_key_a_person_is_asked(tmp_path: Path, home: Path) -> None:
    """Lines are written without a seal, and permit nothing; a typed identity still does."""
    home.write_text("not a folder")
    journal = Journal(tmp_path / "journal.jsonl")
    journal.note("had", device="S1")
    assert next(journal.entries())["seal"] == "" and not believed(journal)
    assert Permit(("S1",), journal).wipe("S1")


def test_two_processes_that_make_the_key_at_once_have_one(home: Path) -> None:
    """The slower one takes the key of the faster."""
    first = journals._new_key()
    assert journals._new_key() == first and len(first) == 32
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["journal.key"]
