"""What loads are expected to write, before any of them was measured here. The rates and shares were
measured on small runs with PostgreSQL 15 and MariaDB 10.11 on ext4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dbbench.drivers import bonnie, tool
from dbbench.engines import profile_of
from dbbench.model import Cell
from dbbench.storage.filesystems.families import copies_on_write

MB: Final = 10**6
# bytes/s to the device under a load that changes rows; ten times as much on a fast disk
WRITE_RATE: Final = 30 * MB
# WRITE_RATE is multiplied by this for copy-on-write, which also rewrites the tree above each
# change: btrfs wrote 2.1 to 3.9 times as much as ext4, in fewer transactions.
COPY_ON_WRITE: Final = 2.7
# bytes/s under a load that only reads: statistics, periodic commits of the journal
READ_RATE: Final = 0.1 * MB
# share of WRITE_RATE if only a tablespace is on the device, without the log
TABLES_SHARE: Final = 0.3
FILE_RATE: Final = 300 * MB  # bytes/s of file loads that write without flushes
FLUSHED_RATE: Final = 15 * MB  # bytes/s of file loads that flush each small write
# bytes/s of the restore, and of other files that are written or read as a whole
COPY_RATE: Final = 250 * MB
# in the names of loads that only read
READERS: Final = (
    "select",
    "point_select",
    "read_only",
    "randread",
    "seqread",
)
COPY_IN: Final = 4.0  # multiple of the file: rows, log, full-page images or doublewrite
# multiple of the data: index of a text column and its log
INDEX: Final = {"postgres": 1.0, "mysql": 2.5}
# multiple of the data: update of half of it, then vacuum or purge
VACUUM: Final = {"postgres": 5.0, "mysql": 4.0}
TABLE_ROW: Final = 300  # bytes of a row of the insert benchmark with its index entries
INSERT_ROW: Final = 1400  # bytes to the device of such a row, with its log
# The same next to queries, where another row is deleted for each: InnoDB writes most of its pages
# twice.
INSERTED_ROW: Final = {"postgres": 4000, "mysql": 30_000}
LOGGED_ROW: Final = 500  # bytes of kept log of such a row
INSERT_RATE: Final = 30_000  # rows per second that the insert benchmark loads and indexes
# multiple of the content of the files: also their inodes and directories, and deleting them
SMALL_FILE: Final = 1.75
# files per second, each created, read cold and deleted, on ext4 and btrfs
SMALL_FILES: Final = 1400
BONNIE: Final = 2  # multiple of the file: it is written and rewritten, and read as often
BONNIE_FILES: Final = 2000  # files per second, each created, looked up and deleted, twice
# per-character tests, which use a part of the file: 20 s on ext4, 60 s on btrfs
CHARS_S: Final = 30.0


@dataclass(frozen=True)
class LoadEstimate:
    """What one load writes, and how long it takes in addition to its window, or to reading and
    writing its data.
    """

    write_bytes: float  # to the device
    log_bytes: float = 0.0  # of log, in any time
    log_rate: float = 0.0  # most bytes/s of log in the window, in addition
    extra_s: float = 0.0
    table_bytes: int = 0  # size of the tables that it makes itself, with their indexes


def estimate(cell: Cell, data_bytes: int) -> LoadEstimate:
    """Return what the cell's load writes. `data_bytes`: size of the dataset's tables."""
    values = cell.values
    seconds = cell.window.seconds
    # What each tool writes, from its parameters and rates that were measured once.
    match cell.workload.driver:
        case "scan":
            return LoadEstimate(0.0)
        case "copy":
            return LoadEstimate(float(values["file_size"]))
        case "smallfiles":
            files = float(values["files"])
            size = max(4096, int(values["file_bytes"]))
            return LoadEstimate(files * size * SMALL_FILE, extra_s=files / SMALL_FILES)
        case "bonnie":
            whole = BONNIE * bonnie.file_bytes(cell, tool.could_hold(cell))
            files_s = 1024 * float(values.get("files", 16)) / BONNIE_FILES
            chars_s = CHARS_S if values.get("chars", True) else 0.0
            return LoadEstimate(whole, extra_s=whole / COPY_RATE + files_s + chars_s)
        case "apply":
            log_bytes = float(values["log_bytes"])
            return LoadEstimate(2 * log_bytes, log_bytes=log_bytes)
        case "fio":
            # a file for each job
            layout = float(values.get("file_size", 0)) * float(values.get("clients", 1))
            rate = FLUSHED_RATE if values.get("fdatasync") else FILE_RATE
            written = 0 if _only_reads(cell) else seconds * rate
            return LoadEstimate(layout + written, extra_s=layout / COPY_RATE)
        case "insert":
            rows = float(values["rows"])
            row_rate = float(values["insert_rate"])
            # a rate may be beyond what the disk takes
            most = _estimate_transactions(cell).write_bytes
            inserted_row = INSERTED_ROW[profile_of(cell.engine.name).dialect]
            inserted = min(inserted_row * row_rate * seconds, most)
            return LoadEstimate(
                INSERT_ROW * rows + inserted,
                log_bytes=LOGGED_ROW * rows,
                log_rate=LOGGED_ROW * row_rate,
                extra_s=rows / INSERT_RATE,
                table_bytes=TABLE_ROW * int(rows),
            )
        case "statements":
            return _estimate_statements(cell, data_bytes)
        case _:
            return _estimate_transactions(cell)


def _estimate_statements(cell: Cell, data_bytes: int) -> LoadEstimate:
    name = cell.workload.name
    dialect = profile_of(cell.engine.name).dialect
    if name == "copy-in":
        sent = float(cell.values["tables"]) * float(cell.values["file_bytes"])
        return LoadEstimate(sent * COPY_IN, log_bytes=sent)
    if name == "index-build":
        return LoadEstimate(data_bytes * INDEX[dialect])
    return LoadEstimate(data_bytes * VACUUM[dialect], log_bytes=data_bytes)


def _estimate_transactions(cell: Cell) -> LoadEstimate:
    if _only_reads(cell):
        return LoadEstimate(cell.window.seconds * READ_RATE)
    # appending writes as many bytes on btrfs as on ext4
    appends = cell.workload.name == "bulk-insert"
    rate: float = WRITE_RATE
    if cell.dataset.parameters.get("tablespace"):
        rate *= TABLES_SHARE
    if copies_on_write(cell.setup) and not appends:
        rate *= COPY_ON_WRITE
    return LoadEstimate(cell.window.seconds * rate, log_rate=math.inf)


def _only_reads(cell: Cell) -> bool:
    script = cell.workload.script.replace("-", "_")
    return any(word in script for word in READERS)
