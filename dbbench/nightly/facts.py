"""The conditions of a night: versions, host, plan, setups and settings, and which of them changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dbbench.compare.verdict import GUARD
from dbbench.model import Cell, plain
from dbbench.model.run import title_of
from dbbench.results import LoadedRun, fileio

# suffix of the engine's name for the fact that records its profile
PROFILE: Final = " settings profile"
NOT_SET: Final = "not set"
# Of the plan: what judges, orders or names a run, and what the cells say in more detail.
_ELSEWHERE: Final = (
    "name",
    "seed",
    "margin",
    "expect",
    "fs_setups",
    "engine",
    "workload",
    "factors",
    "warmup_s",
    "measure_s",
)
# Of a setup or an engine: the title is prose; settings and profile are those that the trials had.
_DESCRIBED: Final = ("name", "title", "tuning", "settings", "profile", "sweeps")
_SHORT: Final = 12  # digits of a script's SHA-256


@dataclass(frozen=True)
class Change:
    """A fact that differs from the night before: a version, the host, or a key of the plan."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


def facts_of(loaded: LoadedRun) -> dict[str, str]:
    """Return the host and the versions of a run."""
    host = {"host": str(loaded.run.host["hostname"])} if loaded.run.host.get("hostname") else {}
    profiles = {
        f"{trial.engine}{PROFILE}": trial.profile for trial in loaded.trials if trial.profile
    }
    return {**host, **loaded.versions, **profiles}


def plan_of(loaded: LoadedRun) -> dict[str, str]:
    """Return the plan of a run with its setups, key by key: what a person can change in files."""
    plan = plain(loaded.run.plan)
    # The plan's own keys, those of its cells, and its scripts.
    keys = {f"plan {key}": text for key, text in _flat(plan, _ELSEWHERE)}
    keys["plan baseline"] = loaded.run.baseline
    collected: dict[str, dict[str, None]] = {}
    for cell in loaded.run.cells:
        if not cell.arm.endswith(GUARD):
            for name, text in _cell_keys(cell.without_measurements):
                collected.setdefault(name, {})[text] = None
    for name, texts in collected.items():
        keys[name] = " and ".join(texts)
    for path in sorted((loaded.path / "scripts").glob("*")):
        digest = fileio.sha256(path, loaded.path)
        keys[f"script {path.name}"] = f"SHA-256 {digest[:_SHORT]}"
    return keys


def settings_of(loaded: LoadedRun) -> dict[str, str]:
    """Return the servers' settings. One that differs between setups is "on (ext4), off (xfs)"."""
    # Of each setting its values, and the setups that have them.
    by_name: dict[str, dict[str, list[str]]] = {}
    for trial in loaded.trials:
        if trial.fs_setup.endswith(GUARD):
            continue
        for name, setting in trial.settings.items():
            arms = by_name.setdefault(f"{trial.engine} {name}", {})
            arms_of_value = arms.setdefault(_text(setting.value), [])
            if trial.fs_setup not in arms_of_value:
                arms_of_value.append(trial.fs_setup)
    texts = {}
    for name, arms in by_name.items():
        parts = [f"{value} ({', '.join(sorted(with_it))})" for value, with_it in arms.items()]
        texts[name] = ", ".join(sorted(parts)) if len(parts) > 1 else next(iter(arms))
    return texts


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Return what differs. Nothing is known of a night without any of these facts."""
    if not before or not after:
        return []
    differing = []
    for name in dict.fromkeys((*after, *before)):
        old = before.get(name, NOT_SET)
        new = after.get(name, NOT_SET)
        if old != new:
            differing.append(Change(name, old, new))
    return differing


def known_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Return what differs of the facts that both nights have recorded."""
    both = before.keys() & after.keys()
    return changes(
        {name: fact for name, fact in before.items() if name in both},
        {name: fact for name, fact in after.items() if name in both},
    )


def _cell_keys(cell: Cell) -> Iterator[tuple[str, str]]:
    whole = plain(cell)
    work = f"{cell.engine.name} {title_of(cell.workload.name, cell.variant)}"
    workload = {"driver": cell.workload.driver, "options": cell.workload.options}
    parts = {
        f"setup {cell.arm}": whole["setup"],
        f"setup {cell.arm} log": whole["wal_setup"] or {},
        cell.engine.name: whole["engine"],
        work: {
            **workload,
            "parameters": whole["parameters"],
            "dataset": whole["dataset"],
            "window": whole["window"],
        },
    }
    for part, keys in parts.items():
        for key, text in _flat(keys, _DESCRIBED):
            yield f"{part} {key}", text


def _flat(
    keys: Mapping[str, Any],
    left_out: tuple[str, ...] = (),
) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, text) of what is set."""
    for key, value in keys.items():
        if key in left_out or value is None or value in ("", [], {}):
            continue
        if isinstance(value, dict):
            for inner, text in _flat(value):
                yield f"{key}.{inner}", text
        else:
            yield key, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return " ".join(_text(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in _flat(value))
    return str(value)
