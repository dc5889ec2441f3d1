"""The record of a trial in progress. `Record.stage`, the only way into a phase, times it and
enforces its deadline.
"""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench import __version__, errors, model, process
from dbbench.engines import profile_of
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.series import Clock, Series
from dbbench.model import Figures, Json
from dbbench.model.events import Emit, Event
from dbbench.model.times import DEADLINES_S, UNBOUNDED_WORK_S
from dbbench.results import Draft, RunFolder
from dbbench.results.fileio import FULL, unwritable, writing
from dbbench.storage.devices import canary
from dbbench.units import iso

_LONGEST_S: Final = 86400.0  # of a phase on a slow disk


class Record:
    """The record of one trial, from its first stage to its publication."""

    def __init__(
        self,
        folder: RunFolder,
        spec: model.TrialSpec,
        emit: Emit,
    ) -> None:
        self.folder = folder
        self.run = folder.run
        self.spec = spec
        self.emit = emit
        self.cell = self.run.cell(spec.cell)
        self.draft = Draft(folder.path, spec.id)
        self.clock = Clock()
        self.facts = Facts()
        self.series: Series | None = None
        self.phase_of_second: list[str] = []
        self.histogram: Histogram | None = None
        self._phases: list[model.PhaseTime] = []
        self._warnings: list[model.TrialWarning] = []
        self._error: model.Fault | None = None
        self._phase: model.Phase | None = None

    def tell(self, kind: str, **data: Any) -> None:
        self.emit(Event(kind, {"trial": self.spec.id, **data}))

    def warn(self, *warnings: model.TrialWarning) -> None:
        for warning in warnings:
            self._warnings.append(warning)
            self.tell(
                "warning",
                id=warning.id,
                text=warning.text,
                suspect=warning.suspect,
            )

    @contextlib.contextmanager
    def stage(self, phase: model.Phase) -> Iterator[None]:
        """Time a phase; raise DeadlinePassed. The parent enforces it in calls that no signal
        interrupts.
        """
        self._phase = phase
        limit_s = self._deadline_s(phase)
        window = self.cell.window
        expected_s: float | None = None
        if phase is model.Phase.WARMUP and not self.cell.workload.prepares:
            expected_s = window.warmup_s
        elif phase is model.Phase.MEASURE:
            expected_s = window.measure_s or None
        name = phase.value
        # The parent hears about the phase before it begins, so that it can watch the deadline.
        self.tell(
            "phase_begin",
            phase=name,
            expected_s=expected_s,
            deadline_s=limit_s,
        )
        began = time.monotonic()
        began_utc = self.clock.now_utc()
        try:
            asked_s = self.run.plan.deadlines.get(phase)
            with (
                deadline(phase, limit_s),
                process.in_phase(phase.value, asked_s),
                process.on_disk(self.disk_slowness),
            ):
                yield
        finally:
            # The time is recorded also if the phase fails.
            seconds = time.monotonic() - began
            ended = iso(began_utc + seconds)
            seconds = round(seconds, 3)
            self._phases.append(model.PhaseTime(phase, iso(began_utc), ended, seconds))
            self.tell("phase_end", phase=name, seconds=seconds)

    def disk_slowness(self) -> float:
        """Return how many times slower than an ordinary disk the trial's is; 1 if not measured."""
        return canary.slowness(vars(self.facts).get("canary", {}))

    def phase_s(self, phase: model.Phase) -> float:
        return sum(done.seconds for done in self._phases if done.name is phase)

    def fail(self, error: BaseException) -> None:
        """Mark the trial as failed with this error; an internal error leaves its traceback in raw/."""
        error = translate(error, self.draft.folder)
        if isinstance(error, errors.HelperDied) or not isinstance(error, errors.DbbenchError):
            # if the disk is full, the error of the trial says so
            with contextlib.suppress(OSError):
                (self.draft.raw / "traceback.txt").write_text(
                    "".join(traceback.format_exception(error))
                )
        if not isinstance(error, errors.DbbenchError):
            error = errors.DbbenchError(
                f"{type(error).__name__}: {error}", remedy="See raw/traceback.txt of the trial."
            )
        phase = self._phase.value if self._phase else ""
        self._error = model.Fault(error.id, phase, f"{error.title}: {error.evidence}")

    def publish(self) -> model.Trial:
        """Publish the trial: it is finished from now on, whatever its status."""
        trial = self._trial()
        self.draft.publish(trial, self.series, self.phase_of_second, self.histogram)
        return trial

    def _trial(self) -> model.Trial:
        # A failure outweighs a warning; a warning alone makes a trial suspect or nothing.
        status = model.Status.OK
        if self._error:
            status = model.Status.FAILED
        elif any(warning.suspect for warning in self._warnings):
            status = model.Status.SUSPECT
        engine = self.cell.engine
        # The identity and the conditions of the trial; `facts` has what its stages found.
        return model.Trial(
            id=self.spec.id,
            run=self.run.name,
            host=str(self.run.host.get("hostname", "")),
            fs_setup=self.cell.arm,
            setup=self.cell.setup.name,
            engine=engine.name,
            profile=engine.profile if profile_of(engine.name).has_server else "",
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
            **vars(self.facts),
        )

    def _deadline_s(self, phase: model.Phase) -> float:
        asked = self.run.plan.deadlines.get(phase)
        if asked is not None:
            return asked
        window = self.cell.window
        # On a slow disk all takes longer, but nothing more than a day.
        base = DEADLINES_S[phase]
        base = max(base, min(base * self.disk_slowness(), _LONGEST_S))
        if phase is model.Phase.MEASURE:
            if window.kind == "fixed":
                return base + window.measure_s
            return UNBOUNDED_WORK_S
        if phase is model.Phase.WARMUP:
            bounded = window.kind == "fixed" and not self.cell.workload.prepares
            if bounded:
                return base + window.warmup_s
            return UNBOUNDED_WORK_S
        return base


def translate(error: BaseException, folder: Path) -> BaseException:
    """Return the error of dbbench for a full filesystem or for the answer of a server; others as
    they are.
    """
    inner = error.__cause__ if isinstance(error, errors.HelperDied) else error
    if isinstance(inner, OSError) and inner.errno in FULL:
        return unwritable(inner, inner.filename or folder)
    if errors.client_error(error):
        return errors.EngineDied(" ".join(str(error).split()))
    return error


@contextlib.contextmanager
def deadline(phase: model.Phase, seconds: float) -> Iterator[None]:
    """Raise DeadlinePassed in the block if it runs longer than `seconds` (main thread only)."""

    def late(_signal: int, _frame: object) -> None:
        example = f'{phase.value} = "2h"'
        raise errors.DeadlinePassed(
            f"phase {phase.value} exceeded its deadline of {seconds:.0f} s",
            remedy=f"Set a longer deadline in [deadlines] of the plan, for example {example}.",
        )

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stopping(error: BaseException) -> bool:
    """Return whether the error is a request to stop: such a trial has no result and runs again."""
    requests = (errors.Interrupted, errors.Terminated, KeyboardInterrupt, SystemExit)
    return isinstance(error, requests)


def keep_logs(logs: Path, raw: Path) -> None:
    """Copy configuration and logs of the server from its private directory into raw/. Raises
    NotWritable.
    """
    with writing(raw):
        # raises if the results folder was removed, so that mkdir below does not create it again
        raw.stat()
    for path in sorted(logs.rglob("*")):
        if path.is_file():
            target = raw / path.relative_to(logs)
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())


@dataclass(init=False, kw_only=True, repr=False, eq=False)
class Facts:
    """The fields of `model.Trial`, set by the stages in turn. Reading a field without a default
    before its stage raises AttributeError; a trial that failed before it is published without
    it.
    """

    # Set before the load, in the order of the stages.
    device: model.DeviceFacts
    host_state: Json
    canary: dict[str, float]
    wear: model.WearFacts | None
    condition: model.ConditionFacts | None = None
    # after the load, durability_flags are those of filesystem and server together
    filesystem: model.FilesystemFacts
    age: model.AgeFacts | None = None
    dataset: model.DatasetFacts | None
    cache: model.CacheFacts
    # first of the restored files; after the load also of the files that grew
    growth: model.GrowthFacts | None = None
    # Set at the start of the server and during the load.
    engine_version: str
    settings: model.Settings
    effective_settings: dict[str, str]
    snapshots: model.SnapshotFacts | None = None
    # Set after the load.
    checked: str
    space: model.SpaceFacts
    host_state_end: Json
    wear_end: model.WearFacts | None
    ceiling: model.CeilingFacts
    limit: model.LimitFacts | None = None
    operations: tuple[model.OperationFacts, ...] = ()
    writes: model.WriteFacts | None = None
    # Computed by `evaluate` from the fields above.
    anchor_utc: str
    engine_features: dict[str, str]
    drain: model.DrainFacts
    memory: model.MemoryFacts
    cores: model.CoresFacts | None
    time: model.TimeFacts | None
    client: model.ClientFacts | None
    checkpoints: model.CheckpointFacts
    io: model.IoFacts
    summary: Figures
    types: tuple[model.TypeLatency, ...]
    work: tuple[model.WorkFacts, ...]
    # Command lines of all programs that the trial started.
    commands: tuple[tuple[str, ...], ...]
