"""What the lab keeps of a harmed cut, and pages from such cuts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from dbbench.errors import EngineStartFailed
from dbbench.labs.powercut.base_images import BaseImages
from dbbench.labs.powercut.disk import Log, LogEntry, LogWriter, read_log
from dbbench.labs.powercut.disk_images import BLOCK, SHIFT, Cut, Media, Section, choose_cuts
from dbbench.labs.powercut.recording import RECORDING, Recording, keep_recording
from dbbench.labs.powercut.recovery import harm_of_start
from dbbench.labs.powercut.witness import Acknowledged

PAGES: Final = Path(__file__).parents[1] / "fixtures" / "torn_pages"
POLYNOMIAL: Final = 0x82F63B78  # of CRC-32C, reflected


def test_a_kept_recording_makes_the_same_image_again(tmp_path: Path) -> None:
    """The disk at its start, the log of its requests, and the cut with its seed."""
    begin = tmp_path / "base.img"
    begin.write_bytes(b"-" * 64 * BLOCK)
    (tmp_path / "log").mkdir()
    writer = LogWriter(tmp_path / "log")
    for block in range(32):
        writer.write(block * BLOCK, b"a" * BLOCK)
    writer.flush()
    writer.close()
    # A recording, and an image of a cut in it.
    log = read_log(tmp_path / "log")
    base = BaseImages.__new__(BaseImages)
    vars(base).update(images={"data": (begin,)})
    recording = Recording.__new__(Recording)
    vars(recording).update(base=base, log=log, acknowledged=Acknowledged({0: [7, 9]}))
    cut = Cut("subset", 30, BLOCK, 0.5, "seed")
    Media([begin], log, [tmp_path / "medium"]).cut(cut, [tmp_path / "cut.img"])
    # What is kept has all of it, after the lab has removed its own.
    kept = tmp_path / "kept"
    keep_recording(kept, recording, cut)
    (tmp_path / "log/data").unlink()
    begin.unlink()
    facts = json.loads((kept / RECORDING).read_text())
    assert facts["acknowledged_ns"] == {"0": [7, 9]}
    media = Media([kept / "base.img"], read_log(kept), [tmp_path / "medium"])
    media.cut(Cut(**facts["cut"]), [tmp_path / "again.img"])
    again = (tmp_path / "again.img").read_bytes()
    assert again == (tmp_path / "cut.img").read_bytes()
    assert 5 < again.count(b"a" * BLOCK) < 25


def test_a_page_and_its_copy_that_are_both_bad_are_torn() -> None:
    """MySQL ends with a crash after it has printed both."""
    lines = "mysql 9.7.4 ended with status 2:\n  [ERROR] Dumping the DBLWR page (dblwr_page_no=18):"
    recovery = harm_of_start(EngineStartFailed(lines), {0: 3})
    assert recovery.harms["torn"].startswith("[ERROR] Dumping the DBLWR page")


def test_a_single_unit_is_aligned() -> None:
    """Units that are one of several sizes also begin between two of them."""
    log = Log(tuple(LogEntry(ns, False, 0, BLOCK) for ns in range(9)), Path())
    section = Section(log, [(0, 9)])
    shifts = {cut.shift for cut in choose_cuts(section, 40, "s", ["drop"], [16384])}
    assert shifts == {0}
    assert {cut.shift for cut in choose_cuts(section, 40, "s", ["drop"])} == {0, SHIFT}


class Page(NamedTuple):
    """A page of a harmed cut: which, and the LSN at its begin and at its end."""

    file: str
    space: int
    number: int
    lsn: int
    lsn_at_end: int

    @property
    def content(self) -> bytes:
        return gzip.decompress((PAGES / f"{self.file}.gz").read_bytes())


# Cut with aligned units of 4096 bytes on ext4: MySQL 9.7.4 with O_DIRECT_NO_FSYNC, MariaDB 11.8.9
# with doublewrite "fast". MariaDB's checksum is at the end of a page, MySQL's at its begin.
MYSQL_PAGE: Final = Page("mysql-no-fsync.page", 2, 18, 19712812, 23833239)
MYSQL_COPY: Final = Page("mysql-no-fsync.copy", 2, 18, 23833239, 23692372)
MARIADB_PAGE: Final = Page("mariadb-fast.page", 8, 184, 4065257, 4104998)
# MySQL 9.7.4 with fsync (and performance_schema off): recovery ends at the first copy, in slot 63,
# and the good one is in slot 180.
FSYNC_PAGE: Final = Page("mysql-fsync.page", 2, 228, 24128947, 23744724)
FSYNC_BAD: Final = Page("mysql-fsync.bad-copy", 2, 228, 23744724, 24170063)
FSYNC_GOOD: Final = Page("mysql-fsync.good-copy", 2, 228, 24128947, 24128947)
# MySQL 9.7.4 with O_DIRECT: the last block of the page is old, and one in the middle of its copy.
DIRECT_PAGE: Final = Page("mysql-direct.page", 2, 101, 23979057, 20713094)
DIRECT_COPY: Final = Page("mysql-direct.copy", 2, 101, 23979057, 23979057)


# MariaDB 10.11 without doublewrite on btrfs: the page after a lost one, from before the checkpoint.
KEPT_PAGE: Final = Page("mariadb-off.next-page", 6, 5, 4204799, 4204799)
CHECKPOINT: Final = 4205118


def number_at(content: bytes, place: int, size: int = 4) -> int:
    """The number in these bytes."""
    return int.from_bytes(content[place:][:size], "big")


def crc32c(content: bytes) -> int:
    """The checksum of both servers."""
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ POLYNOMIAL * (value & 1)
    return value ^ 0xFFFFFFFF


def checksum(page: Page) -> tuple[int, int]:
    """The checksum that the page has, and the one that it should have."""
    content = page.content
    if page.file.startswith("mariadb"):
        return number_at(content, -4), crc32c(content[:-4])
    return number_at(content, 0), crc32c(content[4:26]) ^ crc32c(content[38:-8])


@pytest.mark.parametrize(
    ("page", "whole"),
    [
        (MYSQL_PAGE, False),
        (MYSQL_COPY, False),
        (MARIADB_PAGE, False),
        (FSYNC_PAGE, False),
        (FSYNC_BAD, False),
        (FSYNC_GOOD, True),
        (DIRECT_PAGE, False),
        (DIRECT_COPY, False),
        (KEPT_PAGE, True),
    ],
    ids=lambda page: getattr(page, "file", ""),
)
def test_a_page_of_a_harmed_cut_is_torn(page: Page, whole: bool) -> None:
    """Its begin and its end have different LSNs, or its checksum is wrong."""
    content = page.content
    end = -8 if page.file.startswith("mariadb") else -4
    assert len(content) == 16384
    assert (number_at(content, 34), number_at(content, 4)) == (page.space, page.number)
    assert number_at(content, 16, 8) == page.lsn
    assert number_at(content, end) == page.lsn_at_end
    found, right = checksum(page)
    same = page.lsn == page.lsn_at_end
    assert (found == right and same) is whole


def test_mysql_has_a_good_copy_after_the_bad_one() -> None:
    """It is the page that was written when the power was lost."""
    assert FSYNC_GOOD.lsn == FSYNC_PAGE.lsn
    assert FSYNC_BAD.lsn_at_end != FSYNC_GOOD.lsn


def test_copy_on_write_lost_a_page_that_a_checkpoint_counted() -> None:
    """Page 4 of a table of MariaDB is empty, and the log begins after it was written."""
    lost = gzip.decompress((PAGES / "mariadb-off.page.gz").read_bytes())
    block = gzip.decompress((PAGES / "mariadb-off.checkpoint.gz").read_bytes())
    assert lost == bytes(16384)
    assert number_at(block, 0, 8) == CHECKPOINT > KEPT_PAGE.lsn


def test_with_direct_io_page_and_copy_of_one_lsn_are_torn() -> None:
    """Neither was flushed before the other."""
    assert DIRECT_PAGE.lsn == DIRECT_COPY.lsn == DIRECT_COPY.lsn_at_end


def test_the_doublewrite_copy_of_mysql_is_torn_as_well() -> None:
    """Copy and page were written for the same LSN: the end of the page, the begin of the copy."""
    assert MYSQL_PAGE.lsn_at_end == MYSQL_COPY.lsn


def test_whole_sectors_of_page_and_copy_are_the_page_that_was_written() -> None:
    """So the disk tore neither within 4096 bytes: each half of the page survived once."""
    page = MYSQL_PAGE.content
    copy = MYSQL_COPY.content
    written = copy[: 2 * BLOCK] + page[2 * BLOCK :]
    assert number_at(written, 16, 8) == MYSQL_COPY.lsn
    assert number_at(written, 0) == crc32c(written[4:26]) ^ crc32c(written[38:-8])
