"""Redaction of a page: names of hosts and disks, paths or parameters are removed before it is
built.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Final

from pydantic import TypeAdapter

from dbbench.errors import UnknownName
from dbbench.model import LabFacts, Run, Trial, plain
from dbbench.results import LoadedRun

KINDS: Final = ("hosts", "paths", "params")
HIDDEN: Final = "redacted"
_PATH: Final = re.compile(r"(?<![\w.:])/(?:[\w.@+:~-]+/)*[\w.@+:~-]+")
# Tables whose values are parameters. Their names remain, so that a reader sees which parameters
# were set.
_PARAMETERS: Final = frozenset({"parameters", "settings", "effective_settings"})
_IDENTITIES: Final = frozenset({"id", "cell"})  # they connect a trial with its run

Clean = Callable[[str], str]


def redactor(run: LoadedRun, kinds: tuple[str, ...]) -> Clean:
    """Return a function that removes host names and paths from a text. Raises UnknownName for an
    unknown kind.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise UnknownName(
            f'cannot redact "{unknown[0]}"', remedy=f"--redact accepts {', '.join(KINDS)}."
        )
    names = _names(run) if "hosts" in kinds else []

    def clean(text: str) -> str:
        for name, cover in names:
            text = text.replace(name, cover)
        if "paths" in kinds:
            return _PATH.sub("PATH", text)
        return text

    return clean


def redact_run(run: LoadedRun, kinds: tuple[str, ...]) -> LoadedRun:
    """Return the run without what `kinds` name. Its folder remains, because the series are read
    from it.
    """
    # Names are removed from the values, so that no section can show them.
    clean = redactor(run, kinds)
    if not kinds:
        return run
    hide = _PARAMETERS if "params" in kinds else frozenset[str]()
    plan = plain(run.run)
    plan["hosts"] = {clean(name): facts for name, facts in plan["hosts"].items()}
    return dataclasses.replace(
        run,
        run=TypeAdapter(Run).validate_python(_walk(plan, clean, hide)),
        trials=TypeAdapter(tuple[Trial, ...]).validate_python(
            _walk(plain(run.trials), clean, hide)
        ),
        lab=TypeAdapter(LabFacts | None).validate_python(_walk(plain(run.lab), clean, hide)),
    )


def _names(run: LoadedRun) -> list[tuple[str, str]]:
    """Return (name, replacement) pairs, longest first, so that a name that is part of another is
    replaced later.
    """
    hosts = {
        str(run.run.host.get("hostname") or ""),
        *run.run.hosts,
        *(trial.host for trial in run.trials),
    }
    hosts |= _clients(run)
    serials = {trial.device.serial for trial in run.trials if trial.device is not None}
    many = len(hosts - {""}) > 1  # several hosts get numbers, so that they remain distinct
    names = [
        (name, f"host-{i}" if many else "host") for i, name in enumerate(sorted(hosts - {""}), 1)
    ]
    names += [(serial, "disk") for serial in serials]
    return sorted(
        ((name, cover) for name, cover in names if name), key=lambda pair: (-len(pair[0]), pair[0])
    )


def _clients(run: LoadedRun) -> set[str]:
    client = run.run.plan.client
    words = {
        word
        for trial in run.trials
        if (c := trial.client)
        for word in (c.host, c.hostname, c.peer, c.address)
    }
    return words | ({client.host, client.address} if client else set())


def _walk(
    node: Any,
    clean: Clean,
    hide: frozenset[str],
    key: str = "",
) -> Any:
    """Return the node, which is the value of `key`, without what is redacted."""
    if isinstance(node, dict):
        return {
            name: _cover(value) if key in hide else _walk(value, clean, hide, name)
            for name, value in node.items()
        }
    if isinstance(node, list):
        return [_walk(value, clean, hide) for value in node]
    if isinstance(node, str) and key not in _IDENTITIES:
        return clean(node)
    return node


def _cover(value: Any) -> Any:
    # only the value is hidden, not the origin of a Setting or the type of a Parameter
    if isinstance(value, dict):
        return value | {name: HIDDEN for name in ("value", "default") if name in value}
    return HIDDEN
