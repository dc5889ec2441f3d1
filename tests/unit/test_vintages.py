"""Vintages of mkfs: their options, invalid ones, and when two filesystems of a family differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench.compare.remarks import texts
from dbbench.compare.unequal import unequal
from dbbench.model import FilesystemFacts, FsSetup, Mkfs, Run, Trial
from dbbench.plan import catalog
from dbbench.storage.filesystems import FAMILIES
from dbbench.storage.filesystems.xfs import parse_xfs_info
from tests.support.judged import Judged

SHIPPED = catalog.catalog()
INFO = """\
meta-data=x                      isize=512    agcount=4, agsize=65536 blks
         =                       sectsz=512   attr=2, projid32bit=1
         =                       crc=1        finobt=1, sparse=1, rmapbt=0
         =                       reflink=1    bigtime=1 inobtcount=1 nrext64=0
data     =                       bsize=4096   blocks=262144, imaxpct=25
         =                       sunit=0      swidth=0 blks
naming   =version 2              bsize=4096   ascii-ci=0, ftype=1
log      =internal log           bsize=4096   blocks=16384, version=2
         =                       sectsz=512   sunit=0 blks, lazy-count=1
realtime =none                   extsz=4096   blocks=0, rtextents=0
"""


def test_a_vintage_is_options_before_those_of_the_setup() -> None:
    """Each feature in the section that mkfs.xfs has it in."""
    setup = FsSetup("x", Mkfs("xfs", ("-b", "size=16k"), vintage="lts_5.15"))
    assert FAMILIES["xfs"].commands(setup, ("DEV",), "/mnt")[0] == (
        "mkfs.xfs", "-q", "-f", "-K", "-m", "bigtime=1,crc=1,finobt=1,inobtcount=1,reflink=1,rmapbt=0",
        "-i", "sparse=1,nrext64=0", "-b", "size=16k", "DEV",
    )  # fmt: skip
    assert FAMILIES["xfs"].vintage_options(Mkfs("xfs", vintage="lts_6.12"))[-2:] == ("-n", "parent=0")
    assert "none,has_journal" in " ".join(FAMILIES["ext4"].vintage_options(Mkfs("ext4", vintage="lts_5.10")))
    assert FAMILIES["btrfs"].vintage_options(Mkfs("btrfs", vintage="lts_5.10")) == (
        "-O",
        "^no-holes",
        "-R",
        "^free-space-tree",
    )
    assert FAMILIES["xfs"].vintage_options(Mkfs("xfs", ("-s", "size=4k"))) == ("-s", "size=4k")


@pytest.mark.parametrize(
    ("mkfs", "said"),
    [
        (Mkfs("xfs", vintage="lts_5.16"), "xfs has no vintage 'lts_5.16' (known: lts_4.19"),
        (Mkfs("f2fs", vintage="lts_5.15"), "f2fs has no vintage 'lts_5.15'"),
        (Mkfs("xfs", ("-m", "reflink=0"), vintage="lts_5.15"), "the vintage lts_5.15 sets -m of mkfs.xfs"),
        (Mkfs("xfs", ("-m", "reflink=0")), None),
        (Mkfs("ext4", ("-I", "512"), vintage="lts_6.1"), None),
    ],
)
def test_a_vintage_that_cannot_be_made_says_why(mkfs: Mkfs, said: str | None) -> None:
    """Before any program is started; options beside it are allowed where they do not meet."""
    found = FAMILIES[mkfs.family].lacks_vintage(mkfs)
    assert found is None if said is None else found is not None and found.startswith(said)


def test_every_setup_of_a_vintage_has_one_that_is_known() -> None:
    """There are some of each family."""
    setups = [setup for name in SHIPPED.setups if (setup := SHIPPED.setup(name)).mkfs.vintage]
    assert {setup.mkfs.family for setup in setups} == {name for name, family in FAMILIES.items() if family.vintages}
    assert [FAMILIES[setup.mkfs.family].lacks_vintage(setup.mkfs) for setup in setups] == [None] * len(setups)


def test_features_of_xfs_are_read_back() -> None:
    """Those that are on, as far as this xfs_info knows them."""
    assert parse_xfs_info(INFO)["features"] == "crc finobt sparse reflink bigtime inobtcount"


def test_two_of_a_family_with_other_features_are_not_the_same(make_run: Callable[..., Run], tmp_path: Path) -> None:
    """The features that differ are named; other families, and results without features, are not compared."""

    def of(family: str, features: str | None) -> list[Trial]:
        geometry = {} if features is None else {"features": features}
        return [dataclasses.replace(trial, filesystem=FilesystemFacts(family, geometry=dict(geometry)))]

    trial = Judged().trial(make_run, tmp_path)
    assert texts(unequal(of("xfs", "crc reflink rmapbt"), of("xfs", "crc bigtime reflink"))) == (
        "both are xfs, but not the same xfs: bigtime, rmapbt",
    )
    assert unequal(of("xfs", "crc"), of("xfs", "crc")) == unequal(of("xfs", "crc"), of("ext4", "extent")) == ()
    assert unequal(of("xfs", None), of("xfs", "crc")) == ()
