"""What `dbbench size` found, in words and as rows: terminal, JSON and page have the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dbbench.compare.sizing import MOST_FAILED, Sized, VolumeLevel, size_setups
from dbbench.model import DeviceLimit, Run, Search, title_of
from dbbench.results import LoadedRun
from dbbench.units import group_by, join_words, number


class SizeRow(NamedTuple):
    """A setup at a level. `share` of the rate in per cent, at most 100."""

    arm: str
    level: str
    blocks: str
    tps: str
    p99_ms: str
    share: float


class SizeSection(NamedTuple):
    """The answer for an engine and workload, and what was measured."""

    title: str
    question: str
    sentences: tuple[str, ...]
    rows: tuple[SizeRow, ...]


def sections(loaded: LoadedRun) -> list[SizeSection]:
    """Return a section for each engine and workload; none for a run without a search."""
    run = loaded.run
    search = run.search
    if search is None:
        return []
    setups = size_setups(run, {trial.id: trial for trial in loaded.trials})
    return [
        SizeSection(
            f"{title_of(*each[0].workload.partition('+')[::2])}, {engine}",
            _question(search),
            tuple(_sentences(run, search, each)),
            tuple(_rows(search, each)),
        )
        for (engine, _), each in group_by(setups, lambda s: (s.engine, s.workload)).items()
    ]


def level_name(limit: DeviceLimit) -> str:
    """Return the level's name without its prefix, with the price if the plan gives one."""
    name = limit.name.removeprefix("model-")
    return name if limit.price is None else f"{name} ({limit.price})"


def _question(search: Search) -> str:
    text = f"{number(search.rate)} tx/s"
    if search.p99_ms is None:
        return text
    return f"{text} with p99 ≤ {number(search.p99_ms)} ms"


def _sentences(run: Run, search: Search, setups: Sequence[Sized]) -> list[str]:
    texts = list[str]()
    # Setups with the same answer are one part of the sentence, those of the smallest level first.
    answered = sorted((each for each in setups if each.smallest), key=lambda each: each.high)
    for high, same in group_by(answered, lambda each: each.high).items():
        limit = same[0].levels[high].limit
        arms = join_words([each.arm for each in same])
        blocks = join_words([*dict.fromkeys(_blocks(each.levels[high]) for each in same)])
        if not texts:
            text = (
                f"The model of the {level_name(limit)} volume holds {_question(search)} on {arms}"
            )
            if high == 0:
                text += ", and is the smallest of the plan"
        else:
            text = f"{arms} {'needs' if len(same) == 1 else 'need'} {level_name(limit)}"
        texts.append(f"{text} (in {blocks} blocks)")
    settled = [
        each
        for each in setups
        if not (each.smallest or each.failed >= MOST_FAILED or each.following(run.plan.blocks))
    ]
    if settled:
        arms = join_words([each.arm for each in settled])
        texts.append(f"{'no' if texts else 'No'} level of the plan is enough for {arms}")
    sentences = [f"{'; '.join(texts)}."] if texts else []
    for each in setups:
        if each.failed >= MOST_FAILED:
            sentences.append(f"{each.arm} was given up after {each.failed} failed trials.")
        # If a larger level holds, it was the device.
        below = each.levels[each.low] if each.low >= 0 and each.smallest is None else None
        if below is not None and below.instead:
            sentences.append(
                f"At {level_name(below.limit)}, the {below.instead} limited {each.arm}, not the "
                "model: a larger volume may not help."
            )
    return sentences


def _blocks(level: VolumeLevel) -> str:
    return f"{level.held} of {level.trials}"


def _rows(search: Search, setups: Sequence[Sized]) -> list[SizeRow]:
    rows = []
    for each in setups:
        for level in each.levels:
            if level.trials:
                rows.append(
                    SizeRow(
                        each.arm,
                        level_name(level.limit),
                        _blocks(level),
                        number(level.tps),
                        number(level.p99_ms),
                        round(min(100.0, 100 * (level.tps or 0.0) / search.rate), 1),
                    )
                )
    return rows
