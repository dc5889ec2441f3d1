"""`dbbench clean`: removes what interrupted runs left behind, and never a result."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbbench import cli, results
from dbbench.results.fileio import try_lock
from dbbench.results.journal import Journal, tag_of
from dbbench.storage import layers
from tests.support.files import write_file


def test_clean_removes_what_is_ours_and_no_result(told: Any, results_folder: Path) -> None:
    """Images of the journal and cut-off trials go; finished trials and other files stay."""
    run = results_folder / "demo"
    image = run / f".dbbench-demo-{tag_of(run)}.img"
    other = run / "other.img"
    partial = run / "trials/.partial-x"
    for path in (image, other):
        path.write_bytes(b"x" * 8192)
    partial.mkdir()
    Journal(run / "journal.jsonl").note("take", what="image", path=str(image))
    before = sorted(path.name for path in (run / "trials").iterdir() if path != partial)
    assert f"would remove image {image}" in told("clean", "--dry-run")
    assert image.exists()
    gone = json.loads(told("clean", "demo", "--json"))["removed"]
    assert {(left["what"], left["path"]) for left in gone} == {
        ("image", str(image)),
        ("unfinished trial", str(partial)),
    }
    assert not image.exists() and not partial.exists() and other.exists()
    assert before == sorted(path.name for path in (run / "trials").iterdir())
    assert told("clean").splitlines()[0] == "nothing to remove"


def test_clean_says_removed_only_of_what_it_removed(
    told: Any,
    results_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not of an image that another process holds, that lies behind a link, or that no longer
    exists.
    """
    run = results_folder / "demo"
    journal = Journal(run / "journal.jsonl")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    held, behind, gone = (
        folder / f".dbbench-{name}-{journal.tag}.img"
        for folder, name in ((run, "held"), (tmp_path / "link", "behind"), (run, "gone"))
    )
    for image in (held, behind, gone):
        image.touch()
        journal.note("take", what="image", path=str(image))
    gone.unlink()
    with held.open() as file:
        assert try_lock(file.fileno())
        assert cli.run(["clean", "--results", str(results_folder)]) == 0
        out, err = capsys.readouterr()
    assert out.splitlines()[0] == "nothing to remove"
    assert f"not removed: image {held}" in err and f"not removed: image {behind}" in err
    assert held.exists() and behind.exists() and str(gone) not in err
    assert json.loads(told("clean", "--json"))["removed"][0]["path"] == str(held)


def test_clean_does_not_claim_what_a_reboot_has_ended(
    told: Any,
    results_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two layers in the journal one still exists: only that one is listed as removed."""
    journal = Journal(results_folder / "demo/journal.jsonl")
    ended, existing = (f"md:dbbench-{journal.tag}{number}" for number in (1, 2))
    for path in (ended, existing):
        journal.note("take", what="layer", path=path)
    monkeypatch.setitem(layers.KINDS, "md", SimpleNamespace(end=lambda name: name.endswith("2")))
    assert told("clean", "demo").splitlines() == [f"removed layer {existing} (0 B)"]
    assert journal.outstanding("layer") == []


def test_clean_leaves_a_run_alone_that_is_worked_on(told: Any, results_folder: Path) -> None:
    """A locked run is skipped; if it is named in the command, the command is refused."""
    with results.lock(results_folder / "demo"):
        assert told("clean").splitlines()[0] == "nothing to remove"
        assert "E803" in told("clean", "demo", code=5)


def test_golden_copies_go_only_when_asked(
    told: Any,
    tmp_path: Path,
    environ: dict[str, str],
) -> None:
    """They cost time to make: --golden is needed, and what is no golden copy stays."""
    cache = tmp_path / "cache"
    environ["DBBENCH_CACHE"] = str(cache)
    write_file(cache / "postgres-1/manifest.json", "{}")
    (cache / "precious").mkdir()
    told("clean")
    assert (cache / "postgres-1").exists()
    assert "removed golden copy" in told("clean", "--golden")
    assert not (cache / "postgres-1").exists() and (cache / "precious").exists()


def test_clean_names_what_takes_space(
    told: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Golden copies and runs with their sizes, although there is nothing to remove."""
    monkeypatch.setenv("DBBENCH_CACHE", str(tmp_path))
    copy = tmp_path / "copy"
    copy.mkdir()
    write_file(copy / "manifest.json", "{}")
    write_file(copy / "data", b"x" * 2**20)
    text = " ".join(told("clean").split())
    assert text.startswith("nothing to remove kept: 1 golden copy (1")
    assert "dbbench clean --golden kept: 1 run (" in text
    kept = json.loads(told("clean", "--json"))["kept"]
    assert [entry["what"] for entry in kept] == ["golden copy", "run"]
    assert kept[0]["size_bytes"] >= 2**20
    assert json.loads(told("clean", "demo", "--json"))["kept"] == []
