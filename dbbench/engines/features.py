"""What versions of a server differ in that decides how they read and write, out of the settings that one reports.

A name that the running version does not have is left out: `io_method` (PostgreSQL) came with 18, `io_combine_limit`
with 17; MariaDB's `innodb_use_atomic_writes` leaves doublewrite out where the device promises that a page cannot tear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_INNODB: Final = ("innodb_doublewrite", "innodb_flush_method", "innodb_use_native_aio", "innodb_page_size",
                  "innodb_checksum_algorithm")  # fmt: skip
MATTERS: Final[dict[str, tuple[str, ...]]] = {
    "postgres": ("io_method", "io_workers", "io_combine_limit", "effective_io_concurrency", "debug_io_direct",
                 "wal_sync_method", "full_page_writes", "wal_init_zero", "wal_recycle", "wal_compression",
                 "data_checksums", "block_size"),
    "mariadb": (*_INNODB, "innodb_use_atomic_writes", "innodb_log_file_buffering", "innodb_data_file_buffering",
                "innodb_log_write_ahead_size", "innodb_linux_aio"),
    "mysql": (*_INNODB, "innodb_use_fdatasync", "innodb_log_writer_threads", "innodb_log_write_ahead_size",
              "innodb_redo_log_capacity"),
    "files": (),
}  # fmt: skip


def features(engine: str, effective: Mapping[str, str]) -> dict[str, str]:
    """Those of the server's settings that matter, by name."""
    return {name: effective[name] for name in MATTERS[engine] if name in effective}
