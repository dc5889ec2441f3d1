"""fio: a job file that lies beside the workload's TOML file, for a fixed window, on files laid out before it.

The job file says what is done; where, how long and what is logged is put before it. Parameters of the workload are
variables of the job file: `file_size` is ${FILE_SIZE}. Laying out the files is no part of the load: fio does it in a
run of its own, and their pages are dropped from the page cache. One I/O is one transaction of the trial.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import pagecache, process
from dbbench.clock import Clock
from dbbench.drivers import fio_output
from dbbench.drivers.port import Live, Load, Outcome
from dbbench.drivers.scripts import located
from dbbench.drivers.tool import FAILED, ToolLoad, whole_seconds, write_command
from dbbench.engines import files
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed, NoProgress
from dbbench.model import Cell, Scalar
from dbbench.series import FIRST, Series

INTERVAL_S: Final = 0.5  # of a log's entries: fio leaves out one that is not whole at its end
LAYOUT_S: Final = 6 * 3600.0  # as a restore's deadline
_KIB: Final = 1024 / 1e6  # MB; the unit of a bandwidth log
_LOG: Final = "fio"


def programs() -> tuple[str, ...]:
    """What `doctor` must find."""
    return ("fio",)


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Lay out the files, then run the jobs. See the port."""
    folder, account = files.folder_of(server), files.account()
    scratch.chmod(0o777)  # fio writes its logs there under another account
    job, env = raw / "fio.job", _variables(cell)
    text = located(cell.workload.script).read_text(encoding="utf-8")
    job.write_text(before(folder, cell, seed, scratch / _LOG) + text)
    given = scratch / "fio.job"  # the trial's own folders are closed to other accounts
    given.write_text(job.read_text())
    argv = ["fio", "--output-format=json+", f"--output={scratch / 'fio.json'}", "--eta=always", "--eta-newline=1"]
    write_command(raw / "fio.command", [*argv, str(given)], env)
    process.run(["fio", "--create_only=1", given], timeout_s=LAYOUT_S, as_user=account, env=env, cwd=scratch)
    pagecache.evict(files.data_files(folder))
    begin_utc, set_by_s = clock.now_utc(), clock.slip_s()

    def judged(load: ToolLoad) -> Outcome:
        return _outcome(load, cell, begin_utc + set_by_s, raw, scratch)

    with process.running([*argv, given], stdout=raw / "fio.out", stderr=raw / "fio.err", as_user=account, env=env,
                         cwd=scratch, role="server") as program:  # fmt: skip
        yield ToolLoad(
            program=program,
            server=server,
            clock=clock,
            begin_utc=begin_utc,
            seconds=sum(whole_seconds(cell.window)),
            printed=(raw / "fio.out", raw / "fio.err"),
            live=lambda line: _live(line, clock, begin_utc),
            aborted=lambda line: False,
            judged=judged,
        )


def before(folder: Path, cell: Cell, seed: int, log: Path) -> str:
    """What is put before the job file: what a trial decides and not its author."""
    warmup, measure = whole_seconds(cell.window)
    lines = {
        "directory": folder, "time_based": 1, "ramp_time": warmup, "runtime": measure, "randseed": seed,
        "write_iops_log": log, "write_bw_log": log, "log_avg_msec": int(1000 * INTERVAL_S), "log_unix_epoch": 1,
        "fallocate": "none",  # data is written, not reserved: its extents are those of a file that grew
    }  # fmt: skip
    return "[global]\n" + "".join(f"{name}={value}\n" for name, value in lines.items()) + "\n"


def _variables(cell: Cell) -> dict[str, str]:
    """The workload's parameters as a job file reads them."""
    return {name.upper(): _word(value) for name, value in {**cell.workload.options, **cell.parameters}.items()}


def _word(value: Scalar) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _live(line: str, clock: Clock, begin_utc: float) -> Live | None:
    found = fio_output.live(line)
    return None if found is None else replace(found, second=int(clock.now_utc() - begin_utc))


def _outcome(load: ToolLoad, cell: Cell, begin_utc: float, raw: Path, scratch: Path) -> Outcome:
    """fio's own summary of the window, its logs as series."""
    text = (scratch / "fio.json").read_text(errors="replace")
    (raw / "fio.json").write_text(text)
    found = fio_output.parse(text)
    if found.errors:
        raise DriverFailed(f"{found.errors} of fio's jobs had errors", effect=FAILED)
    if not found.ios or not found.seconds:
        raise NoProgress("fio did no I/O in the window", effect=FAILED)
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=found.seconds,
        transactions=found.ios,
        errors=0,
        series=_series(scratch, raw, begin_utc, load.seconds),
        histogram=found.histogram,
        figures={
            "max_ms": found.longest_ms,
            "read_mb_per_s": found.read_bytes / found.seconds / 1e6 if found.read_bytes else None,
            "write_mb_per_s": found.write_bytes / found.seconds / 1e6 if found.write_bytes else None,
        },
    )


def _series(scratch: Path, raw: Path, begin_utc: float, seconds: int) -> Series:
    """Columns tps, file_read_mb_per_s and file_write_mb_per_s; fio logs nothing while it warms up: gaps."""
    iops, rates = _logs(scratch, raw, "iops"), _logs(scratch, raw, "bw")
    series = Series(seconds, {name: [] for name in FIRST})
    sides = [fio_output.by_second(iops, begin_utc, seconds, INTERVAL_S, side) for side in ("0", "1")]
    series.set("tps", [None if r is None and w is None else (r or 0.0) + (w or 0.0)
                       for r, w in zip(*sides, strict=True)])  # fmt: skip
    for name, side in (("file_read_mb_per_s", fio_output.READ), ("file_write_mb_per_s", fio_output.WRITE)):
        column = fio_output.by_second(rates, begin_utc, seconds, INTERVAL_S, side)
        if any(value is not None for value in column):
            series.set(name, [None if value is None else value * _KIB for value in column])
    return series


def _logs(scratch: Path, raw: Path, kind: str) -> list[str]:
    """The logs of all jobs; kept beside what else fio wrote."""
    found = []
    for path in sorted(scratch.glob(f"{_LOG}_{kind}.*.log")):
        text = path.read_text()
        (raw / path.name).write_text(text)
        found.append(text)
    return found
