"""Basic vocabulary: phases, statuses, durability flags, units."""

from __future__ import annotations

import dataclasses
import re
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationInfo
from pydantic_core import PydanticCustomError

from dbbench.units import bytes_of, seconds_of, share_of

_T = TypeVar("_T")
_ADAPTERS: Final[dict[Any, TypeAdapter[Any]]] = {}  # by dataclass
# schema version of run.json and trial.json; increased when the meaning of a key changes
SCHEMA: Final = 1

Bytes = Annotated[int, BeforeValidator(bytes_of)]
Share = Annotated[float, BeforeValidator(share_of)]
Scalar = bool | int | float | str
Scalars = dict[str, Scalar]  # facts, settings or parameters, by name
Figures = dict[str, float | None]  # by name; None is what was not measured
Json = dict[str, Any]  # an object of JSON, by key
Words = tuple[str, ...]  # of a command: its options, the devices that it names
Commands = list[Words]
# of a volume: a trial has one for the data, and one for the log if that is apart
Role = Literal["data", "log"]
# for dataclasses that are read from TOML
STRICT: Final[Any] = {"extra": "forbid", "populate_by_name": True}

# Profiles of server settings: as in production, and for a standalone server that writes no log for
# replicas or backups.
PRODUCTION = "production"
STANDALONE = "standalone"

# Names become part of file names, which have at most 255 bytes, and of trial IDs.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:=-]{0,239}")
NAME_RULE: Final = "use letters, digits and . _ + : = -, a letter or digit first, at most 240"
# kind of dataset -> the parameter that `size` sets
SIZE_PARAMETERS: Final = {
    "pgbench": "scale",
    "sysbench": "table_size",
    "tpcc": "warehouses",
}
# The kinds of datasets whose rows can be generated with a given compressibility.
PACKED: Final = ("sysbench", "clone-tables")


def data_folder() -> Path:
    """Return the data directory of the package, which contains `fs_setups`, `workloads` and
    `reports`.
    """
    return Path(str(resources.files("dbbench"))) / "data"


def _engine(name: str, info: ValidationInfo) -> str:
    """Refuse an engine that the validation context does not list; results of other versions are
    read without a list.
    """
    engines = (info.context or {}).get("engines", (name,))
    if name not in engines:
        expected = ", ".join(f"'{engine}'" for engine in engines)
        raise PydanticCustomError(
            "literal_error",
            "Input should be {expected}",
            {"expected": expected},
        )
    return name


def _written_seconds(given: object, info: ValidationInfo) -> float:
    """Convert a time. A person who writes one into a file (the context has its folder) has to give
    its unit.
    """
    seconds = seconds_of(given)
    ends_with_digit = str(given).strip()[-1:].isdigit()
    if seconds and info.context and ends_with_digit:
        raise ValueError(f'requires a unit: write "{given}s" or "{given}min", not {given}')
    return seconds


def _locate(path: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    if path and folder:
        return str(folder / path)
    return path


def _as_list(given: object) -> object:
    if given is None:
        return ()
    if isinstance(given, list | tuple):
        return given
    return (given,)


Seconds = Annotated[float, BeforeValidator(_written_seconds)]
Whole = Annotated[int, Field(strict=True)]  # true is no number
EngineName = Annotated[str, AfterValidator(_engine)]
# A path that begins in the directory of the file that names it; absolute then, as a trial runs in
# another directory.
Located = Annotated[str, AfterValidator(_locate)]
# Accept one value instead of a table, and instead of a list.
ONE_FOR_ALL: Final = BeforeValidator(lambda given: {"": given} if isinstance(given, str) else given)
SEVERAL: Final = BeforeValidator(_as_list)


class Phase(StrEnum):
    """A named stage of a trial, in the order in which a trial runs them."""

    CANARY = "canary"
    CONDITION = "condition"  # only if the plan sets `condition`
    MKFS = "mkfs"
    MOUNT = "mount"
    AGE = "age"  # only if the plan has [age]
    RESTORE = "restore"
    SETTLE = "settle"
    DROP_CACHE = "drop_cache"
    START = "start"
    WARMUP = "warmup"
    MEASURE = "measure"
    DRAIN = "drain"
    STOP = "stop"
    CHECK = "check"
    SPACE = "space"
    OPERATIONS = "operations"  # only if the plan lists operations


class Status(StrEnum):
    """ok; suspect: telemetry shows a disturbance from outside; failed: the trial has no valid
    numbers.
    """

    OK = "ok"
    SUSPECT = "suspect"
    FAILED = "failed"


class Verdict(StrEnum):
    """The comparison of a setup with the baseline, in a word. A metric has the words of speed or
    those of quality.
    """

    BASELINE = "baseline"
    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"  # within the margin
    INCONCLUSIVE = "inconclusive"
    # instead of the two above: the device hides possible differences
    LIMITED = "device-limited"
    DEPENDS = "depends"  # of a contrast between two levels of a factor: the ratio changes


class Durability(StrEnum):
    """What a power loss may lose or tear, worst first. Without any flag the class is `full`."""

    UNKNOWN = "unknown"  # a filesystem that dbbench does not know, for example on a network
    NO_BARRIER = "no-barrier"
    NO_JOURNAL = "no-journal"
    ASYNC_COMMIT = "async-commit"
    TORN_PAGES = "torn-pages-possible"
    REPORTED_UNSAFE = "reported-unsafe"  # by others (`FilesystemFacts.reports`)
    LAB_UNSAFE = "lab-unsafe"  # only the power-loss lab counted losses
    # by a disk that writes an aligned page completely or not at all
    TORN_PREVENTED = "torn-prevented"


def durability_class(flags: tuple[Durability, ...], page_bytes: int = 0) -> str:
    """Return the durability class for these flags, worst first; `full` if there are none.
    `page_bytes`: the unit that the disk has to write at once, which the class then names.
    """
    words = {flag: flag.value for flag in Durability if flag in flags}
    if page_bytes and Durability.TORN_PREVENTED in words:
        words[Durability.TORN_PREVENTED] += f" (unit {page_bytes}, aligned)"
    return " + ".join(words.values()) or "full"


def adapter(kind: type[_T]) -> TypeAdapter[_T]:
    """Return what reads a dataclass; making it takes tens of ms, and a catalogue has hundreds of
    files.
    """
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def plain(noun: Any) -> Any:
    """Convert a dataclass to dicts, lists and scalars for JSON."""
    if dataclasses.is_dataclass(noun) and not isinstance(noun, type):
        return {f.name: plain(getattr(noun, f.name)) for f in dataclasses.fields(noun)}
    if isinstance(noun, dict):
        return {str(key): plain(value) for key, value in noun.items()}
    if isinstance(noun, list | tuple):
        return [plain(value) for value in noun]
    if isinstance(noun, StrEnum):
        return noun.value
    return noun
