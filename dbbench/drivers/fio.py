"""fio: a job file, for a fixed window, on files that fio lays out before. One I/O counts as one transaction."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.drivers.fio_output import INTERVAL_S, READ, WRITE, by_second, live, parse
from dbbench.drivers.protocol import Live, Load, LoadTask, locate
from dbbench.drivers.tool import FAILED, ToolLoad, outputs, whole_seconds, write_command
from dbbench.engines import files
from dbbench.engines.serving import put_aside
from dbbench.errors import DriverFailed, FilesElsewhere, NoProgress
from dbbench.machine import pagecache
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import FIRST, Series
from dbbench.model import Cell

LAYOUT_S: Final = 6 * 3600.0  # a layout that takes longer is stuck
_KIB: Final = 1024 / 1e6  # 1 KiB, the unit of a bandwidth log, in MB
_LOG: Final = "fio"
# Options of a job file with which its files, its duration or its logs would not be those of the trial.
_DECIDED: Final = re.compile(
    r"\s*(directory|filename|filename_format|opendir|include|read_iolog|replay_redirect|runtime|timeout|time_based|"
    r"ramp_time|randseed|create_only|per_job_logs|write_\w*log|log_\w+)\s*(?:[=\s]|$)"
)


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Lay out the files, then run the jobs. See `protocol.Driver`."""
    folder, account = files.folder_of(task.server), files.account()
    task.scratch.chmod(0o777)  # fio runs under another account and writes its logs there
    job, env = task.raw / "fio.job", _variables(task.cell)
    text = locate(task.cell.workload.script).read_text(encoding="utf-8")
    job.write_text(before(folder, task.cell, task.seed, task.scratch / _LOG) + text)
    given = put_aside(job.read_text(), "fio.job", task.scratch)  # that account cannot enter the trial's directories
    given.chmod(0o644)
    argv = ["fio", "--output-format=json+", f"--output={task.scratch / 'fio.json'}", "--eta=always", "--eta-newline=1"]
    write_command(task.raw / "fio.command", [*argv, str(given)], env)
    process.run(["fio", "--create_only=1", given], timeout_s=LAYOUT_S, as_user=account, env=env, cwd=task.scratch)
    pagecache.evict(files.data_files(folder))
    begin_utc, set_by_s = task.clock.now_utc(), task.clock.slip_s()
    printed = outputs(task.raw, "fio")

    def show(line: str) -> Live | None:
        progress = live(line)
        return progress and replace(progress, second=int(task.clock.now_utc() - begin_utc))

    with process.running([*argv, given], stdout=printed[0], stderr=printed[1], as_user=account, env=env,
                         cwd=task.scratch, role="server") as program:  # fmt: skip
        yield ToolLoad(
            task, program, begin_utc, printed,
            judged=lambda load: _outcome(load, begin_utc + set_by_s),
            seconds=sum(whole_seconds(task.cell.window)),
            live=show,
        )  # fmt: skip
    if not files.data_files(folder):
        raise FilesElsewhere("fio's jobs have no file on the filesystem under test", effect=FAILED)


def before(folder: Path, cell: Cell, seed: int, log: Path) -> str:
    """Return the options that the trial, and not the job file, decides."""
    warmup, measure = whole_seconds(cell.window)
    lines = {
        "directory": folder, "time_based": 1, "ramp_time": warmup, "runtime": measure, "randseed": seed,
        "write_iops_log": log, "write_bw_log": log, "log_avg_msec": int(1000 * INTERVAL_S), "log_unix_epoch": 1,
        "fallocate": "none",  # the extents are those of a file that grew, not reserved in advance
        "overwrite": 1,  # otherwise fio lays out the files of a writing load as holes
    }  # fmt: skip
    return "[global]\n" + "".join(f"{name}={value}\n" for name, value in lines.items()) + "\n"


def find_conflicts(job: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the option of each line of a job file that the trial decides."""
    for number, line in enumerate(job.splitlines(), 1):
        if option := _DECIDED.match(line):
            yield number, option[1]


def _variables(cell: Cell) -> dict[str, str]:
    values = {**cell.workload.options, **cell.parameters}
    return {name.upper(): str(int(value) if isinstance(value, bool) else value) for name, value in values.items()}


def _outcome(load: ToolLoad, begin_utc: float) -> Outcome:
    raw, scratch = load.task.raw, load.task.scratch
    text = (scratch / "fio.json").read_text(errors="replace")
    (raw / "fio.json").write_text(text)
    total = parse(text)
    if total.errors:
        raise DriverFailed(f"{total.errors} of fio's jobs had errors", effect=FAILED)
    if not total.ios or not total.seconds:
        raise NoProgress("fio did no I/O in the window", effect=FAILED)
    moved = {"read": total.read_bytes, "write": total.write_bytes}
    rates = {f"{side}_mb_per_s": size / total.seconds / 1e6 if size else None for side, size in moved.items()}
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=total.seconds,
        transactions=total.ios,
        errors=0,
        series=_series(scratch, raw, begin_utc, load.seconds, total.running_utc),
        histogram=total.histogram,
        figures={"max_ms": total.longest_ms, **rates},
        claims=(
            Claim("read_bytes", total.read_bytes, counted=total.counted),
            Claim("write_bytes", total.write_bytes, counted=total.counted),
        ),
    )


def _series(
    scratch: Path, raw: Path, begin_utc: float, seconds: int, running_utc: tuple[float, float] | None
) -> Series:
    """Return columns tps, file_read_mb_per_s and file_write_mb_per_s; the warm-up, which fio does not log, is a gap."""
    iops, rates = _logs(scratch, raw, "iops"), _logs(scratch, raw, "bw")
    series = Series(seconds, {name: [] for name in FIRST})
    sides = [by_second(iops, begin_utc, seconds, side, running_utc) for side in (READ, WRITE)]
    series.set("tps", [None if r is None and w is None else (r or 0.0) + (w or 0.0)
                       for r, w in zip(*sides, strict=True)])  # fmt: skip
    for name, side in (("file_read_mb_per_s", READ), ("file_write_mb_per_s", WRITE)):
        column = by_second(rates, begin_utc, seconds, side, running_utc)
        if any(value is not None for value in column):
            series.set(name, [None if value is None else value * _KIB for value in column])
    return series


def _logs(scratch: Path, raw: Path, kind: str) -> list[str]:
    """Return the logs of all jobs; they are kept with fio's other output."""
    texts = []
    for path in sorted(scratch.glob(f"{_LOG}_{kind}.*.log")):
        text = path.read_text()
        (raw / path.name).write_text(text)
        texts.append(text)
    return texts
