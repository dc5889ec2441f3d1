"""Remarks about a row, shown next to its figures: kinds with values. Only this module has their
texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dbbench.units import GROUP, number


class RemarkKind(StrEnum):
    """What a remark is about: its text, in which its values are named."""

    FAILED = "{failed} failed"
    SUSPECT = "{suspect} suspect"
    NOT_DRIVEN = "no trial has run yet"
    REPORTED = "losses after a power cut were reported: {reports}"
    BURST = "burst: no checkpoint finished in the window"
    DRAIN = "the drain took more than 10 % of the window: use the sustained throughput"
    # In every trial, so the mean alone would mislead.
    UNSTEADY = "no steady state: the mean depends on the window"
    PARTLY_UNSTEADY = (
        "no steady state in {unsteady} of {trials} trials: the mean depends on the window"
    )
    TWO_LEVELS = (
        "two levels: {lower} trials near {low}, {higher} near {high}; check what differs between "
        "them"
    )
    OTHER_CLASS = "different durability class from the baseline"
    NO_PAIR = "no block in which this setup and the baseline both have this figure"
    TOO_FEW_BLOCKS = "too few blocks for an interval"
    MORE_BLOCKS = "needs about {blocks} more block{s}"
    MORE_BLOCKS_MINUTES = "needs about {blocks} more block{s} ({minutes} min)"
    TOO_MANY_BLOCKS = "needs more than 90 further blocks"
    DECIDED = "decided after {pairs} pairs: its time went to other setups"
    SETTLED = "precise enough after {pairs} pairs: its time went to other setups"
    GIVEN_UP = "not measured further: it or the baseline failed in every block"
    UNEQUAL = "{what} differs ({candidate}; baseline: {baseline})"
    UNEQUAL_CHECKPOINTS = (
        "number of checkpoints in the window differs ({candidate}; baseline: {baseline})"
    )
    OTHER_FEATURES = "both are {family}, but not the same {family}: {features}"
    MORE_UNEQUAL = "{settings} more settings of the host or the block layer differ"
    DEVICE_LIMITED = (
        "device-limited: this setup and the baseline both reached the ceiling of the device"
    )
    SCAN_WROTE = "the scan also wrote (W118): part of this is the cost of writing"
    WARM = (
        "a mean of passes of which only the first one was cold (W158): the tables fit into memory"
    )
    ONE_DISK = (
        "its devices are on one physical disk (W119): RAID or a separate log gains nothing there"
    )
    UNCOMPRESSED = "data written during the load was not compressed (W152)"
    RATE_MISSED = "the required rate of inserts was missed in {missed} of {trials} trials (W153)"
    UNPAIRED = "unpaired (Welch): includes everything else that differs between the runs"
    NOTHING_TO_COMPARE = "nothing to compare with"
    RUNS_DIFFER = "the runs differ in {what}"
    SECOND_KERNEL = "measured in user-mode Linux, not comparable: {runs}"
    BLOCKS_LEFT_OUT = "{left_out} of {blocks} blocks left out: no usable pair"
    PAIRS_LEFT_OUT = "{left_out} pairs without throughput left out"


# How many blocks a decision takes.
PRICES: Final = (
    RemarkKind.MORE_BLOCKS,
    RemarkKind.MORE_BLOCKS_MINUTES,
    RemarkKind.TOO_MANY_BLOCKS,
)
Value = int | float | str


@dataclass(frozen=True)
class Remark:
    """One remark about a row."""

    kind: RemarkKind
    values: dict[str, Value] = field(default_factory=dict)


def remark(kind: RemarkKind, **values: Value) -> Remark:
    """Return a remark of that kind."""
    return Remark(kind, values)


def text(about: Remark) -> str:
    """Return the remark in words."""
    values = {
        name: number(value) if isinstance(value, float) else value
        for name, value in about.values.items()
    }
    words = about.kind.format(**values, s="" if about.values.get("blocks") == 1 else "s")
    return words.replace(GROUP, " ")


def texts(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """Return each remark in words."""
    return tuple(text(about) for about in remarks)


def has(remarks: Iterable[Remark], kind: RemarkKind) -> bool:
    """Return whether one of the remarks is of that kind."""
    return any(about.kind is kind for about in remarks)
