"""Options of filesystems and settings of servers with the durability class that follows from them."""

from typing import Final, NamedTuple

from dbbench.model import Durability

UNKNOWN, BARRIER, JOURNAL, ASYNC, TORN, REPORTED, LAB, PREVENTED = Durability
FULL = "full"
LOST_BARRIER = "no-barrier"
NO_JOURNAL = "no-journal"
LATE = "async-commit"
TEARS = "torn-pages-possible"
UNSAFE: Final = "reported-unsafe"

POSTGRES: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_sync_method": "fdatasync",
}
INNODB: Final = {
    "innodb_flush_log_at_trx_commit": "1",
    "log_bin": "OFF",
    "sync_binlog": "1",
    "innodb_doublewrite": "ON",
    "innodb_flush_method": "O_DIRECT",
}
FPW_OFF: Final = {"full_page_writes": "off"}
DW_OFF: Final = {"innodb_doublewrite": "OFF"}


class Row(NamedTuple):
    """What the kernel shows of a filesystem, what the server reports; the class, and why."""

    fs: str  # family and effective options: "ext4 nobarrier"
    server: dict[str, str]  # what differs from a durable server
    expected: str
    why: str
    engine: str = "postgres"
    attributes: tuple[str, ...] = ()
    journal: bool = True


TABLE: Final = [
    # the filesystem's part
    Row("ext4", {}, FULL, "journal and barriers on, a server that flushes"),
    Row("ext3", {}, FULL, "the same driver"),
    Row("xfs", {}, FULL, "its log is always on, its barriers cannot be turned off"),
    Row("btrfs", {}, FULL, "copy-on-write with barriers"),
    Row("ext4 nobarrier", {}, LOST_BARRIER, "an fsync ends in the disk's cache"),
    Row(
        "ext4 barrier=0",
        {},
        LOST_BARRIER,
        "the other name of nobarrier, where a kernel shows it as given",
    ),
    Row("ext4 barrier=1", {}, FULL, "barriers asked for: the default"),
    Row("xfs nobarrier", {}, LOST_BARRIER, "kernels before 4.19 take it"),
    Row("btrfs nobarrier ssd", {}, LOST_BARRIER, "the pair of published comparisons"),
    Row("ext4", {}, NO_JOURNAL, "made without a journal", journal=False),
    Row("ext2", {}, NO_JOURNAL, "the format has none", journal=False),
    Row(
        "ext4 nobarrier",
        {},
        "no-barrier + no-journal",
        "both, the worse one first",
        journal=False,
    ),
    Row("ext4 data=writeback", {}, FULL, "databases fsync what they promise"),
    Row("ext4 data=ordered commit=60", {}, FULL, "an fsync does not wait for the period"),
    Row("btrfs commit=300", {}, FULL, "an fsync goes through the log tree"),
    Row("ext4 data=journal", {}, FULL, "with full_page_writes on nothing is missing"),
    Row("btrfs compress=zstd:3", {}, FULL, "compression changes nothing in the order of writes"),
    Row("btrfs nodatasum", {}, FULL, "without checksums data is still use copy-on-write"),
    Row("btrfs notreelog", {}, FULL, "an fsync becomes a whole commit: slower, not less"),
    Row("btrfs nodatacow", {}, FULL, "pages can tear, and full_page_writes repairs them"),
    # PostgreSQL: commits
    Row(
        "ext4",
        {"synchronous_commit": "off"},
        LATE,
        "a commit is answered before its log is flushed",
    ),
    Row("ext4", {"synchronous_commit": "local"}, FULL, "the own disk is waited for"),
    Row(
        "ext4",
        {"synchronous_commit": "remote_write"},
        FULL,
        "without standbys the own disk is waited for",
    ),
    Row(
        "ext4",
        {"synchronous_commit": "remote_apply"},
        FULL,
        "without standbys the own disk is waited for",
    ),
    Row(
        "ext4",
        {"fsync": "off"},
        LOST_BARRIER,
        "nothing is flushed in any order, like a disk without barriers",
    ),
    Row(
        "xfs",
        {"fsync": "off", "synchronous_commit": "off"},
        "no-barrier + async-commit",
        "each says its own",
    ),
    Row("btrfs", {"synchronous_commit": "off"}, LATE, "copy-on-write does not bring a commit back"),
    *(
        Row("xfs", {"wal_sync_method": method}, FULL, "another call that waits for the disk")
        for method in ("fsync", "open_sync", "open_datasync")
    ),
    Row(
        "ext4",
        {"commit_delay": "1000"},
        FULL,
        "group commit waits longer, and is flushed before it is answered",
    ),
    Row(
        "ext4",
        {"wal_init_zero": "off", "wal_recycle": "off"},
        FULL,
        "how log files are made is no promise",
    ),
    # PostgreSQL: torn pages
    Row("ext4", FPW_OFF, TEARS, "a page of 8 KiB is two blocks, overwritten in place"),
    Row("xfs", FPW_OFF, TEARS, "the same"),
    Row(
        "ext4 data=journal",
        FPW_OFF,
        TEARS,
        "two blocks of a page may be in two transactions of the journal",
    ),
    Row("btrfs", FPW_OFF, FULL, "use copy-on-write: the old page stays until the new one is there"),
    Row("btrfs nodatacow nodatasum", FPW_OFF, TEARS, "overwritten in place again"),
    Row(
        "btrfs",
        FPW_OFF,
        TEARS,
        "chattr +C on the data directory does the same",
        attributes=("+C",),
    ),
    Row("btrfs nobarrier", FPW_OFF, LOST_BARRIER, "a page is whole, but commits are not flushed"),
    Row("ext4 nobarrier", FPW_OFF, "no-barrier + torn-pages-possible", "both"),
    Row(
        "ext4",
        {**FPW_OFF, "synchronous_commit": "off"},
        "async-commit + torn-pages-possible",
        "both",
        journal=True,
    ),
    Row("ext2", FPW_OFF, "no-journal + torn-pages-possible", "both", journal=False),
    # InnoDB: commits
    Row("ext4", {}, FULL, "1: flushed at each commit", "innodb"),
    Row(
        "ext4",
        {"innodb_flush_log_at_trx_commit": "0"},
        LATE,
        "written and flushed once a second",
        "innodb",
    ),
    Row(
        "ext4",
        {"innodb_flush_log_at_trx_commit": "2"},
        LATE,
        "written at commit, flushed once a second",
        "innodb",
    ),
    Row(
        "ext4",
        {"innodb_flush_log_at_trx_commit": "3"},
        FULL,
        "MariaDB: flushed at prepare and at commit",
        "innodb",
    ),
    Row("ext4", {"sync_binlog": "0"}, FULL, "there is no binary log", "innodb"),
    Row(
        "ext4",
        {"log_bin": "ON", "sync_binlog": "0"},
        LATE,
        "what the binary log has not is rolled back after a crash",
        "innodb",
    ),
    Row(
        "ext4",
        {"log_bin": "ON", "sync_binlog": "100"},
        LATE,
        "flushed at every hundredth commit",
        "innodb",
    ),
    Row("ext4", {"log_bin": "ON", "sync_binlog": "1"}, FULL, "both logs are flushed", "innodb"),
    Row("xfs", {"innodb_flush_method": "nosync"}, LOST_BARRIER, "no flush at all", "innodb"),
    Row(
        "xfs",
        {"innodb_flush_method": "littlesync"},
        LOST_BARRIER,
        "data files are never flushed",
        "innodb",
    ),
    Row(
        "xfs",
        {"innodb_flush_method": "O_DIRECT_NO_FSYNC"},
        TEARS,
        "the log is flushed, tables are not before a checkpoint moves on",
        "innodb",
    ),
    Row(
        "btrfs",
        {"innodb_flush_method": "O_DIRECT_NO_FSYNC"},
        TEARS,
        "the new page is lost as a whole",
        "innodb",
    ),
    *(
        Row("xfs", {"innodb_flush_method": method}, FULL, "flushed", "innodb")
        for method in ("fsync", "O_DSYNC", "O_DIRECT", "ALL_O_DIRECT")
    ),
    Row("ext4", {"debug_no_sync": "ON"}, LOST_BARRIER, "MariaDB's switch for tests", "innodb"),
    # InnoDB: torn pages
    Row("ext4", DW_OFF, TEARS, "a page of 16 KiB is four blocks", "innodb"),
    Row(
        "xfs",
        {"innodb_doublewrite": "0"},
        TEARS,
        "the same, as older servers report it",
        "innodb",
    ),
    Row(
        "xfs",
        {"innodb_doublewrite": "DETECT_ONLY"},
        TEARS,
        "a torn page is found and cannot be repaired",
        "innodb",
    ),
    Row(
        "xfs",
        {"innodb_doublewrite": "DETECT_AND_RECOVER"},
        FULL,
        "MySQL's long name of ON",
        "innodb",
    ),
    Row(
        "xfs",
        {"innodb_doublewrite": "fast"},
        TEARS,
        "MariaDB's later name of O_DIRECT_NO_FSYNC",
        "innodb",
    ),
    Row(
        "btrfs compress=zstd:3",
        DW_OFF,
        TEARS,
        "a page is several blocks, and checkpoints come too early",
        "innodb",
    ),
    Row("btrfs nodatacow", DW_OFF, TEARS, "overwritten in place", "innodb"),
    Row("ext4 data=journal", DW_OFF, TEARS, "the journal is no doublewrite", "innodb"),
    # ZFS: what others reported
    Row("zfs recordsize=16384", {}, FULL, "full pages in the log repair a torn record"),
    Row("zfs recordsize=16384", {}, FULL, "the doublewrite buffer repairs a torn record", "innodb"),
    Row(
        "zfs recordsize=16384",
        DW_OFF,
        f"{TEARS} + {UNSAFE}",
        "and a record of this size was torn",
        "innodb",
    ),
    Row("zfs recordsize=16K", FPW_OFF, UNSAFE, "the same, with half a record for a page"),
    Row("zfs recordsize=8192", FPW_OFF, FULL, "no record of another size was reported"),
    Row("zfs recordsize=128K", DW_OFF, TEARS, "no record of another size was reported", "innodb"),
    Row(
        "zfs recordsize=16384 logbias=throughput",
        {},
        UNSAFE,
        "acknowledged data was lost",
        "innodb",
    ),
    Row("zfs logbias=latency", {}, FULL, "the default"),
    Row(
        "zfs logbias=throughput sync=disabled",
        {},
        f"{LATE} + {UNSAFE}",
        "both, the certain one first",
    ),
]
