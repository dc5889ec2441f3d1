"""Latency of fsync after small appends, and the limits of atomic writes, on a real directory."""

import resource
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from dbbench.model import FilesystemFacts
from dbbench.storage import small_io


def test_each_call_has_a_row_and_no_file_stays(tmp_path: Path) -> None:
    """fsync and fdatasync, measured for 0.1 s in a window of seconds: ordered percentiles of all
    appends.
    """
    rows, note = small_io.syncs(tmp_path, 3.0, seed=1)
    assert [row.call for row in rows] == ["fsync", "fdatasync"] and note == ""
    for row in rows:
        assert row.count >= 1 and 0 < row.p50_ms <= row.p99_ms <= row.max_ms
        assert row.mean_ms <= row.max_ms
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_a_reason_and_no_row(tmp_path: Path) -> None:
    """A full or read-only filesystem after the load does not fail the trial; half of a measurement
    is none.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, limits[1]))
    try:
        told = (
            small_io.syncs(tmp_path, 3.0, seed=1),
            small_io.syncs(tmp_path / "missing", 3.0, seed=1),
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    for (rows, note), reason in zip(told, ("File too large", "No such file"), strict=True):
        assert rows == () and reason in note
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mask", "units", "expected", "words"),
    [
        (0x10000 | 0x7FF, (4096, 65536), (4096, 65536), "4096 to 65536 bytes"),
        (0x10000, (0, 0), (0, 0), "none"),
        (0x7FF, (0, 0), None, None),
        (None, (), None, None),
    ],
)
def test_atomic_writes_are_those_of_statx(
    mask: int | None,
    units: tuple[int, ...],
    expected: Any,
    words: str | None,
    tmp_path: Path,
) -> None:
    """0 is "none"; a kernel that does not fill in the field reports nothing, and neither does a C
    library without statx. Results of earlier versions have no fields.
    """

    def statx(_name: str, *arguments: Any) -> int:
        if mask is None:
            raise AttributeError("undefined symbol: statx")
        struct.pack_into("I", arguments[-1], 0, mask)
        struct.pack_into("II", arguments[-1], 0xA8, *units)
        return 0

    assert small_io.atomic_write_bytes(tmp_path, statx) == expected
    assert list(tmp_path.iterdir()) == []
    least, most = expected or (None, None)
    facts = FilesystemFacts("xfs", atomic_write_min_bytes=least, atomic_write_max_bytes=most)
    assert facts.atomic_writes == words
