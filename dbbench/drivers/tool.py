"""The process of a load generator: started, watched, and judged at its end."""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dbbench import process
from dbbench.drivers.protocol import Live, LoadTask
from dbbench.errors import DbbenchError, DriverFailed, EngineDied, NoProgress
from dbbench.machine.limits import cgroup
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import FIRST, Series
from dbbench.model import Cell, TrialWarning, Window
from dbbench.remote import Client, RemoteProgram
from dbbench.results import fileio
from dbbench.units import size_text

if TYPE_CHECKING:
    from dbbench.metrics.counts import Counts

FAILED: Final = "The trial is marked failed, because its load was not the requested one."
# time until a dead tool or server is noticed; ten checks per second cost almost no CPU
POLL_S: Final = 0.1
_FIRST_POLL_S: Final = 0.02  # until the first second, which tells when the tool began
MOST_TEXT_BYTES: Final = 2**28  # of a log that is read as a whole: a day of fio's is 10 MiB
PIECE_BYTES: Final = 4 << 20  # of a log that is read or packed
DEATH_S: Final = 1.0  # clients notice a killed server at most this much earlier than `alive` does
# a tool may end this much early, because its clock does not start exactly with dbbench's
_EARLY_S: Final = 0.5
Program = process.Running | RemoteProgram  # of this machine, or of the client's host


@dataclass
class ToolLoad:
    """A `Load` of one process, started by `running`. Functions that parse its output contain what
    differs between tools. `name`: the beginning of the names of its files in raw/.
    """

    task: LoadTask
    name: str
    argv: Sequence[str]
    judged: Callable[[ToolLoad], Outcome]
    env: Mapping[str, str] = field(default_factory=dict)
    live: Callable[[str], Live | None] = lambda _line: None  # parses a printed line
    # whether a printed line reports that a client gave up
    aborted: Callable[[str], bool] = lambda _line: False
    # whether `live` reads a line each second, by a clock of the tool that starts after its logins
    counts_seconds: bool = False
    # whole seconds of warm-up and window together; 0: no fixed duration
    seconds: int = field(init=False)
    program: Program = field(init=False)  # set by `running`
    # time of second 0: when the tool was started, and `late_s` later if its own seconds begin late
    begin_utc: float = field(init=False)
    late_s: int = 0
    # how far the clock of its logs, which may have been set, was ahead then
    slip_s: float = field(init=False)
    lived_s: float | None = None  # None: it is running
    _read: dict[Path, int] = field(default_factory=dict)
    _looked_s: float = 0.0  # second of the last look at its output
    _counting: bool = False  # whether the first second was printed

    def __post_init__(self) -> None:
        task = self.task
        self.seconds = sum(whole_seconds(task.cell.window))
        self.begin_utc = task.clock.now_utc()
        self.slip_s = task.clock.slip_s()
        self.printed = (task.raw / f"{self.name}.out", task.raw / f"{self.name}.err")

    @contextlib.contextmanager
    def running(
        self,
        role: str,
        as_user: process.User | None = None,
        cwd: Path | None = None,
    ) -> Iterator[ToolLoad]:
        """Run the tool within the block, under this account; its command is kept with its output."""
        self._write_command()
        out, err = self.printed
        with process.running(
            self.argv,
            stdout=out,
            stderr=err,
            env=self.env,
            as_user=as_user,
            cwd=cwd,
            role=role,
        ) as self.program:
            yield self

    @contextlib.contextmanager
    def running_from(
        self,
        client: Client,
        secrets: Mapping[str, str],
        stdin: str = "",
    ) -> Iterator[ToolLoad]:
        """Run the tool on the client's host, whose clock its logs have; the environment has the
        secrets too.
        """
        self._write_command()
        self.program = client.start(
            self.argv,
            {**self.env, **secrets},
            stdin,
            *self.printed,
        )
        self.begin_utc = self.program.begin_utc
        self.slip_s = self.program.there_utc - self.begin_utc
        yield self

    def _write_command(self) -> None:
        """Write the command in a form that a shell accepts."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        text = " ".join([*words, shlex.join(self.argv)])
        (self.task.raw / f"{self.name}.command").write_text(f"{text}\n")

    @property
    def pids(self) -> tuple[int, ...]:
        return self.program.pids

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        while self._now_s() < second:
            if not self._goes_on(watch):
                raise self._ended_early()
            left_s = second - self._now_s()
            is_first = self.counts_seconds and not self._counting
            pause_s = _FIRST_POLL_S if is_first else POLL_S
            time.sleep(min(pause_s, max(left_s, 0.001)))

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Raises as `wait_until`; `outcome` judges the results."""
        while self._goes_on(watch):
            time.sleep(POLL_S)
        lived_s = self.lived_s or 0.0
        if self.program.poll() != 0 or lived_s < self.seconds - _EARLY_S:
            raise self._ended_early()

    def outcome(self) -> Outcome:
        return self.judged(self)

    def text(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.printed if path.exists())

    def _now_s(self) -> float:
        return self.task.clock.now_utc() - self.begin_utc

    def _goes_on(self, watch: Callable[[Live], None]) -> bool:
        """Pass on what was printed; return False when the tool has ended. Raises EngineDied,
        DriverFailed.
        """
        server = self.task.server
        # The state is read before the lines, so that no line of a tool that ended is lost.
        ended = self.program.poll() is not None
        now_s = self._now_s()
        lines = self._new_lines()
        gave_up = any(self.aborted(line) for line in lines)

        # A dead server explains why clients gave up; they may notice it earlier than `alive`.
        patience_s = DEATH_S if ended or gave_up else 0.0
        process.wait_while(
            lambda: server.alive() and self.program.poll() != 0,
            patience_s,
            0.02,
        )
        if not server.alive():
            raise EngineDied(
                f"the server (pid {server.pid}) died; output of the load generator: "
                f"{self._last_lines()}"
            )
        if gave_up:
            raise DriverFailed(f"clients gave up: {self._last_lines()}", effect=FAILED)
        every = [progress for line in lines if (progress := self.live(line))]
        if every:
            # Of lines that come together, the last one is the least delayed.
            self._count_from(every[-1].second)
        for progress in every:
            watch(progress)
        self._looked_s = now_s
        # How long it lived is known from the first look after its end.
        if ended and self.lived_s is None:
            self.lived_s = self._now_s()
        return not ended

    def _count_from(self, printed_s: float) -> None:
        """Move second 0 to where the tool's seconds begin, by whole seconds, once. The line was not
        there at the last look, so the tool began later than that look by its own count. Never
        further: the tool ends by its own clock, and the window must end before.
        """
        if self._counting or not self.counts_seconds:
            return
        self._counting = True
        self.late_s = max(0, int(self._looked_s - printed_s))
        self.begin_utc += self.late_s
        if self.late_s:
            with (self.task.raw / f"{self.name}.command").open("a") as command:
                command.write(f"# second 0 of the trial is {self.late_s} s after the start\n")

    def _new_lines(self) -> list[str]:
        lines: list[str] = []
        for path in self.printed:
            offset = self._read.get(path, 0)
            with path.open("rb") as output:
                output.seek(offset)
                text = output.read()
            whole = text[: text.rfind(b"\n") + 1]  # without a line that is not complete yet
            self._read[path] = offset + len(whole)
            lines += whole.decode(errors="replace").splitlines()
        return lines

    def _ended_early(self) -> DbbenchError:
        name = Path(self.program.argv[0]).name
        status = self.program.poll()
        if status == 0:
            return DriverFailed(f"{name} ended after {self._now_s():.1f} s of {self.seconds} s")
        return DriverFailed(f"{name} ended with status {status}: {self._last_lines()}")

    def _last_lines(self) -> str:
        """Return the first errors, of which the last ones may be an effect; otherwise the end."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        errors = [line for line in lines if re.search("FATAL|ERROR|error:", line)]
        first = list(dict.fromkeys(errors))[:6]
        return "\n  ".join(first or lines[-6:] or ["nothing"])


def outcome_of(
    load: ToolLoad,
    counts: Counts,
    types: Mapping[int, str] = MappingProxyType({}),
    **figures: float | None,
) -> Outcome:
    """Return the outcome of a load with these counts; `types`: names of kinds of transactions,
    whose latencies the outcome then has. Raises NoProgress if nothing finished in the
    window.
    """
    warmup, measure = whole_seconds(load.task.cell.window)
    measured = counts.measure(warmup, warmup + measure)
    if measured.transactions == 0:
        raise NoProgress(
            f"no transaction completed in the window of {measure} s; {counts.all_transactions} "
            "completed before or after it",
            effect=FAILED,
        )
    failed = (
        f"{measured.errors} attempts failed and {measured.transactions} transactions succeeded "
        "in the window"
    )
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=float(measure),
        transactions=measured.transactions,
        errors=measured.errors,
        series=counts.series(load.lived_s if load.lived_s is not None else float(load.seconds)),
        histogram=measured.histogram,
        figures={"max_ms": measured.longest_ms, **figures},
        warnings=(TrialWarning("W019", failed),) if measured.errors else (),
        between=counts.measure,
        types={
            types[kind]: latencies
            for kind, latencies in measured.kind_histograms.items()
            if kind in types
        },
    )


def whole_outcome(
    begin_utc: float,
    seconds: float,
    figures: Mapping[str, float | None],
    transactions: int = 0,
    **more: Any,
) -> Outcome:
    """Return the outcome of work that ran to its end. It has no transactions per second: those
    columns are gaps.
    """
    series = Series(math.ceil(seconds), {name: [] for name in FIRST})
    return Outcome(
        begin_utc,
        seconds,
        transactions,
        0,
        series,
        None,
        dict(figures),
        **more,
    )


def rates_of(points: Sequence[tuple[float, float]], seconds: int) -> list[float]:
    """Return the growth in each whole second from points (second, amount so far), interpolated
    linearly.
    """
    import numpy as np

    times, amounts = zip(*points, strict=True)
    amount_at = np.interp(range(seconds + 1), times, amounts)
    return [float(growth) for growth in np.diff(amount_at)]


def same(
    what: str,
    counted: int,
    reported: int | None,
    tool: str,
    slack: int = 0,
) -> None:
    """Compare dbbench's count with the tool's summary. Raises DriverFailed if they differ by more
    than `slack`.
    """
    if reported is None:
        raise DriverFailed(f"{tool} printed no summary of its {what}", effect=FAILED)
    if abs(counted - reported) > slack:
        text = f"dbbench counted {counted} {what}, {tool} reports {reported}"
        raise DriverFailed(text, effect=FAILED)


def whole_seconds(window: Window) -> tuple[int, int]:
    """Return warm-up and window in whole seconds, rounded up, because neither tools nor series have
    fractions.
    """
    return math.ceil(window.warmup_s), math.ceil(window.measure_s)


def read_counts(patterns: Mapping[str, re.Pattern[str]], printed: str) -> dict[str, int | None]:
    """Return the totals of a tool's summary; None: not printed."""
    totals = {}
    for name, pattern in patterns.items():
        match = pattern.search(printed)
        totals[name] = int(match[1]) if match else None
    return totals


@contextlib.contextmanager
def open_output(path: Path, most_bytes: int = fileio.RAW) -> Iterator[io.BufferedReader]:
    """Open a file that a load generator left in the scratch directory.

    The load's account can put anything there, so links, FIFOs and devices are refused, and files
    above `most_bytes`. Raises DriverFailed.
    """
    try:
        with fileio.open_file(path, most_bytes, path.parent) as file:
            yield file
    except OSError as error:
        if error.errno in fileio.FULL:  # where its copy is written
            raise
        raise DriverFailed(
            f"{path.name}, a file of the load generator, cannot be read: {error.strerror}",
            effect=FAILED,
        ) from None


def read_output(path: Path) -> str:
    """Return the text of a file that a load generator left. Raises DriverFailed."""
    with open_output(path, MOST_TEXT_BYTES) as file:
        return file.read().decode(errors="replace")


def pack(paths: Iterable[Path], target: Path) -> None:
    """Append the files to `target`, compressed, and remove them (gzip -1 removes three quarters at
    little cost).
    """
    with gzip.GzipFile(target, "wb", 1) as packed:
        for path in paths:
            with open_output(path) as lines:
                shutil.copyfileobj(lines, packed, PIECE_BYTES)
            path.unlink()


def could_hold(cell: Cell) -> int:
    """Return the bytes that could cache the file: the plan's if the kernel enforces it, else the
    system's.
    """
    if cell.memory_bytes is not None and not isinstance(cgroup.hierarchy(), str):
        return cell.memory_bytes
    return cgroup.usable_bytes() or 0


def cached_warnings(
    size: int,
    memory: int,
    beyond: float = 1,
) -> tuple[TrialWarning, ...]:
    """Return W116 for files of `size` bytes if that is less than `beyond` times the memory."""
    if size >= beyond * memory:
        return ()
    text = f"{size_text(size)} in files, {size / memory:.2g} times the memory that could cache them"
    return (TrialWarning("W116", text),)
