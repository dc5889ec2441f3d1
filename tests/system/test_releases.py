"""Trials with the servers and tools of another release, compared with those of Debian 12.

Takes two roots, which are built where none are kept (some minutes), and two minutes of trials. DBBENCH_RELEASES names
other releases than Debian 13.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import releases

RELEASES = os.environ.get("DBBENCH_RELEASES", "debian13").split()

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("root", "debootstrap", "fs:overlay", "fs:ext4", "fs:xfs", "fs:btrfs"),
]


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_has_the_columns_and_facts_of_debian_12(name: str, tmp_path: Path) -> None:
    """No column is empty and no fact is null with its servers and tools that Debian 12's trials have."""
    assert releases.compared(name, tmp_path) == []
