"""Section "Warnings": failed trials and warnings, one entry for each ID, with its trials and their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbbench.errors import Kind, error_kinds, warning_kinds
from dbbench.report.page.groups import Group
from dbbench.units import count


@dataclass(frozen=True)
class TrialEvidence:
    """The evidence of one trial; `link` leads to its second in the timelines."""

    where: str
    text: str
    second: int | None = None
    link: str | None = None
    suspect: bool = True


@dataclass(frozen=True)
class Finding:
    """One error or warning ID with all its places."""

    ident: str
    title: str
    why: str
    grave: bool  # a failure, or telemetry that made a trial suspect
    whose: str
    places: tuple[TrialEvidence, ...]

    def texts(self) -> list[tuple[str, int]]:
        texts = [place.text for place in self.places]
        return [(text, texts.count(text)) for text in dict.fromkeys(texts)]


def findings(groups: Sequence[Group]) -> tuple[Finding, ...]:
    """Return errors first, then warnings, by ID."""
    total = sum(len(group.trials) for group in groups)
    errors: dict[str, list[TrialEvidence]] = {}
    warnings: dict[str, list[TrialEvidence]] = {}
    for group, trial in [(g, trial) for g in groups for trial in g.trials]:
        again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
        name = f"{trial.fs_setup} block {trial.block}{again} ({group.title})"
        if trial.error is not None:
            where = f"{name}, in phase {trial.error.phase or 'unknown'}"
            errors.setdefault(trial.error.id, []).append(TrialEvidence(where, trial.error.text))
        for warning in trial.warnings:
            # The script of the page reads the link to a second of the timelines.
            to = f"#c={group.ident}&fs={group.arms.index(trial.fs_setup)}&trials=1&at={warning.second}"
            link = None if warning.second is None else to
            evidence = TrialEvidence(name, warning.text, warning.second, link, bool(warning.suspect))
            warnings.setdefault(warning.id, []).append(evidence)
    failure, foreign = Kind("the trial failed", "", ""), Kind("a warning of another version of dbbench", "", "")
    all_findings = []
    for ident, places in sorted(errors.items()):
        title = error_kinds().get(ident, failure).title
        all_findings.append(Finding(ident, title, "", True, _whose(places, total), tuple(places)))
    for ident, places in sorted(warnings.items()):
        kind, grave = warning_kinds().get(ident, foreign), any(place.suspect for place in places)
        all_findings.append(Finding(ident, kind.title, kind.meaning, grave, _whose(places, total), tuple(places)))
    return tuple(all_findings)


def _whose(places: list[TrialEvidence], total: int) -> str:
    trials = len({place.where for place in places})
    if trials == total and total > 1:
        return f"all {total} trials"
    return places[0].where if trials == 1 else count(trials, "trial")
