"""What a trial writes down while it goes along its road: times of its stages, facts, warnings, its end.

`Record.stage` is the one way into a phase: it times it, tells progress, and holds the phase to its deadline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from dbbench import __version__
from dbbench.clock import Clock, iso
from dbbench.errors import DbbenchError, DeadlinePassed, FilesystemFull, Interrupted, ServerAnswered, Terminated
from dbbench.histogram import Histogram
from dbbench.model import Cell, Fault, Phase, PhaseTime, Run, Status, Trial, TrialSpec, TrialWarning
from dbbench.progress.events import Emit, Event
from dbbench.series import Series
from dbbench.store import Draft
from dbbench.store.files import writing

Fact = TypeVar("Fact")

# Seconds. Long enough for a slow disk and a large dataset, short enough that a hang at night is found by the
# morning. `deadlines` in the plan overrides each; warm-up and window get their own length on top.
DEADLINES_S: Final[dict[Phase, float]] = {
    Phase.CANARY: 120,
    Phase.CONDITION: 24 * 3600,
    Phase.MKFS: 600,
    Phase.MOUNT: 300,
    Phase.AGE: 6 * 3600,
    Phase.RESTORE: 6 * 3600,
    Phase.SETTLE: 3600,
    Phase.DROP_CACHE: 900,
    Phase.START: 1800,
    Phase.WARMUP: 120,
    Phase.MEASURE: 300,
    Phase.DRAIN: 3600,
    Phase.STOP: 1800,
    Phase.CHECK: 6 * 3600,
    Phase.SPACE: 1800,
    Phase.AGE_ENGINE: 24 * 3600,
    Phase.OPERATIONS: 6 * 3600,
}
_CLIENTS: Final = ("psycopg2", "mysql")  # whose errors are the server's words; by name: importing them costs 100 ms
UNBOUNDED_WORK_S: Final = 12 * 3600.0  # a scan or copy runs to its end; half a day is a hang


class Record:
    """One trial's notes. Facts go in by name (`note`), as the fields of `model.Trial`."""

    def __init__(self, run: Run, spec: TrialSpec, cell: Cell, draft: Draft, emit: Emit) -> None:
        self.run, self.spec, self.cell, self.draft = run, spec, cell, draft
        self.clock = Clock()
        self.series: Series | None = None
        self.phase_of_second: list[str] = []
        self.histogram: Histogram | None = None
        self._emit = emit
        self._phases: list[PhaseTime] = []
        self._warnings: list[TrialWarning] = []
        self._facts: dict[str, Any] = {}
        self._error: Fault | None = None
        self._phase: Phase | None = None

    def tell(self, kind: str, **data: Any) -> None:
        """Pass a progress event on."""
        self._emit(Event(kind, {"trial": self.spec.id, **data}))

    def note(self, **facts: Any) -> None:
        """Write facts down; a later one of the same name replaces the earlier."""
        self._facts.update(facts)

    def fact(self, name: str, kind: type[Fact]) -> Fact:
        """A fact that was noted before. KeyError, TypeError: the road was not walked in its order."""
        found = self._facts[name]
        if not isinstance(found, kind):
            raise TypeError(f"{name} is {type(found).__name__}, not {kind.__name__}")
        return found

    def warn(self, *warnings: TrialWarning) -> None:
        """Add findings and tell them."""
        for warning in warnings:
            self._warnings.append(warning)
            self.tell("warning", id=warning.id, text=warning.text)

    @contextlib.contextmanager
    def stage(self, phase: Phase, asked: object = True) -> Iterator[None]:
        """Time a phase, tell it, and raise DeadlinePassed when it takes longer than its deadline. (A call that no
        signal ends is ended by the parent, which hears of the deadline: `runner.overdue`.)

        One that the plan does not ask for is neither timed nor told; its part then does nothing.
        """
        if not asked:
            yield
            return
        self._phase = phase
        limit_s = self._deadline_s(phase)
        self.tell("phase_begin", phase=phase.value, expected_s=self._expected_s(phase), deadline_s=limit_s)
        began, began_utc = time.monotonic(), self.clock.now_utc()
        try:
            with deadline(phase, limit_s):
                yield
        finally:
            seconds = time.monotonic() - began
            self._phases.append(PhaseTime(phase, iso(began_utc), iso(began_utc + seconds), round(seconds, 3)))
            self.tell("phase_end", phase=phase.value, seconds=round(seconds, 3))

    def phase_s(self, phase: Phase) -> float:
        """Seconds that a phase took so far (0 where it was not reached)."""
        return sum(done.seconds for done in self._phases if done.name is phase)

    def fail(self, error: BaseException) -> None:
        """Mark the trial as failed with what ended it; a fault of our own leaves its traceback in raw/."""
        if isinstance(error, OSError) and error.errno == 28 and not isinstance(error, DbbenchError):  # ENOSPC
            error = FilesystemFull(f"no space left on device: {error.filename or self.draft.folder}")
        if type(error).__module__.partition(".")[0] in _CLIENTS:
            error = ServerAnswered(" ".join(str(error).split()))
        if not isinstance(error, DbbenchError):
            with contextlib.suppress(OSError):  # of a full disk the trial itself says more
                (self.draft.raw / "traceback.txt").write_text("".join(traceback.format_exception(error)))
            error = DbbenchError(f"{type(error).__name__}: {error}", remedy="See raw/traceback.txt of the trial.")
        phase = self._phase.value if self._phase else ""
        self._error = Fault(error.id, phase, f"{error.title}: {error.evidence}")

    def publish(self) -> Trial:
        """Make the trial a result; from here on it is finished, whatever its status."""
        trial = self._trial()
        self.draft.publish(trial, self.series, self.phase_of_second, self.histogram)
        return trial

    def _trial(self) -> Trial:
        suspect = any(warning.suspect for warning in self._warnings)
        status = Status.FAILED if self._error else Status.SUSPECT if suspect else Status.OK
        trial = Trial(
            id=self.spec.id,
            run=self.run.name,
            host=str(self.run.host.get("hostname", "")),
            fs_setup=self.cell.arm,
            setup=self.cell.setup.name,
            engine=self.cell.engine.name,
            workload=self.cell.workload.name,
            variant=self.cell.variant,
            block=self.spec.block,
            attempt=self.spec.attempt,
            position=self.spec.position,
            status=status,
            window=self.cell.window,
            parameters=self.cell.parameters,
            error=self._error,
            warnings=tuple(self._warnings),
            phases=tuple(self._phases),
            dbbench_version=__version__,
        )
        return dataclasses.replace(trial, **self._facts)

    def _expected_s(self, phase: Phase) -> float | None:
        window = self.cell.window
        return {Phase.WARMUP: window.warmup_s, Phase.MEASURE: window.measure_s or None}.get(phase)

    def _deadline_s(self, phase: Phase) -> float:
        asked = self.run.plan.deadlines.get(phase)
        if asked is not None:
            return asked
        window, base = self.cell.window, DEADLINES_S[phase]
        if phase is Phase.MEASURE:
            return base + window.measure_s if window.kind == "fixed" else UNBOUNDED_WORK_S
        if phase is Phase.WARMUP:
            return base + window.warmup_s if window.kind == "fixed" else UNBOUNDED_WORK_S
        return base


@contextlib.contextmanager
def deadline(phase: Phase, seconds: float) -> Iterator[None]:
    """Raise DeadlinePassed in the block when it runs longer than `seconds` (main thread only)."""

    def late(_signal: int, _frame: object) -> None:
        raise DeadlinePassed(
            f"phase {phase.value} took longer than {seconds:.0f} s",
            remedy=f'A longer one is set in the plan:  [deadlines]  {phase.value} = "2h"',
        )

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stopping(error: BaseException) -> bool:
    """Whether somebody asked us to stop: such a trial is not a result, it is driven again."""
    return isinstance(error, Interrupted | Terminated | KeyboardInterrupt | SystemExit)


def keep_logs(logs: Path, raw: Path) -> None:
    """Copy configuration and logs of the server from its private folder into raw/."""
    for path in sorted(logs.rglob("*")):
        if path.is_file():
            target = raw / path.relative_to(logs)
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
