"""The harm table: for each setup and server, what power losses and other harm did to the database,
and what the setup costs. The terminal, the page and JSON have the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.interval import share_interval
from dbbench.durability import REPORTED
from dbbench.engines import profile_of
from dbbench.metrics.table import METRICS
from dbbench.model import (
    CUT_COLUMNS,
    KILL_COLUMNS,
    Conclusion,
    HarmCount,
    Json,
    LabFacts,
    LabRow,
    durability_class,
    plain,
)
from dbbench.plan import promise
from dbbench.report.page.groups import Group, groups
from dbbench.report.page.trial_facts import fact_text
from dbbench.results import LoadedRun
from dbbench.units import MISSING, change, count, interval, percents, size_text

COSTS: Final = ("write_kb_per_tx", "flushes_per_tx", "largest_file_extents", "disk_bytes")


class HarmLine(NamedTuple):
    """One setup with one server. `price`: by metric, of trials of the same run; `reports`: of
    losses.
    """

    row: LabRow
    price: dict[str, Row]
    reports: tuple[str, ...] = ()

    @property
    def durability(self) -> str:
        """Return the class, with the power-fail unit that it requires and the reports that it
        refers to.
        """
        flags = self.row.durability_flags
        page = profile_of(self.row.engine).page_bytes
        text = durability_class(flags, page) if flags else self.row.durability_class
        if self.reports:
            return f"{text} ({', '.join(self.reports)})"
        return text

    def cells(self, column: str) -> list[tuple[str, str, str]]:
        """Return each outcome as "torn 3/40", its share's 95 % interval as "1.6–20 %", and its
        evidence.
        """
        texts = []
        for outcome in self.row.counts:
            if outcome.column == column:
                low, high = _bounds(outcome)
                share = "" if low is None or high is None else percents(low, high)
                words = f"{outcome.word} {outcome.count}/{outcome.of}" if share else outcome.word
                texts.append((words, share, outcome.detail))
        return texts

    @property
    def server_title(self) -> str:
        """Return "PostgreSQL 17.2"."""
        return f"{profile_of(self.row.engine).title} {self.row.engine_version}".strip()

    @property
    def server(self) -> str:
        settings = (
            ", ".join(f"{name}={fact_text(value)}" for name, value in self.row.settings.items())
            or "defaults"
        )
        return f"{self.server_title}, {settings}"

    def price_text(self, metric: str) -> str:
        """Return the change against the baseline with its interval if the metric is a speed,
        otherwise the value.
        """
        row = self.price.get(metric)
        if row is None:
            return MISSING
        if metric in COSTS:
            return METRICS[metric].text(row.value)
        if row.verdict == "baseline" or row.ratio is None:
            return row.verdict
        return change(row.ratio) + ("" if row.lo is None else f" ({interval(row.lo, row.hi)})")


@dataclass(frozen=True)
class HarmTable:
    """The table of one run whose folder has results of the power-loss lab."""

    run: LoadedRun
    lab: LabFacts

    @cached_property
    def lines(self) -> list[HarmLine]:
        by_engine: dict[str, Group] = {}
        for group in groups([self.run]):
            by_engine.setdefault(group.engine, group)  # the first workload is the price
        return [
            HarmLine(
                row,
                dict(_price(by_engine[row.engine], row.fs_setup)) if self.run.trials else {},
                self._reports(row),
            )
            for row in self.lab.rows
        ]

    def _reports(self, row: LabRow) -> tuple[str, ...]:
        for cell in self.run.run.cells:
            if cell.arm == row.fs_setup and cell.engine.name == row.engine:
                reports = promise.reports_of(cell)
                if reports:
                    return reports
        return ()

    @property
    def published(self) -> list[str]:
        """Return for each public report what it counted, and whether the lab found harm."""
        # Only a lab that could conclude says something about a report.
        conclusions: dict[Conclusion | None, str] = {
            Conclusion.HARMED: "this test found harm too",
            Conclusion.UNHARMED: "this test does not confirm it",
        }
        sentences = []
        for line in self.lines:
            conclusion = conclusions.get(line.row.conclusion)
            for report in line.reports:
                if conclusion and report in REPORTED:
                    sentences.append(
                        f"{line.row.fs_setup} with {line.server}: {report} reports "
                        f"{REPORTED[report]}; {conclusion}: {line.row.statement}"
                    )
        return sentences

    @property
    def columns(self) -> list[str]:
        return list(
            dict.fromkeys(outcome.column for line in self.lines for outcome in line.row.counts)
        )

    @property
    def halves(self) -> list[tuple[str, list[str]]]:
        """Return the columns about power losses and kills, and the others, each with a title."""
        power = [column for column in self.columns if column in (*CUT_COLUMNS, *KILL_COLUMNS)]
        others = [column for column in self.columns if column not in power]
        return [("power and kills", power), ("errors and copies", others)]

    @property
    def prices(self) -> list[str]:
        """Return the metrics that a trial has."""
        return list(dict.fromkeys(metric for line in self.lines for metric in line.price))

    @property
    def price_headings(self) -> list[str]:
        return [
            metric.label
            + (
                f", {metric.unit}"
                if metric.unit not in ("", "bytes") and metric.name in COSTS
                else ""
            )
            for metric in map(METRICS.__getitem__, self.prices)
        ]

    @property
    def exclusions(self) -> list[str]:
        """Return the setups and attempts that were left out, each with the reason."""
        omitted = {**self.run.run.skipped, **self.lab.skipped}
        # What the time did not suffice for is neither omitted nor tested.
        tested = {(row.fs_setup, row.engine) for row in self.lab.rows}
        late: dict[str, None] = {}
        for cell in self.run.run.cells:
            if (cell.arm, cell.engine.name) not in tested and cell.arm not in omitted:
                late[f"{cell.arm} with {profile_of(cell.engine.name).title}"] = None
        untried = [
            f"{line.row.fs_setup} with {line.server}, {outcome.column}: {outcome.detail}"
            for line in self.lines
            for outcome in line.row.counts
            if not outcome.of
        ]
        return [
            *(f"{arm}: {why}" for arm, why in omitted.items()),
            *untried,
            *(f"{name}: the test ended before it" for name in late),
        ]

    @property
    def unit(self) -> str:
        """Describe which power-fail units the devices of the trials have, by their own account; ""
        without trials.
        """
        queues = [
            trial.filesystem.queue for trial in self.run.trials if trial.filesystem is not None
        ]
        atomic = {int(queue.get("atomic_write_unit_max_bytes") or 0) for queue in queues}
        blocks = {
            int(queue["physical_block_size"]) for queue in queues if "physical_block_size" in queue
        }
        if not blocks:
            return ""
        if min(atomic):
            return (
                f"The device reports atomic writes of up to {size_text(min(atomic))}: cuts with "
                "larger power-fail units do not apply to it."
            )
        return (
            "The device reports no atomic writes: cuts with power-fail units above its physical "
            f"block of {size_text(min(blocks))} do not apply to it."
        )

    @property
    def disk(self) -> str:
        """Describe the simulated disk."""
        disk = self.lab.disk
        return (
            f"a volatile cache of {size_text(int(disk['cache_bytes']))} that writes back after "
            f"{disk['destage_s']} s, power-fail units of {disk['units']} bytes, also shifted by "
            f"{disk['shift_bytes']}"
        )

    @property
    def blind(self) -> list[str]:
        """Return the titles of engines with a control that lost data too rarely, or had no time to."""
        return [profile_of(engine).title for engine in self.lab.blind]

    @property
    def controls(self) -> list[str]:
        return [
            f"{profile_of(c.engine).title}, {c.name}: "
            f"{c.what}: {c.harmed} of {count(c.valid, 'cut')} "
            f"harmed ({c.needed} of {c.tries} are needed)" + (f"; {c.note}" if c.note else "")
            for c in self.lab.controls
        ]

    @property
    def invalid(self) -> list[str]:
        return [
            f"{line.row.fs_setup}, {line.server_title}, cut {cut.number}: {cut.invalid}"
            for line in self.lines
            for cut in line.row.cuts
            if cut.invalid
        ]

    def document(self) -> list[Json]:
        """Return the table for programs."""
        return [
            {
                "fs_setup": line.row.fs_setup,
                "engine": line.row.engine,
                "settings": line.row.settings,
                "durability_class": line.row.durability_class,
                "counts": [
                    {**plain(outcome), **dict(zip(("lo", "hi"), _bounds(outcome), strict=True))}
                    for outcome in line.row.counts
                ],
                "price": {
                    metric: {
                        "value": row.value,
                        "ratio": row.ratio,
                        "lo": row.lo,
                        "hi": row.hi,
                    }
                    for metric, row in line.price.items()
                },
            }
            for line in self.lines
        ]


def _bounds(outcome: HarmCount) -> tuple[float | None, float | None]:
    if not outcome.of:
        return None, None
    return share_interval(outcome.count, outcome.of, outcome.independent)


def _price(group: Group, arm: str) -> Iterator[tuple[str, Row]]:
    for metric in (group.metric.name, *COSTS):
        if (row := group.row(arm, metric)) is not None and row.value is not None:
            yield metric, row
