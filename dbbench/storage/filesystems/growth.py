"""Files that grow during the load: how their new ends are stored, compared with the restored files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from dbbench.model import Extents, GrownFile, GrowthFacts
from dbbench.storage.filesystems.common import extents_from
from dbbench.storage.filesystems.families import FAMILIES
from dbbench.storage.filesystems.port import Mounted

MOST: Final = 64  # files of each kind that are examined, those that grew most: together they have nearly all of it
SHOWN: Final = 5
Sizes = Mapping[Path, int]


def sizes(files: Iterable[Path]) -> dict[Path, int]:
    """Return the sizes of those files that are there."""
    found = {}
    for path in files:
        try:
            found[path] = path.stat().st_size
        except FileNotFoundError:  # the server has removed it
            continue
    return found


def restored_share(fs: Mounted, files: Sizes) -> float | None:
    """Return the share of bytes in compressed extents of the largest of these files.

    None if nothing tells, or if the filesystem does not compress.
    """
    if not _compresses(fs):
        return None
    largest = sorted(files.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST]
    return _share([(size, _extents(path, 0)) for path, size in largest if size], "compressed_bytes")


def growth(fs: Mounted, before: Sizes, data: Sizes, logs: Sizes, restored: float | None) -> GrowthFacts:
    """Return what grew since `before`, the sizes of data and log files then.

    A file that was made meanwhile grew from 0. `restored`: see `restored_share`.
    """
    tables, log = (_grown(fs, before, files) for files in (data, logs))
    ends = [(file.grown_bytes, file.extents) for file in tables[:MOST]]
    known = [extents.count for _, extents in ends if extents is not None]
    return GrowthFacts(
        data_bytes=sum(file.grown_bytes for file in tables),
        log_bytes=sum(file.grown_bytes for file in log),
        extents=sum(known) if ends and len(known) == len(ends) else None,
        compressed_share=_share(ends, "compressed_bytes") if _compresses(fs) else None,
        restored_share=restored,
        preallocated_share=_share(ends, "preallocated_bytes"),
        largest=tuple(sorted((*tables[:SHOWN], *log[:SHOWN]), key=_order)[:SHOWN]),
    )


def _compresses(fs: Mounted) -> bool:
    return fs.raw is None and FAMILIES[fs.family].compresses(fs.options_effective) is not None


def _grown(fs: Mounted, before: Sizes, files: Sizes) -> list[GrownFile]:
    """Return the files that grew, those that grew most first; the extents of at most MOST."""
    grown = {path: size - before.get(path, 0) for path, size in files.items() if size > before.get(path, 0)}
    first = sorted(grown, key=lambda path: (-grown[path], path))
    return [
        GrownFile(
            str(path.relative_to(fs.path) if path.is_relative_to(fs.path) else path),
            files[path],
            grown[path],
            _extents(path, before.get(path, 0)) if number < MOST else None,
        )
        for number, path in enumerate(first)
    ]


def _order(file: GrownFile) -> tuple[int, str]:
    return -file.grown_bytes, file.path


def _extents(path: Path, offset: int) -> Extents | None:
    try:
        return extents_from(path, offset)
    except OSError:  # removed meanwhile, or not readable for this user
        return None


def _share(ends: Sequence[tuple[int, Extents | None]], field: str) -> float | None:
    """Return the share of the bytes; at most 1: the last extent may reach beyond the end of the file."""
    known = [(size, getattr(extents, field)) for size, extents in ends if extents is not None]
    whole = sum(size for size, _ in known)
    return min(1.0, sum(part for _, part in known) / whole) if whole else None
