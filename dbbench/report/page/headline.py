"""Section 1: the answer of each run in words, as a picture, and as Markdown with the commands that
made it; its caveats are what makes the figures unfair or incomplete.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.compare.unpaired import by_host
from dbbench.engines import profile_of
from dbbench.model import Trial, Verdict
from dbbench.report.answer import SHORT, UNFINISHED, Answer, answer
from dbbench.report.page.charts.dots import DotPlot, answer_plots
from dbbench.report.page.charts.flush import flush_charts
from dbbench.report.page.charts.kit import Chart
from dbbench.report.page.environment import differences
from dbbench.report.page.findings import Finding
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.method import subtitle
from dbbench.report.page.trial_facts import fact_text, facts
from dbbench.report.sentences import SUSPECT, disagreement, interaction
from dbbench.report.trial_counts import trial_counts
from dbbench.report.verdict_table import as_markdown
from dbbench.report.verdicts import verdicts
from dbbench.units import GROUP, count, group_by, join_words

SIGNS: Final = {  # verdicts must be readable without colour
    "faster": "▲",
    "better": "▲",
    "slower": "▼",
    "worse": "▼",
    "same": "=",
    "inconclusive": "?",
    "device-limited": "⊤",
    "baseline": "",
}
FIRST: Final = (SHORT, UNFINISHED, SUSPECT)  # kinds of caveats that are shown above the answer


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


class VerdictSection(NamedTuple):
    """The first section: `regressions` and `caveats` are above the answer. `answers` are (name of
    the run if there are several, its answer).
    """

    regressions: list[Notice]
    caveats: list[Notice]
    answers: tuple[tuple[str, Answer], ...]
    factors: list[str]
    flushes: tuple[Chart, ...]
    plots: tuple[tuple[DotPlot, DotPlot], ...]
    notices: list[Notice]
    quality: str
    warnings: Sequence[Finding]
    markdown: str


def verdict(
    groups: Sequence[Group],
    warnings: Sequence[Finding],
    regressions: tuple[str, ...] = (),
) -> VerdictSection:
    """Return the first section of the page. Its words and numbers are those of `dbbench compare`.
    The regressions, of the nights of these runs, are before everything else.
    """
    # Each run is judged alone; their answers follow one another.
    answers = []
    caveats: list[Notice] = []
    factors: list[str] = []
    flushes: list[Chart] = []
    marks = {arm: mark for group in groups for arm, mark in group.marks.items()}
    tables = []
    runs = loaded_runs(groups)
    for loaded in runs:
        judged = verdicts([loaded])
        words = answer(judged.tables, [loaded])
        answers.append((loaded.run.name if len(runs) > 1 else "", words))
        caveats += words.caveats
        factors += map(interaction, judged.interactions)
        flushes += flush_charts(judged.interactions, marks)
        tables.append(as_markdown(judged))
    # What makes the answer doubtful is above it, the rest below.
    return VerdictSection(
        regressions=[("regression", text) for text in regressions],
        caveats=[caveat for caveat in caveats if caveat[0] in FIRST],
        answers=tuple(answers),
        factors=factors,
        flushes=tuple(flushes),
        plots=answer_plots(groups),
        notices=[*(caveat for caveat in caveats if caveat[0] not in FIRST), *notices(groups)],
        quality=_quality(groups),
        warnings=warnings,
        markdown="\n".join(_markdown(groups, tables)),
    )


def _quality(groups: Sequence[Group]) -> str:
    blocks = sorted({(group.loaded.run.name, group.loaded.run.blocks) for group in groups})
    in_blocks = join_words([count(number, "block") for _, number in blocks])
    return f"{trial_counts(loaded_runs(groups)).text}. {in_blocks} in random order."


def _markdown(groups: Sequence[Group], tables: Sequence[str]) -> Iterator[str]:
    names = [loaded.run.name for loaded in loaded_runs(groups)]
    yield f"**{' + '.join(names)}**: {subtitle(groups)}\n"
    yield from tables

    trials = [trial for group in groups for trial in group.trials]

    # The commands that made each filesystem.
    yield "\n```sh"
    for arm in all_arms(groups):
        yield f"# {arm}"
        commands = [_commands(trial) for trial in trials if trial.fs_setup == arm]
        yield from dict.fromkeys(itertools.chain(*commands))
    yield "```"

    for engine in dict.fromkeys(trial.engine for trial in trials):
        yield f"\n<details><summary>Settings of {profile_of(engine).title}</summary>\n\n```ini"
        yield from _settings([trial for trial in trials if trial.engine == engine])
        yield "```\n\n</details>"


def _settings(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield the settings that all arms have, then those of single arms."""
    settings: dict[str, list[str]] = {}
    for trial in trials:
        settings[trial.fs_setup] = [
            f"{name} = {fact_text(setting.value)}"
            for name, setting in sorted(trial.settings.items())
        ]

    # What all arms have is listed once.
    first = next(iter(settings.values()))
    same = [line for line in first if all(line in lines for lines in settings.values())]
    yield from same
    for arm, lines in settings.items():
        yield from (f"# only {arm}: {line}" for line in lines if line not in same)


def _commands(trial: Trial) -> Iterator[str]:
    if trial.filesystem is not None:
        yield facts(trial).get("mkfs", "# a directory, without mkfs")
        options = trial.filesystem.mount_options_asked
        flags = ["-o", ",".join(options)] if options else []
        yield shlex.join(["mount", *flags, "DEVICE", "DIR"])


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
        titles = []
        # Only warnings of trials that count.
        for group in groups:
            used = [trial for trial in group.trials if trial.id in group.counted_ids]
            if any(warning.id == caveat.warning for trial in used for warning in trial.warnings):
                titles.append(group.title)
        if titles:
            text = f"**{caveat.name}** ({caveat.warning}): {caveat.text}. {join_words(titles)}."
            yield caveat.kind, text


def disagreements(groups: Sequence[Group]) -> Iterator[str]:
    """Yield a sentence for each arm whose ratio to the baseline differs between hosts."""
    same = group_by(groups, lambda group: (group.engine, group.workload, group.baseline))
    for (_, _, baseline), same_groups in same.items():
        trials = [trial for group in same_groups for trial in group.trials]
        for arm in by_host(trials, baseline, same_groups[0].metric.name):
            text = disagreement(arm, baseline)
            if text:
                yield f"{text} {same_groups[0].title}."
