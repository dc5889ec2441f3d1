"""The features that mkfs had by default when a kernel with long-term support was released.

For xfs these are the values of xfsprogs' lts_*.conf (not the files: those of xfsprogs 6.1.0 have a line that its own
mkfs.xfs refuses), for ext4 the features in mke2fs.conf of e2fsprogs at that time (1.44 for Linux 4.19, 1.47 for 6.6),
and for btrfs the defaults of btrfs-progs (no-holes and free-space-tree since 5.15). They are given as options, so that
another release of mkfs, or a distribution with its own configuration, makes the same filesystem.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dbbench.model import Mkfs


def _xfs(features: str) -> tuple[str, ...]:
    """Return the options of the words that each name a feature and its value."""
    sections: dict[str, list[str]] = {}
    for word in features.split():
        sections.setdefault(_SECTIONS.get(word.partition("=")[0], "-m"), []).append(word)
    return tuple(word for section, words in sections.items() for word in (section, ",".join(words)))


_SECTIONS: Final = {"sparse": "-i", "nrext64": "-i", "exchange": "-i", "parent": "-n"}  # of the others it is -m
_XFS_4_19: Final = "bigtime=0 crc=1 finobt=1 inobtcount=0 reflink=0 rmapbt=0 sparse=1 nrext64=0"
_XFS_5_4: Final = _XFS_4_19.replace("reflink=0", "reflink=1")
_XFS_5_15: Final = _XFS_5_4.replace("bigtime=0", "bigtime=1").replace("inobtcount=0", "inobtcount=1")
_XFS_6_6: Final = _XFS_5_15.replace("rmapbt=0", "rmapbt=1").replace("nrext64=0", "nrext64=1")
_EXT4_1_44: Final = (
    "has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,"
    "dir_nlink,extra_isize,metadata_csum"
)
_EXT4: Final = ("-O", f"none,{_EXT4_1_44}")
_BTRFS_OLD: Final = ("-O", "^no-holes", "-R", "^free-space-tree")
_BTRFS_5_15: Final = ("-O", "no-holes", "-R", "free-space-tree")
VINTAGES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "xfs": {
        "lts_4.19": _xfs(_XFS_4_19),
        **dict.fromkeys(("lts_5.4", "lts_5.10"), _xfs(_XFS_5_4)),
        **dict.fromkeys(("lts_5.15", "lts_6.1"), _xfs(_XFS_5_15)),
        "lts_6.6": _xfs(_XFS_6_6),
        "lts_6.12": _xfs(f"{_XFS_6_6} metadir=0 autofsck=0 exchange=0 parent=0"),
    },
    "ext4": {
        **dict.fromkeys(("lts_4.19", "lts_5.4", "lts_5.10", "lts_5.15", "lts_6.1"), _EXT4),
        "lts_6.6": ("-O", f"none,{_EXT4_1_44},metadata_csum_seed,orphan_file"),
    },
    "btrfs": {
        **dict.fromkeys(("lts_4.19", "lts_5.4", "lts_5.10"), _BTRFS_OLD),
        **dict.fromkeys(("lts_5.15", "lts_6.1", "lts_6.6"), _BTRFS_5_15),
    },
}


def options_of(mkfs: Mkfs) -> tuple[str, ...]:
    """Return the options of the vintage, then the setup's own; a vintage that is not known has none."""
    return (*VINTAGES.get(mkfs.family, {}).get(mkfs.vintage, ()), *mkfs.options)


def lacks(mkfs: Mkfs) -> str | None:
    """Return why the vintage cannot be made, whatever the installed mkfs, or None."""
    if not mkfs.vintage:
        return None
    known = VINTAGES.get(mkfs.family, {})
    if mkfs.vintage not in known:
        those = f" (known: {', '.join(known)})" if known else ""
        return f"{mkfs.family} has no vintage {mkfs.vintage!r}{those}"
    both = [option for option in mkfs.options if option in known[mkfs.vintage][::2]]
    if both:
        return f"the vintage {mkfs.vintage} sets {both[0]} of mkfs.{mkfs.family}; remove it from the options"
    return None
