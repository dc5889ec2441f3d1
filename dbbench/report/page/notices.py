"""Caveats of the first section that need the trials: what makes the figures unfair or incomplete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.compare import by_host
from dbbench.model import Verdict
from dbbench.report.page.environment import differences
from dbbench.report.page.groups import Group, loaded_runs
from dbbench.report.sentences import disagreement
from dbbench.units import GROUP, grouped, join_words

Notice = tuple[str, str]  # a class of the style sheet, and a sentence


class Caveat(NamedTuple):
    """What warnings of used trials mean, which a reader must see next to the verdict. `kind` is a
    class of the style sheet.
    """

    kind: str
    warning: str
    name: str
    text: str


_CAVEATS: Final = (
    Caveat(
        "burst",
        "W002",
        "Burst",
        "no checkpoint finished during the window, so most writes to the data files are not in "
        "the figures",
    ),
    Caveat(
        "drain",
        "W003",
        "Borrowed throughput",
        f"the drain took more than 10{GROUP}% of the window; use the sustained figures",
    ),
    Caveat(
        "unsteady",
        "W005",
        "No steady state",
        "throughput had a trend, so its mean depends on the window",
    ),
)


def notices(groups: Sequence[Group]) -> list[Notice]:
    """Return the caveats, the most serious first."""
    return [
        *_damaged_trials(groups),
        *_unequal(groups),
        *(("hosts", text) for text in disagreements(groups)),
        *_limits(groups),
        *_warnings(groups),
    ]


def _damaged_trials(groups: Sequence[Group]) -> Iterator[Notice]:
    for loaded in loaded_runs(groups):
        if loaded.damaged:
            trials = ", ".join(f"{name} ({error.id})" for name, error in loaded.damaged.items())
            yield "damaged", f"**Damaged trials of {loaded.run.name} are left out**: {trials}."


def _unequal(groups: Sequence[Group]) -> Iterator[Notice]:
    for group in groups:
        for arm, lines in differences(group):
            text = f"{group.baseline}: {'; '.join(lines)}. The ratio includes this. {group.title}."
            yield "unequal", f"Unequal conditions: **{arm}** and {text}"


def _limits(groups: Sequence[Group]) -> Iterator[Notice]:
    for group in groups:
        arms = [row.fs_setup for row in group.rows if row.verdict is Verdict.LIMITED]
        if arms:
            both = join_words([group.baseline, *arms])
            text = (
                f"{both} stayed at what fio measured on the bare device, so they cannot be "
                f"compared. {group.title}."
            )
            yield "limited", f"**The device was the limit** (W042): {text}"


def _warnings(groups: Sequence[Group]) -> Iterator[Notice]:
    for caveat in _CAVEATS:
        titles = [group.title for group in groups if caveat.warning in _warning_ids(group)]
        if titles:
            text = f"**{caveat.name}** ({caveat.warning}): {caveat.text}. {join_words(titles)}."
            yield caveat.kind, text


def _warning_ids(group: Group) -> set[str]:
    """Return the IDs of the warnings of the trials that count."""
    used = [trial for trial in group.trials if trial.id in group.counted_ids]
    return {warning.id for trial in used for warning in trial.warnings}


def disagreements(groups: Sequence[Group]) -> Iterator[str]:
    """Yield a sentence for each arm whose ratio to the baseline differs between hosts."""
    same = grouped(groups, lambda group: (group.engine, group.workload, group.baseline))
    for (_, _, baseline), same_groups in same.items():
        trials = [trial for group in same_groups for trial in group.trials]
        for arm in by_host(trials, baseline, same_groups[0].metric.name):
            text = disagreement(arm, baseline)
            if text:
                yield f"{text} {same_groups[0].title}."
