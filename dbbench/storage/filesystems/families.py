"""The registry of families. A family is one module and its line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.model import Durability, FsSetup, Scalar
from dbbench.results.journal import Journal
from dbbench.storage.filesystems import btrfs, ext, f2fs, nilfs2, raw, xfs, zfs
from dbbench.storage.filesystems.port import Family, Mounted, attributes_of, options_of

FAMILIES: Final[dict[str, Family]] = {family.name: family for family in (
    *ext.FAMILIES,
    xfs.FAMILY,
    btrfs.FAMILY,
    zfs.FAMILY,
    f2fs.FAMILY,
    nilfs2.FAMILY,
    raw.FAMILY,
)}  # fmt: skip

PERIODS: Final = 2  # commit intervals of the filesystem that the warm-up should cover


@dataclass(frozen=True)
class Traits:
    """What a setup supports, according to its options (`dbbench fs`)."""

    cow: bool  # data is copied on write, so a page cannot tear
    compresses: str | None  # name of the algorithm; None: not compressed
    snapshots: bool


def family_of(setup: FsSetup) -> Family:
    """Return the family of a setup. Raises KeyError."""
    return FAMILIES[setup.mkfs.family]


def family_in(fs: Mounted) -> Family:
    """Return the family of a mounted filesystem; one without features if it has none, which only a directory has."""
    return FAMILIES.get(fs.family) or Family()


def traits(setup: FsSetup) -> Traits:
    """Return the traits of a setup without making it. Raises KeyError for an unknown family."""
    family = family_of(setup)
    return Traits(
        cow=not family.tears(setup.mount, attributes_of(setup)),
        compresses=family.compresses(options_of(setup)),
        snapshots=family.snapshots is not None,
    )


def promises(setup: FsSetup) -> tuple[Durability, ...]:
    """Return the durability flags that follow from the setup's options; () for an unknown family."""
    family = FAMILIES.get(setup.mkfs.family)
    return family.promises(setup) if family else ()


def reports_of(name: str, options: tuple[str, ...], unprotected: bool) -> tuple[str, ...]:
    """Return public reports of losses on a filesystem of that family with these options; see `Family.reports`."""
    family = FAMILIES.get(name)
    return family.reports(options, unprotected) if family else ()


def period_s(name: str, options: Sequence[str], tunables: Mapping[str, Scalar]) -> float | None:
    """Return how often a filesystem of that family writes out delayed data by itself, or None."""
    family = FAMILIES.get(name)
    return family.writes_out_s(options, tunables) if family else None


def give_back(journal: Journal) -> list[str]:
    """Release what a killed run left of filesystems, according to its journal; return what it was."""
    return [what for family in FAMILIES.values() for what in family.give_back(journal)]
