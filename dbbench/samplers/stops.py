"""stops: was a process of the trial stopped? The states of all of them, read once a second by a thread.

A server that stands still does nothing, and its filesystem looks slow. Where the thread itself did not come to its turn
for seconds, the trial's own process was stopped, or the whole machine (a virtual one that was moved or saved). No
column; what was seen is in `stops.jsonl`, which is there only then.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.clock import iso
from dbbench.host.proc import PROC, processes, tree
from dbbench.model import TrialWarning
from dbbench.samplers.port import Sampling, Target
from dbbench.series import Series

_STOPPED: Final = "Tt"  # by a signal, by a tracer (proc_pid_stat(5))
_EVERY_S: Final = 1.0
_LATE_S: Final = 3.0  # beyond its turn: no load of a machine that still measures anything does this to a thread
_SHOWN: Final = 3  # names


def programs() -> tuple[str, ...]:
    """None: /proc is enough."""
    return ()


@contextlib.contextmanager
def beside(target: Target, raw: Path) -> Iterator[Sampling]:
    """Look while the block runs."""
    pid = target.server.pid if target.server is not None else None
    looking = Stops((os.getpid(), *(() if pid is None else (pid,))), raw / "stops.jsonl")
    with looking.running():
        yield looking


class Stops:
    """Which processes below `roots` were seen stopped, and when. Seconds in UTC."""

    def __init__(self, roots: tuple[int, ...], log: Path, proc: Path = PROC) -> None:
        self._roots, self._log, self._proc = roots, log, proc
        self._seen: list[tuple[float, str, float]] = []  # when, who, for how many seconds
        self._last: float | None = None  # monotonic time of the last reading
        self._warnings: tuple[TrialWarning, ...] = ()
        self._ended = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The thread, while the block runs."""
        thread = threading.Thread(target=self._work, name="stops", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def series(self, begin_utc: float, seconds: int) -> Series:
        """No column; W129 is of these seconds."""
        found = Counter[str]()
        for utc, name, lasted_s in self._seen:
            if begin_utc <= utc < begin_utc + seconds:
                found[name] += round(lasted_s)
        said = ", ".join(f"{name} for about {count} s" for name, count in found.most_common(_SHOWN))
        more = f" and {len(found) - _SHOWN} others" if len(found) > _SHOWN else ""
        self._warnings = (TrialWarning("W129", said + more, suspect=True),) if found else ()
        return Series(seconds)

    def warnings(self) -> tuple[TrialWarning, ...]:
        """W129; of the last call of `series`."""
        return self._warnings

    def look(self) -> None:
        """One reading."""
        now, turn, table = time.time(), time.monotonic(), processes(self._proc)
        late_s = 0.0 if self._last is None else turn - self._last - _EVERY_S
        self._last = turn
        if late_s >= _LATE_S:
            self._note(now - late_s, os.getpid(), "dbbench, or the machine", late_s)
        for pid in sorted(tree(self._roots, table)):
            if table[pid].state in _STOPPED:
                self._note(now, pid, table[pid].name, _EVERY_S)

    def _note(self, utc: float, pid: int, name: str, lasted_s: float) -> None:
        self._seen.append((utc, f"{name} (pid {pid})", lasted_s))
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"utc": iso(utc), "pid": pid, "name": name, "seconds": round(lasted_s, 3)}) + "\n")

    def _work(self) -> None:
        while not self._ended.wait(_EVERY_S):
            with contextlib.suppress(OSError):  # of the log: what is seen is told all the same
                self.look()
