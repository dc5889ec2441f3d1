"""Section 1: the answer of each run in words, as a picture, and as Markdown with the commands that
made it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.engines import profile_of
from dbbench.model import Status, Trial
from dbbench.report.answer import SHORT, UNFINISHED, answer
from dbbench.report.page.charts.dots import answer_plots
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.method import subtitle
from dbbench.report.page.notices import notices
from dbbench.report.page.trial_facts import fact_text, facts
from dbbench.report.sentences import SUSPECT, interaction
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


def verdict(
    groups: Sequence[Group], warnings: Sequence[View], regressions: tuple[str, ...] = ()
) -> View:
    """Return the first section of the page. Its words and numbers are those of `dbbench compare`.
    The regressions, of the nights of these runs, are before everything else.
    """
    runs = loaded_runs(groups)
    judged = [(loaded, verdicts([loaded])) for loaded in runs]
    answers = [(loaded.run.name, answer(of.tables, [loaded])) for loaded, of in judged]
    caveats = [caveat for _, each in answers for caveat in each.caveats]
    tables = [as_markdown(of) for _, of in judged]
    return View(
        caveats=[(kind, text) for kind, text in caveats if kind in FIRST],  # above the answer
        answers=tuple((name if len(runs) > 1 else "", each.sentences) for name, each in answers),
        factors=[interaction(about) for _, of in judged for about in of.interactions],
        plots=answer_plots(groups),
        notices=[*((kind, text) for kind, text in caveats if kind not in FIRST), *notices(groups)],
        quality=_quality(groups),
        warnings=warnings,
        markdown="\n".join(_markdown(groups, tables)),
        regressions=[("regression", text) for text in regressions],
    )


def _quality(groups: Sequence[Group]) -> str:
    trials = [trial for group in groups for trial in group.trials]
    used = sum(len(group.counted_ids) for group in groups)
    missing = sum(len(group.missing()) for group in groups)
    damaged = sum(len(loaded.damaged) for loaded in loaded_runs(groups))
    failed = sum(trial.status is Status.FAILED for trial in trials)
    suspect = sum(trial.status is Status.SUSPECT for trial in trials)
    repeated = sum(trial.attempt > 1 for trial in trials)
    counts = [
        (failed, "failed"),
        (suspect, "suspect"),
        (repeated, "of a repeated block"),
        (missing, "not run"),
        (damaged, "damaged"),
    ]
    odd = join_words([f"{n} {what}" for n, what in counts if n])
    blocks = sorted({(group.loaded.run.name, group.loaded.run.blocks) for group in groups})
    of = f"{used} of {len(trials) + missing + damaged} trials used{f' ({odd})' if odd else ''}"
    return f"{of}; {join_words([count(n, 'block') for _, n in blocks])} in random order."


def _markdown(groups: Sequence[Group], tables: Sequence[str]) -> Iterator[str]:
    yield (
        f"**{' + '.join(loaded.run.name for loaded in loaded_runs(groups))}**: {subtitle(groups)}\n"
    )
    yield from tables
    trials = [trial for group in groups for trial in group.trials]
    yield "\n```sh"
    for arm in all_arms(groups):
        yield f"# {arm}"
        yield from dict.fromkeys(
            line for trial in trials if trial.fs_setup == arm for line in _commands(trial)
        )
    yield "```"
    for engine in dict.fromkeys(trial.engine for trial in trials):
        own = {
            trial.fs_setup: [
                f"{name} = {fact_text(setting.value)}"
                for name, setting in sorted(trial.settings.items())
            ]
            for trial in trials
            if trial.engine == engine
        }
        same = [
            line
            for line in next(iter(own.values()))
            if all(line in lines for lines in own.values())
        ]
        yield f"\n<details><summary>Settings of {profile_of(engine).title}</summary>\n\n```ini"
        yield from same
        yield from (
            f"# only {arm}: {line}"
            for arm, lines in own.items()
            for line in lines
            if line not in same
        )
        yield "```\n\n</details>"


def _commands(trial: Trial) -> Iterator[str]:
    if trial.filesystem is not None:
        yield facts(trial).get("mkfs", "# a directory, without mkfs")
        options = trial.filesystem.mount_options_asked
        yield shlex.join(
            ["mount", *(["-o", ",".join(options)] if options else []), "DEVICE", "DIR"]
        )
