"""The durability class: each flag with its reason, and the comparison with counted flushes."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from dbbench import durability
from dbbench.engines import ENGINES
from dbbench.model import Durability, EngineName, durability_class
from dbbench.storage.filesystems import FAMILIES, Mounted
from dbbench.storage.filesystems.families import family_by_name
from dbbench.storage.filesystems.zfs import properties
from tests.support.durability_rows import (
    ASYNC,
    BARRIER,
    DW_OFF,
    FULL,
    INNODB,
    JOURNAL,
    POSTGRES,
    TABLE,
    TEARS,
    TORN,
    Row,
)


@pytest.mark.parametrize(
    "row",
    TABLE,
    ids=lambda row: f"{row.fs} {row.engine} {row.server or 'durable'}",
)
def test_the_class_follows_from_what_is_effective(row: Row) -> None:
    """Mount options, features of the made filesystem and the server's settings; the name of a setup
    is not asked.
    """
    family, *options = row.fs.split()
    module = FAMILIES[family]
    live = {"has_journal": row.journal} if family.startswith("ext") else {}
    flags = properties.flags if family == "zfs" else module.flags
    own = flags(("rw", "noatime", *options), live)
    tears = TORN if module.tears(tuple(options), row.attributes) else None
    engine, durable = ("postgres", POSTGRES) if row.engine == "postgres" else ("mariadb", INNODB)
    reports = partial(family_by_name(family).reports, tuple(options))
    server, _ = durability.of_server(
        ENGINES[engine].durability,
        {**durable, **row.server},
        durability.Storage(tears, reports),
    )
    assert durability_class(durability.combine(own, server)) == row.expected, row.why


@pytest.mark.parametrize(
    ("options", "server", "reports"),
    [
        (("recordsize=16384", "logbias=throughput"), {}, ("openzfs/zfs#18996",)),
        (("recordsize=16384",), DW_OFF, ("openzfs/zfs#17879",)),
        (
            ("recordsize=16384", "logbias=throughput"),
            DW_OFF,
            ("openzfs/zfs#18996", "openzfs/zfs#17879"),
        ),
        (("recordsize=16384",), {}, ()),
    ],
)
def test_a_class_that_rests_on_reports_names_them(
    options: tuple[str, ...],
    server: dict[str, str],
    reports: tuple[str, ...],
) -> None:
    """The report about the log, or about a page that nothing repairs; without either there is none."""
    of = durability.of_server(
        ENGINES["mariadb"].durability,
        {**INNODB, **server},
        durability.Storage(None, partial(family_by_name("zfs").reports, options)),
    )
    assert of.reports == reports and set(reports) <= durability.REPORTED.keys()
    assert all(family_by_name(name).reports(options, True) == () for name in ("ext4", "tmpfs"))


@pytest.mark.parametrize(
    ("engine", "tears", "server", "expected"),
    [
        ("mysql", TORN, {}, "lab-unsafe"),
        ("mysql", None, {}, FULL),
        ("mysql", TORN, DW_OFF, TEARS),
        ("mysql", TORN, {"innodb_flush_method": "O_DIRECT"}, TEARS),
        ("mariadb", TORN, {}, FULL),
    ],
)
def test_what_only_the_lab_counted_has_a_class_of_its_own(
    engine: EngineName,
    tears: Durability | None,
    server: dict[str, str],
    expected: str,
) -> None:
    """MySQL's recovery from torn pages, which nobody else reported. Nothing is added if no page can
    tear, or if the class says that pages do.
    """
    kind = ENGINES[engine]
    effective = {**INNODB, "innodb_flush_method": "fsync", **server}
    flags, found = durability.of_server(
        kind.durability,
        effective,
        durability.Storage(tears, lambda _: ()),
        kind.PROFILE.restores_pages,
    )
    assert (found, durability_class(flags)) == ((), expected)


class Atomic(NamedTuple):
    """A server without doublewrite on a filesystem that overwrites in place; the class."""

    fs_unit: int  # the filesystem's allocation unit
    disk_unit: int | None  # what the disk writes at once
    server: dict[str, str]
    expected: str


@pytest.mark.parametrize(
    "case",
    [
        Atomic(16384, 16384, DW_OFF, "torn-prevented (unit 16384, aligned)"),
        Atomic(65536, 65536, DW_OFF, "torn-prevented (unit 16384, aligned)"),
        # the lab's disk has units of every size
        Atomic(16384, None, DW_OFF, "torn-prevented (unit 16384, aligned)"),
        Atomic(16384, 8192, DW_OFF, TEARS),
        Atomic(16384, 0, DW_OFF, TEARS),  # the disk reports none
        Atomic(4096, 16384, DW_OFF, TEARS),  # a page need not be aligned
        Atomic(0, 16384, DW_OFF, TEARS),
        # the page cache divides a page
        Atomic(16384, 16384, {**DW_OFF, "innodb_flush_method": "fsync"}, TEARS),
        # a page that was never flushed is lost as a whole
        Atomic(16384, 16384, {"innodb_doublewrite": "fast"}, TEARS),
        Atomic(
            4096,
            4096,
            {**DW_OFF, "innodb_page_size": "4096"},
            "torn-prevented (unit 4096, aligned)",
        ),
        Atomic(16384, 16384, {}, FULL),
        Atomic(
            16384,
            16384,
            {**DW_OFF, "innodb_flush_log_at_trx_commit": "2"},
            "async-commit + torn-prevented (unit 16384, aligned)",
        ),
    ],
)
def test_a_disk_that_writes_pages_at_once_prevents_torn_ones(case: Atomic) -> None:
    """If the filesystem aligns them, and the server bypasses the page cache."""
    effective = {**INNODB, **case.server}
    page = durability.page_bytes(effective)
    tears = Mounted(
        Path("/mnt"),
        "xfs",
        (),
        (),
        None,
        (),
        True,
        unit_bytes=case.fs_unit,
    ).tears_pages_of(page)
    flags, _ = durability.of_server(
        ENGINES["mariadb"].durability,
        effective,
        durability.Storage(tears, lambda _: (), case.disk_unit),
    )
    assert durability_class(flags, page) == case.expected


def test_pages_and_flags_of_filesystem_and_server() -> None:
    """Copy-on-write needs no unit: no page tears there. PostgreSQL says block_size, InnoDB
    innodb_page_size; what says nothing is taken for the larger. Flags come together worst first,
    each once, whoever brought it.
    """
    assert (
        Mounted(Path("/mnt"), "btrfs", (), (), None, (), False, unit_bytes=16384).tears_pages_of(
            16384
        )
        is None
    )
    assert durability.page_bytes({"block_size": "8192"}) == 8192
    assert durability.page_bytes({"innodb_page_size": "4096"}) == 4096
    assert durability.page_bytes({}) == 16384
    assert durability.combine((JOURNAL,), (TORN, ASYNC)) == (JOURNAL, ASYNC, TORN)
    assert durability.combine((BARRIER,), (BARRIER,)) == (BARRIER,)
    assert durability.combine((), ()) == ()


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ((), True),
        ((TORN,), True),
        ((JOURNAL,), True),
        ((BARRIER,), False),
        ((ASYNC,), False),
        ((BARRIER, TORN), False),
    ],
)
def test_no_flush_under_a_class_that_promises_commits_is_a_fault(
    flags: tuple[Durability, ...], fault: bool
) -> None:
    """Torn pages and a missing journal do not explain commits without a flush; a setup without
    barriers does. Flushes per commit are a measurement: group commit makes less than one, a
    filesystem's log more.
    """
    text, failed = durability.flushes_verdict(0, "", 1000, flags)
    assert failed is fault and "0 device flushes for 1000 commits" in text
    assert durability.flushes_verdict(150, "", 100, ()) == ("1.5 device flushes per commit", False)
    assert durability.flushes_verdict(25, "", 100, ()) == ("0.25 device flushes per commit", False)
    assert (
        durability.flushes_verdict(150, "", 100, (), forced=True)[0]
        == "1.5 device flushes per commit"
    )


def test_what_is_not_measurable_is_never_a_failure() -> None:
    """No counter and no commits say so, with the reason."""
    for flushes, note, commits, why in (
        (None, "loop7 has write_cache write through", 10, "loop7 has write_cache write through"),
        (None, "", 10, "nothing counts flushes here"),
        (0, "", 0, "no commits in the window"),
        (0, "", None, "no commits in the window"),
    ):
        assert durability.flushes_verdict(flushes, note, commits, ()) == (
            f"not measurable ({why})",
            False,
        )


@pytest.mark.parametrize(
    ("effective", "fua", "forced"),
    [
        ({"wal_sync_method": "open_datasync"}, True, True),
        ({"wal_sync_method": "open_sync"}, True, True),
        (
            {"wal_sync_method": "open_sync"},
            False,
            False,
        ),  # the kernel sends a flush after the write
        ({"wal_sync_method": "fdatasync"}, True, False),
        ({"innodb_flush_method": "O_DSYNC"}, True, True),
        ({"innodb_flush_method": "O_DIRECT"}, True, False),
        ({"innodb_log_file_write_through": "ON"}, True, True),
    ],
)
def test_a_write_that_is_its_own_flush_is_none(
    effective: dict[str, str],
    fua: bool,
    forced: bool,
) -> None:
    """On a disk with forced writes (FUA) a log opened with O_DSYNC needs no flush: then 0 of them
    say nothing.
    """
    assert durability.forced_writes(effective, fua) is forced
    text, failed = durability.flushes_verdict(
        0,
        "",
        1000,
        (),
        durability.forced_writes(effective, fua),
    )
    assert failed is not forced
    assert text.startswith("not measurable" if forced else "0 device flushes")
