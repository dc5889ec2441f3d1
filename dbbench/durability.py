"""The durability class: what filesystem and server guarantee together, and whether the device's
flushes confirm it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from dbbench.model import Durability, durability_class

# Only these flags explain commits without a device flush; torn pages or a missing journal do not.
_NO_FLUSH_NEEDED: Final = frozenset({Durability.NO_BARRIER, Durability.ASYNC_COMMIT})
# largest page of the engines; assumed if a server does not report its page size
_LARGEST_PAGE: Final = 16384
# Public reports of losses, as "owner/project#number" -> what they counted.
REPORTED: Final = {
    "openzfs/zfs#18996": 'a "possible loss" in 2 of 2 power losses right after TRUNCATE PARTITION',
    "openzfs/zfs#17879": (
        "a torn record after crashes of a virtual machine, without a count and not confirmed"
    ),
}


def combine(*parts: Iterable[Durability]) -> tuple[Durability, ...]:
    """Return the flags of all parts, worst first, without duplicates."""
    flags = {flag for part in parts for flag in part}
    return tuple(flag for flag in Durability if flag in flags)


class Storage(NamedTuple):
    """What is below a server's data files."""

    tears: Durability | None  # see `Mounted.tears_pages_of`
    # about the filesystem, for a server that does not repair torn pages or for one that does
    reports: Callable[[bool], tuple[str, ...]]
    # what the disk writes completely or not at all; None: whatever the class requires
    unit_bytes: int | None = None


class ServerDurability(NamedTuple):
    """The flags that a server's settings add, and the public reports of losses with them."""

    flags: tuple[Durability, ...]
    reports: tuple[str, ...]


def of_server(
    flags_of: Callable[[dict[str, str], bool], tuple[Durability, ...]],
    effective: Mapping[str, str],
    storage: Storage,
    restores: bool = True,
) -> ServerDurability:
    """Return what the server's settings add on this storage. `flags_of`: see `Engine.durability`.
    `restores`: see `Profile.restores_pages`.
    """
    settings = dict(effective)
    tears = storage.tears
    flags = set(flags_of(settings, tears is not None))
    repairs = Durability.TORN_PAGES not in flags_of(settings, True)
    if tears is not None and not restores and Durability.TORN_PAGES not in flags:
        flags.add(Durability.LAB_UNSAFE)

    # A disk that writes a page as a whole prevents torn pages, if the page cache does not split it.
    unit_bytes = storage.unit_bytes
    direct = "O_DIRECT" in effective.get("innodb_flush_method", "").upper()
    atomic = direct and (unit_bytes is None or unit_bytes >= page_bytes(effective))
    # It does not keep pages that were never flushed.
    atomic = atomic and flushes_tables(effective)
    if atomic and tears is Durability.TORN_PREVENTED and Durability.TORN_PAGES in flags:
        flags.remove(Durability.TORN_PAGES)
        flags.add(Durability.TORN_PREVENTED)

    # A report makes the class unsafe, whatever the settings promise.
    reports = storage.reports(not repairs)
    if reports:
        flags.add(Durability.REPORTED_UNSAFE)
    return ServerDurability(combine(flags), reports)


def flushes_tables(effective: Mapping[str, str]) -> bool:
    """Return whether InnoDB flushes its tables before its checkpoint counts their pages as durable:
    not with O_DIRECT_NO_FSYNC (MySQL: fil0fil.cc, `fil_disable_space_flushing`), nor with MariaDB's
    doublewrite "fast", its later name (fil0fil.cc, `need_unflushed_spaces`).
    """
    method = effective.get("innodb_flush_method", "").upper()
    doublewrite = effective.get("innodb_doublewrite", "").upper()
    return "NO_FSYNC" not in method and doublewrite != "FAST"


def page_bytes(effective: Mapping[str, str]) -> int:
    """Return the page size of the server with these settings: PostgreSQL's or InnoDB's."""
    return int(effective.get("block_size") or effective.get("innodb_page_size") or _LARGEST_PAGE)


def forced_writes(effective: Mapping[str, str], fua: bool) -> bool:
    """Return whether the server writes its log with forced writes (FUA), which the disk must
    support; a commit may then need no flush request. fdatasync(2) always sends one.
    """
    return fua and (
        effective.get("wal_sync_method") in ("open_sync", "open_datasync")
        or effective.get("innodb_flush_method", "").upper() == "O_DSYNC"
        or effective.get("innodb_log_file_write_through", "").upper() in ("ON", "1")
    )


def flushed_logs(effective: Mapping[str, str]) -> int:
    """Return how many logs the server flushes for a commit: 2 with a binary log that it flushes
    each time, else 1.
    """
    on = effective.get("log_bin", "").upper() in ("ON", "1")
    if on and effective.get("sync_binlog") == "1":
        return 2
    return 1


def needs_flushes(flags: Iterable[Durability]) -> bool:
    """Whether a commit has to wait for a device flush under a class with these flags."""
    return not _NO_FLUSH_NEEDED.intersection(flags)


def flushes_verdict(
    flushes: int | None,
    reason: str,
    commits: int | None,
    flags: tuple[Durability, ...],
    forced: bool = False,
) -> tuple[str, bool]:
    """Return a text on whether the device's flushes in the window confirm the class, and whether
    they disprove it. `flushes` None: `reason` explains why nothing counts them. Group commit
    causes less than one flush per commit, a filesystem's log more; none at all with a class that
    promises commits is a fault. `forced`: see `forced_writes`.
    """
    if flushes is None:
        return f"not measurable ({reason or 'nothing counts flushes here'})", False
    if not commits:
        return "not measurable (no commits in the window)", False
    if flushes > 0:
        return f"{flushes / commits:.3g} device flushes per commit", False
    promised = needs_flushes(flags)
    if forced and promised:
        reason = "0 flushes: the log's writes may be forced (FUA), which are not counted"
        return f"not measurable ({reason})", False
    text = f"0 device flushes for {commits} commits, class {durability_class(flags)}"
    return text, promised
