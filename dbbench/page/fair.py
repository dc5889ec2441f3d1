"""The conditions of the measured cells, each in a sentence: what held for all, and in which it differed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dbbench.compare.conditions import unequal
from dbbench.model import Status, Trial
from dbbench.page.groups import Group
from dbbench.page.numbers import listed
from dbbench.units import size_text


def sentences(groups: Sequence[Group]) -> tuple[str, ...]:
    """Of all groups, inequalities first; a sentence that holds for several stands once."""
    return tuple(dict.fromkeys((*_unequal(groups), *(line for group in groups for line in _of(group)))))


def differences(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """(arm, what of its conditions differs from the baseline's), by the trials that were used."""
    used = {arm: group.used_of(arm) for arm in group.arms}
    found = [(arm, unequal(used.get(group.baseline, []), trials)) for arm, trials in used.items()]
    return [(arm, lines) for arm, lines in found if lines and arm != group.baseline]


def _unequal(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        for arm, lines in differences(group):
            pair = f"{arm} and {group.baseline} ({group.title})"
            yield f"{pair} were not measured under equal conditions: {'; '.join(lines)}."


def _of(group: Group) -> Iterator[str]:
    trials = [trial for trial in group.trials if trial.status is not Status.FAILED]
    for told in (_memory, _cache, _cores, _client, _ceiling):
        yield from _each(group, trials, told)


def _each(group: Group, trials: Sequence[Trial], told: Callable[[Trial], str | None]) -> Iterator[str]:
    """A sentence once where it holds for all arms, else with the arms that it holds for."""
    arms: dict[str, dict[str, None]] = {}
    for trial in trials:
        if (said := told(trial)) is not None:
            arms.setdefault(said, {})[trial.fs_setup] = None
    for said, of in arms.items():
        yield f"{group.title}: {said}." if len(arms) == 1 else f"{group.title}, {listed(list(of))}: {said}."


def _memory(trial: Trial) -> str | None:
    memory = trial.memory
    if memory is None or memory.effective_bytes is None or memory.dataset_ratio is None:
        return None
    held = f"held by the kernel ({memory.enforced})" if memory.enforced else "not held by the kernel"
    what = {"cached": "most reads need no disk", "edge": "part of the reads needs the disk",
            "io-bound": "most reads need the disk"}.get(memory.label or "", "")  # fmt: skip
    return (f"the dataset is {memory.dataset_ratio:.2g} times the {size_text(memory.effective_bytes)} that can hold "
            f"data, {held}: {memory.label}, {what}")  # fmt: skip


def _cache(trial: Trial) -> str | None:
    said = {
        "direct": "the server read and wrote past the page cache",
        "buffered": "the server read and wrote through the page cache, as its settings say",
        "buffered-fallback": "direct I/O was asked for, and the filesystem served it through the page cache",
    }
    return said.get(trial.memory.direct or "") if trial.memory else None


def _cores(trial: Trial) -> str | None:
    cores = trial.cores
    if cores is None or cores.server is None:
        return None
    if trial.client is not None:
        return f"the server ran on cores {cores.server}, without a load generator beside it"
    if cores.shared:
        return f"server and load generator shared cores {cores.server}"
    return f"the server ran on cores {cores.server}, the load generator on {cores.client}"


def _client(trial: Trial) -> str | None:
    client = trial.client
    if client is None:
        return None
    trip = "" if client.round_trip_ms is None else f" of about {_about(client.round_trip_ms)} ms"
    return (f"the load came from another host, {client.hostname}, by TLS: each statement waited for a round trip{trip} "
            "through the network, which is in the latencies")  # fmt: skip


def _about(ms: float) -> str:
    """One digit: trials differ in the others, and are told in one sentence."""
    return f"{float(f'{ms:.1g}'):g}"


def _ceiling(trial: Trial) -> str | None:
    if trial.ceiling is None or not trial.ceiling.rows:
        return None
    page = 8 if trial.engine == "postgres" else 16  # KiB, of the engine
    single = next((row for row in trial.ceiling.rows if row.name == f"write_{page}k_fdatasync"), None)
    if single is None:
        return None
    return (f"the bare device gave {single.iops:.0f} single writes of {page} KiB a second, each flushed, at "
            f"{single.mean_ms:.2g} ms")  # fmt: skip
