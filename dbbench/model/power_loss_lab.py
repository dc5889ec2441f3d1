"""Results of the power-loss lab: the content of powercut.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dbbench.model.base import SCHEMA, Durability, Scalar


@dataclass(frozen=True)
class CutFacts:
    """One power cut after recovery and checks. `harms`: kind -> evidence: lost (acknowledged
    commits), schema (an acknowledged change, or half of one), torn (pages), damaged (balances,
    indexes), unrecovered (mount, server), fsck.
    """

    number: int
    # checkpoint, commit, drop, subset; kill: the processes of the server are killed instead
    aim: str
    seed: str
    position: int  # index in the log of the recording
    # power-fail unit: what the disk writes as a whole or not at all if it is aligned; 0: a kill
    unit_bytes: int
    unflushed_bytes: int  # in the cache of the disk at the cut
    acknowledged: int  # commits before the cut; each is looked up afterwards
    lost: int
    seconds: float  # recovery and checks
    invalid: str = ""  # why the cut shows nothing; it is then not counted elsewhere
    harms: dict[str, str] = field(default_factory=dict)
    kept: str = ""  # path of its disk image in the run folder
    changes: bool = False  # whether the schema was changed during the recording
    shift_bytes: int = 0  # where the first boundary of a unit lies on the disk
    # Of a harmed cut with a unit of 512 bytes: harms of the same cut with 4096 bytes. None: not
    # tried.
    harms_at_4096: dict[str, str] | None = None
    # Whether the server was killed earlier in the recording. None: not recorded by that version,
    # which counted these cuts together.
    after_kill: bool | None = None
    recording: int = 0  # cuts of one recording are similar; 0: not recorded by that version


class Conclusion(StrEnum):
    """The conclusion from the power losses of a row without a kill before them."""

    UNHARMED = "unharmed"
    HARMED = "harmed"
    NONE = "none"  # too few valid cuts, or the recordings failed
    BLIND = "blind"  # the controls did not lose data, so the lab would not notice a loss


TIME_USED_UP: Final = "the time was used up"  # note of a control, and reason of an UNTRIED


# Columns of the harm table about power losses and killed processes; the others are about errors.
CUT_COLUMNS: Final = ("cut during DML", "cut after DDL", "cut after kill")
KILL_COLUMNS: Final = ("kill", "kill during recovery", "kill during initialization")


class HarmOutcome(StrEnum):
    """How an attempt to harm a setup ended. docs/durability.md describes each of them."""

    UNTRIED = "untried"  # no attempt: the lab could not make one
    # What is left of the data: for cuts the kinds of `CutFacts.harms`, or unharmed.
    UNHARMED = "unharmed"
    TORN = "torn"
    UNRECOVERED = "unrecovered"
    DAMAGED = "damaged"
    LOST = "lost"
    SCHEMA = "schema"
    FSCK = "fsck"  # of changed bytes: fsck alone notices them
    # Who notices changed bytes.
    FILESYSTEM = "filesystem"
    DATABASE = "database"
    CHECKSUMS = "checksums"
    CHECK = "check"
    NOBODY = "nobody"  # also of failed requests
    REPAIRED = "repaired"
    HARMLESS = "harmless"
    HANGS = "hangs"
    # What a server does on a full disk, or with requests that fail.
    REFUSES = "refuses"
    DIES = "dies"
    WAITS = "waits"
    LOGS = "logs"
    # How it continues.
    STARTS = "starts"
    FAILS = "fails"
    RECOVERS = "recovers"
    RESTARTED = "restarted"
    REMOUNTED = "remounted"
    STUCK = "stuck"


@dataclass(frozen=True)
class HarmCount:
    """How often an attempt to harm a setup had this outcome. `column`: what was tried."""

    column: str
    word: HarmOutcome
    count: int
    of: int  # attempts of this column
    detail: str = ""  # evidence of the first such outcome; of UNTRIED the reason
    # independent attempts that would be as exact, see `conclusions.independent`; None: `of`
    independent: float | None = None


@dataclass(frozen=True)
class LabRow:
    """One fs setup with one engine and its settings."""

    fs_setup: str
    engine: str
    engine_version: str
    # that affect durability and differ from the engine's default in the lab
    settings: dict[str, Scalar]
    durability_flags: tuple[Durability, ...]
    durability_class: str  # computed from what the kernel and the server report
    valid: int
    invalid: int
    harmed: int  # cuts, also kills and cuts after a kill; `statement` counts them separately
    acknowledged: int  # commits looked up, over all valid cuts
    lost: int
    torn: int  # cuts with torn pages
    failed_recoveries: int  # cuts after which the mount or the server failed
    recordings: int
    commits: int  # in the recordings
    flushes: int
    flushes_per_commit: float | None
    seconds: float
    statement: str
    contradiction: str = ""  # damage that the durability class excludes
    cuts: tuple[CutFacts, ...] = ()
    conclusion: Conclusion | None = None  # of `statement`
    counts: tuple[HarmCount, ...] = ()  # of cuts, and of other attempts
    # recordings of which a checkpoint ended before the first cut; None: not recorded by that version
    checkpoints: int | None = None


@dataclass(frozen=True)
class ControlFacts:
    """A control that must lose data. `blind`: it did not, so the lab draws no conclusion about that
    engine.
    """

    name: str
    engine: str
    what: str
    tries: int
    needed: int
    valid: int
    harmed: int
    blind: bool
    note: str = ""


@dataclass(frozen=True)
class LabFacts:
    """A lab run: rows, controls, and the model of the disk that they assume."""

    created: str
    seed: int
    rows: tuple[LabRow, ...]
    controls: tuple[ControlFacts, ...]
    skipped: dict[str, str]  # arm -> why it was not examined
    disk: dict[str, Scalar]  # destage_s, cache_bytes, units ...
    seconds: float
    complete: bool
    dbbench_version: str
    schema: int = SCHEMA

    @property
    def blind(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(control.engine for control in self.controls if control.blind))
