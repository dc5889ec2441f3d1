"""The traces of the timelines for plotly, without their values.

The page's script (`reports/assets/figures.js`) fills them with the packed seconds. What it has
to know of a trace is in its `meta`: `arm` is the index of its fs setup, `key` or `keys` are its
columns, and `of` is one of

    median, band       of the used trials of the arm, in each second (band: from p10 to p90)
    rows               the values of the trials `rows`, one trial after the other
    area, sum          of the last of `keys`, on top of the others: the area itself, and its line
                       with the hover text
    stalls, checkpoints    in the row `row` of the strip

With `trials`, a trace is visible only if "Each trial" is on (True) or off (False).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

import plotly.graph_objects as go

from dbbench.model import Json
from dbbench.report.page.charts.telemetry import LEAST_TRIALS, Telemetry
from dbbench.report.page.charts.timelines import Panel
from dbbench.report.page.theme import LIGHT
from dbbench.units import GROUP

CHECKPOINT: Final = "checkpoint"  # the row of the strip for checkpoints
HATCHED: Final[Json] = {
    "shape": "/",
    "fgcolor": LIGHT.kinds[1],
    "bgcolor": LIGHT.kinds[2],
    "size": 5,
    "solidity": 0.28,
}


class CpuKind(NamedTuple):
    """How a kind of CPU time is drawn: its area, and its sign in the key."""

    fill: str
    sign: str
    sign_color: str
    pattern: Json | None = None


KINDS: Final = {
    "user": CpuKind(LIGHT.kinds[0], "■", LIGHT.kinds[0]),
    "system": CpuKind(LIGHT.kinds[1], "■", LIGHT.kinds[1]),
    "iowait": CpuKind(LIGHT.kinds[2], "▨", LIGHT.kinds[1], HATCHED),
    "steal": CpuKind(LIGHT.kinds[3], "■", LIGHT.kinds[3]),
}


def axes(n: int) -> tuple[str, str]:
    """Return the axes of the n-th plot in plotly's names: x and y, x2 and y2."""
    if n == 1:
        return ("x", "y")
    return (f"x{n}", f"y{n}")


def plotly_text(name: str) -> str:
    """Return a name for plotly, which interprets some tags."""
    return escape(name, quote=False)


def lines(panel: Panel, seconds: Telemetry, n: int) -> list[go.Scatter]:
    """Return the traces of a panel. An arm with one or two used trials has a line for each instead
    of a median.
    """
    group = seconds.group
    x, y = axes(n)
    shared = {"xaxis": x, "yaxis": y, "mode": "lines"}
    with_text = shared | {"hovertemplate": f"%{{y:,.{panel.digits}f}}{GROUP}{panel.unit}"}
    without_text = shared | {"hoverinfo": "skip"}
    traces = []
    # An arm with enough trials: a band, and pale lines that can be shown.
    for index, arm in enumerate(group.arms):
        rows = [(row, trial) for row, trial in enumerate(seconds.trials) if trial.fs_setup == arm]
        used = [row for row, trial in rows if trial.id in group.counted_ids]
        few = 0 < len(used) < LEAST_TRIALS
        mark = group.marks[arm]
        meta = {"key": panel.key, "arm": index}
        if not few:
            traces.append(
                go.Scatter(
                    meta=meta | {"of": "band", "trials": False},
                    line={"width": 0},
                    fill="toself",
                    fillcolor=mark.band,
                    **without_text,
                )
            )
            traces.append(
                go.Scatter(
                    meta=meta
                    | {
                        "of": "rows",
                        "rows": used,
                        "trials": True,
                    },
                    line={
                        "color": mark.pale,
                        "width": 1.1,
                        "dash": mark.dash,
                    },
                    **without_text,
                )
            )

        # Single trials: all if there are few, else those that do not count.
        for row, trial in rows:
            counts = trial.id in group.counted_ids
            if counts and not few:
                continue
            of_row: Json = meta | {
                "of": "rows",
                "rows": [row],
            }
            name = f"{plotly_text(mark.name)} block {trial.block}"
            if not counts:
                of_row["trials"] = True
                name += ", excluded"
            line = {
                "color": mark.light,
                "width": 1.6 if few else 1.1,
                "dash": mark.dash if counts else "2px,2px",
            }
            traces.append(
                go.Scatter(
                    meta=of_row,
                    name=name,
                    line=line,
                    **with_text,
                )
            )

        if not few:
            line = {
                "color": mark.light,
                "width": 2,
                "dash": mark.dash,
            }
            of_median = meta | {"of": "median"}
            traces.append(
                go.Scatter(
                    meta=of_median,
                    name=plotly_text(mark.name),
                    line=line,
                    **with_text,
                )
            )
    return traces


def areas(panels: Sequence[Panel], arm: int) -> list[go.Scatter]:
    """Return the stacked areas of an arm, in greys. They have steps, because a value is the mean of
    its seconds.
    """
    x, y = axes(arm + 1)
    keys = [panel.key for panel in panels]
    traces = []
    # An area lies on the sum of those before it; its value is shown where it ends.
    for n, panel in enumerate(panels, 1):
        kind = KINDS[panel.key]
        meta = {"keys": keys[:n], "arm": arm}
        shared = {
            "xaxis": x,
            "yaxis": y,
            "mode": "lines",
            "name": panel.title,
        }
        traces.append(
            go.Scatter(
                meta={"of": "area", **meta},
                hoverinfo="skip",
                line={"width": 0},
                fill="toself",
                fillcolor=kind.fill,
                fillpattern=kind.pattern,
                **shared,
            )
        )
        traces.append(
            go.Scatter(
                meta={"of": "sum", **meta},
                hovertemplate=f"%{{customdata:.1f}}{GROUP}%",
                line={"width": 0, "color": kind.fill},
                **shared,
            )
        )
    return traces


def strip(seconds: Telemetry, trials: Sequence[Json]) -> list[go.Scatter]:
    """Return the ticks of the strip: stalls of the used trials of each arm, and checkpoints."""
    group = seconds.group
    stalls = []
    checkpoints = []
    for index, arm in enumerate(group.arms):
        used = [trial for trial in trials if trial["arm"] == index and trial["used"]]
        if any(trial["stalls"] for trial in used):
            meta = {"of": "stalls", "arm": index, "row": plotly_text(arm)}
            color = group.marks[arm].light
            stalls.append(_ticks(meta, arm, "stalled, block %{text}", color))
        if any(trial["checkpoints"] for trial in used):
            meta = {
                "of": "checkpoints",
                "arm": index,
                "row": CHECKPOINT,
            }
            hover = f"begins, {plotly_text(arm)} block %{{text}}"
            checkpoints.append(_ticks(meta, CHECKPOINT, hover, LIGHT.muted))
    return stalls + checkpoints


def _ticks(
    meta: Json,
    name: str,
    hover: str,
    color: str,
) -> go.Scatter:
    marker = {
        "symbol": "line-ns",
        "size": 9,
        "line": {
            "width": 1.8,
            "color": color,
        },
    }
    return go.Scatter(
        meta=meta,
        xaxis="x",
        yaxis="y2",
        mode="markers",
        name=plotly_text(name),
        hovertemplate=hover,
        marker=marker,
    )
