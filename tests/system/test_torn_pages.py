"""The power-loss lab finds a torn page in each setup of which docs/durability.md says that none was
found.
"""

from collections import Counter

import pytest

from dbbench.labs.powercut.base_images import files_of
from dbbench.labs.powercut.disk import Log
from dbbench.labs.powercut.disk_images import BLOCK, Cut
from dbbench.labs.powercut.recording import record
from dbbench.labs.powercut.recovery import mounted, recover
from tests.support.labs import copied, lab_of
from tests.support.setups import shipped

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("root", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs"),
    pytest.mark.usefixtures("nothing_left"),
]
PAGE_BYTES = 16384
TRX_SYS = 5  # page of the system tablespace, whose number is 0
PAGE = 100  # of the accounts: a leaf of the table


@pytest.mark.parametrize(
    ("engine", "setup"),
    [
        pytest.param("mysql", "ext4", marks=pytest.mark.needs("engine:mysql")),
        pytest.param("mysql", "xfs", marks=pytest.mark.needs("engine:mysql")),
        pytest.param("mysql", "btrfs", marks=pytest.mark.needs("engine:mysql")),
        pytest.param("mariadb", "ext4", marks=pytest.mark.needs("engine:mariadb")),
    ],
)
def test_a_torn_page_is_found(engine: str, setup: str) -> None:
    """Planted: the second of the page's four blocks is not written."""
    shipped(setup)
    with lab_of(setup, engine) as (lab, base):
        disks = copied(lab, base)
        with mounted(lab, base, disks) as datadir:
            (table,) = datadir.glob("*/account.ibd")
            with table.open("r+b") as file:
                file.seek(PAGE * PAGE_BYTES + BLOCK)
                assert any(file.read(BLOCK))
                file.seek(PAGE * PAGE_BYTES + BLOCK)
                file.write(bytes(BLOCK))
        found = recover(lab, base, disks, {})
    assert "torn" in found.harms, found


@pytest.mark.soak
@pytest.mark.needs("engine:mysql")
@pytest.mark.parametrize("setup", ["ext4", "xfs"])
def test_mysql_does_not_restore_page_5(setup: str) -> None:
    """Power is lost while page 5 of ibdata1 is written, after its copy was flushed: in most of such
    cuts MySQL does not start. What was found is printed (`pytest -s`).
    """
    harmed = []
    with lab_of(setup, "mysql") as (lab, base):
        for number in range(6):
            recording = record(lab, base, 0, f"page-5-{number}")
            log = recording.log
            media = recording.media(lab)
            disks = lab.disks("cut", base.target)
            for position in flushes_of_page_5(log, *recording.plain):
                media.cut(Cut("page", position, BLOCK, 0.5, f"{position}"), files_of(disks))
                seen = recording.acknowledged.before(log.entries[position].ns)
                found = recover(lab, base, disks, seen)
                assert not found.invalid, found
                harmed.append(bool(found.harms))
    print(f"{setup}: {sum(harmed)} of {len(harmed)}")
    assert sum(harmed) > 1


def flushes_of_page_5(log: Log, begin: int, end: int) -> list[int]:
    """Return the flushes that follow writes of page 5 to its place. A copy has another place each
    time.
    """
    writes = []
    with log.data.open("rb") as data:
        for number in range(begin, end):
            entry = log.entries[number]
            data.seek(entry.place)
            content = data.read(entry.length)
            for at in range(0, len(content) - PAGE_BYTES + 1, BLOCK):
                page = content[at : at + PAGE_BYTES]
                names = (page[4:8], page[24:26], page[34:38])
                if names == (TRX_SYS.to_bytes(4, "big"), bytes((0, 7)), bytes(4)):
                    writes.append((number, entry.offset + at))
    places = Counter(place for _, place in writes)
    flushes = []
    for number, place in writes:
        if places[place] > 1:
            flushes.append(next(n for n in range(number + 1, end + 1) if log.entries[n].flush))
    return flushes
