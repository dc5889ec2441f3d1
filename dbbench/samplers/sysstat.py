"""What sar and iostat have in common: sysstat's JSON, time stamps of whole seconds, recorders that
may die.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from dbbench.metrics.series import Series, on_the_second
from dbbench.model import Figures, Json, TrialWarning
from dbbench.process import Running
from dbbench.samplers.sampler import gap_warning

# sysstat rounds an interval to whole seconds (1.5 s is printed as 2). A mean over a longer interval
# is not the value of a single second. It occurs after a stall of the recorder, or if a recorder was
# started again on the same file.
LONGEST_INTERVAL_S: Final = 2
FIRST_SAMPLE_S: Final = 2  # a shorter load may have ended before the recorder's first interval


@dataclass(frozen=True)
class Interval:
    """One interval: the whole UTC second of its end, its length, columns with units in their names."""

    stamp: int
    interval_s: float
    values: Figures


class SysstatDocument(NamedTuple):
    """The content of a recorder's file."""

    entries: Sequence[Interval] = ()
    whole: bool = True
    # what was expected and what was read instead; "": everything was as expected
    unexpected: str = ""
    fault: str = ""  # why the file could not be read to its end; "": it could

    @classmethod
    def of(
        cls,
        entries: Sequence[Interval],
        whole: bool,
        strange: Sequence[object],
        expected: str,
        unexpected: str,
    ) -> SysstatDocument:
        """Return a document; `strange`: time stamps that are not what was `expected`, and are
        reported first.
        """
        if strange:
            read = f"read {json.dumps(strange[0])} ({len(strange)} entries)"
            unexpected = f"time stamp: expected {expected}, {read}"
        return cls(entries, whole, unexpected)


Table = Mapping[str, tuple[str, float]]  # the tool's key -> (dbbench's column, factor)


def numbers(
    row: Mapping[str, Any],
    table: Table,
    per_request: Mapping[str, str],
) -> Iterator[tuple[str, float | None]]:
    """Yield (column, value) of a table. `per_request`: keys that have no value without requests,
    whose rate is another key; the tools print 0 or nothing.
    """
    for key, (column, factor) in table.items():
        value = row.get(key) if key not in per_request or row.get(per_request[key]) else None
        yield column, float(value) * factor if isinstance(value, int | float) else None


def missing_keys(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    expected: Iterable[str],
) -> str:
    """Return a message about the `expected` keys that no row has, with those that exist; "" if none
    is missing. Without it, such a column would only be empty.
    """
    keys = dict.fromkeys(key for row in rows for key in row)
    absent = [key for key in expected if key not in keys]
    if not absent:
        return ""
    return f"{name}: expected {', '.join(absent)}, read {', '.join(keys) or 'nothing'}"


def statistics(text: str) -> tuple[list[Json], bool]:
    """Return the entries of a sysstat document, and whether it was complete; for a truncated one
    those before the cut: a killed recorder does not close its brackets.
    """
    try:
        return list(json.loads(text)["sysstat"]["hosts"][0]["statistics"]), True
    except (ValueError, KeyError, IndexError, TypeError):
        return list(_whole_entries(text)), False


def _whole_entries(text: str) -> Iterable[Json]:
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


def ends(entries: Sequence[Interval], began_utc: float) -> list[float]:
    """Return UTC epoch seconds at which each interval ended, with the fraction that sysstat does
    not print. The tools use an alarm once per second, so each ends one second after the previous
    one; the printed second is a bound that corrects drift. After a stall the fraction is lost:
    half a second minimises the error.
    """
    end_times: list[float] = []
    guess = began_utc
    for entry in entries:
        guess = min(max(guess + 1.0, entry.stamp), entry.stamp + 0.999)
        if end_times and guess - end_times[-1] > LONGEST_INTERVAL_S:
            guess = entry.stamp + 0.5
        end_times.append(guess)
    return end_times


def to_series(
    entries: Sequence[Interval],
    began_utc: float,
    begin_utc: float,
    seconds: int,
) -> Series:
    """Return the columns of all entries on the trial's clock."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.values))
    timed = list(zip(ends(entries, began_utc), entries, strict=True))
    kept = [(end, entry.values) for end, entry in timed if entry.interval_s <= LONGEST_INTERVAL_S]
    columns = {}
    for name in names:
        points = ((end, values.get(name)) for end, values in kept)
        columns[name] = on_the_second(points, begin_utc, seconds)
    return Series(seconds, columns)


@dataclass
class Recorder:
    """A recorder that is running or has run. `read_document` returns what it wrote; `lead` is a
    column that has a value in every good second: its gaps are the recorder's.
    """

    name: str
    lead: str
    began_utc: float
    read_document: Callable[[], SysstatDocument]
    ended_early: str | None = None

    def note_end(self, program: Running, log: Path) -> None:
        """Note whether the program ended by itself; call this before stopping it."""
        status = program.poll()
        if status is None:
            return
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self.ended_early = f"{Path(program.argv[0]).name} {how}"
        lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
        if lines:
            self.ended_early += f": {lines[-1]}"

    def read(self, begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        document = self.read_document()
        series = to_series(document.entries, self.began_utc, begin_utc, seconds)
        if self.lead not in series:
            series.set(self.lead, [])
        return series, list(self._judge(document, series[self.lead]))

    def _judge(
        self, document: SysstatDocument, column: Sequence[float | None]
    ) -> Iterator[TrialWarning]:
        # How much is missing, why, and whether the format was the expected one.
        good = sum(value is not None for value in column)
        hole = next((second for second, value in enumerate(column) if value is None), None)
        share = f"{good} of {len(column)} seconds have data"
        short = self.ended_early is None and len(column) < FIRST_SAMPLE_S
        why = self.ended_early or document.fault
        unexpected = document.unexpected
        if why:
            kind = "W014" if short else "W013"
            yield TrialWarning(kind, f"{self.name}: {why}; {share}", hole)
        elif not good and not short and not unexpected:
            expected = f"expected an entry for each of {len(column)} seconds"
            unexpected = f"{expected}, read {_span(document.entries)}"
        if unexpected:
            yield TrialWarning("W140", f"{self.name}: {unexpected}; {share}", hole)
        gaps = gap_warning(self.name, column)
        if gaps:
            yield gaps


def _span(entries: Sequence[Interval]) -> str:
    if not entries:
        return "none"
    first, last = (
        f"{datetime.fromtimestamp(entry.stamp, UTC):%FT%TZ}" for entry in (entries[0], entries[-1])
    )
    return f"{len(entries)} entries from {first} to {last}"
