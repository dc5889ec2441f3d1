"""What the durability classes cannot show, from `data/known_faults.toml`: faults of kernels and
filesystems that are known to lose data, and options that the classes do not know. Both are named,
and never change a verdict or a class.
"""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dbbench.model.base import STRICT, adapter, data_folder

Version = tuple[int, ...]

_TITLES: Final = {"linux": "Linux", "zfs": "OpenZFS"}
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
# Debian names its kernel 6.1.0-15, and Ubuntu 6.8.0-51: what they are made of is in another file.
_DEBIAN: Final = re.compile(r"Debian (\d+\.\d+\.\d+)")
_UBUNTU: Final = re.compile(r"Ubuntu \S+ (\d+\.\d+\.\d+)")
# Kernels of Red Hat and SUSE keep the number of their first release, and take fixes for years.
_BACKPORTED: Final = re.compile(r"\.el\d|-default$")
# of settings; a number like these is harmless, because no entry has one
_SWITCH: Final = {
    **dict.fromkeys(("1", "true", "yes"), "on"),
    **dict.fromkeys(("0", "false", "no"), "off"),
}


@dataclass(frozen=True)
class Concern:
    """An entry of the file, which explains its keys."""

    __pydantic_config__ = STRICT
    harm: str
    filesystem: str = ""
    engine: str = ""
    option: str = ""

    def concerns(self, filesystem: str, engine: str, options: str) -> bool:
        """Return whether it applies to this server on this filesystem. `options`: those of mkfs
        and mount, and the server's settings, as text.
        """
        return (
            self.filesystem in ("", filesystem)
            and self.engine in ("", engine)
            and self.option in options.lower()
        )


@dataclass(frozen=True, kw_only=True)
class KnownFault(Concern):
    """A fault of some versions of the kernel or of a module."""

    name: str
    component: Literal["linux", "zfs"]
    affected: tuple[str, ...]
    source: str

    def affects(self, version: Version) -> bool:
        """Return whether this version of the component has the fault."""
        for versions in self.affected:
            first, last = versions.split(" to ")
            if version_of(first) <= version <= version_of(last):
                return True
        return False

    def sentence(self, version: Version) -> str:
        """Return what it does, and where that is reported."""
        written = ".".join(map(str, version))
        return f"{_TITLES[self.component]} {written} {self.harm} ({self.source})"


@dataclass(frozen=True)
class UnjudgedOption(Concern):
    """An option whose effect on durability was not examined."""

    def sentence(self) -> str:
        """Return what it changes."""
        return f"{self.option} is not judged by the durability class: {self.harm}"


@dataclass(frozen=True)
class _File:
    __pydantic_config__ = STRICT
    fault: tuple[KnownFault, ...]
    unjudged: tuple[UnjudgedOption, ...]


@functools.cache
def _file() -> _File:
    document = tomllib.loads((data_folder() / "known_faults.toml").read_text())
    return adapter(_File).validate_python(document)


def known_faults() -> tuple[KnownFault, ...]:
    """Return all faults, in the order of the file."""
    return _file().fault


def unknown_options(filesystem: str, engine: str, options: str) -> list[str]:
    """Return a sentence for each option that the durability class of this server on this
    filesystem does not know. `options`: see `Concern.concerns`; of the settings, only those that
    the plan, the workload or the setup sets.
    """
    return [
        option.sentence()
        for option in _file().unjudged
        if option.concerns(filesystem, engine, options)
    ]


def version_of(text: str) -> Version:
    """Return the three numbers with which a version begins; a missing third one is 0. Raises
    ValueError.
    """
    match = _RELEASE.search(text)
    if match is None:
        raise ValueError(f"{text!r} has no version")
    return tuple(int(number or 0) for number in match.groups())


def versions(host: Mapping[str, Any]) -> dict[str, Version]:
    """Return component -> version, from the facts of a host; without those whose version does not
    show which fixes they have.
    """
    versions_by_component = {}
    release = host.get("kernel") or ""
    base = _DEBIAN.search(host.get("kernel_version") or "") or _UBUNTU.search(
        host.get("kernel_signature") or ""
    )
    if base is not None:
        versions_by_component["linux"] = version_of(base[1])
    elif _RELEASE.match(release) and not _BACKPORTED.search(release):
        versions_by_component["linux"] = version_of(release)
    module = host.get("zfs_module") or ""
    if _RELEASE.match(module):
        versions_by_component["zfs"] = version_of(module)
    return versions_by_component


def of_host(host: Mapping[str, Any]) -> list[tuple[KnownFault, Version]]:
    """Return the faults of this host's kernel and modules, each with the version that has it."""
    present = versions(host)
    faults = []
    for fault in known_faults():
        version = present.get(fault.component)
        if version is not None and fault.affects(version):
            faults.append((fault, version))
    return faults


def options_text(options: Iterable[str], settings: Mapping[str, object]) -> str:
    """Return options of mkfs and mount, and settings as NAME=VALUE, for `KnownFault.concerns`; a
    switch is on or off, however it is written.
    """
    pairs = (f"{name}={_SWITCH.get(str(value).lower(), value)}" for name, value in settings.items())
    return " ".join(itertools.chain(options, pairs))
