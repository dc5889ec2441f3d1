"""Remarks about a row, shown next to its figures: kinds with values. Only this module has their texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dbbench.units import GROUP, number


class Kind(StrEnum):
    """What a remark is about; its values are named in its text."""

    FAILED = "failed"
    SUSPECT = "suspect"
    NOT_DRIVEN = "not-driven"
    REPORTED = "reported-unsafe"
    BURST = "burst"
    DRAIN = "drain"
    UNSTEADY = "unsteady"  # in every trial, so the mean alone would mislead
    PARTLY_UNSTEADY = "partly-unsteady"
    TWO_LEVELS = "two-levels"
    OTHER_CLASS = "other-durability-class"
    NO_PAIR = "no-pair"
    TOO_FEW_BLOCKS = "too-few-blocks"
    MORE_BLOCKS = "more-blocks"
    MORE_BLOCKS_MINUTES = "more-blocks-minutes"
    TOO_MANY_BLOCKS = "too-many-blocks"
    UNEQUAL = "unequal"  # a condition differs from that of the baseline
    UNEQUAL_CHECKPOINTS = "unequal-checkpoints"
    OTHER_FEATURES = "other-features"
    MORE_UNEQUAL = "more-unequal"
    DEVICE_LIMITED = "device-limited"
    SCAN_WROTE = "scan-wrote"
    ONE_DISK = "one-disk"
    UNCOMPRESSED = "uncompressed"
    RATE_MISSED = "rate-missed"  # of inserts: the queries have no figure
    UNPAIRED = "unpaired"
    NOTHING_TO_COMPARE = "nothing-to-compare"
    RUNS_DIFFER = "runs-differ"
    SECOND_KERNEL = "second-kernel"
    BLOCKS_LEFT_OUT = "blocks-left-out"
    PAIRS_LEFT_OUT = "pairs-left-out"


Value = int | float | str


@dataclass(frozen=True)
class Remark:
    """One remark about a row."""

    kind: Kind
    values: dict[str, Value] = field(default_factory=dict)


_TEXTS: Final = {
    Kind.FAILED: "{failed} failed",
    Kind.SUSPECT: "{suspect} suspect",
    Kind.NOT_DRIVEN: "no trial has run yet",
    Kind.REPORTED: "losses after a power cut were reported: {reports}",
    Kind.BURST: "burst: no checkpoint ended in the window",
    Kind.DRAIN: "the drain took more than 10 % of the window: use the sustained throughput",
    Kind.UNSTEADY: "no steady state: the mean depends on the window",
    Kind.PARTLY_UNSTEADY: "no steady state in {unsteady} of {trials} trials: the mean depends on the window",
    Kind.TWO_LEVELS: "two levels: {lower} trials near {low}, {higher} near {high}; check what differs between them",
    Kind.OTHER_CLASS: "different durability class from the baseline",
    Kind.NO_PAIR: "no block in which this setup and the baseline both have this figure",
    Kind.TOO_FEW_BLOCKS: "too few blocks for an interval",
    Kind.MORE_BLOCKS: "needs about {blocks} more block{s}",
    Kind.MORE_BLOCKS_MINUTES: "needs about {blocks} more block{s} ({minutes} min)",
    Kind.TOO_MANY_BLOCKS: "needs more than 90 further blocks",
    Kind.UNEQUAL: "{what} differs ({candidate}; baseline: {baseline})",
    Kind.OTHER_FEATURES: "both are {family}, but not the same {family}: {features}",
    Kind.UNEQUAL_CHECKPOINTS: "number of checkpoints in the window differs ({candidate}; baseline: {baseline})",
    Kind.MORE_UNEQUAL: "{settings} more settings of the host or the block layer differ",
    Kind.DEVICE_LIMITED: "device-limited: this setup and the baseline both reached the ceiling of the device",
    Kind.SCAN_WROTE: "the scan also wrote (W118): part of this is the cost of writing",
    Kind.UNCOMPRESSED: "data written during the load was not compressed (W152)",
    Kind.RATE_MISSED: "the required rate of inserts was missed in {missed} of {trials} trials (W153)",
    Kind.ONE_DISK: "its devices are on one physical disk (W119): RAID or a separate log gains nothing there",
    Kind.UNPAIRED: "unpaired (Welch): includes everything else that differs between the runs",
    Kind.NOTHING_TO_COMPARE: "nothing to compare with",
    Kind.RUNS_DIFFER: "the runs differ in {what}",
    Kind.SECOND_KERNEL: "rehearsed in a second kernel, not comparable: {runs}",
    Kind.BLOCKS_LEFT_OUT: "{left_out} of {blocks} blocks left out: no usable pair",
    Kind.PAIRS_LEFT_OUT: "{left_out} pairs without throughput left out",
}


def remark(kind: Kind, **values: Value) -> Remark:
    """Return a remark of that kind."""
    return Remark(kind, values)


def text(about: Remark) -> str:
    """Return the remark in words."""
    values = {name: number(value) if isinstance(value, float) else value for name, value in about.values.items()}
    words = _TEXTS[about.kind].format(**values, s="" if about.values.get("blocks") == 1 else "s")
    return words.replace(GROUP, " ")


def texts(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """Return each remark in words."""
    return tuple(text(about) for about in remarks)


def has(remarks: Iterable[Remark], kind: Kind) -> bool:
    """Return whether one of the remarks is of that kind."""
    return any(about.kind is kind for about in remarks)
