"""What starts checkpoints: time by default; the log's size as a variant, which a faster filesystem meets more often."""

from __future__ import annotations

from typing import Final

from dbbench.model import EngineName, Scalar

# Small enough that a window of a minute has some, at the few MB/s of log that a disk of 2025 takes; large enough that
# one is not all of the window. PostgreSQL begins one when about half of it is written.
LOG_BYTES: Final = 128 * 2**20

BY_LOG: Final[dict[EngineName, dict[str, Scalar]]] = {
    "postgres": {"checkpoint_timeout": "1d", "max_wal_size": f"{LOG_BYTES // 2**20}MB"},
    "mariadb": {"innodb_log_file_size": LOG_BYTES},
    "mysql": {"innodb_redo_log_capacity": LOG_BYTES},
    "files": {},
}
