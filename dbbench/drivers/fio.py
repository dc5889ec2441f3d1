"""fio: a job file, for a fixed window, on files that fio lays out before. One I/O counts as one
transaction.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from dbbench import process
from dbbench.drivers import tool
from dbbench.drivers.protocol import Live, Load, LoadTask, locate
from dbbench.drivers.tool import FAILED, ToolLoad, rates_of, whole_seconds
from dbbench.engines import files
from dbbench.engines.serving import put_aside
from dbbench.errors import DriverFailed, FilesElsewhere, NoProgress
from dbbench.machine import pagecache
from dbbench.metrics.histogram import Histogram, bucket_of
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import FIRST, Column, Series
from dbbench.model import Cell
from dbbench.storage.devices import ceiling

# seconds per log entry; short, because fio omits an incomplete interval at its end
INTERVAL_S: Final = 0.5
_EARLY: Final = 0.05  # of an interval: by how much two samples may be closer to each other
READ: Final = "0"  # directions in a log; trims are "2"
WRITE: Final = "1"
_SIDES: Final = ("read", "write")
_IOPS: Final = re.compile(r"\[(?:[rwt]=\d+(?:\.\d+)?[kM]?,?)+ IOPS\]")
_PRINTED: Final = re.compile(r'"timestamp_ms"\s*:\s*(\d+)')
_ONE: Final = re.compile(r"=(\d+(?:\.\d+)?)([kM]?)")
_CALLS: Final = ("sync", "psync", "vsync", "pvsync", "pvsync2")
_QUEUED: Final = ("libaio", "io_uring")
_TIMES: Final = {"": 1.0, "k": 1e3, "M": 1e6}
LAYOUT_S: Final = 6 * 3600.0  # a layout that takes longer is stuck
_KIB: Final = 1024 / 1e6  # 1 KiB, the unit of a bandwidth log, in MB
_LOG: Final = "fio"
# Options of a job file with which its files, its duration, its logs or its sums would not be those
# of the trial.
_DECIDED: Final = re.compile(
    r"directory|filename|filename_format|opendir|include.*|read_iolog|replay_redirect|runtime|timeout|"
    r"time_based|ramp_time|randseed|create_only|per_job_logs|write_\w*log|log_\w+|"
    # a job that does not run during the whole window, although its rate is added to the others
    r"stonewall|wait_for_previous|wait_for|startdelay|number_ios|steadystate|ss"
)
_PROGRAMS: Final = ("exec_prerun", "exec_postrun", "program", "profile")
# Engines that read and write the content of files. Others run a program, use no file, or count
# bytes that no disk stores (ftruncate, falloc, filecreate).
_FILE_ENGINES: Final = (*_CALLS, *_QUEUED, "posixaio", "mmap", "splice")
_OPTION: Final = re.compile(r"\s*(\w+)\s*(?:[=\s]\s*(.*)|$)")
_REMARK: Final = re.compile(r"\s*(?:[;#]|$)")
# fio splits a longer line, also a remark, and reads the rest as an option
_MOST_LINE_BYTES: Final = 4000
# fio does not require the closing bracket.
_SECTION: Final = re.compile(r"\s*\[(.*)")


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Lay out the files, then run the jobs. See `protocol.Driver`."""
    folder = files.folder_of(task.server)
    account = files.account()
    task.scratch.chmod(0o777)  # fio runs under another account and writes its logs there
    job = task.raw / "fio.job"
    env = _variables(task.cell)
    # The job file: what dbbench decides, then what the workload says.
    text = before(
        folder,
        task.cell,
        task.seed,
        task.scratch / _LOG,
    )
    text += locate(task.cell.workload.script).read_text(encoding="utf-8")
    job.write_text(text)
    # that account cannot enter the trial's directories
    readable_job = put_aside(text, "fio.job", task.scratch)
    readable_job.chmod(0o644)
    process.run(
        # The files are laid out before the load, and are not in the cache when it begins.
        ["fio", "--create_only=1", readable_job],
        timeout_s=LAYOUT_S,
        as_user=account,
        env=env,
        cwd=task.scratch,
    )
    pagecache.evict(files.data_files(folder))
    argv = [
        "fio",
        "--output-format=json+",
        f"--output={task.scratch / 'fio.json'}",
        "--eta=always",
        "--eta-newline=1",
        str(readable_job),
    ]
    load = ToolLoad(task, "fio", argv, _outcome, env)

    # fio counts seconds from its own start; the screen shows those of the load.
    def show(line: str) -> Live | None:
        progress = live(line)
        return progress and replace(progress, second=int(task.clock.now_utc() - load.begin_utc))

    load.live = show
    with load.running("server", account, task.scratch):
        yield load
    # A job that names another directory would have measured another filesystem.
    if not files.data_files(folder):
        raise FilesElsewhere("fio's jobs have no file on the filesystem under test", effect=FAILED)


def before(
    folder: Path,
    cell: Cell,
    seed: int,
    log: Path,
) -> str:
    """Return the options that the trial, and not the job file, decides."""
    warmup, measure = whole_seconds(cell.window)
    lines = {
        "directory": folder,
        "time_based": 1,
        "ramp_time": warmup,
        "runtime": measure,
        "randseed": seed,
        "write_iops_log": log,
        "write_bw_log": log,
        "log_avg_msec": int(1000 * INTERVAL_S),
        "log_unix_epoch": 1,
        "fallocate": "none",  # the extents are those of a file that grew, not reserved in advance
        "overwrite": 1,  # otherwise fio lays out the files of a writing load as holes
    }
    options = "".join(f"{name}={value}\n" for name, value in lines.items())
    return f"[global]\n{options}\n"


def find_conflicts(job: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the content of each line of a job file that a trial cannot accept:
    options that the trial decides, programs and libraries that fio would run, engines that do not
    write files, sections whose names are paths, because fio derives the names of files from them,
    and options whose names are unknown: fio inserts variables also there.
    """
    # `splitlines` would end a line also where fio goes on, for example at a form feed.
    for number, line in enumerate(io.StringIO(job, newline=None), 1):
        section = _SECTION.match(line)
        option = _OPTION.match(line)
        if len(line.encode()) > _MOST_LINE_BYTES:
            yield number, f"{line[:20]}... (longer than {_MOST_LINE_BYTES} bytes)"
        elif section:
            name = section[1].removesuffix("]")
            if "/" in name or ".." in name:
                yield number, f"[{name}]"
        elif option:
            name = option[1]
            value = option[2] or ""
            engine = re.split("[;#]", value)[0].strip()
            elsewhere = name == "ioengine" and engine not in _FILE_ENGINES
            if elsewhere or name in _PROGRAMS or _DECIDED.fullmatch(name):
                yield number, name
        elif not _REMARK.match(line):
            yield number, line.strip()


def _variables(cell: Cell) -> dict[str, str]:
    variables = {}
    for name, value in cell.values.items():
        number = int(value) if isinstance(value, bool) else value
        variables[name.upper()] = str(number)
    return variables


def _outcome(load: ToolLoad) -> Outcome:
    raw = load.task.raw
    scratch = load.task.scratch
    # The summary was written by the load's account, so it is read with care.
    text = tool.read_output(scratch / "fio.json")
    (raw / "fio.json").write_text(text)
    total = parse(text)
    if total.errors:
        raise DriverFailed(f"{total.errors} of fio's jobs had errors", effect=FAILED)
    if not total.ios or not total.seconds:
        raise NoProgress("fio did no I/O in the window", effect=FAILED)
    figures = {"max_ms": total.longest_ms}
    # A side without I/O has no rate.
    for side, size in (("read", total.read_bytes), ("write", total.write_bytes)):
        figures[f"{side}_mb_per_s"] = size / total.seconds / 1e6 if size else None
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=total.seconds,
        transactions=total.ios,
        errors=0,
        series=_series(scratch, raw, load.begin_utc + load.slip_s, load.seconds, total.running_utc),
        histogram=total.histogram,
        figures=figures,
        commits=total.syncs,
        claims=(
            Claim("read_bytes", total.read_bytes, counted=total.counted),
            Claim("write_bytes", total.write_bytes, counted=total.counted),
        ),
    )


def _series(
    scratch: Path,
    raw: Path,
    begin_utc: float,
    seconds: int,
    running_utc: tuple[float, float] | None,
) -> Series:
    """Return columns tps, file_read_mb_per_s and file_write_mb_per_s; the warm-up, which fio does
    not log, is a gap.
    """
    # One log per job; the sum of a direction over the jobs is its rate.
    iops = _logs(scratch, raw, "iops")
    bandwidths = _logs(scratch, raw, "bw")
    series = Series(seconds, {name: [] for name in FIRST})
    tps: Column = [None] * seconds
    # The number of I/Os of both directions makes `tps`; bytes have a column each.
    for name, side in (("file_read_mb_per_s", READ), ("file_write_mb_per_s", WRITE)):
        ios = by_second(
            iops,
            begin_utc,
            seconds,
            side,
            running_utc,
        )
        for second, rate in enumerate(ios):
            if rate is not None:
                tps[second] = (tps[second] or 0.0) + rate
        column = by_second(
            bandwidths,
            begin_utc,
            seconds,
            side,
            running_utc,
        )
        if any(value is not None for value in column):
            series.set(name, [None if value is None else value * _KIB for value in column])
    series.set("tps", tps)
    return series


def _logs(scratch: Path, raw: Path, kind: str) -> list[str]:
    """Return the logs of all jobs; they are kept with fio's other output."""
    texts = []
    for path in sorted(scratch.glob(f"{_LOG}_{kind}.*.log")):
        text = tool.read_output(path)
        (raw / path.name).write_text(text)
        texts.append(text)
    return texts


@dataclass(frozen=True)
class FioSummary:
    """The sum over all jobs, of the measured time only."""

    seconds: float  # duration of the longest job
    ios: int
    read_bytes: int
    write_bytes: int
    histogram: Histogram  # completion latencies of reads and writes
    longest_ms: float | None
    errors: int
    syncs: int = 0  # fsync and fdatasync that had something to flush, at most one for each write
    counted: bool = False  # the kernel attributes the jobs' bytes to their processes
    printed_utc: float | None = None  # when fio wrote the summary, by the system clock

    @property
    def running_utc(self) -> tuple[float, float] | None:
        """From when to when the jobs ran and fio wrote their logs; it omits an incomplete interval
        at their end.
        """
        if self.printed_utc is None:
            return None
        return self.printed_utc - self.seconds, self.printed_utc - 2 * INTERVAL_S


@process.understood("fio")
def parse(text: str) -> FioSummary:
    """Parse the JSON+ summary. Raises DriverFailed if there is none."""
    try:
        jobs = ceiling.parse_jobs(text)
    except ValueError as error:
        raise DriverFailed(f"fio's summary cannot be read: {error}") from None
    # Directions without I/O have no latencies.
    sides = []
    for job in jobs:
        sides += [job[side] for side in _SIDES if job[side]["total_ios"]]
    if not sides:
        raise DriverFailed("the summary of fio has neither reads nor writes")
    # The latencies of all jobs together.
    histogram = Histogram()
    for side in sides:
        for nanoseconds, count in side["clat_ns"].get("bins", {}).items():
            histogram.add(bucket_of(int(nanoseconds) / 1000), count)
    # The calls that each job made; `total_ios` of "sync" is 0 after a warm-up.
    syncs = 0
    for job in jobs:
        calls = int(job.get("sync", {}).get("lat_ns", {}).get("N", 0))
        syncs += min(calls, job["write"]["total_ios"])
    printed = _PRINTED.search(text)
    return FioSummary(
        seconds=max(side["runtime"] for side in sides) / 1000,
        ios=sum(side["total_ios"] for side in sides),
        read_bytes=sum(job["read"]["io_bytes"] for job in jobs),
        write_bytes=sum(job["write"]["io_bytes"] for job in jobs),
        histogram=histogram,
        longest_ms=max(side["clat_ns"]["max"] for side in sides) / 1e6,
        errors=sum(1 for job in jobs if job.get("error")),
        syncs=syncs,
        counted=all(_is_counted(job["job options"]) for job in jobs),
        printed_utc=int(printed[1]) / 1000 if printed else None,
    )


def _is_counted(options: Mapping[str, object]) -> bool:
    """Whether I/O uses system calls of its processes or goes to the disk directly (proc_pid_io(5))."""
    engine = options.get("ioengine", "psync")
    if engine in _QUEUED:
        return str(options.get("direct", 0)) == "1"
    return engine in _CALLS


@process.understood("fio")
def by_second(
    logs: Iterable[str],
    begin_utc: float,
    seconds: int,
    side: str,
    running_utc: tuple[float, float] | None = None,
) -> Column:
    """Return the rate of one direction per second from `begin_utc`: each job's mean, summed over
    the jobs. `logs`: one text per job, with lines "ms since 1970 at the interval's end, value,
    direction, ..." (fio's log_unix_epoch). There is no line for an interval without an I/O: such
    time is 0 between the first and the last line of a job, and within `running_utc`. A second is
    a gap if less than half of it is known.
    """
    column: Column = [None] * seconds
    for log in logs:
        entries = list(_entries(log, begin_utc))
        if not entries:
            continue
        # What the job is known to have done: nothing, between its lines.
        first = entries[0].begin
        last = entries[-1].end
        entries = [entry for entry in entries if entry.direction == side]
        if not entries:
            continue
        if running_utc:
            first = min(first, running_utc[0] - begin_utc)
            last = max(last, running_utc[1] - begin_utc)
        # The bytes or I/Os so far at each end of an interval; time between them is idle.
        points = [(first, 0.0)]
        done = 0.0
        for entry in entries:
            points.append((entry.begin, done))
            done += entry.rate * (entry.end - entry.begin)
            points.append((entry.end, done))
        amounts = rates_of(points, seconds)
        # how much of each second is known
        shares = rates_of([(first, 0.0), (last, last - first)], seconds)
        for second, share in enumerate(shares):
            if share >= 0.5:
                column[second] = (column[second] or 0.0) + amounts[second] / share
    return column


class _Entry(NamedTuple):
    """A line of a log: an interval in seconds since the load's begin, and the rate in it."""

    begin: float
    end: float
    rate: float
    direction: str


def _entries(log: str, begin_utc: float) -> Iterator[_Entry]:
    """Yield the lines of a job's log. A value is the mean since fio's last sample, at the
    interval's pace or late; whole intervals before it had no I/O. A delay of more than an interval
    looks the same: then all of fio was stopped, with little or no I/O.
    """
    previous = -math.inf
    last = -math.inf
    for line in log.splitlines():
        ended_ms, rate, direction, *_ = line.split(",")
        end = int(ended_ms) / 1000 - begin_utc
        if end - last > INTERVAL_S / 2:  # otherwise the other direction at the same time
            previous = last
            last = end
        length = INTERVAL_S
        if previous > -math.inf:
            since = end - previous
            idle = math.floor(since / INTERVAL_S + _EARLY) - 1
            length = since - INTERVAL_S * max(0, idle)
        yield _Entry(end - length, end, float(rate), direction.strip())


def live(line: str) -> Live | None:
    """Parse the progress in a printed line, "[r=13.2k,w=13.2k IOPS]", as I/Os per second."""
    rates = _IOPS.findall(line)
    if not rates:
        return None
    iops = sum(float(number) * _TIMES[unit] for number, unit in _ONE.findall(rates[-1]))
    return Live(0, iops, None)
