"""The comparison of releases: kept roots, and what counts as lost."""

from pathlib import Path

import pytest

from tests.releases import Found, _facts, _kept, _of_trial, lost


@pytest.fixture
def made() -> list[Path]:
    """The roots that were built, in order."""
    return []


def kept(folder: Path, made: list[Path], recipe: str = "1") -> Path:
    """A root of two files, built where none is kept."""

    def make(making: Path) -> None:
        making.mkdir()
        (making / "one").write_text("one")
        (making / "two").write_text("two")
        made.append(making)

    return _kept(folder / "root", recipe, make)


def test_a_kept_root_is_used_again(tmp_path: Path, made: list[Path]) -> None:
    """It is built once; another recipe builds it anew."""
    assert kept(tmp_path, made) == kept(tmp_path, made) == tmp_path / "root"
    assert len(made) == 1
    kept(tmp_path, made, recipe="2")
    assert len(made) == 2


@pytest.mark.parametrize("damage", ["removed", "cut", "incomplete"])
def test_a_damaged_root_is_built_again(
    tmp_path: Path,
    made: list[Path],
    damage: str,
) -> None:
    """A file that was removed or cut, or a build that did not come to its end."""
    root = kept(tmp_path, made)
    if damage == "removed":
        (root / "one").unlink()
    elif damage == "cut":
        (root / "one").write_text("o")
    else:
        root.with_suffix(".made").unlink()
        root.rename(root.with_suffix(".making"))
    assert (kept(tmp_path, made) / "one").read_text() == "one" and len(made) == 2


def test_what_is_null_or_empty_is_not_a_fact() -> None:
    """Facts are paths of values, those of lists without their number."""
    listed = [{"f": 1}, {"f": None, "g": False}]
    document = {"a": None, "b": {"c": 0, "d": ""}, "e": listed, "settings": {"x": 1}, "h": []}
    assert sorted(_facts(document)) == ["b.c", "e[].f", "e[].g"]


def test_extents_of_growth_are_missed_only_where_a_table_grew() -> None:
    """In a window of seconds, the deletes of a load may leave room for all of its inserts."""

    def of(data_bytes: int | None, *ids: str) -> set[str]:
        warnings = [{"id": name} for name in ids]
        return set(
            _of_trial({"growth": {"data_bytes": data_bytes, "extents": None}, "warnings": warnings})
        )

    assert ["growth.extents" in of(grown) for grown in (0, 4096, None)] == [True, False, False]
    # withheld next to other processes
    assert "io.write_amplification" in of(4096, "W127") - of(4096, "W001")


def test_what_a_release_lacks_is_named() -> None:
    """Columns by engine, facts by trial; what only the release has is no loss, nor what comes by
    chance.
    """
    reference = Found(
        {("postgres", "load_1"), ("postgres", "r_await_ms")},
        {("xfs.postgres", "space.free")},
        [],
    )
    release = Found({("postgres", "new")}, {("xfs.postgres", "new")}, ["t: W140 sar: none"])
    assert lost(reference, release) == [
        "t: W140 sar: none",
        "column load_1 of postgres is empty",
        "fact space.free of xfs.postgres is null or missing",
    ]
    assert lost(reference, Found(set(), set(), [])) == ["no trial of xfs.postgres"]
