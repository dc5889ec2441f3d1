"""The table of metrics, which page, compare, exports and docs read. It is long because it is a table."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from dbbench.units import GROUP, number, size_text


class Metric(NamedTuple):
    """A metric of a trial: a key of `Trial.summary`."""

    name: str
    label: str
    unit: str
    better: Literal["higher", "lower"]
    words: Literal["speed", "quality"] = "quality"  # speed: faster/slower; quality: better/worse
    help: str = ""

    def text(self, value: float | None) -> str:
        """Return a value without its unit; bytes as GiB or MiB with it."""
        if value is not None and self.unit == "bytes":
            return size_text(value).replace(" ", GROUP)
        return number(value)

    def with_unit(self, value: float | None) -> str:
        text = self.text(value)
        if value is None or self.unit in ("", "bytes"):
            return text
        return f"{text}{GROUP}{self.unit}"


# The tests of bonnie++ that have a share of CPU and a longest latency each.
BONNIE: Final = (
    "char_write",
    "block_write",
    "rewrite",
    "char_read",
    "block_read",
    "seek",
    "create",
    "stat",
    "delete",
    "random_create",
    "random_stat",
    "random_delete",
)

# The transactions of the workload `tpcc`, in the order in which its script counts them.
TPCC: Final = ("new_order", "payment", "order_status", "delivery", "stock_level")

# The secondary indexes that the workload `insert-benchmark` creates, in this order.
INSERT_INDEXES: Final = ("price", "shop", "customer")

# What a load costs: (label, unit, help) of its totals, which are divided by its transactions, or by
# the GiB of a scan.
COSTS: Final = {
    "cpu_ms": (
        "CPU",
        "ms",
        "system total − client − dbbench; includes kernel workers of the filesystem",
    ),
    "write_kb": ("written", "kB", "to the device"),
    "read_kb": ("read", "kB", "from the device"),
    "flushes": ("flushes", "", ""),
    "io_operations": (
        "I/O operations",
        "",
        "reads and writes that the device completed, after merging; flushes are not included",
    ),
    "context_switches": ("context switches", "", "of the threads of server and load generator"),
}

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(
            "tps",
            "throughput",
            "tx/s",
            "higher",
            "speed",
            "transactions ÷ seconds of the window, stalls included",
        ),
        Metric(
            "sustained_tps",
            "sustained throughput",
            "tx/s",
            "higher",
            "speed",
            "transactions ÷ (window + drain): the drain writes what the window left unwritten",
        ),
        Metric(
            "tps_per_price",
            "throughput per price",
            "tx/s",
            "higher",
            "speed",
            "throughput ÷ `price` of the limit in [device]",
        ),
        Metric(
            "ceiling_pct",
            "share of the ceiling",
            "%",
            "higher",
            help="throughput ÷ rate of single flushed writes of the engine's page size on the "
            "bare device",
        ),
        Metric(
            "tpmc",
            "new orders",
            "1/min",
            "higher",
            "speed",
            "workload tpcc; counted like TPC-C's tpmC, but not comparable with it",
        ),
        Metric(
            "p50_ms",
            "p50 latency",
            "ms",
            "lower",
            help="from the merged histogram of the window",
        ),
        Metric(
            "p95_ms",
            "p95 latency",
            "ms",
            "lower",
            help="from the merged histogram of the window",
        ),
        Metric(
            "p99_ms",
            "p99 latency",
            "ms",
            "lower",
            help="from the merged histogram of the window",
        ),
        Metric(
            "p999_ms",
            "p99.9 latency",
            "ms",
            "lower",
            help="from the merged histogram of the window",
        ),
        Metric("max_ms", "longest transaction", "ms", "lower"),
        *(
            Metric(
                f"{name}_p{percent}_ms",
                f"p{percent} latency, {name.replace('_', ' ')}",
                "ms",
                "lower",
                help="of this kind of transaction in tpcc",
            )
            for name in TPCC
            for percent in (50, 95, 99)
        ),
        Metric(
            "duration_s",
            "duration",
            "s",
            "lower",
            "speed",
            "of a workload that runs to its end; of a scan, of one pass over all tables",
        ),
        Metric(
            "drained_s",
            "duration with drain",
            "s",
            "lower",
            "speed",
            "duration + checkpoint + sync: until all data is on the device",
        ),
        Metric(
            "mb_per_s",
            "rate",
            "MB/s",
            "higher",
            "speed",
            "processed data ÷ seconds, 10^6 bytes; for a scan, the size of the scanned tables",
        ),
        Metric(
            "kb_per_s",
            "apply rate",
            "kB/s",
            "higher",
            "speed",
            "replayed log ÷ seconds in which the standby had log to replay, 10^3 bytes",
        ),
        Metric(
            "rows_per_s",
            "rows per second",
            "rows/s",
            "higher",
            "speed",
            "rows loaded or processed",
        ),
        Metric(
            "queries_per_s",
            "queries",
            "queries/s",
            "higher",
            "speed",
            "of insert-benchmark, during inserts at the required rate",
        ),
        Metric(
            "load_rows_per_s",
            "rows loaded",
            "rows/s",
            "higher",
            "speed",
            "of insert-benchmark: in the order of the primary key, without secondary indexes",
        ),
        *(
            Metric(
                f"index_{name}_s",
                f"index on {name}",
                "s",
                "lower",
                "speed",
                "of insert-benchmark: CREATE INDEX",
            )
            for name in INSERT_INDEXES
        ),
        Metric(
            "insert_rows_per_s",
            "rows inserted",
            "rows/s",
            "higher",
            "speed",
            "of insert-benchmark, during its queries",
        ),
        Metric(
            "device_read_mb_per_s",
            "read from the device",
            "MB/s",
            "higher",
            "speed",
            "of a workload that runs to its end, 10^6 bytes; compression and read-ahead make it "
            "differ from the scan rate",
        ),
        Metric(
            "device_write_mb_per_s",
            "written to the device",
            "MB/s",
            "higher",
            "speed",
            "of a workload that runs to its end, 10^6 bytes",
        ),
        Metric(
            "during_tps_ratio",
            "throughput during the statement",
            "×",
            "higher",
            "speed",
            "mean tps from the start of the statement to 5 s after its end ÷ mean tps before it",
        ),
        Metric(
            "during_s",
            "duration of the statement",
            "s",
            "lower",
            "speed",
            "of the additional statement (`during`)",
        ),
        Metric(
            "during_stall_s",
            "stalled seconds during the statement",
            "s",
            "lower",
            help="seconds, to 5 s after its end, below 10 % of the median before it or without a "
            "transaction",
        ),
        Metric(
            "during_p999_ms",
            "p99.9 latency during the statement",
            "ms",
            "lower",
            help="to 5 s after its end",
        ),
        Metric(
            "during_max_ms",
            "longest transaction during the statement",
            "ms",
            "lower",
            help="to 5 s after its end",
        ),
        Metric(
            "stall_s",
            "stalled seconds",
            "s",
            "lower",
            help="seconds below 10 % of the trial's median tps, or without a transaction",
        ),
        Metric(
            "stalls_per_h",
            "stalled seconds per hour",
            "s/h",
            "lower",
            help="seconds below 10 % of the trial's median tps, or without a transaction, per "
            "hour of the window",
        ),
        Metric(
            "longest_stall_s",
            "longest stall",
            "s",
            "lower",
            help="consecutive seconds below 10 % of the median tps, or without a transaction",
        ),
        Metric(
            "tps_cv",
            "unevenness",
            "",
            "lower",
            help="coefficient of variation of the seconds' tps",
        ),
        Metric(
            "tps_floor",
            "floor",
            "",
            "higher",
            help="1st percentile of the seconds' tps ÷ their median",
        ),
        Metric(
            "p99_to_p50",
            "p99 ÷ p50",
            "×",
            "lower",
            help="ratio of a slow transaction's latency to a typical one's",
        ),
        *(
            Metric(f"{name}_per_{key}", f"{label} per {work}", unit, "lower", help=text)
            for key, work in (("tx", "transaction"), ("gib", "scanned GiB"))
            for name, (label, unit, text) in COSTS.items()
        ),
        Metric(
            "cpu_pct",
            "CPU",
            "%",
            "lower",
            help="CPU time of cpu_ms_per_tx ÷ time of all cores during the load",
        ),
        Metric(
            "server_memory_bytes",
            "memory of the server",
            "bytes",
            "lower",
            help="largest value in the window, read once a second; shared memory is counted once",
        ),
        Metric(
            "write_amplification",
            "write amplification",
            "×",
            "lower",
            help="device bytes ÷ bytes that the engine wrote",
        ),
        Metric(
            "fsync_ms",
            "append and fsync",
            "ms",
            "lower",
            help="mean of appends of 16 KiB after the load, one at a time, each followed by fsync",
        ),
        Metric(
            "fdatasync_ms",
            "append and fdatasync",
            "ms",
            "lower",
            help="the same with fdatasync",
        ),
        Metric("disk_bytes", "size on disk", "bytes", "lower"),
        Metric(
            "compression_ratio",
            "compression",
            "×",
            "higher",
            help="size of the data ÷ size on disk",
        ),
        Metric(
            "metadata_share",
            "metadata share",
            "",
            "lower",
            help="share of the used space: trees, inode tables, journal and their reserves",
        ),
        Metric(
            "largest_file_extents",
            "extents of the largest file",
            "",
            "lower",
            help="counted by FIEMAP",
        ),
        Metric(
            "scan_mb_per_s",
            "scan rate after the load",
            "MB/s",
            "higher",
            "speed",
            "operation `scan`: all tables, one after the other, from a cold cache",
        ),
        Metric(
            "clone_scan_mb_per_s",
            "scan rate of a clone",
            "MB/s",
            "higher",
            "speed",
            "the same on a second server that runs on a snapshot",
        ),
        Metric("drain_s", "drain", "s", "lower", help="checkpoint + sync after the window"),
        Metric("restore_mb_per_s", "restore rate", "MB/s", "higher", "speed"),
        Metric(
            "read_mb_per_s",
            "read",
            "MB/s",
            "higher",
            "speed",
            "by the load itself, 10^6 bytes",
        ),
        Metric(
            "write_mb_per_s",
            "written",
            "MB/s",
            "higher",
            "speed",
            "by the load itself, 10^6 bytes",
        ),
        Metric(
            "copy_mb_per_s",
            "copy rate without fsync",
            "MB/s",
            "higher",
            "speed",
            "until the file was written, largely to memory",
        ),
        Metric(
            "copy_synced_mb_per_s",
            "copy rate with fsync",
            "MB/s",
            "higher",
            "speed",
            "until the file was on the device",
        ),
        Metric("copy_s", "copy without fsync", "s", "lower", "speed"),
        *(
            Metric(
                f"{name}_mb_per_s",
                name.replace("_", " "),
                "MB/s",
                "higher",
                "speed",
                "bonnie++, 10^6 bytes",
            )
            for name in ("char_write", "block_write", "rewrite", "char_read", "block_read")
        ),
        Metric("seeks_per_s", "seeks", "/s", "higher", "speed", "bonnie++"),
        Metric("creates_per_s", "files created", "/s", "higher", "speed"),
        Metric("stats_per_s", "files looked up", "/s", "higher", "speed", "bonnie++"),
        Metric("reads_per_s", "files read cold", "/s", "higher", "speed"),
        Metric("deletes_per_s", "files deleted", "/s", "higher", "speed"),
        *(
            Metric(
                f"random_{name}s_per_s",
                f"{name}s in random order",
                "/s",
                "higher",
                "speed",
                "bonnie++",
            )
            for name in ("create", "stat", "delete")
        ),
        *(
            Metric(
                f"{name}_cpu_pct",
                f"CPU, {name.replace('_', ' ')}",
                "%",
                "lower",
                help="of one core, by bonnie++",
            )
            for name in BONNIE
        ),
        *(
            Metric(
                f"{name}_max_ms",
                f"longest, {name.replace('_', ' ')}",
                "ms",
                "lower",
                help="by bonnie++",
            )
            for name in BONNIE
        ),
        Metric(
            "first_query_s",
            "time to first query",
            "s",
            "lower",
            "speed",
            "after the cold start",
        ),
    )
}

# Counts that stand in a summary and are not compared.
COUNTS: Final = ("transactions", "errors", "reconnects", "dataset_bytes", "required_rows_per_s")
