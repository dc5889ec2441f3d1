"""MySQL, 8.0.30 or later (the first version in which the size of the redo log is one setting)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench.engines import innodb, mysqld
from dbbench.engines.innodb import Innodb
from dbbench.engines.innodb_server import COUNTERS_OF_MYSQL
from dbbench.engines.innodb_sql import InnodbSql
from dbbench.engines.port import LOG_BYTES, Place
from dbbench.engines.settings import Versions, word
from dbbench.model import Durability, Scalars, merge_settings

# the server's default, which keeps golden copies small; `window_settings` enlarges it
BUILD_LOG: Final = 100 * 2**20

# Clients connect only through the socket: no X plugin, which opens another port, and no TLS
# certificates. The server reads and writes no files outside of its data directory.
PROFILE: Final = replace(
    innodb.PROFILE,
    name="mysql",
    title="MySQL",
    lab_partitions="clause",
    restores_pages=False,
    private={
        "loose_mysqlx": False,
        "secure_file_priv": "NULL",
        "auto_generate_certs": False,
        "caching_sha2_password_auto_generate_rsa_keys": False,
    },
    sql=InnodbSql("cte_max_recursion_depth", "SET SESSION information_schema_stats_expiry = 0"),
    programs=("mysqld",),
    oldest=(8, 0, 30),
    newest=(9, 7),
    counters=COUNTERS_OF_MYSQL,
    versions={"innodb_extend_and_initialize": Versions((8, 0, 22))},
    empty_bytes=220_000_000,
    copying="xtrabackup --backup --socket={socket} --target-dir={copy}, then xtrabackup --prepare "
    "--target-dir={copy}",
    live_settings="""
SELECT lower(VARIABLE_NAME), VARIABLE_VALUE, VARIABLE_VALUE, '', VARIABLE_SOURCE NOT IN ('COMPILED', 'COMMAND_LINE')
FROM performance_schema.variables_info JOIN performance_schema.global_variables USING (VARIABLE_NAME) ORDER BY 1""",
    features=(
        *innodb.PROFILE.features,
        "innodb_use_fdatasync",
        "innodb_log_writer_threads",
        "innodb_log_write_ahead_size",
        "innodb_redo_log_capacity",
        "innodb_extend_and_initialize",
    ),
    by_log={"innodb_redo_log_capacity": LOG_BYTES},
    lab={**innodb.PROFILE.lab, "innodb_redo_log_capacity": 16 * 2**20},
    # 2 MB of redo: the checkpoint stays that far behind the oldest page that is not written
    # (`buf_pool_get_oldest_modification_lwm`). Of the witness's own pages: the server would write
    # those of another table in their place, and recovery makes new pages without reading them.
    lab_checkpoint="UPDATE account SET filler = UUID() WHERE id < 5000",
)


class MySql(Innodb):
    """MySQL, which checks settings with a private server's options."""

    checking = (
        *(f"--{name}={word(value)}" for name, value in PROFILE.private.items()),
        "--validate-config",
    )

    def defaults(self, memory_bytes: int | None) -> Scalars:
        """Return InnoDB's defaults and MySQL's own. Flushes with fsync: direct I/O is not durable
        (`durability`).
        """
        return {
            **innodb.defaults(memory_bytes),
            "innodb_flush_method": "fsync",
            "innodb_redo_log_capacity": BUILD_LOG,
            "innodb_use_fdatasync": True,
            "innodb_log_writer_threads": False,
            "innodb_page_cleaners": 1,
            "innodb_doublewrite_pages": 128,
            "innodb_doublewrite_files": 2,
            "innodb_numa_interleave": False,
            "innodb_idle_flush_pct": 100,
            "innodb_purge_batch_size": 300,
            "innodb_checksum_algorithm": "crc32",
            "innodb_dedicated_server": False,
            "gtid_mode": False,
            "enforce_gtid_consistency": False,
        }

    def create(self, datadir: Path, place: Place, *options: str) -> None:
        """Run mysqld --initialize-insecure: root without a password, reachable only through the private
        socket.
        """
        self.initialize(
            mysqld.require(PROFILE, place.bin),
            {"datadir": str(datadir), **PROFILE.private},
            merge_settings(("default", self.defaults(None))),
            place,
            "--initialize-insecure",
            *options,
        )

    def durability(self, effective: dict[str, str], tears: bool) -> tuple[Durability, ...]:
        """Return the flags of the settings; with O_DIRECT pages may tear despite doublewrite: from
        8.0.20 on the server then does not flush the doublewrite file (buf0dblwr.cc,
        `is_fsync_required`). Copy and page are in the disk's volatile cache at the same time, and a
        power loss can damage both, as the power-loss lab shows.
        """
        flags = super().durability(effective, tears)
        direct = effective.get("innodb_flush_method", "").upper() == "O_DIRECT"
        if tears and direct and Durability.TORN_PAGES not in flags:
            return tuple(flag for flag in Durability if flag in (*flags, Durability.TORN_PAGES))
        return flags


ENGINE: Final = MySql(PROFILE)
