"""Server settings: written into a private file, then compared with what the server reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dbbench.errors import SettingRefused
from dbbench.model import Scalar, Settings, spelt

_TRUE: Final = frozenset({"on", "true", "yes", "1"})
_FALSE: Final = frozenset({"off", "false", "no", "0"})
_NUMBER: Final = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z]*)")

# PostgreSQL's units are case-sensitive. Converts memory to bytes and times to ms (guc.c,
# *_unit_conversion_table).
_PG_UNITS: Final = {
    "B": 1,
    "kB": 2**10,
    "8kB": 2**13,
    "MB": 2**20,
    "16MB": 2**24,
    "GB": 2**30,
    "TB": 2**40,
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_MYSQL_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_VERSION: Final = re.compile(r"\d+(?:\.\d+)*")
# MariaDB and MySQL ignore a setting that begins with this if they do not know it.
LOOSE: Final = "loose_"
# Why plans, workloads and fs setups may not set something.
KEEPS_PRIVATE: Final = "dbbench uses it to keep the server private"
WRITES_NOTHING: Final = "with it the load would write nothing"
FROM_CREATION: Final = "it is decided when the data directory is made"
# settings of MariaDB and MySQL
FILES_OF: Final = ("table_open_cache", "max_connections", "open_files_limit")
_FURTHER_FILES: Final = 32  # files of a server for neither tables nor connections; see `open_files`
_SIZE: Final = re.compile(r"([0-9]+)\s*([kKmMgGtT])i?[bB]")


@dataclass(frozen=True)
class Versions:
    """The versions of a server that have a feature, from `first` to `last` inclusive, in as many
    numbers as matter; None: no last one yet. `backported`: the first minor releases of earlier
    branches that have it too.
    """

    first: tuple[int, ...] = ()
    last: tuple[int, ...] | None = None
    backported: tuple[tuple[int, ...], ...] = ()

    def __contains__(self, version: tuple[int, ...]) -> bool:
        if any(minor[:1] == version[:1] and minor <= version for minor in self.backported):
            return True
        return self.first <= version and (
            self.last is None or version[: len(self.last)] <= self.last
        )


EVERY_VERSION: Final = Versions()


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version: (10, 11, 19) for "10.11.19-MariaDB", (19,)
    for "19rc1".
    """
    match = _VERSION.match(version)
    if match:
        return tuple(int(part) for part in match[0].split("."))
    return ()


@dataclass(frozen=True)
class Reported:
    """A setting as the running server reports it; `unit` is PostgreSQL's ("8kB", "ms") or ""."""

    value: str
    unit: str = ""


def word(value: Scalar) -> str:
    """Return a setting's value as the servers read it. Raises SettingRefused for a line break or a
    NUL.
    """
    text = str(value)
    if isinstance(value, bool):
        text = "on" if value else "off"
    if any(ord(letter) < 32 for letter in text):
        raise SettingRefused(
            f"{text!r} cannot be written to a configuration file",
            effect="The server was not started.",
        )
    return text


def respelt_size(engine: str, value: Scalar) -> str | None:
    """Return the size in that server's spelling ("64MiB" as "64MB" or "64M"), or None if it needs
    no change.
    """
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    unit = match[2].upper()
    if engine == "postgres":
        unit = "kB" if unit == "K" else f"{unit}B"
    size = match[1] + unit
    if size == match[0].replace(" ", ""):
        return None
    return size


def reservation(reserved: Mapping[str, str], name: str) -> str:
    """Return why only dbbench may set the setting; "" if a plan may."""
    return reserved.get(spelt(name).removeprefix(LOOSE), "")


def refuse_reservations(settings: Settings, reserved: Mapping[str, str]) -> None:
    """Raise SettingRefused if a plan sets what dbbench decides (socket, port, data directory)."""
    for name, setting in settings.items():
        if reason := reservation(reserved, name):
            raise SettingRefused(
                f"{name} (set by the {setting.origin.replace('_', ' ')}) is reserved: {reason}",
                effect="The server was not started.",
                remedy=f"Remove {name} there.",
            )


def refuse_differences(
    asked: Settings,
    effective: dict[str, Reported],
    same: Callable[[Scalar, Reported], bool],
    printed: str = "",
) -> None:
    """Raise SettingRefused if the server runs with another value than the requested one, or lacks a
    setting that is not a default. `printed`: warnings of the server's log, which say why it
    changed a default.
    """
    # A setting that the server lacks is refused only if somebody asked for it.
    lines = []
    origins = set[str]()
    for name, setting in asked.items():
        value = effective.get(name)
        if value is None and setting.origin != "default":
            lines.append(
                f"{name} = {word(setting.value)} ({setting.origin}): the server has no such setting"
            )
            origins.add(setting.origin)
        elif value is not None and not same(setting.value, value):
            origins.add(setting.origin)
            shown = f"{value.value} × {value.unit}" if value.unit else value.value
            lines.append(
                f"{name} = {word(setting.value)} ({setting.origin}): the server runs with {shown}"
            )
    if not lines:
        return
    # The remedy depends on who set it: the plan, or dbbench.
    where = " and the ".join(sorted(origins - {"default"})).replace("_", " ")
    remedy = (
        "Use a value that the server accepts (sizes are rounded to its units) in the settings of "
        f"the {where}, or remove the setting there."
    )
    if not where:
        lines.append(f"the server's log:\n{printed}")
        remedy = (
            "The server reduced values of dbbench, usually because a limit of this machine is "
            "too low. Raise it."
        )
    raise SettingRefused(
        "\n  ".join(lines),
        effect="The server was stopped; nothing was measured.",
        remedy=remedy,
    )


def same_in_postgres(asked: Scalar, found: Reported) -> bool:
    """Whether PostgreSQL's value is the requested one, except for units and rounding; -1
    (automatic) fits any.
    """
    left = _bare(word(asked))
    right = _bare(found.value)
    if left == right or left == "-1":
        return True
    if not found.unit and ({left, right} <= _TRUE or {left, right} <= _FALSE):
        return True
    if left in _TRUE and right not in _FALSE and not _NUMBER.fullmatch(right):
        # an enum accepts "on" but reports the value it stands for: wal_compression = on is pglz
        return True
    step = _PG_UNITS.get(found.unit, 1)
    quantity = _quantity(word(asked), {"": step, **_PG_UNITS})
    shown = _quantity(found.value, {"": step})
    return (
        quantity is not None
        and shown is not None
        and abs(quantity - shown) <= step / 2 * (found.unit != "")
    )


def same_in_mysql(asked: Scalar, found: Reported) -> bool:
    """Whether the value of MySQL or MariaDB is the requested one: 1G is 1073741824, 1 is ON, 90 is
    90.000000.
    """
    left = _bare(word(asked))
    right = _bare(found.value)
    if left == right or {left, right} <= _TRUE or {left, right} <= _FALSE:
        return True
    quantity = _quantity(left, _MYSQL_UNITS)
    shown = _quantity(right, _MYSQL_UNITS)
    return quantity is not None and quantity == shown


def keep_existing(settings: Settings, effective: Iterable[str]) -> Settings:
    """Return the settings without those of defaults and of the power-loss lab that the server does
    not have.
    """
    there = {spelt(name) for name in effective}
    optional = ("default", "lab")
    return {
        name: each
        for name, each in settings.items()
        if each.origin not in optional or spelt(name) in there
    }


def absent_defaults(
    settings: Settings,
    effective: Iterable[str],
    version: str,
    versions: Mapping[str, Versions],
) -> tuple[str, ...]:
    """Return the defaults that a server of this version should have but does not."""
    kept = keep_existing(settings, effective)
    here = numbers_of(version)
    return tuple(
        name for name in settings if name not in kept and here in versions.get(name, EVERY_VERSION)
    )


def raise_sizes(settings: Settings, names: Iterable[str], least_bytes: int) -> Settings:
    """Return PostgreSQL's settings with at least this value of those sizes that dbbench chose."""
    raised = dict(settings)
    for name in names:
        setting = settings.get(name)
        if setting is not None and setting.origin in ("default", "build", "lab"):
            size = _quantity(word(setting.value), _PG_UNITS)
            if size is not None and size < least_bytes:
                raised[name] = replace(setting, value=f"{least_bytes // 2**20}MB")
    return raised


def own_cache_bytes(settings: Settings) -> int | None:
    """Return the size of the server's own data cache according to its settings, or None if they do
    not set it.
    """
    if "shared_buffers" in settings:
        size = _quantity(word(settings["shared_buffers"].value), {"": 2**13, **_PG_UNITS})
        return None if size is None else int(size)
    return _number(settings, "innodb_buffer_pool_size")


def switched_on(settings: Settings, name: str) -> bool:
    """Whether the settings have a switch of that name that is on; a path or another word than "off"
    is on too.
    """
    return name in settings and _bare(word(settings[name].value)) not in _FALSE


def open_files(settings: Settings) -> int:
    """Return how many files MariaDB and MySQL must be able to open in order not to reduce their
    settings: two for each table, one for each connection (MariaDB 10.11 uses 30 more, MySQL 10).
    0 for PostgreSQL, which adapts to any limit.
    """
    tables, connections, limit = [_number(settings, name) for name in FILES_OF]
    if tables is None:
        return 0
    needed = _FURTHER_FILES + (connections or 0) + 2 * tables
    return max(needed, limit or 0)


def redo_bytes(settings: Settings) -> int:
    """Return the space that InnoDB allocates for its redo log at start; 0 for PostgreSQL, whose log
    grows.
    """
    return (
        _number(settings, "innodb_redo_log_capacity")
        or _number(settings, "innodb_log_file_size")
        or 0
    )


def _bare(text: str) -> str:
    return text.strip().lower()


def _number(settings: Settings, name: str) -> int | None:
    """Return the value of a setting of MariaDB or MySQL; None if it is not set or not a number."""
    if name not in settings:
        return None
    number = _quantity(_bare(word(settings[name].value)), _MYSQL_UNITS)
    return None if number is None else int(number)


def _quantity(text: str, units: dict[str, float] | dict[str, int]) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2] not in units:
        return None
    return float(match[1]) * units[match[2]]
