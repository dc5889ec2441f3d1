"""Section "Conditions": a sentence for each condition of the measured cells, and the setups for which it differed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dbbench.compare.conditions import CONDITIONS
from dbbench.compare.remarks import texts
from dbbench.compare.unequal import unequal
from dbbench.model import Status
from dbbench.report.page.groups import Group
from dbbench.units import listed


def conditions(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the conditions of all groups, differences first; one that applies to several groups appears once."""
    unlike = [
        f"{arm} and {group.baseline} ({group.title}) were not measured under equal conditions: {'; '.join(lines)}."
        for group in groups
        for arm, lines in differences(group)
    ]
    return tuple(dict.fromkeys((*unlike, *(line for group in groups for line in _sentences(group)))))


def differences(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """Return (arm, conditions in which it differs from the baseline), from the trials that were used."""
    base = group.used_of(group.baseline)
    sentences = [(arm, texts(unequal(base, group.used_of(arm)))) for arm in group.arms if arm != group.baseline]
    return [(arm, lines) for arm, lines in sentences if lines]


def _sentences(group: Group) -> Iterator[str]:
    """Yield one sentence if a condition is the same for all arms, else one for each set of arms."""
    for condition in CONDITIONS:
        arms: dict[str, dict[str, None]] = {}
        for trial in group.trials:
            if trial.status is not Status.FAILED and (text := condition.sentence(trial)) is not None:
                arms.setdefault(text, {})[trial.fs_setup] = None
        for text, of in arms.items():
            yield f"{group.title}: {text}." if len(arms) == 1 else f"{group.title}, {listed(list(of))}: {text}."
