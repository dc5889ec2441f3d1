"""`sadf -j` -> entries: text in, columns with units in their names out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dbbench import process
from dbbench.samplers.sysstat import Entry, statistics

# sysstat's key -> (our column, factor). Keys: `sadf -j FILE -- -u ALL -d -r ALL -B -b -q ...` of sysstat 12.
_CPU: Final = {
    "usr": ("cpu_user_pct", 1), "nice": ("cpu_nice_pct", 1), "sys": ("cpu_system_pct", 1),
    "iowait": ("cpu_iowait_pct", 1), "steal": ("cpu_steal_pct", 1), "irq": ("cpu_irq_pct", 1),
    "soft": ("cpu_softirq_pct", 1), "guest": ("cpu_guest_pct", 1), "gnice": ("cpu_guest_nice_pct", 1),
    "idle": ("cpu_idle_pct", 1),
}  # fmt: skip
_DISK: Final = {
    "rkB": ("disk_read_kb_per_s", 1), "wkB": ("disk_write_kb_per_s", 1), "dkB": ("disk_discard_kb_per_s", 1),
    "tps": ("disk_tps", 1), "util-percent": ("disk_util_pct", 1), "aqu-sz": ("disk_queue", 1),
}  # fmt: skip
_PER_REQUEST: Final = {"await": ("disk_await_ms", 1), "areq-sz": ("disk_request_kb", 1)}
_READS: Final = {"bread": ("total_read_kb_per_s", 0.5)}  # blocks of 512 bytes
_WRITES: Final = {"bwrtn": ("total_write_kb_per_s", 0.5)}
_IO: Final = {"tps": ("total_io_per_s", 1)}
_MEMORY: Final = {  # kB
    "memfree": ("mem_free_bytes", 1024), "avail": ("mem_available_bytes", 1024),
    "buffers": ("mem_buffers_bytes", 1024), "cached": ("mem_cached_bytes", 1024),
    "dirty": ("mem_dirty_bytes", 1024), "anonpg": ("mem_anonymous_bytes", 1024),
    "slab": ("mem_slab_bytes", 1024),
}  # fmt: skip
_PAGING: Final = {
    "pgpgin": ("paging_in_kb_per_s", 1), "pgpgout": ("paging_out_kb_per_s", 1),
    "fault": ("paging_faults_per_s", 1), "majflt": ("paging_major_faults_per_s", 1),
    "pgscank": ("paging_scanned_kswapd_per_s", 1), "pgscand": ("paging_scanned_direct_per_s", 1),
    "pgsteal": ("paging_reclaimed_per_s", 1),
}  # fmt: skip
_QUEUE: Final = {
    "runq-sz": ("procs_running", 1), "blocked": ("procs_blocked", 1), "plist-sz": ("tasks", 1),
    "ldavg-1": ("load_1", 1), "ldavg-5": ("load_5", 1),
}  # fmt: skip
_PSI: Final = {  # `some_avg`: of this interval; `some_avg10` and the like are the kernel's running means
    "psi-cpu": {"some_avg": ("psi_cpu_some_pct", 1)},
    "psi-io": {"some_avg": ("psi_io_some_pct", 1), "full_avg": ("psi_io_full_pct", 1)},
    "psi-mem": {"some_avg": ("psi_memory_some_pct", 1), "full_avg": ("psi_memory_full_pct", 1)},
}

_Table = Mapping[str, tuple[str, float]]


@process.understood("sadf")
def parse(text: str, disk_names: tuple[str, ...]) -> tuple[list[Entry], bool]:
    """Entries in order, and whether the document was whole. Of the disks only those named are taken.

    `disk_names` are the kernel's name and sysstat's own spelling of a device that is gone (`dev7-0`).
    """
    found, whole = statistics(text)
    return [entry for raw in found if (entry := _entry(raw, disk_names)) is not None], whole


def _entry(raw: dict[str, Any], disk_names: tuple[str, ...]) -> Entry | None:
    try:
        stamp = raw["timestamp"]
        end = datetime.fromisoformat(f"{stamp['date']}T{stamp['time']}").replace(tzinfo=UTC)
        interval = float(stamp["interval"])
        if not stamp["utc"]:
            return None
    except (KeyError, TypeError, ValueError):
        return None
    return Entry(int(end.timestamp()), interval, dict(_values(raw, disk_names)))


def _values(raw: dict[str, Any], disk_names: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    for cpu in raw.get("cpu-load", []):
        if cpu.get("cpu") == "all":
            yield from _taken(cpu, _CPU)
    for disk in raw.get("disk", []):
        if disk.get("disk-device") in disk_names:
            yield from _taken(disk, _DISK)
            # Without a request there is no time per request: unknown, not 0 ms.
            yield from _taken(disk if disk.get("tps") else {}, _PER_REQUEST)
    io = raw.get("io", {})
    yield from _taken(io, _IO)
    yield from _taken(io.get("io-reads", {}), _READS)
    yield from _taken(io.get("io-writes", {}), _WRITES)
    yield from _taken(raw.get("memory", {}), _MEMORY)
    yield from _taken(raw.get("paging", {}), _PAGING)
    yield from _taken(raw.get("queue", {}), _QUEUE)
    psi = raw.get("psi", {})
    for kind, table in _PSI.items():
        if kind in psi:
            yield from _taken(psi[kind], table)


def _taken(found: Mapping[str, Any], table: _Table) -> Iterator[tuple[str, float | None]]:
    for key, (column, factor) in table.items():
        value = found.get(key)
        yield column, float(value) * factor if isinstance(value, int | float) else None
