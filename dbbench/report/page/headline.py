"""Section 1: the answer of each run in words, as a picture, and as Markdown with the commands that
made it.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.engines import profile_of
from dbbench.model import Trial
from dbbench.report.answer import SHORT, UNFINISHED, Answer, answer
from dbbench.report.page.charts.dots import DotPlot, answer_plots
from dbbench.report.page.findings import Finding
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.method import subtitle
from dbbench.report.page.notices import Notice, notices
from dbbench.report.page.trial_facts import fact_text, facts
from dbbench.report.sentences import SUSPECT, interaction
from dbbench.report.trial_counts import trial_counts
from dbbench.report.verdict_table import as_markdown
from dbbench.report.verdicts import verdicts
from dbbench.units import count, join_words

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


class VerdictSection(NamedTuple):
    """The first section: `regressions` and `caveats` are above the answer. `answers` are (name of
    the run if there are several, its answer).
    """

    regressions: list[Notice]
    caveats: list[Notice]
    answers: tuple[tuple[str, Answer], ...]
    factors: list[str]
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
    tables = []
    runs = loaded_runs(groups)
    for loaded in runs:
        judged = verdicts([loaded])
        words = answer(judged.tables, [loaded])
        answers.append((loaded.run.name if len(runs) > 1 else "", words))
        caveats += words.caveats
        factors += map(interaction, judged.interactions)
        tables.append(as_markdown(judged))
    return VerdictSection(
        regressions=[("regression", text) for text in regressions],
        caveats=[caveat for caveat in caveats if caveat[0] in FIRST],
        answers=tuple(answers),
        factors=factors,
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
