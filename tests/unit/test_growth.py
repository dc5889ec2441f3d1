"""Files that grow during the load: which ones did, how their new ends are stored, and the
warning.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbbench.compare import rows
from dbbench.compare.remarks import RemarkKind, has
from dbbench.model import Extents, GrowthFacts
from dbbench.storage.devices import image
from dbbench.storage.filesystems import Mounted, common
from dbbench.storage.filesystems.shape import growth, restored_share, sizes
from tests.support.judged import Judged

MIB = 2**20
ENCODED = 0x8
UNWRITTEN = 0x800


def mounted(folder: Path, *options: str, family: str = "btrfs") -> Mounted:
    """A mounted filesystem with these options."""
    return Mounted(folder, family, options, options, None, (), tears=False)


@pytest.fixture
def extents(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[int, int, int]]]:
    """What the kernel tells of files, by name; another file has none."""
    told: dict[str, list[tuple[int, int, int]]] = {}

    def read(fd: int) -> Iterator[tuple[int, int, int]]:
        name = Path(f"/proc/self/fd/{fd}").resolve().name
        if name not in told:
            raise OSError("not supported")
        yield from told[name]

    monkeypatch.setattr(image, "extents", read)
    return told


def file(folder: Path, name: str, size: int) -> Path:
    """A sparse file."""
    (path := folder / name).touch()
    os.truncate(path, size)
    return path


def test_only_the_new_end_of_a_file_counts(
    extents: dict[str, list[tuple[int, int, int]]], tmp_path: Path
) -> None:
    """An extent that begins before it counts with its part beyond."""
    path = file(tmp_path, "t", 4 * MIB)
    extents["t"] = [(0, MIB, ENCODED), (MIB, MIB, ENCODED), (2 * MIB, 2 * MIB, UNWRITTEN)]
    assert common.extents_from(path) == Extents(3, 2 * MIB, 2 * MIB)
    assert common.extents_from(path, MIB + MIB // 2) == Extents(2, MIB // 2, 2 * MIB)
    assert common.extents_from(file(tmp_path, "zfs", 1)) is None


def test_what_grew_is_examined_as_what_was_restored(
    extents: dict[str, list[tuple[int, int, int]]], tmp_path: Path
) -> None:
    """Tables apart from logs; a new file grew from nothing; what did not grow is not looked at."""
    fs = mounted(tmp_path, "compress=zstd:3")
    table, index, log = (file(tmp_path, name, MIB) for name in ("table", "index", "log"))
    extents["table"] = [(0, MIB, ENCODED)]
    restored = restored_share(fs, sizes([table]))
    assert restored == 1.0
    before = sizes([table, index, log, tmp_path / "gone"])
    for path, size in ((table, 3 * MIB), (log, 2 * MIB)):
        file(tmp_path, path.name, size)
    new = file(tmp_path, "new", MIB)
    extents |= {"table": [(0, MIB, ENCODED), (MIB, 2 * MIB, UNWRITTEN)], "new": [(0, MIB, ENCODED)]}
    found = growth(fs, before, sizes([table, index, new]), sizes([log]), restored)
    assert (found.data_bytes, found.log_bytes, found.extents, found.restored_share) == (
        3 * MIB,
        MIB,
        2,
        1.0,
    )
    assert found.compressed_share == pytest.approx(
        1 / 3
    ) and found.preallocated_share == pytest.approx(2 / 3)
    assert [(one.path, one.grown_bytes) for one in found.largest] == [
        ("table", 2 * MIB),
        ("log", MIB),
        ("new", MIB),
    ]
    assert found.largest[1].extents is None


def test_without_compression_no_share_is_reported(
    extents: dict[str, list[tuple[int, int, int]]], tmp_path: Path
) -> None:
    """Nor where nothing grew."""
    table = file(tmp_path, "table", MIB)
    extents["table"] = [(0, MIB, 0)]
    plain = mounted(tmp_path)
    packed = mounted(tmp_path, "compress=zstd")
    assert restored_share(plain, sizes([table])) is None
    assert growth(plain, {}, sizes([table]), {}, None).compressed_share is None
    assert growth(packed, {}, sizes([table]), {}, None).compressed_share == 0.0
    nothing = growth(packed, sizes([table]), sizes([table]), {}, 1.0)
    assert (nothing.data_bytes, nothing.compressed_share, nothing.extents) == (0, None, None)


@pytest.mark.parametrize(
    ("facts", "warned"),
    [
        (GrowthFacts(64 * MIB, 0, 9, 0.0, 0.9, 1.0), True),
        (GrowthFacts(64 * MIB, 0, 9, 0.5, 0.9), True),
        (GrowthFacts(64 * MIB, 0, 9, 0.8, 0.9), False),
        (GrowthFacts(MIB // 2, 0, 9, 0.0, 0.9), False),
        (GrowthFacts(64 * MIB, 0, 9, 0.0, 0.0), False),  # this data does not shrink
        (GrowthFacts(64 * MIB, 0, 9, None, None), False),
        (None, False),
    ],
)
def test_growth_that_a_compressing_setup_did_not_compress_is_reported_next_to_the_ratio(
    facts: GrowthFacts | None,
    warned: bool,
    tmp_path: Path,
) -> None:
    """W152 with both shares, and a remark in the row."""
    trial = Judged(facts={"growth": facts}).trial(tmp_path)
    told = [warning.text for warning in trial.warnings if warning.id == "W152"]
    assert bool(told) is warned
    assert trial.growth == facts
    (row,) = rows([trial], "ext4", "tps")
    assert has(row.notes, RemarkKind.UNCOMPRESSED) is warned
    if facts and facts.preallocated_share:
        grown = "0 % of 64 MiB that grew are compressed, and 90 %"
        written = "100 % allocated but not yet written"
        assert told == [f"{grown} of the restored files; {written}"]
