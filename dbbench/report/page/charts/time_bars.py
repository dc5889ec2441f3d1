"""Where the time of a transaction goes: a bar for each setup, divided into layers in ms."""

from __future__ import annotations

from typing import Final, NamedTuple

from dbbench.compare import time_layers
from dbbench.model import TIME_LAYERS
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.report.time_layers import sentences, slow_seconds
from dbbench.units import number

# Shades of grey, because a hue means a setup: per cent of ink. Neighbours differ.
_SHADES: Final = (10, 22, 14, 34, 20, 28, 12, 24, 6, 16)
_LEAST_SHARE: Final = 0.005  # of the longest bar; a layer with less in each setup is left out


class Segment(NamedTuple):
    """A layer of a bar in ms; `share` of the longest bar, in per cent."""

    layer: str
    ms: str
    share: float
    shade: int


class TimeBar(NamedTuple):
    """The bar of a setup, with a segment for each layer of the section."""

    mark: Mark
    total: str
    segments: tuple[Segment, ...]


class TimeSection(NamedTuple):
    """The bars of an engine and workload, the layers as columns, and what they say in words."""

    sentences: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]  # layer, label
    bars: tuple[TimeBar, ...]
    slow: tuple[tuple[Mark, str, str], ...]  # mark, when, what was waited for


def time_section(group: Group) -> TimeSection:
    """Return the section of a group, which is empty if nothing was observed."""
    means = {}
    for arm in group.arms:
        of_layers = time_layers.means(group.used_of(arm), "ms_per_tx")
        if of_layers:
            means[arm] = {layer: mean.value for layer, mean in of_layers.items()}
    # All bars have one scale, so that their lengths can be compared.
    longest = max((sum(of_arm.values()) for of_arm in means.values()), default=0.0)
    columns = []
    # A layer that is small in every setup would only lengthen the legend.
    for layer, label in TIME_LAYERS.items():
        if any(of_arm.get(layer, 0.0) >= _LEAST_SHARE * longest for of_arm in means.values()):
            columns.append((str(layer), label))
    shades = dict(zip(map(str, TIME_LAYERS), _SHADES, strict=True))
    bars = []
    for arm, values in means.items():
        segments = []
        for name, _ in columns:
            ms = values.get(name, 0.0)
            share = round(100 * ms / longest, 2)
            segments.append(Segment(name, number(ms), share, shades[name]))
        total = number(sum(values.values()))
        bars.append(TimeBar(group.marks[arm], total, tuple(segments)))
    slow = []
    for arm, when, cause in slow_seconds(group.trials, group.arms):
        slow.append((group.marks[arm], when, cause))
    lines = sentences(group.trials, group.rows)
    return TimeSection(tuple(lines), tuple(columns), tuple(bars), tuple(slow))
