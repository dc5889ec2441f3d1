"""Damaged tool output and arbitrary user input lead to an error of dbbench or a result: no
traceback, no hang.

Each parser gets recorded output that was damaged at random, and arbitrary text. DBBENCH_FUZZ is
the number of cases of each (`make soak`: 10 000).
"""

import contextlib
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbbench import plan
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
from dbbench.errors import DbbenchError, FileUnreadable, PlanInvalid
from dbbench.introspect import recordings, refusals, values
from dbbench.machine import cores, kernel_log, mounts
from dbbench.machine.host import proc
from dbbench.metrics.series import read_csv_gz
from dbbench.model import events
from dbbench.plan import catalog
from dbbench.results import load_trial
from dbbench.results.journal import Journal
from dbbench.results.runs import load_spec
from dbbench.samplers import iostat, sar, server_log
from dbbench.storage.devices import ceiling, guard, naming, smart
from dbbench.storage.filesystems import btrfs, ext, f2fs, xfs, zfs
from dbbench.storage.filesystems.zfs import properties
from dbbench.storage.layers import crypt, lvm
from dbbench.units import bytes_of, epoch, inert, seconds_of
from tests.support.files import write_file
from tests.support.runs import small_run

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
ROOT: Final = Path(__file__).parents[2]
CASES: Final = int(os.environ.get("DBBENCH_FUZZ", "100"))
# a case takes some milliseconds; an expression that backtracks without end takes minutes
SLOWEST_S: Final = 5.0
SHIPPED: Final = catalog.catalog()
PIECES: Final = [
    "",
    "0",
    "-1",
    "99999999999999999999999",
    "1e999",
    "nan",
    "None",
    "\0",
    "\n",
    "\n\n",
    ":",
    "=",
    ",",
    ";",
    "(",
    "[",
    "{",
    '"',
    "\\",
    "\\x0a",
    "\u202e",
    "é",
    "𝟙",
    "a" * 3000,
    " " * 3000,
    "0x",
    "%",
]
VALUES: Final = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    "",
    "x",
    "12",
    [],
    {},
    [[]],
    {"a": None},
    [1, 2, 3],
    "nan",
    1e308,
]


def fixture(name: str) -> str:
    """Recorded output."""
    return (FIXTURES / name).read_text(errors="replace")


def damaged(text: str, draw: random.Random) -> str:
    """The text with one to four pieces cut out, doubled, replaced or cut off; or with a line less
    or more.
    """
    if draw.random() < 0.2:
        lines = text.splitlines(keepends=True)
        at = draw.randint(0, len(lines))
        return "".join([*lines[:at], *draw.choice([[], ["newer: 1\n"]]), *lines[at + 1 :]])
    for _ in range(draw.randint(1, 4)):
        begin = draw.randint(0, len(text))
        end = min(len(text), begin + draw.choice([0, 1, 3, 20, 200, len(text)]))
        piece = draw.choice([*PIECES, text[begin:end] * 2])
        text = text[:begin] + piece + text[end:]
    if draw.random() < 0.3:
        numbers = list(re.finditer(r"\d+", text))
        if numbers:
            hit = draw.choice(numbers)
            text = text[: hit.start()] + draw.choice(PIECES) + text[hit.end() :]
    return text


def bent(node: Any, draw: random.Random) -> Any:
    """JSON with a value of another kind somewhere."""
    if draw.random() < 0.1 or not isinstance(node, dict | list) or not node:
        return draw.choice(VALUES)
    if isinstance(node, list):
        at = draw.randrange(len(node))
        return [bent(value, draw) if place == at else value for place, value in enumerate(node)]
    key = draw.choice(list(node))
    if draw.random() < 0.2:  # a missing key
        return {name: value for name, value in node.items() if name != key}
    return {name: bent(value, draw) if name == key else value for name, value in node.items()}


def extended(node: Any, value: object) -> Any:
    """JSON with one more key in every object. One whose keys are numbers is a table, as the bins of
    a histogram.
    """
    if isinstance(node, list):
        return [extended(item, value) for item in node]
    if isinstance(node, dict) and not any(key.isdigit() for key in node):
        return {"newer": value} | {name: extended(item, value) for name, item in node.items()}
    return node


def case(text: str, seed: int) -> str:
    """The recorded text, damaged by that seed; JSON also as JSON."""
    draw = random.Random(seed)
    if text.startswith(("{", "[")) and draw.random() < 0.6:
        with contextlib.suppress(ValueError):
            node = json.loads(text)
            for _ in range(draw.randint(1, 3)):
                node = bent(node, draw)
            return json.dumps(node)
    return damaged(text, draw)


def held(
    parse: Callable[[str], object],
    text: str,
    allowed: tuple[type[Exception], ...],
) -> None:
    """One case: an answer or an allowed error, in time."""
    began = time.process_time()
    with contextlib.suppress(DbbenchError, *allowed):
        found = parse(text)
        if hasattr(found, "__next__"):
            list(found)
    assert time.process_time() - began < SLOWEST_S


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


PLANS: Final = [path.read_text() for path in sorted((ROOT / "docs/plans").glob("*.toml"))]


def test_a_damaged_plan_is_read_or_refused(tmp_path: Path) -> None:
    """Every plan loads, or is refused with its flaws and exit code 2."""
    path = tmp_path / "plan.toml"

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.one_of(
            st.tuples(st.sampled_from(PLANS), st.integers(0, 2**40)).map(lambda made: case(*made)),
            st.text(max_size=300),
        )
    )
    def each(text: str) -> None:
        path.write_bytes(text.encode(errors="replace"))
        began = time.process_time()
        try:
            plan.expand(plan.load(path, SHIPPED), SHIPPED)
        except DbbenchError as error:
            assert error.exit_code == 2, error
        assert time.process_time() - began < SLOWEST_S

    each()


PLAN: Final = """name = "x"
fs_setups = ["ext4", "xfs"]
blocks = 3
[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
"""
MANY: Final = list(range(1, 151))
ENDLESS: Final = {  # what is in the plan, and what is said of it
    "blocks": (PLAN.replace("3", "10000000000"), r"plan.toml:3  \"blocks\" must be 20000 or less"),
    "infinite": (PLAN.replace("3", "inf"), 'plan.toml:3  "blocks" is not a number'),
    "digits": (PLAN.replace("3", "9" * 100_000), "plan.toml:3  a number has too many digits"),
    "64 bits": (PLAN.replace("3", "9" * 20), 'plan.toml:3  "blocks" is a number beyond 64 bits'),
    "date": (PLAN.replace("3", "1979-05-27"), 'plan.toml:3  "blocks" is a date'),
    "nul": (PLAN.replace('"x"', r'"x\u0000"'), 'plan.toml:1  "name" has a NUL'),
    "string": (PLAN.replace('"x"', f'"{"x" * 10**6}"'), "larger than 256 KiB"),
    "name": (PLAN.replace('"x"', f'"{"x" * 10**5}"'), 'plan.toml:1  "name" must be at most 240'),
    "nested": (PLAN + f"y = {'[' * 10**5}", "plan.toml:8  values are nested too deeply"),
    "inline": (PLAN + f"y = {'{a=' * 300}1{'}' * 300}", "plan.toml:8 .* nested too deeply"),
    "tables": (
        PLAN + "".join(f"[{'a.' * n}a]\n" for n in range(400)),
        "a key has more than 16 parts",
    ),
    "dotted": (PLAN + "a." * 100_000 + "a = 1", "plan.toml:8  a key has more than 16 parts"),
    "quoted": (PLAN + '"a" . ' * 40_000 + "a = 1", "plan.toml:8  a key has more than 16 parts"),
    "keys": ("".join(f"k{n}=1\n" for n in range(25_000)), "100 errors or more"),
    "many keys": ("".join(f"k{n}=1\n" for n in range(10**6)), "larger than 256 KiB"),
    "long key": (PLAN + "k" * 200_000 + " = 1", r"plan.toml:8 .*k\.\.\."),
    "setups": (
        PLAN.replace('["ext4", "xfs"]', str(["ext4"] * 20_000)),
        "20000 entries, but the limit is 200",
    ),
    "workloads": (
        PLAN + '[[workload]]\nname = "scan"\n' * 5000,
        "5001 entries, but the limit is 200",
    ),
    "sweep": (PLAN + f"clients = {list(range(1, 10_001))}", "10000 values, but the limit is 200"),
    "product": (PLAN + f"clients = {MANY}\nscale = {MANY}", "45000 combinations"),
    "trials": (PLAN.replace("3", "10001"), "20002 trials; at most 20000"),
    "clients": (PLAN + "clients = 1000000000", 'plan.toml:8  "clients" must be at most 10000'),
    "size": (
        PLAN + '[device]\nsize = "99999999999GiB"',
        'plan.toml:9  "size" must be less than 8 EiB',
    ),
    "less": (PLAN + '[device]\nsize = "-1GiB"', "plan.toml:9 .* not '-1GiB'"),
    "devices": (PLAN + "[device]\ncount = 1000000000", 'plan.toml:9  "count" must be 256 or less'),
    "time": (
        PLAN.replace("blocks = 3", "measure = 1e300"),
        'plan.toml:3  "measure" must be at most a year',
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_plan_without_end_is_refused(case: str, tmp_path: Path) -> None:
    """With the line that is at fault, at once; its values are never multiplied out."""
    text, told = ENDLESS[case]
    path = write_file(tmp_path / "plan.toml", text)
    began = time.process_time()
    with pytest.raises((PlanInvalid, FileUnreadable), match=told) as refused:
        plan.expand(plan.load(path, SHIPPED), SHIPPED)
    assert refused.value.exit_code == 2 and len(refused.value.evidence) < 50_000
    assert time.process_time() - began < SLOWEST_S


@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_an_input_that_is_not_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    """A FIFO would be waited for, /dev/zero never ends: plans, setups, workloads, scripts and
    recordings alike.
    """
    path = tmp_path / "x.toml"
    {"fifo": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "directory": os.mkdir}[
        kind
    ](path)
    for read in (lambda: plan.load(path, SHIPPED), lambda: recordings.read(path)):
        with pytest.raises(FileUnreadable):
            read()
    for folder in ("fs_setups", "workloads"):
        (tmp_path / folder).mkdir()
        path.rename(tmp_path / folder / "x.toml") if kind != "device" else (
            tmp_path / folder / "x.toml"
        ).symlink_to("/dev/zero")
        own = catalog.catalog([tmp_path])
        with pytest.raises(FileUnreadable):
            own.setup("x") if folder == "fs_setups" else own.workload("x")
        path = tmp_path / folder / "x.toml"


@pytest.mark.parametrize(("name", "load"), [("run.json", load_spec), ("trial.json", load_trial)])
def test_a_damaged_result_is_read_or_named(
    name: str,
    load: Callable[[Path], object],
    tmp_path: Path,
) -> None:
    """Bent by one value, or cut: damage with its name, also where its checksum was left out."""
    from dbbench import results

    from .test_store import publish

    folder = results.create_run(tmp_path, small_run(), "")
    where = publish(folder) if name == "trial.json" else folder
    recorded = re.sub(r',\n "sha256": "\w+"', "", (where / name).read_text())

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**40))
    def each(seed: int) -> None:
        (where / name).write_text(case(recorded, seed), errors="replace")
        with contextlib.suppress(DbbenchError):
            load(where)

    each()
