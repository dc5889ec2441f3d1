"""Words that all nouns are made of: phases, statuses, durability flags, units."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from dbbench.units import bytes_of, seconds_of

SCHEMA: Final = 1  # of run.json and trial.json; raised when the meaning of a key changes

Bytes = Annotated[int, BeforeValidator(bytes_of)]
Seconds = Annotated[float, BeforeValidator(seconds_of)]
Scalar = bool | int | float | str
EngineName = Literal["postgres", "mariadb", "mysql", "files"]
STRICT: Final[Any] = {"extra": "forbid", "populate_by_name": True}  # of what is read from TOML


def _several(given: Any) -> Any:
    return given if isinstance(given, list | tuple) else () if given is None else (given,)


def _one_for_all(given: Any) -> Any:
    return {"": given} if isinstance(given, str) else given


ONE_FOR_ALL: Final = BeforeValidator(_one_for_all)  # one value, or a table
SEVERAL: Final = BeforeValidator(_several)  # one value, or a list of them


class Phase(StrEnum):
    """A named stage of a trial, in the order of the road."""

    CANARY = "canary"
    CONDITION = "condition"  # only where the plan asks for it
    MKFS = "mkfs"
    MOUNT = "mount"
    AGE = "age"  # only where the plan asks for an aged filesystem
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
    AGE_ENGINE = "age_engine"  # only where the plan asks for it
    OPERATIONS = "operations"  # only where the plan asks for some


class Status(StrEnum):
    """ok; suspect: telemetry says that something else disturbed it; failed: no figure of it counts."""

    OK = "ok"
    SUSPECT = "suspect"
    FAILED = "failed"


class Durability(StrEnum):
    """What may be lost or torn in a power cut, worst first. No flag at all is the class `full`."""

    NO_BARRIER = "no-barrier"
    NO_JOURNAL = "no-journal"
    ASYNC_COMMIT = "async-commit"
    TORN_PAGES = "torn-pages-possible"


def durability_class(flags: tuple[Durability, ...]) -> str:
    """The flags in one word, worst first; `full` when nothing applies."""
    return " + ".join(flag.value for flag in Durability if flag in flags) or "full"


def plain(noun: Any) -> Any:
    """A noun as dicts, lists and scalars, for JSON."""
    if dataclasses.is_dataclass(noun) and not isinstance(noun, type):
        return {f.name: plain(getattr(noun, f.name)) for f in dataclasses.fields(noun)}
    if isinstance(noun, dict):
        return {str(key): plain(value) for key, value in noun.items()}
    if isinstance(noun, list | tuple):
        return [plain(value) for value in noun]
    return noun.value if isinstance(noun, StrEnum) else noun
