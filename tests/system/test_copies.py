"""Copies of the files of a running server have what it had written before."""

from pathlib import Path

import pytest

from dbbench.labs.harm import ATTEMPTS, count_harms, online_copies
from dbbench.labs.harm.online_copies import COLUMNS, SNAPSHOT, copy_once
from dbbench.model import HarmOutcome
from tests.support.labs import lab_of
from tests.support.setups import shipped

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]


@pytest.mark.needs("mkfs.ext4", "engine:postgres")
def test_a_copy_with_a_block_of_zeros_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as OpenZFS 2.2.0 copied files that had just been written."""

    def punch(how: str, source: Path, target: Path) -> list[str]:
        messages = copy(how, source, target)
        if target.name == "copy":
            for log in target.glob("pg_wal/0*"):
                log.write_bytes(bytes(log.stat().st_size))
        return messages

    copy = online_copies._copy
    monkeypatch.setattr(online_copies, "_copy", punch)
    with lab_of("ext4") as (lab, base):
        (count,) = copy_once(lab, base, "copy by read", "never", "seed")
    assert count.word is HarmOutcome.LOST, count
    assert not count.detail.startswith("0 of")


@pytest.mark.long
@pytest.mark.needs("mkfs.btrfs", "fs:btrfs", "engine:mariadb")
def test_btrfs_copies_what_was_written() -> None:
    """By every means, and in a snapshot on which a server starts."""
    shipped("btrfs")
    with lab_of("btrfs", "mariadb") as (lab, base):
        counts = list(count_harms(lab, base, 1, {"copies": ATTEMPTS["copies"]}))
    words = {count.column: count.word for count in counts}
    assert words == dict.fromkeys((*COLUMNS, SNAPSHOT), HarmOutcome.UNHARMED), counts
