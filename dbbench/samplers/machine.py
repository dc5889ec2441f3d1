"""machine: whether only the trial used the machine, and whether its settings stayed the same, once
per second.

It compares mount options (W132), the scheduling of the trial's processes and their control
groups (W133), settings of the host and the block layer (W018) and the system clock (W023) with
the previous second. W127: a program wrote to the node of a disk or to the image. W129: stopped
or frozen processes, a server that makes no progress although it is queried every second, and a
thread of dbbench that is seconds late because the trial's process or the whole (virtual) machine
was stopped. `machine.jsonl` has the findings, if any; there are no columns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Final

from dbbench.machine import threads
from dbbench.machine.host import tunables
from dbbench.machine.host.proc import PROC
from dbbench.machine.limits.cgroup import Groups
from dbbench.metrics.series import Series, both_clocks
from dbbench.model import TrialWarning
from dbbench.samplers.machine_state import (
    Mounts,
    Processes,
    SettingFiles,
    Values,
    differences,
    requests,
)
from dbbench.samplers.sampler import Sampled, Sampling
from dbbench.storage.devices import sysfs
from dbbench.storage.devices.used import WriteWatch
from dbbench.units import iso

_EVERY_S: Final = 1.0
_MOUNTS_EVERY_S: Final = 0.25  # for changes that the kernel does not announce
# delay of a reading that load alone does not cause on a machine that can still measure
_LATE_S: Final = 3.0
# consecutive seconds without a step; in a single one, dbbench's own query may have been late
_STILL: Final = 2
# more than chrony's slewing (0.1 s per second) and the time between reading the two clocks
_STEP_S: Final = 0.25
_SHOWN: Final = 3  # findings of one kind that a warning lists
_STANDING: Final = "W129"
PROGRAMS: Final = ()
KINDS: Final = ("W018", "W023", "W127", _STANDING, "W132", "W133")  # each makes the trial suspect


@dataclass(frozen=True)
class Disturbance:
    """A deviation: a warning's ID, its description, and its duration in seconds (W129)."""

    utc: float
    id: str
    text: str
    lasted_s: float = 0.0


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling]:
    """Watch the machine within the block."""
    looking = Machine(target, raw / "machine.jsonl")
    try:
        with threads.beside("machine", looking.work):
            yield looking
    finally:
        looking.close()


class Machine:
    """Watches the machine and keeps the findings. Seconds in UTC."""

    def __init__(
        self,
        target: Sampled,
        log: Path,
        proc: Path = PROC,
        clocks: Callable[[], tuple[float, float]] = both_clocks,
    ) -> None:
        self._server = target.server.pid if target.server is not None else None
        self._disks = target.disks
        self._log = log
        self._clocks = clocks
        self._mounts = Mounts(target.mounts)
        roots = (os.getpid(),) if self._server is None else (os.getpid(), self._server)
        # dbbench itself changes the limits of the disks when a burst ends
        limited = () if target.has_burst else target.disks
        numbers = [sysfs.attribute(disk, "dev") or "" for disk in limited]
        self._processes = Processes(roots, Groups(self._mounts.table()), proc, numbers)
        self._target = target
        self._files = _setting_files(target)
        self._writes = WriteWatch(target.disks)
        self._findings: list[Disturbance] = []
        self._began = clocks()
        self._turn = self._began  # both clocks at the last reading
        self._of_processes: Values = {}
        self._settings: Values = {}
        self._options: Values = {}
        self._remounting = False  # dbbench itself unmounts and mounts the filesystems
        self._lock = Lock()  # for the four above, which `remounting` changes from another thread
        self._still = 0  # consecutive seconds without a step of the server
        # steps of the server, completed disk requests
        self._progress: tuple[int | None, int | None] = (None, None)

    def close(self) -> None:
        self._mounts.close()
        self._writes.close()

    def work(self, ended: Event) -> None:
        """Read once per second until `ended` is set, and the mounts whenever one has changed."""
        self.look()
        due = self._turn[1] + _EVERY_S
        while not ended.is_set():
            self._mounts.wait(max(0.0, min(_MOUNTS_EVERY_S, due - time.monotonic())))
            self._look_at_mounts()
            if time.monotonic() >= due:
                self.look()
                due = max(due, self._turn[1] - _EVERY_S) + _EVERY_S

    def read(self, begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        end_utc = begin_utc + seconds
        # A change is noticed up to a second later.
        by_kind: dict[str, list[Disturbance]] = {kind: [] for kind in KINDS}
        for finding in self._findings:
            if begin_utc <= finding.utc < end_utc + _EVERY_S:
                utc = min(finding.utc, end_utc - 0.001)
                by_kind[finding.id].append(dataclasses.replace(finding, utc=utc))
        warnings = []
        for kind, findings in by_kind.items():
            if findings:
                warnings.append(warning(kind, findings, begin_utc))
        return Series(seconds), warnings

    def look(self) -> None:
        late_s = self._look_at_clocks()
        self._look_at_mounts()
        self._processes.read()
        stopped = self._processes.list_idle()
        for pid, name, how in stopped:
            self._note(_STANDING, f"{name} (pid {pid}) {how}", _EVERY_S)
        self._look_at_progress(bool(stopped), _EVERY_S + late_s)
        for text in self._processes.list_rescheduling():
            self._note("W133", text)
        for path in self._writes.list_writes():
            self._note("W127", f"another process wrote to {path}")
        self._of_processes = self._compare(self._of_processes, self._processes.values())
        with self._lock:
            if not self._remounting:
                self._settings = self._compare(self._settings, self._files.values())

    @contextlib.contextmanager
    def remounting(self) -> Iterator[None]:
        """dbbench itself unmounts and mounts the filesystems within the block: only what differs
        after it is a finding.
        """
        self._look_at_mounts()
        with self._lock:
            self._remounting = True
        try:
            yield
        finally:
            with self._lock:
                before = self._options
                self._options = self._mounts.values()
                self._compare(_without_numbers(before), _without_numbers(self._options))
                # the files of a btrfs are named after its number, which may be another one now
                self._files = _setting_files(self._target)
                self._remounting = False

    def _look_at_mounts(self) -> None:
        with self._lock:
            if self._remounting:
                return
            options = self._mounts.values()
            if options is not self._options:
                self._options = self._compare(self._options, options)

    def _compare(self, before: Values, after: Values) -> Values:
        for kind, text in differences(before, after):
            self._note(kind, text)
        return after

    def _look_at_clocks(self) -> float:
        """Return by how many seconds this reading is late."""
        before = self._turn
        self._turn = self._clocks()
        utc_s = self._turn[0] - before[0]
        monotonic_s = self._turn[1] - before[1]
        step = utc_s - monotonic_s
        if abs(step) > _STEP_S:
            self._note("W023", f"the system clock was set by {step:+.1f} s")
        late_s = monotonic_s - _EVERY_S
        if late_s >= _LATE_S:
            text = f"dbbench, or the machine (pid {os.getpid()}) stopped"
            self._note(_STANDING, text, late_s, ago_s=late_s)
        return max(0.0, late_s)

    def _look_at_progress(self, stopped: bool, seconds: float) -> None:
        """Note W129 if no thread of the server, which the sampler `counters` queries every second,
        has run since the last reading while no disk request ended or was pending.
        """
        if self._server is None:
            return
        before = self._progress
        self._progress = (self._processes.steps(self._server), requests(self._disks))
        moved = None in self._progress or before != self._progress
        self._still = 0 if moved or stopped else self._still + 1
        if self._still >= _STILL:
            lasted = seconds * (_STILL if self._still == _STILL else 1)
            self._note(
                _STANDING,
                f"the server (pid {self._server}) made no progress",
                lasted,
            )

    def _note(
        self,
        kind: str,
        text: str,
        lasted_s: float = 0.0,
        ago_s: float = 0.0,
    ) -> None:
        # monotonic: not affected if the clock is set
        began_utc, began_s = self._began
        elapsed_s = self._clocks()[1] - began_s
        utc = began_utc + elapsed_s - ago_s
        self._findings.append(Disturbance(utc, kind, text, lasted_s))
        line: dict[str, object] = {"utc": iso(utc), "id": kind, "what": text}
        if lasted_s:
            line["seconds"] = round(lasted_s, 3)
        # the warning needs no file
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


def _setting_files(target: Sampled) -> SettingFiles:
    block_files = tunables.block_files(target.disks, target.mounts)
    return SettingFiles({**tunables.paths_to_watch(), **block_files})


def _without_numbers(options: Values) -> Values:
    """Return mounts without the numbers that the kernel gives to each mount of a btrfs."""
    return {key: re.sub(r" on 0:\d+", "", value) for key, value in options.items()}


def warning(
    kind: str,
    findings: list[Disturbance],
    begin_utc: float,
) -> TrialWarning:
    """Return the findings of that kind as a warning: the duration for stopped processes, the time
    for changes.
    """
    seconds = [int(finding.utc - begin_utc) for finding in findings]
    if kind == _STANDING:
        lasted = Counter[str]()
        for finding in findings:
            lasted[finding.text] += round(finding.lasted_s)
        texts = [f"{text} for about {count} s" for text, count in lasted.most_common()]
    else:
        pairs = zip(findings, seconds, strict=True)
        texts = [f"{finding.text} (second {second})" for finding, second in pairs]
    text = "; ".join(texts[:_SHOWN])
    if len(texts) > _SHOWN:
        text += f" and {len(texts) - _SHOWN} others"
    return TrialWarning(kind, text, second=min(seconds))
