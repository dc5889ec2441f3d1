"""How often a filesystem writes out by itself what it holds back: a window must see that more than once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dbbench.model import Scalar

# btrfs(5) commit=30, ext4(5) commit=5, ZFS zfs_txg_timeout=5.
PERIODS_S: Final = {"btrfs": 30.0, "ext4": 5.0, "ext3": 5.0, "zfs": 5.0}
PERIODS: Final = 3  # so many a warm-up should see


def period_s(family: str, options: Sequence[str], tunables: Mapping[str, Scalar]) -> float | None:
    """The filesystem's longest period of its own: how often it writes out what it holds back. None: it has none."""
    for option in options:
        name, _, value = option.partition("=")
        if name == "commit" and value.isdigit():
            return float(value)
    if "txg_timeout_s" in tunables:
        return float(tunables["txg_timeout_s"])
    return PERIODS_S.get(family)
