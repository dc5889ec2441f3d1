"""What sar and iostat have in common: sysstat's JSON, its whole-second time stamps, recorders that may die."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.model import TrialWarning
from dbbench.process import Running
from dbbench.samplers.gaps import gap_warning
from dbbench.series import Series, on_the_second

# sysstat rounds an interval to whole seconds (1.5 s is printed as 2). A mean over more than that is not the
# value of any one second: after a stall of the recorder, or where one was started again on the same file.
LONGEST_INTERVAL_S: Final = 2


FIRST_SAMPLE_S: Final = 2  # a load that is shorter may have ended before the recorder's first interval did


@dataclass(frozen=True)
class Entry:
    """One interval: the whole UTC second of its end, its length, columns with units in their names."""

    stamp: int
    interval_s: float
    values: dict[str, float | None]


def statistics(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The entries of a sysstat document, and whether the document was whole.

    Of a document that was cut anywhere the entries before the cut are returned: a recorder that was killed
    does not close its brackets.
    """
    try:
        return list(json.loads(text)["sysstat"]["hosts"][0]["statistics"]), True
    except (ValueError, KeyError, IndexError, TypeError):
        return list(_whole_entries(text)), False


def _whole_entries(text: str) -> Iterable[dict[str, Any]]:
    _, _, rest = text.partition('"statistics": [')
    decoder = json.JSONDecoder()
    while rest := rest.lstrip(" \t\r\n,"):
        try:
            entry, end = decoder.raw_decode(rest)
        except ValueError:
            return
        if isinstance(entry, dict):
            yield entry
        rest = rest[end:]


def ends(entries: Sequence[Entry], began_utc: float) -> list[float]:
    """UTC epoch seconds at which each interval ended, with the fraction that sysstat does not print.

    The tools are driven by an alarm once a second from their start, so an end is one second after the last
    one. The printed second bounds it, so a slow drift is taken over as soon as it shows. After a stall the
    fraction is lost: half a second is the least error.
    """
    found: list[float] = []
    guess = began_utc
    for entry in entries:
        guess = min(max(guess + 1.0, entry.stamp), entry.stamp + 0.999)
        if found and guess - found[-1] > LONGEST_INTERVAL_S:
            guess = entry.stamp + 0.5
        found.append(guess)
    return found


def to_series(entries: Sequence[Entry], began_utc: float, begin_utc: float, seconds: int) -> Series:
    """The columns of all entries on the trial's clock."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.values))
    timed = list(zip(ends(entries, began_utc), entries, strict=True))
    kept = [(end, entry.values) for end, entry in timed if entry.interval_s <= LONGEST_INTERVAL_S]
    columns = {}
    for name in names:
        points = ((end, values.get(name)) for end, values in kept)
        columns[name] = on_the_second(points, begin_utc, seconds)
    return Series(seconds, columns)


class Recording:
    """A recorder that runs, or has run. `read` gives its entries and what was wrong with its file, if so.

    `lead` is a column that has a value in every good second: its holes are the recorder's.
    """

    def __init__(
        self,
        name: str,
        lead: str,
        began_utc: float,
        read: Callable[[], tuple[list[Entry], str | None]],
    ) -> None:
        self.name = name
        self.lead = lead
        self.began_utc = began_utc
        self.ended_early: str | None = None
        self._read = read
        self._warnings: list[TrialWarning] = []

    def note_end(self, program: Running, log: Path) -> None:
        """To be called before the program is stopped: one that has ended by now did so by itself."""
        status = program.poll()
        if status is not None:
            said = log.read_text(errors="replace").strip().splitlines()[-1:] if log.is_file() else []
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            self.ended_early = f"{self.name}: {Path(program.argv[0]).name} {how}" + "".join(
                f": {line}" for line in said
            )

    def series(self, begin_utc: float, seconds: int) -> Series:
        """Columns on the trial's clock; what the recorder did not write is a gap."""
        entries, fault = self._read()
        series = to_series(entries, self.began_utc, begin_utc, seconds)
        if self.lead not in series:
            series.set(self.lead, [])
        column = series[self.lead]
        self._warnings = []
        if why := self.ended_early or fault:
            good = sum(value is not None for value in column)
            text = f"{why}; {good} of {seconds} seconds have data"
            short = self.ended_early is None and seconds < FIRST_SAMPLE_S
            kind = "W014" if short else "W013"
            self._warnings.append(TrialWarning(kind, text, _first_hole(column), suspect=not short))
        if gaps := gap_warning(self.name, column):
            self._warnings.append(gaps)
        return series

    def warnings(self) -> tuple[TrialWarning, ...]:
        """W013, W014; of the last call of `series`."""
        return tuple(self._warnings)


def _first_hole(column: Sequence[float | None]) -> int | None:
    return next((second for second, value in enumerate(column) if value is None), None)
