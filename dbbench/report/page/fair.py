"""Section "Conditions": a sentence for each condition of the measured cells, and the setups for which it differed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dbbench.compare.conditions import unequal
from dbbench.compare.remarks import texts
from dbbench.engines import profile_of
from dbbench.model import Status, Trial
from dbbench.report.page.groups import Group
from dbbench.units import duration_text, listed, number, size_text


def sentences(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the conditions of all groups, differences first; one that applies to several groups appears once."""
    return tuple(dict.fromkeys((*_unequal(groups), *(line for group in groups for line in _of(group)))))


def differences(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """Return (arm, conditions in which it differs from the baseline), from the trials that were used."""
    used = {arm: group.used_of(arm) for arm in group.arms}
    sentences = [(arm, texts(unequal(used.get(group.baseline, []), trials))) for arm, trials in used.items()]
    return [(arm, lines) for arm, lines in sentences if lines and arm != group.baseline]


def _unequal(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        for arm, lines in differences(group):
            pair = f"{arm} and {group.baseline} ({group.title})"
            yield f"{pair} were not measured under equal conditions: {'; '.join(lines)}."


def _of(group: Group) -> Iterator[str]:
    trials = [trial for trial in group.trials if trial.status is not Status.FAILED]
    for condition in (_profile, _memory, _cache, _cores, _client, _ceiling):
        yield from _each(group, trials, condition)


def _each(group: Group, trials: Sequence[Trial], condition: Callable[[Trial], str | None]) -> Iterator[str]:
    """Yield one sentence if the condition is the same for all arms, else one for each set of arms."""
    arms: dict[str, dict[str, None]] = {}
    for trial in trials:
        if (text := condition(trial)) is not None:
            arms.setdefault(text, {})[trial.fs_setup] = None
    for text, of in arms.items():
        yield f"{group.title}: {text}." if len(arms) == 1 else f"{group.title}, {listed(list(of))}: {text}."


def _profile(trial: Trial) -> str | None:
    if not trial.profile or not trial.effective_settings:
        return None
    stated = profile_of(trial.engine).statement(trial.effective_settings)
    return f"the server ran with the {trial.profile} profile{f' ({stated})' if stated else ''}"


def _memory(trial: Trial) -> str | None:
    memory = trial.memory
    if memory is None or memory.effective_bytes is None or memory.dataset_ratio is None:
        return None
    limit = f"limited by the kernel ({memory.enforced})" if memory.enforced else "not limited by the kernel"
    meaning = {"cached": "most reads are served from memory", "edge": "some reads need the disk",
               "io-bound": "most reads need the disk"}.get(memory.label or "", "")  # fmt: skip
    return (f"the dataset is {memory.dataset_ratio:.2g} times as large as the {size_text(memory.effective_bytes)} of "
            f"memory that can hold data ({limit}): {memory.label}, {meaning}")  # fmt: skip


def _cache(trial: Trial) -> str | None:
    texts = {
        "direct": "the server bypassed the page cache (direct I/O)",
        "buffered": "the server used the page cache, as configured",
        "buffered-fallback": "direct I/O was requested, but the filesystem went through the page cache",
    }
    return texts.get(trial.memory.direct or "") if trial.memory else None


def _cores(trial: Trial) -> str | None:
    cores = trial.cores
    if cores is None or cores.server is None:
        return None
    if trial.client is not None:
        return f"the server ran on cores {cores.server}; no load generator ran on its host"
    if cores.shared:
        return f"the server and the load generator shared cores {cores.server}"
    return f"the server ran on cores {cores.server}, the load generator on {cores.client}"


def _client(trial: Trial) -> str | None:
    client = trial.client
    if client is None:
        return None
    trip = "" if client.round_trip_ms is None else f" of about {_about(client.round_trip_ms)} ms"
    return (f"the load came from another host, {client.hostname}, over TLS: the latency of each statement includes a "
            f"network round trip{trip}")  # fmt: skip


def _about(ms: float) -> str:
    """Return the time rounded to one digit, so that trials with almost the same time share a sentence."""
    return f"{float(f'{ms:.1g}'):g}"


def _ceiling(trial: Trial) -> str | None:
    if trial.ceiling is None or not trial.ceiling.rows:
        return None
    page = profile_of(trial.engine).page_bytes // 1024
    single = next((row for row in trial.ceiling.rows if row.name == f"write_{page}k_fdatasync"), None)
    if single is None:
        return None
    return (f"the bare device completed {number(single.iops)} flushed single writes of {page} KiB per second, "
            f"{duration_text(single.mean_ms / 1000)} each")  # fmt: skip
