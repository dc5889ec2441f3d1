"""Errors and warnings as sorted tables: ID, exit status, title, explanation and remedy.
`errors.toml` and `warnings.toml` are the tables. An error has its evidence, what it changed
(effect) and the next command (remedy).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

EXIT_OK: Final = 0
EXIT_TRIAL_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_REGRESSION: Final = 3  # only `compare --gate` and `nightly`
EXIT_INCONCLUSIVE: Final = 4  # likewise
EXIT_REFUSED: Final = 5
EXIT_INTERRUPTED: Final = 130


class Kind(NamedTuple):
    """What all errors, or all warnings, with one ID have in common."""

    title: str
    meaning: str
    remedy: str
    exit_code: int = EXIT_OK  # of the command that an error ends; a warning ends none
    effect: str = ""  # what an error changed, unless it says so itself
    suspect: bool = False  # a warning that marks its trial as disturbed


class DbbenchError(Exception):
    """The base class of all errors. `str(error)` is the evidence alone; `cli.py` prints all parts."""

    id: ClassVar[str] = "E999"

    def __init__(
        self,
        evidence: str,
        *,
        where: str | None = None,
        effect: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.where = where
        self._effect = effect
        self.remedy = remedy

    @property
    def effect(self) -> str:
        # Not read before it is asked for: where no file can be opened, an error must still be
        # raised.
        if self._effect is None:
            return error_kinds()[self.id].effect
        return self._effect

    @effect.setter
    def effect(self, text: str) -> None:
        self._effect = text

    @property
    def exit_code(self) -> int:
        return error_kinds()[self.id].exit_code

    @property
    def title(self) -> str:
        return error_kinds()[self.id].title

    def as_data(self) -> dict[str, str | None]:
        """Return all parts as data, from which `from_data` makes the error again in another
        process.
        """
        return {
            "id": self.id,
            "evidence": self.evidence,
            "where": self.where,
            "effect": self.effect,
            "remedy": self.remedy,
        }


@contextlib.contextmanager
def collect_errors(
    into: list[DbbenchError] | None, kind: type[DbbenchError] = DbbenchError
) -> Iterator[None]:
    """Add an error of this kind that ends the block to a list; raise it if the list is None."""
    try:
        yield
    except kind as error:
        if into is None:
            raise
        into.append(error)


def _error(id: str) -> type[DbbenchError]:
    """Return a class of its own for an ID, so that callers can catch it."""
    return type(
        id,
        (DbbenchError,),
        {
            "id": id,
            "__module__": __name__,
        },
    )


# Usage: the plan and other input
PlanInvalid: Final = _error("E001")
UnknownName: Final = _error("E002")
FileUnreadable: Final = _error("E003")
RunNameTaken: Final = _error("E004")
UsageInvalid: Final = _error("E008")

# Devices that are refused for safety; nothing is changed
DeviceUnusable: Final = _error("E101")
DeviceInUse: Final = _error("E104")
DeviceNotEmpty: Final = _error("E106")
DeviceChanged: Final = _error("E109")


# The machine
class ProgramMissing(DbbenchError):
    """`programs`: the names of all that are missing, where several are needed."""

    id = "E201"
    programs: tuple[str, ...] = ()


NotRoot: Final = _error("E202")
DiskTooSmall: Final = _error("E203")
KernelLacks: Final = _error("E206")
MachineTooSmall: Final = _error("E213")

# Filesystems, layers and operations
MakeFailed: Final = _error("E301")
MountFailed: Final = _error("E302")
FilesystemFull: Final = _error("E305")
UnmountFailed: Final = _error("E307")
SetupNotInForce: Final = _error("E308")
OperationFailed: Final = _error("E315")
FilesystemDamaged: Final = _error("E316")

# Sources, recordings, standbys and clients on other hosts
SourceRefused: Final = _error("E321")
SourceUnusable: Final = _error("E323")
LiveServerUnreadable: Final = _error("E327")
ClientUnusable: Final = _error("E329")
ScriptInvalid: Final = _error("E335")

# Processes of a trial, and whether the counted work was really done
AnswerUnknown: Final = _error("E346")
TrialDied: Final = _error("E348")
TrialStuck: Final = _error("E349")
HelperDied: Final = _error("E350")
WorkUnconfirmed: Final = _error("E352")
FilesElsewhere: Final = _error("E355")

# The database server
EngineStartFailed: Final = _error("E401")
EngineDied: Final = _error("E402")
DataCorrupt: Final = _error("E403")
SettingRefused: Final = _error("E405")

# The dataset
DatasetBuildFailed: Final = _error("E501")
RestoreFailed: Final = _error("E502")

# The load
DriverFailed: Final = _error("E601")
NoProgress: Final = _error("E604")


# Results and nights
class ResultDamaged(DbbenchError):
    """`run`: the folder of the run to which the file belongs, where that is known."""

    id = "E801"
    run: str = ""


RunMissing: Final = _error("E802")
RunLocked: Final = _error("E803")
NotWritable: Final = _error("E804")
NightMissing: Final = _error("E806")


class ResultNotRegular(ResultDamaged):
    """A symbolic link, a FIFO, a socket, a device or a directory in place of a file of the results
    folder.
    """


RunsUnlike: Final = _error("E809")


# The power-loss lab, import and fleet
LabUnavailable: Final = _error("E820")
LabContradicts: Final = _error("E821")
ImportRefused: Final = _error("E830")
FleetUnreachable: Final = _error("E831")
FleetInsecure: Final = _error("E833")
HostLost: Final = _error("E834")

# The program
CommandFailed: Final = _error("E900")
DeadlinePassed: Final = _error("E901")
Interrupted: Final = _error("E902")
Terminated: Final = _error("E903")


def client_error(error: BaseException) -> bool:
    """Return whether a database client library raised the error: the server answered with it, or
    did not answer.
    """
    # By name: importing the libraries costs 100 ms.
    return type(error).__module__.partition(".")[0] in ("psycopg2", "mysql")


def all_errors() -> dict[str, type[DbbenchError]]:
    """Return the classes of all errors by ID, in order."""
    errors: dict[str, type[DbbenchError]] = {DbbenchError.id: DbbenchError}
    kinds = list(DbbenchError.__subclasses__())
    while kinds:
        kind = kinds.pop()
        errors.setdefault(kind.id, kind)  # a subclass comes later
        kinds += kind.__subclasses__()
    return dict(sorted(errors.items()))


def from_data(data: Mapping[str, Any]) -> DbbenchError:
    """Return the error of which `data` is `as_data`."""
    return all_errors()[data["id"]](
        data["evidence"], **{part: data[part] for part in ("where", "effect", "remedy")}
    )


@functools.cache
def error_kinds() -> dict[str, Kind]:
    """Return the kinds of errors by ID, in order."""
    return _read("errors.toml")


@functools.cache
def warning_kinds() -> dict[str, Kind]:
    """Return the kinds of warnings by ID, in order."""
    return _read("warnings.toml")


def _read(name: str) -> dict[str, Kind]:
    return {
        ident: Kind(
            row["title"],
            _flowing(row["meaning"]),
            _flowing(row["remedy"]),
            row.get("exit_code", EXIT_OK),
            row.get("effect", ""),
            row.get("suspect", False),
        )
        for ident, row in _tables(name).items()
    }


class DurabilityKind(NamedTuple):
    """What a durability class means."""

    title: str
    mechanism: str
    counts: str  # what was counted, by whom
    repeat: str = ""  # lines with a command that counts it again, and what to expect


@functools.cache
def durability_kinds() -> dict[str, DurabilityKind]:
    """Return the durability classes by name, worst first."""
    kinds = dict[str, DurabilityKind]()
    for name, row in _tables("durability.toml").items():
        mechanism = _flowing(row["mechanism"])
        counts = _flowing(row["counts"])
        repeat = row.get("repeat", "").strip()
        kinds[name] = DurabilityKind(row["title"], mechanism, counts, repeat)
    return kinds


def _tables(name: str) -> dict[str, Any]:
    import tomllib  # 15 ms, which only a command with an error needs

    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _flowing(text: str) -> str:
    return " ".join(text.split())
