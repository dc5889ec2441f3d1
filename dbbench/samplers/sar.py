"""sar: sysstat's binary recorder during the load, read afterwards with `sadf -j`. Raw file:
`sar.bin`.
"""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import CommandFailed, DeadlinePassed, ProgramMissing
from dbbench.machine.host.proc import PROC, task
from dbbench.process import run, running
from dbbench.samplers.sampler import Sampled, Sampling
from dbbench.samplers.sysstat import (
    Interval,
    Recorder,
    SysstatDocument,
    Table,
    missing_keys,
    numbers,
    statistics,
)

_OPTIONS: Final = ("-u", "ALL", "-d", "-r", "ALL", "-B", "-b", "-q", "LOAD")
PROGRAMS: Final = ("sadc", "sadf")
_PRESSURE: Final = ("-q", "CPU", "-q", "IO", "-q", "MEM")
# Section and key of sysstat 12 -> (dbbench's column, factor): `sadf -j FILE -- -u ALL -d -r ALL -B
# -b -q ...`
_TABLES: Final[dict[str, Table]] = {
    "cpu-load": {
        "usr": ("cpu_user_pct", 1),
        "nice": ("cpu_nice_pct", 1),
        "sys": ("cpu_system_pct", 1),
        "iowait": ("cpu_iowait_pct", 1),
        "steal": ("cpu_steal_pct", 1),
        "irq": ("cpu_irq_pct", 1),
        "soft": ("cpu_softirq_pct", 1),
        "guest": ("cpu_guest_pct", 1),
        "gnice": ("cpu_guest_nice_pct", 1),
        "idle": ("cpu_idle_pct", 1),
    },
    "disk": {
        "rkB": ("disk_read_kb_per_s", 1),
        "wkB": ("disk_write_kb_per_s", 1),
        "dkB": ("disk_discard_kb_per_s", 1),
        "tps": ("disk_tps", 1),
        "util-percent": ("disk_util_pct", 1),
        "aqu-sz": ("disk_queue", 1),
        "await": ("disk_await_ms", 1),
        "areq-sz": ("disk_request_kb", 1),
    },
    "io": {"tps": ("total_io_per_s", 1)},
    "io-reads": {"bread": ("total_read_kb_per_s", 0.5)},  # blocks of 512 bytes
    "io-writes": {"bwrtn": ("total_write_kb_per_s", 0.5)},
    "memory": {  # sysstat prints kB
        "memfree": ("mem_free_bytes", 1024),
        "avail": ("mem_available_bytes", 1024),
        "buffers": ("mem_buffers_bytes", 1024),
        "cached": ("mem_cached_bytes", 1024),
        "dirty": ("mem_dirty_bytes", 1024),
        "anonpg": ("mem_anonymous_bytes", 1024),
        "slab": ("mem_slab_bytes", 1024),
    },
    "paging": {
        "pgpgin": ("paging_in_kb_per_s", 1),
        "pgpgout": ("paging_out_kb_per_s", 1),
        "fault": ("paging_faults_per_s", 1),
        "majflt": ("paging_major_faults_per_s", 1),
        "pgscank": ("paging_scanned_kswapd_per_s", 1),
        "pgscand": ("paging_scanned_direct_per_s", 1),
        "pgsteal": ("paging_reclaimed_per_s", 1),
    },
    "queue": {
        "runq-sz": ("procs_running", 1),
        "blocked": ("procs_blocked", 1),
        "plist-sz": ("tasks", 1),
        "ldavg-1": ("load_1", 1),
        "ldavg-5": ("load_5", 1),
    },
}
_PER_REQUEST: Final = {"await": "tps", "areq-sz": "tps"}
# `some_avg` and `full_avg` are of the interval; `some_avg10` and the like are the kernel's running
# means.
_PSI: Final[dict[str, Table]] = {
    "psi-cpu": {"some_avg": ("psi_cpu_some_pct", 1)},
    "psi-io": {"some_avg": ("psi_io_some_pct", 1), "full_avg": ("psi_io_full_pct", 1)},
    "psi-mem": {"some_avg": ("psi_memory_some_pct", 1), "full_avg": ("psi_memory_full_pct", 1)},
}
_STAMP: Final = '{"date", "time", "interval"} with "utc": 1 or "tz": "UTC"'


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling]:
    """Record into `raw/sar.bin` once per second. Raises ProgramMissing if sysstat is not installed."""
    binary = raw / "sar.bin"
    log = raw / "sar.log"
    names = _names(target.disk)
    with running(["sadc", "-S", "DISK", "1", binary], stdout=log) as program:
        recording = Recorder(
            "sar",
            "cpu_user_pct",
            time.time(),
            lambda: _read(binary, names),
        )
        try:
            yield recording
        finally:
            recording.note_end(program, log)
            wait_between_records(program.pid)


_Sections = Mapping[str, Mapping[str, Any] | None]


def wait_between_records(pid: int) -> None:
    """Wait 1 s at most until the recorder sleeps: a signal during a write would damage the record,
    and so the file.
    """

    def is_writing() -> bool:
        recorder = task(f"{PROC}/{pid}")
        return recorder is not None and recorder.state in "RD"

    process.wait_while(is_writing, 1.0, every_s=0.002)


def _names(disk: str | None) -> tuple[str, ...]:
    """Return the disk's kernel name, and sysstat's name for it once the device is gone."""
    if disk is None:
        return ()
    with contextlib.suppress(OSError):
        major, _, minor = Path("/sys/class/block", disk, "dev").read_text().strip().partition(":")
        return (disk, f"dev{major}-{minor}")
    return (disk,)


def _read(binary: Path, disk_names: tuple[str, ...]) -> SysstatDocument:
    """Return the entries of a binary file. If the file is truncated, sadf prints the complete
    records before that.
    """
    pressure = Path("/proc/pressure").is_dir()
    options = _OPTIONS + _PRESSURE if pressure else _OPTIONS
    try:
        done = run(
            ["sadf", "-j", binary, "--", *options],
            timeout_s=120,
            ok=range(256),
        )
    except (CommandFailed, DeadlinePassed, ProgramMissing) as error:
        return SysstatDocument(fault=str(error))
    # The text is kept too, because another version of sadf may not read the file.
    with gzip.GzipFile(binary.with_suffix(".json.gz"), "wb", 6, mtime=0) as packed:
        packed.write(done.stdout.encode())
    document = parse(done.stdout, disk_names, pressure)
    # What was read until a fault is used; the fault becomes a warning.
    printed = done.stderr.strip().splitlines()
    if printed:
        return document._replace(fault=f"sadf reports {printed[0]!r}")
    if done.returncode != 0:
        return document._replace(fault=f"sadf ended with status {done.returncode}")
    if not document.whole:
        return document._replace(
            unexpected=f"expected a JSON document of sadf, read {done.stdout[:60]!r}"
        )
    return document


@process.understood("sadf")
def parse(
    text: str,
    disk_names: tuple[str, ...],
    pressure: bool = True,
) -> SysstatDocument:
    """Return the entries in order, with only the disks in `disk_names`: the kernel's name and
    sysstat's of a device that is gone (`dev7-0`), or (). `pressure`: whether sadf printed
    pressure stall information.
    """
    # A row whose time cannot be read is left out, and counted as strange.
    rows, whole = statistics(text)
    entries = []
    strange = list[object]()
    read = []
    tables = _TABLES | (_PSI if pressure else {})
    for raw in rows:
        stamp = _stamp(raw.get("timestamp"))
        if stamp is None:
            strange.append(raw.get("timestamp"))
            continue
        sections = _sections(raw, disk_names)
        read.append(sections)
        values = dict[str, float | None]()
        # Tables that sadf did not print have no values.
        for name, table in (_TABLES | _PSI).items():
            row = sections[name]
            if row is not None:
                values.update(numbers(row, table, _PER_REQUEST))
        entries.append(Interval(*stamp, values))
    return SysstatDocument.of(
        entries,
        whole,
        strange,
        _STAMP,
        _surplus(read, tables, disk_names),
    )


def _surplus(
    read: list[_Sections],
    tables: Mapping[str, Table],
    disk_names: tuple[str, ...],
) -> str:
    """Return sections and keys that no entry has. sysstat omits an idle disk, so one entry with it
    is sufficient.
    """
    texts = []
    for name, table in tables.items():
        sections = [entry[name] for entry in read]
        rows = [row for row in sections if row is not None]
        if name != "disk" or rows:
            texts.append(missing_keys(name, rows, table))
        elif disk_names:
            texts.append(f"disk: expected {' or '.join(disk_names)}, read none of them")
    if read:
        return "; ".join(filter(None, texts))
    return ""


def _stamp(stamp: Any) -> tuple[int, float] | None:
    """Return the end of an interval and its length. sysstat up to 12.6 writes "utc": 1, from 12.7
    on "tz": "UTC".
    """
    try:
        end = datetime.fromisoformat(f"{stamp['date']}T{stamp['time']}").replace(tzinfo=UTC)
        interval = float(stamp["interval"])
    except (KeyError, TypeError, ValueError):
        return None
    if stamp.get("utc") != 1 and stamp.get("tz") != "UTC":
        return None
    return int(end.timestamp()), interval


def _sections(raw: Mapping[str, Any], disk_names: tuple[str, ...]) -> _Sections:
    io = raw.get("io", {})
    psi = raw.get("psi", {})
    cpus = [row for row in raw.get("cpu-load", []) if row.get("cpu") == "all"]
    disks = [row for row in raw.get("disk", []) if row.get("disk-device") in disk_names]
    return {
        "cpu-load": next(iter(cpus), None),
        "disk": next(iter(disks), None),
        "io": io,
        "io-reads": io.get("io-reads"),
        "io-writes": io.get("io-writes"),
        "memory": raw.get("memory"),
        "paging": raw.get("paging"),
        "queue": raw.get("queue"),
        **{name: psi.get(name) for name in _PSI},
    }
