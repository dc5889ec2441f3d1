"""Caveats of the first section: what makes the figures unfair, small or incomplete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import by_host
from dbbench.compare.verdict import LIMITED
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.report.page.environment import differences
from dbbench.report.page.groups import Group, loaded_runs
from dbbench.report.sentences import Parts, caveats, disagreement, no_limit
from dbbench.units import GROUP, duration_text, join_words

# (kind, warning, its name, what it means): warnings of used trials that a reader must see next to the verdict
_WARNED: Final = (
    ("burst", "W002", "Burst",
     "no checkpoint finished during the window, so most writes to the data files are not in the figures"),
    ("drain", "W003", "Borrowed throughput",
     f"the drain took more than 10{GROUP}% of the window; use the sustained figures"),
    ("unsteady", "W005", "No steady state", "throughput had a trend, so its mean depends on the window"),
)  # fmt: skip


@dataclass(frozen=True)
class Notice:
    """A caveat. `kind` is a class of the style sheet."""

    kind: str
    parts: Parts


def notices(groups: Sequence[Group]) -> list[Notice]:
    """Return the caveats, the most serious first."""
    return [
        *_incomplete(groups),
        *_caveats(groups),
        *_unequal(groups),
        *(Notice("hosts", parts) for parts in disagreements(groups)),
        *_limits(groups),
        *_warnings(groups),
        *_short(groups),
    ]


def _notice(kind: str, head: str, text: str) -> Notice:
    return Notice(kind, ((head, True), (text, False)))


def _incomplete(groups: Sequence[Group]) -> Iterator[Notice]:
    runs = loaded_runs(groups)
    for loaded in runs:
        if loaded.damaged:
            trials = ", ".join(f"{name} ({error.id})" for name, error in loaded.damaged.items())
            yield _notice("damaged", f"Damaged trials of {loaded.run.name} are left out", f": {trials}.")
    for loaded in runs:
        todo, total = len(loaded.remaining), len(loaded.run.order)
        if todo:
            text = f": {total - todo} of {total} trials are done. Run the same command again to resume."
            yield _notice("unfinished", f"{loaded.run.name} is not finished", text)
    for loaded in runs:
        for arm, why in loaded.run.skipped.items():
            yield _notice("skipped", f"{arm} was not run", f": {why}.")


def _caveats(groups: Sequence[Group]) -> Iterator[Notice]:
    """Yield the caveats that the terminal prints too; with several groups, each begins with the group's title."""
    for group in groups:
        for kind, parts in caveats(group.rows):
            yield Notice(kind, (*((f"{group.title}: ", False) for _ in groups[1:2]), *parts))


def _unequal(groups: Sequence[Group]) -> Iterator[Notice]:
    for group in groups:
        for arm, lines in differences(group):
            text = f" and {group.baseline}: {'; '.join(lines)}. The ratio includes this. {group.title}."
            yield Notice("unequal", (("Unequal conditions: ", False), (arm, True), (text, False)))


def _limits(groups: Sequence[Group]) -> Iterator[Notice]:
    """Yield a notice for each group that the device limited, and for each run that exceeded a measured limit."""
    for group in groups:
        if arms := [row.fs_setup for row in group.rows if row.verdict == LIMITED]:
            both = join_words([group.baseline, *arms])
            text = f" (W042): {both} stayed at what fio measured on the bare device, so they cannot be compared. "
            yield _notice("limited", "The device was the limit", f"{text}{group.title}.")
    for loaded in loaded_runs(groups):
        if loaded.exceeded:
            yield Notice("no-limit", no_limit(loaded.exceeded))


def _warnings(groups: Sequence[Group]) -> Iterator[Notice]:
    for kind, warning, name, text in _WARNED:
        hit = [
            g.title
            for g in groups
            if any(w.id == warning for t in g.trials if t.id in g.counted_ids for w in t.warnings)
        ]
        if hit:
            yield _notice(kind, name, f" ({warning}): {text}. {join_words(hit)}.")


def _short(groups: Sequence[Group]) -> Iterator[Notice]:
    windows = {group.cells[0].window for group in groups}
    short = {(w.warmup_s, w.measure_s) for w in windows if w.kind == "fixed" and w.measure_s < SHORT_WINDOW_S}
    if short:
        lengths = join_words(
            [f"{duration_text(w)} of warm-up and {duration_text(m)} measured" for w, m in sorted(short)]
        )
        head = "These numbers are a smoke test; do not base a decision on them"
        yield _notice("short", head, f" (W001): {lengths} cover neither whole checkpoint cycles nor the periods of the "
                                     "filesystems.")  # fmt: skip


def disagreements(groups: Sequence[Group]) -> Iterator[Parts]:
    """Yield a sentence for each arm whose ratio to the baseline differs between hosts."""
    same: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        same.setdefault((group.engine, group.workload, group.baseline), []).append(group)
    for (_, _, baseline), same_groups in same.items():
        trials = [trial for group in same_groups for trial in group.trials]
        metric = same_groups[0].metric
        for arm in by_host(trials, baseline, metric.name):
            if parts := disagreement(arm, metric, baseline):
                yield (*parts, (f" {same_groups[0].title}.", False))
