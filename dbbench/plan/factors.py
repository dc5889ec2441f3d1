"""Factors of a plan, checked and in words: `factors = { io_method = ["sync", "worker"], binlog = [true, false] }`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dbbench.engines import ENGINES
from dbbench.engines.settings import respelt_size
from dbbench.model import EngineSpec, Plan, Scalar, spelt
from dbbench.plan.arms import HALVED_FROM, PROFILE, combinations, factor_names, factors_of, halved
from dbbench.plan.tomlfile import Document, Key, did_you_mean
from dbbench.plan.workloads import check_length, check_list

_ALIAS: Final = (
    "keeps each factor apart from all pairs of factors, but not from the joint effect of all other two-level factors."
)


def check_factors(document: Document, plan: Plan | None, engines: Mapping[Key, EngineSpec]) -> None:
    """Note all errors of `factors` and `half_fraction`."""
    if plan is None:
        return
    for name, levels in plan.factors.items():
        key = ("factors", name)
        check_length(document, key, list(levels))
        check_list(document, key, list(levels), levels, "setting")
        if len(levels) == 1:
            document.flaw(
                key, f'factor "{name}" has one level; use "settings" of the [[engine]] for it, or add a level'
            )
        knowing = [engine for engine in engines.values() if name in factors_of({name: levels}, engine)]
        if not knowing and engines:
            known = [other for engine in engines.values() for other in factor_names(engine)]
            hint = did_you_mean(name, known) or '; if a server has such a setting, list it in its "settings" too'
            document.flaw(key, f'factor "{name}" is not known to {_either(engines.values())}{hint}')
        for engine in knowing:
            _check_levels(document, engine, name, levels)
    if plan.half_fraction and not any(halved(plan, engine) for engine in engines.values()):
        text = f'"half_fraction" requires {HALVED_FROM} factors with two levels on one engine'
        document.flaw(("half_fraction",), text)


def _either(engines: Iterable[EngineSpec]) -> str:
    names = [f'engine "{engine.name}"' for engine in engines]
    return " or ".join(names)


def _check_levels(document: Document, engine: EngineSpec, name: str, levels: Iterable[Scalar]) -> None:
    profile, key = ENGINES[engine.name].PROFILE, ("factors", name)
    if any(spelt(swept) == spelt(name) for swept in engine.sweeps):
        document.flaw(key, f'"{name}" is also a list in "settings" of engine "{engine.name}"; remove one of them')
    for index, level in enumerate(levels):
        if name == PROFILE and level not in profile.settings_profiles:
            hint = did_you_mean(str(level), profile.settings_profiles)
            known = hint or f"; known: {', '.join(profile.settings_profiles)}"
            document.flaw((*key, index), f'{profile.title} has no profile "{level}"{known}')
        elif name in profile.switches and not isinstance(level, bool):
            document.flaw((*key, index), f'the levels of "{name}" are true and false, not {level!r}')
        elif respelt := respelt_size(engine.name, level):
            text = f'"{level}" is not a size in the format of this server; write "{respelt}"'
            document.flaw((*key, index), text)


def sentences(plan: Plan) -> Iterator[str]:
    """Describe the factors of each engine, those that it does not have, and the half fraction that is possible."""
    for engine in plan.engine:
        factors = factors_of(plan.factors, engine)
        if not factors:
            continue
        each = "; ".join(f"{name} {', '.join(map(_level, levels))}" for name, levels in factors.items())
        number, half = len(combinations(plan, engine)), plan.half_fraction and halved(plan, engine)
        which = "half of the combinations" if half else "combinations"
        yield f"Factors of {engine.name}: {each}. Each setup runs with {number} {which}."
        if half:
            yield f"The half fraction of {engine.name} {_ALIAS}"
        elif halved(plan, engine):
            yield f"half_fraction = true in the plan runs only {number // 2} combinations of {engine.name}; it {_ALIAS}"
    for name in plan.factors:
        without = [engine.name for engine in plan.engine if name not in factors_of(plan.factors, engine)]
        if without:
            yield f"{name} is not a factor of {' and '.join(without)}."


def _level(level: Scalar) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)
