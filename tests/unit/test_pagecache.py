"""The page cache: resident pages, the sample, and the texts of the proof; tests/system drops caches
for real.
"""

import os
import threading
import time
from pathlib import Path

import pytest

from dbbench.machine import pagecache

MIB = 2**20


def written(path: Path, size: int) -> Path:
    """A file of random bytes."""
    path.write_bytes(os.urandom(size))
    return path


def test_sample_is_the_seeds_and_has_what_the_device_holds(tmp_path: Path) -> None:
    """A seed names the ranges, another seed names others. All data of small files is in it once,
    none beyond the end; holes, which the device holds nothing of, cannot prove a read, and no
    file proves nothing.
    """
    files = [written(tmp_path / "a", 6 * MIB + 5000), written(tmp_path / "b", 3 * MIB)]
    first = pagecache.sample(files, 7, 2 * MIB)
    assert first == pagecache.sample(files, 7, 2 * MIB) != pagecache.sample(files, 8, 2 * MIB)
    assert all(piece.offset % MIB == 0 for piece in first)
    assert 2 * MIB <= sum(piece.length for piece in first) < 3 * MIB
    pieces = pagecache.sample(
        [written(tmp_path / "a", 2 * MIB + 8192), written(tmp_path / "b", 8192)],
        1,
        64 * MIB,
    )
    assert sum(piece.length for piece in pieces) == pagecache.read(pieces) == 2 * MIB + 2 * 8192
    assert len({(piece.path, piece.offset) for piece in pieces}) == len(pieces) == 4
    with (sparse := tmp_path / "sparse").open("wb") as file:
        file.truncate(8 * MIB)
        assert pagecache.sample([sparse], 3) == []
        file.seek(5 * MIB)
        file.write(os.urandom(8192))
    assert [(piece.offset, piece.length) for piece in pagecache.sample([sparse], 3, 64 * MIB)] == [
        (5 * MIB, 8192)
    ]
    facts = pagecache.empty_and_prove([])
    assert (facts.proved, facts.reason) == (False, "there are no data files")


def test_resident_pages_are_counted_without_reading_them(tmp_path: Path) -> None:
    """The last page counts as a whole; an empty file has none."""
    path = written(tmp_path / "a", 3 * MIB + 1)
    (tmp_path / "empty").touch()
    assert pagecache.resident_bytes([path, tmp_path / "empty"]) == 3 * MIB + 4096


@pytest.mark.parametrize(
    ("before", "after", "own_before", "own_after", "keeps", "reason"),
    [
        (8, 0, None, None, True, ""),
        (0, 0, 8, 0, True, ""),
        (0, 0, 8, 3, True, ""),
        (0, 0, 8, 8, True, "no less than before"),
        (0, 0, None, None, True, "no page of the data files was in memory"),
        (0, 0, 0, 0, False, ""),
        (8, 4096, 0, 0, False, "still resident"),
        (None, 0, 8, 0, True, "does not report"),
    ],
)
def test_a_filesystems_own_cache_counts_for_the_first_proof(
    before: int | None,
    after: int,
    own_before: int | None,
    own_after: int | None,
    keeps: bool,
    reason: str,
) -> None:
    """Something must have been there and be gone, in either cache; one that keeps no data has
    nothing to lose.
    """
    said = pagecache._first_reason(before, after, own_before, own_after, keeps)
    assert reason in said if reason else said == ""


def test_a_disk_that_is_slow_to_write_back_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is reported as progress; a disk that answers, or has an error, is not."""
    told = list[str]()
    pagecache.write_back([tmp_path, tmp_path / "missing"], told.append)
    assert told == []
    answers = threading.Event()
    monkeypatch.setattr(pagecache, "syncfs", lambda _path: answers.wait())
    began = time.monotonic()
    pagecache.write_back([tmp_path], told.append, 0.1)
    answers.set()
    assert time.monotonic() - began < 30
    assert len(told) == 1
