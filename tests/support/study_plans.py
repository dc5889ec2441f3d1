"""Published studies of the catalogue, and their plans."""

from pathlib import Path

from dbbench.model import Plan
from dbbench.plan import studies
from tests.support.plans import plan_of

# dbbench's own
OURS = [
    "binlog-and-filesystems",
    "compression-of-growth",
    "io-method-and-filesystems",
    "mkfs-vintages",
]
ALL = sorted(
    [
        *OURS,
        "bonnie-2011",
        "claims",
        "harm",
        "oracle-clone-2012",
        "oracle-clone-2012-binlog",
        "percona-2012",
        "percona-2012-readers",
        "pg-btrfs-compression-2015",
        "pg-fs-benchmark",
        "raid0-copy-2012",
        "raid0-copy-2012-mirror",
        "versions-and-filesystems",
    ]
)


def written(name: str, scale: str) -> str:
    """A study's plan as text."""
    found = studies.study(name)
    return studies.plan_text(found, scale, {name: [""] for name in found.engines})


def loaded(folder: Path, name: str, scale: str) -> Plan:
    """A study's plan, read and checked."""
    return plan_of(folder, written(name, scale))
