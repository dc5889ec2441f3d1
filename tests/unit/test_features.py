"""Features that mkfs gave a filesystem: read back, and when two filesystems of a family differ."""

import dataclasses
from pathlib import Path

from dbbench.compare.remarks import texts
from dbbench.compare.unequal import unequal
from dbbench.model import FilesystemFacts, Trial
from dbbench.storage.filesystems.xfs import parse_xfs_info
from tests.support.judged import Judged

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


def test_features_of_xfs_are_read_back() -> None:
    """Those that are on, as far as this xfs_info knows them."""
    assert parse_xfs_info(INFO)["features"] == "crc finobt sparse reflink bigtime inobtcount"


def test_two_of_a_family_with_other_features_are_not_the_same(tmp_path: Path) -> None:
    """The features that differ are named; other families, and results without features, are not compared."""

    def of(family: str, features: str | None) -> list[Trial]:
        geometry = {} if features is None else {"features": features}
        return [dataclasses.replace(trial, filesystem=FilesystemFacts(family, geometry=dict(geometry)))]

    trial = Judged().trial(tmp_path)
    assert texts(unequal(of("xfs", "crc reflink rmapbt"), of("xfs", "crc bigtime reflink"))) == (
        "both are xfs, but not the same xfs: bigtime, rmapbt",
    )
    assert unequal(of("xfs", "crc"), of("xfs", "crc")) == unequal(of("xfs", "crc"), of("ext4", "extent")) == ()
    assert unequal(of("xfs", None), of("xfs", "crc")) == ()
