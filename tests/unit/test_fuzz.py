"""What a tool prints, and what a person writes, is anything: an error of ours or an answer; no traceback, no hang.

Each parser gets recorded output that was damaged at random, and text that was never anybody's output. DBBENCH_FUZZ is
the number of cases of each (`make soak`: 10 000).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbbench import catalog, ceiling, clock, condition, kmsg, mounts, plan
from dbbench.devices import guard
from dbbench.drivers import (
    bonnie_output,
    filework_output,
    fio_output,
    pgbench_log,
    pgbench_output,
    steps,
    sysbench_events,
    sysbench_output,
)
from dbbench.engines import postgres_counters
from dbbench.errors import DbbenchError
from dbbench.filesystems import bcachefs, btrfs, ext, f2fs, nilfs2, shape_parse, xfs
from dbbench.filesystems.zfs import properties
from dbbench.host import proc
from dbbench.journal import Journal
from dbbench.layers import crypt, lvm
from dbbench.limits import cores
from dbbench.operations import btrfs as btrfs_operations
from dbbench.operations import f2fs as f2fs_operations
from dbbench.operations import zfs as zfs_operations
from dbbench.progress import events
from dbbench.recorded import reading
from dbbench.samplers import iostat_parse, sar_parse, server_log
from dbbench.series import read_csv_gz
from dbbench.store.reading import load_trial
from dbbench.store.runs import load_spec
from dbbench.units import bytes_of, inert, seconds_of

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
ROOT: Final = Path(__file__).parents[2]
CASES: Final = int(os.environ.get("DBBENCH_FUZZ", "100"))
SLOWEST_S: Final = 5.0  # a case takes some milliseconds; an expression that backtracks without end takes minutes
SHIPPED: Final = catalog.catalog()
PIECES: Final = ["", "0", "-1", "99999999999999999999999", "1e999", "nan", "None", "\0", "\n", "\n\n", ":", "=", ",",
                 ";", "(", "[", "{", '"', "\\", "\\x0a", "\u202e", "é", "𝟙", "a" * 3000, " " * 3000,
                 "0x", "%"]  # fmt: skip
VALUES: Final = [None, True, -1, 0, 10**30, 1.5, "", "x", "12", [], {}, [[]], {"a": None}, [1, 2, 3], "nan", 1e308]


def fixture(name: str) -> str:
    """Recorded output."""
    return (FIXTURES / name).read_text(errors="replace")


def damaged(text: str, draw: random.Random) -> str:
    """The text with one to four pieces cut out, doubled, replaced or cut off."""
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
    return {name: bent(value, draw) if name == key else value for name, value in node.items()}


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


def held(parse: Callable[[str], object], text: str, allowed: tuple[type[Exception], ...]) -> None:
    """One case: an answer or an allowed error, in time."""
    began = time.monotonic()
    with contextlib.suppress(DbbenchError, *allowed):
        found = parse(text)
        if hasattr(found, "__next__"):
            list(found)
    assert time.monotonic() - began < SLOWEST_S


def of_file(parse: Callable[[Path], object]) -> Callable[[str], object]:
    """A parser of a file as one of text."""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"dbbench-fuzz-{os.getpid()}"

    def wrapped(text: str) -> object:
        path.write_bytes(text.encode(errors="replace"))
        try:
            return parse(path)
        finally:
            path.unlink()

    return wrapped


def of_folder(name: str, parse: Callable[[Path], object]) -> Callable[[str], object]:
    """A parser of a folder that holds the file `name` as one of text."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"dbbench-fuzz-{os.getpid()}-d"

    def wrapped(text: str) -> object:
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode(errors="replace"))
        try:
            return parse(folder)
        finally:
            (folder / name).unlink()
            folder.rmdir()

    return wrapped


def a_journal(path: Path) -> object:
    """What is outstanding of every kind."""
    journal = Journal(path)
    return [journal.outstanding(what) for what in ("image", "runtime", "layer", "pool", "cgroup")], journal.made(
        "a", "b"
    )


JOURNAL: Final = '{"utc": 1, "event": "take", "what": "image", "path": "/.dbbench-a.img"}\n' * 3
SMART: Final = json.dumps({"device": {"type": "nvme"}, "nvme_smart_health_information_log": {"percentage_used": 3,
                           "data_units_written": 100, "temperature": 30}, "temperature": {"current": 30}})  # fmt: skip
STAT: Final = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"

# name: (parser, recorded text, errors beyond ours that its caller takes)
PARSERS: Final[dict[str, tuple[Callable[[str], object], str, tuple[type[Exception], ...]]]] = {
    "sadf": (lambda t: sar_parse.parse(t, ("loop0",)), fixture("samplers/sar.json"), ()),
    "sadf-cut": (lambda t: sar_parse.parse(t, ("loop0",)), fixture("samplers/sar_cut.json"), ()),
    "iostat": (lambda t: iostat_parse.parse(t, "loop0"), fixture("samplers/iostat.json"), ()),
    "server-log": (server_log.events, fixture("engines/postgres-15.log"), ()),
    "checkpoints": (
        lambda t: postgres_counters.checkpoint_events(t.splitlines()),
        fixture("engines/postgres-15.log"),
        (),
    ),
    "pgbench": (pgbench_output.summary, fixture("drivers/pgbench.out"), ()),
    "pgbench-live": (pgbench_output.live, fixture("drivers/pgbench.err"), ()),
    "pgbench-aborted": (pgbench_output.aborted, fixture("drivers/pgbench_aborted.err"), ()),
    "pgbench-log": (of_file(lambda p: pgbench_log.parse([p], 1.0, 5)), fixture("drivers/pgbench_log.4711")[:4000], ()),
    "sysbench": (sysbench_output.summary, fixture("drivers/sysbench_denied.out"), ()),
    "sysbench-live": (sysbench_output.live, "[ 1s ] thds: 2 tps: 9.00 qps: 1 (r/w/o: 1/2/3) lat (ms,95%): 3.1\n", ()),
    "sysbench-histogram": (
        sysbench_output.histogram,
        "Latency histogram (values are in milliseconds)\n"
        "       value  ------------- distribution ------------- count\n"
        "       0.532 |****  12\n       0.541 |***  8\n \nGeneral statistics:\n",
        (),
    ),
    "sysbench-events": (of_file(lambda p: sysbench_events.parse([p], 5)), "1 100 3\n2 120 4\n", ()),
    "fio-load": (fio_output.parse, fixture("drivers/fio.json"), ()),
    "fio-log": (lambda t: fio_output.by_second([t], 1.7e9, 5, 0.5, "0"), fixture("drivers/fio_bw.1.log")[:2000], ()),
    "fio-live": (fio_output.live, "Jobs: 2 (f=2): [m(2)][50.0%][r=13.2k,w=13.2k IOPS][eta 00m:01s]", ()),
    "bonnie": (bonnie_output.parse, fixture("drivers/bonnie.csv"), ()),
    "copied": (filework_output.copied, fixture("drivers/copy.out"), ()),
    "small-files": (filework_output.steps, fixture("drivers/smallfiles.out"), ()),
    "filework-live": (filework_output.live, '{"t": 0.251105, "bytes": 78643200}', ()),
    "sql-steps": (
        lambda t: steps.parse(t, "postgres"),
        "-- step load; untimed\nCOPY t FROM x;\n-- step b\nSELECT 1;\n",
        (),
    ),
    "slow-log": (of_file(reading.read), fixture("recorded/slow.log"), ()),
    "statements": (of_file(reading.read), fixture("recorded/pgss.csv"), ()),
    "wipefs": (guard.parsed, fixture("devices/wipefs_ext4.json"), (ValueError, LookupError, TypeError)),
    "mountinfo": (mounts.parsed, fixture("devices/mountinfo.txt"), (ValueError, IndexError)),  # the kernel's own
    "kmsg": (kmsg.parsed, fixture("filesystems/kmsg.txt").splitlines()[0], (ValueError,)),
    "dumpe2fs": (ext.parse_dumpe2fs, fixture("filesystems/dumpe2fs-ext4.txt"), ()),
    "xfs_info": (xfs.parse_xfs_info, fixture("filesystems/xfs_info.txt"), ()),
    "btrfs-super": (btrfs.parse_super, fixture("filesystems/btrfs-dump-super.txt"), ()),
    "btrfs-chunks": (btrfs.parse_chunks, fixture("filesystems/btrfs-dump-tree-chunk.txt"), ()),
    "btrfs-du": (btrfs_operations.parse_du, fixture("filesystems/btrfs-du.txt"), ()),
    "btrfs-usage": (shape_parse.parse_usage, fixture("filesystems/btrfs-usage.txt"), ()),
    "compsize": (btrfs.parse_compsize, fixture("filesystems/compsize.txt"), ()),
    "e2freefrag": (shape_parse.parse_e2freefrag, fixture("filesystems/e2freefrag.txt"), ()),
    "xfs-freesp": (lambda t: shape_parse.parse_freesp(t, 4096), fixture("filesystems/xfs-freesp.txt"), ()),
    "dump.f2fs": (f2fs.parse_dump, fixture("filesystems/dump.f2fs.txt"), ()),
    "fsck.f2fs": (f2fs_operations.damages, fixture("filesystems/fsck-f2fs-damaged.txt"), ()),
    "bcachefs": (bcachefs.parse_super, fixture("filesystems/bcachefs-show-super.txt"), ()),
    "nilfs-tune": (nilfs2.parse_tune, fixture("filesystems/nilfs-tune.txt"), ()),
    "zfs-get": (properties.parse_get, fixture("zfs/zfs-get-native.txt"), ()),
    "zdb-label": (properties.parse_label, fixture("zfs/zdb-label-native.txt"), ()),
    "zfs-size": (properties.size_bytes, "1.5G", ()),
    "zpool-status": (zfs_operations.damages, fixture("zfs/zpool-status-damaged-fuse.txt"), ()),
    "zfs-taken": (zfs_operations.parse_taken, fixture("zfs/zfs-taken-native.txt"), ()),
    "cryptsetup": (crypt.parse_status, fixture("layers/cryptsetup-status.txt"), ()),
    "lvs": (lvm.parse_lvs, fixture("layers/lvs-thin.json"), ()),
    "lvs-taken": (lambda t: lvm.parse_taken(t, 4096), "0 1000 snapshot 16/1000 8", ()),
    "fio": (ceiling.parsed, fixture("fio/two_rows.json"), (ValueError,)),
    "smartctl": (lambda t: condition.of_smartctl(json.loads(t)), SMART, (ValueError,)),
    "nvme": (lambda t: condition.of_nvme(json.loads(t)), SMART, (ValueError,)),
    "cores": (cores.parsed, "0-3,8,10-11", (ValueError,)),
    "proc-stat": (of_folder("stat", proc.cpu_times), STAT, ()),
    "event": (events.parsed, '{"kind": "second", "data": {"phase": "measure"}}', ()),
    "journal": (of_file(a_journal), JOURNAL, ()),
    "clock": (clock.epoch, "2026-01-01T00:00:00.123Z", (ValueError,)),
    "bytes": (bytes_of, "4GiB", (ValueError,)),
    "seconds": (seconds_of, "5min", (ValueError,)),
    "inert": (inert, "a\x1b[31m", ()),
    "series": (of_file(lambda p: read_csv_gz(p)), "not gzip", (OSError, EOFError, ValueError)),
}


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_output_is_an_answer_or_an_error(name: str) -> None:
    """Of every parser of a tool's output."""
    parse, recorded, allowed = PARSERS[name]

    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(st.integers(0, 2**40).map(lambda seed: case(recorded, seed)), st.text(max_size=300)))
    def each(text: str) -> None:
        held(parse, text, allowed)

    each()


PLANS: Final = [path.read_text() for path in sorted((ROOT / "docs/plans").glob("*.toml"))]


def test_a_damaged_plan_is_read_or_refused(tmp_path: Path) -> None:
    """Every plan loads, or is refused with its flaws and exit code 2."""
    path = tmp_path / "plan.toml"

    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(st.tuples(st.sampled_from(PLANS), st.integers(0, 2**40)).map(lambda made: case(*made)),
                     st.text(max_size=300)))  # fmt: skip
    def each(text: str) -> None:
        path.write_bytes(text.encode(errors="replace"))
        began = time.monotonic()
        try:
            plan.expand(plan.load(path, SHIPPED), SHIPPED)
        except DbbenchError as error:
            assert error.exit_code == 2, error
        assert time.monotonic() - began < SLOWEST_S

    each()


@pytest.mark.parametrize(("name", "load"), [("run.json", load_spec), ("trial.json", load_trial)])
def test_a_damaged_result_is_read_or_named(
    name: str, load: Callable[[Path], object], tmp_path: Path, make_run: Callable[..., Any]
) -> None:
    """Bent by one value, or cut: damage with its name, also where its checksum was left out."""
    from dbbench import store

    from .test_store import publish

    folder = store.create_run(tmp_path, make_run(), "")
    where = publish(folder) if name == "trial.json" else folder
    recorded = re.sub(r',\n "sha256": "\w+"', "", (where / name).read_text())

    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**40))
    def each(seed: int) -> None:
        (where / name).write_text(case(recorded, seed), errors="replace")
        with contextlib.suppress(DbbenchError):
            load(where)

    each()
