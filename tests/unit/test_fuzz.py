"""Damaged tool output leads to an error with a remedy or to a result, never to an exception of Python."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbbench.drivers import (
    bonnie,
    filework_load,
    fio,
    pgbench,
    pgbench_log,
    sysbench,
    sysbench_events,
)
from dbbench.drivers import statements as steps
from dbbench.drivers.tool import read_counts
from dbbench.engines import postgres_counters
from dbbench.introspect import recordings, refusals, values
from dbbench.machine import cores, kernel_log, mounts
from dbbench.machine.host import proc
from dbbench.metrics.series import read_csv_gz
from dbbench.model import events
from dbbench.results.journal import Journal
from dbbench.samplers import iostat, sar, server_log
from dbbench.storage.devices import ceiling, guard, naming, smart
from dbbench.storage.filesystems import btrfs, ext, f2fs, xfs, zfs
from dbbench.storage.filesystems.zfs import properties
from dbbench.storage.layers import crypt, lvm
from dbbench.units import bytes_of, epoch, inert, seconds_of
from tests.support.fuzz import CASES, case, extended, fixture, held


def of_file(parse: Callable[[Path], object], name: str = "") -> Callable[[str], object]:
    """A parser of a file, or of a folder that holds the file `name`, as one of text."""

    def wrapped(text: str) -> object:
        with tempfile.TemporaryDirectory(prefix="dbbench-fuzz-") as folder:
            (path := Path(folder, name or "text")).write_bytes(text.encode(errors="replace"))
            return parse(path.parent if name else path)

    return wrapped


def a_journal(path: Path) -> object:
    """What is outstanding of every kind."""
    journal = Journal(path)
    kinds = "image", "runtime", "layer", "pool", "cgroup"
    return [*map(journal.outstanding, kinds)], journal.has_filesystem("a", "b")


def checkpoints(text: str) -> object:
    """Those of a log of PostgreSQL."""
    return postgres_counters.checkpoint_events(text.splitlines())


def pgbench_counts(path: Path) -> object:
    """Those of five seconds of its log."""
    return pgbench_log.parse([path], 1.0, 5)


JOURNAL: Final = '{"utc": 1, "event": "take", "what": "image", "path": "/.dbbench-a.img"}\n' * 3
SMART: Final = json.dumps(
    {
        "device": {"type": "nvme"},
        "nvme_smart_health_information_log": {
            "percentage_used": 3,
            "data_units_written": 100,
            "temperature": 30,
        },
        "temperature": {"current": 30},
    }
)
HISTOGRAM: Final = """Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.532 |****  12
       0.541 |***  8

General statistics:
"""
STEPS: Final = "-- step load; untimed\nCOPY t FROM x;\n-- step b\nSELECT 1;\n"
SELECT: Final = "SELECT a FROM b WHERE c BETWEEN $1 AND date $2 LIMIT $3"
STAT: Final = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"

# name: (parser, recorded text, errors beyond ours that its caller takes)
PARSERS: Final[dict[str, tuple[Callable[[str], object], str, tuple[type[Exception], ...]]]] = {
    "sadf": (lambda t: sar.parse(t, ("loop0",)), fixture("samplers/sar-12.6.1.json"), ()),
    "sadf-12.7": (lambda t: sar.parse(t, ("loop0",)), fixture("samplers/sar-12.7.5.json"), ()),
    "sadf-cut": (lambda t: sar.parse(t, ("loop0",)), fixture("samplers/sar_cut.json"), ()),
    "iostat-12.7": (
        lambda t: iostat.parse(t, "loop0"),
        fixture("samplers/iostat-12.7.5.json"),
        (),
    ),
    "iostat": (lambda t: iostat.parse(t, "loop0"), fixture("samplers/iostat-12.6.1.json"), ()),
    "server-log": (server_log.events, fixture("engines/postgres-15.log"), ()),
    "checkpoints": (checkpoints, fixture("engines/postgres-15.log"), ()),
    "pgbench": (
        lambda t: read_counts(pgbench.COUNTS, t),
        fixture("drivers/pgbench-15/pgbench.out"),
        (),
    ),
    "pgbench-live": (pgbench.live, fixture("drivers/pgbench-15/pgbench.err"), ()),
    "pgbench-aborted": (pgbench.is_abort, fixture("drivers/pgbench-15/pgbench_aborted.err"), ()),
    "pgbench-log": (
        of_file(pgbench_counts),
        fixture("drivers/pgbench-15/pgbench_log.4711")[:4000],
        (),
    ),
    "sysbench": (
        lambda t: read_counts(sysbench.COUNTS, t),
        fixture("drivers/sysbench_denied.out"),
        (),
    ),
    "sysbench-live": (
        sysbench.live,
        "[ 1s ] thds: 2 tps: 9.00 qps: 1 (r/w/o: 1/2/3) lat (ms,95%): 3.1\n",
        (),
    ),
    "sysbench-histogram": (sysbench.histogram, HISTOGRAM, ()),
    "sysbench-events": (of_file(lambda p: sysbench_events.parse([p], 5)), "1 100 3\n2 120 4\n", ()),
    "fio-load": (fio.parse, fixture("drivers/fio.json"), ()),
    "fio-log": (
        lambda t: fio.by_second([t], 1.7e9, 5, "0"),
        fixture("drivers/fio_bw.1.log")[:2000],
        (),
    ),
    "fio-live": (fio.live, "Jobs: 2 (f=2): [m(2)][50.0%][r=13.2k,w=13.2k IOPS][eta 00m:01s]", ()),
    "bonnie": (bonnie.parse, fixture("drivers/bonnie.csv"), ()),
    "copied": (filework_load.parse_copy, fixture("drivers/copy.out"), ()),
    "small-files": (filework_load.steps, fixture("drivers/smallfiles.out"), ()),
    "filework-live": (filework_load.live, '{"t": 0.251105, "bytes": 78643200}', ()),
    "sql-steps": (lambda t: steps.parse(t, "postgres"), STEPS, ()),
    "logged": (lambda t: refusals.refusal(t, "mysql"), fixture("recorded/slow.log")[:2000], ()),
    "samples": (lambda t: values.samples_of(t, None, 9), SELECT, (ValueError,)),
    "statements": (of_file(recordings.read), fixture("recorded/pgss.csv"), ()),
    "lsblk": (naming.parse_lsblk, fixture("devices/lsblk-2.41.5.json"), ()),
    "wipefs": (
        guard.parse,
        fixture("devices/wipefs_ext4.json"),
        (ValueError, LookupError, TypeError),
    ),
    # the kernel's own
    "mountinfo": (mounts.parsed_mounts, fixture("devices/mountinfo.txt"), (ValueError, IndexError)),
    "kmsg": (kernel_log.parse, fixture("filesystems/kmsg.txt").splitlines()[0], (ValueError,)),
    "dumpe2fs": (ext.parse_dumpe2fs, fixture("filesystems/dumpe2fs-ext4-1.47.0.txt"), ()),
    "xfs_info": (xfs.parse_xfs_info, fixture("filesystems/xfs_info-6.13.0.txt"), ()),
    "btrfs-super": (btrfs.parse_super, fixture("filesystems/btrfs-dump-super-6.2.txt"), ()),
    "btrfs-chunks": (btrfs.parse_chunks, fixture("filesystems/btrfs-dump-tree-chunk-6.2.txt"), ()),
    "btrfs-du": (btrfs.parse_du, fixture("filesystems/btrfs-du-6.2.txt"), ()),
    "btrfs-usage": (btrfs.parse_usage, fixture("filesystems/btrfs-usage-6.2.txt"), ()),
    "compsize": (btrfs.parse_compsize, fixture("filesystems/compsize.txt"), ()),
    "e2freefrag": (ext.parse_e2freefrag, fixture("filesystems/e2freefrag-1.47.0.txt"), ()),
    "xfs-freesp": (
        lambda t: xfs.parse_freesp(t, 4096),
        fixture("filesystems/xfs-freesp-6.13.0.txt"),
        (),
    ),
    "dump.f2fs": (f2fs.parse_dump, fixture("filesystems/dump.f2fs.txt"), ()),
    "fsck.f2fs": (f2fs.damages, fixture("filesystems/fsck-f2fs-damaged.txt"), ()),
    "zfs-get": (properties.parse_get, fixture("zfs/zfs-get-native.txt"), ()),
    "zdb-label": (properties.parse_label, fixture("zfs/zdb-label-native.txt"), ()),
    "zfs-size": (properties.size_bytes, "1.5G", ()),
    "zpool-status": (zfs.damages, fixture("zfs/zpool-status-damaged-early.txt"), ()),
    "zfs-taken": (zfs.parse_bytes, fixture("zfs/zfs-taken-native.txt"), ()),
    "cryptsetup": (crypt.parse_status, fixture("layers/cryptsetup-status.txt"), ()),
    "lvs": (lambda t: lvm.volume_facts(lvm.parse_lvs(t)), fixture("layers/lvs-thin.json"), ()),
    "lvs-taken": (lambda t: lvm.parse_bytes(t, 4096), "0 1000 snapshot 16/1000 8", ()),
    "lvs-2.03.31": (lvm.parse_lvs, fixture("layers/lvs-2.03.31.json"), ()),
    "fio": (ceiling.parse_rows, fixture("fio/two_rows.json"), (ValueError,)),
    "smartctl": (lambda t: smart.of_smartctl(json.loads(t)), SMART, (ValueError,)),
    "nvme": (lambda t: smart.of_nvme(json.loads(t)), SMART, (ValueError,)),
    "cores": (cores.parsed_cores, "0-3,8,10-11", (ValueError,)),
    "proc-stat": (of_file(proc.cpu_times, "stat"), STAT, ()),
    "event": (events.parse, '{"kind": "second", "data": {"phase": "measure"}}', ()),
    "journal": (of_file(a_journal), JOURNAL, ()),
    "clock": (epoch, "2026-01-01T00:00:00.123Z", (ValueError,)),
    "bytes": (bytes_of, "4GiB", (ValueError,)),
    "seconds": (seconds_of, "5min", (ValueError,)),
    "inert": (inert, "a\x1b[31m", ()),
    "series": (of_file(lambda p: read_csv_gz(p)), "not gzip", (OSError, EOFError, ValueError)),
}


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_output_is_an_answer_or_an_error(name: str) -> None:
    """Of every parser of a tool's output."""
    parse, recorded, allowed = PARSERS[name]

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.one_of(
            st.integers(0, 2**40).map(lambda seed: case(recorded, seed)), st.text(max_size=300)
        )
    )
    def each(text: str) -> None:
        held(parse, text, allowed)

    each()


@pytest.mark.parametrize(
    "name",
    [
        "sadf",
        "sadf-12.7",
        "iostat",
        "iostat-12.7",
        "lsblk",
        "wipefs",
        "lvs",
        "fio",
        "fio-load",
        "smartctl",
        "nvme",
    ],
)
@pytest.mark.parametrize("value", [None, [], {}, "1", 7])
def test_a_key_that_a_newer_program_adds_changes_no_answer(name: str, value: object) -> None:
    """In every object of what it prints."""
    parse, recorded, _allowed = PARSERS[name]
    newer = extended(json.loads(recorded), value)
    assert repr(parse(json.dumps(newer))) == repr(parse(recorded))
