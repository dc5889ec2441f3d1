"""The timelines as plotly figures without their values: axes, shapes and annotations around the
traces (`traces.py`), in the light colours.

The `name` of a shape or annotation has the words that the page's script looks for: "arm 2" belongs
to this arm, "absolute" and "relative" to that view, "empty" to a plot without data, "cut" to one
with values above its top, of which it adds the highest, "marked" to the marked second, "end" to
the end of a line; to "means" it adds their length.

The script decides only what depends on zoom, width and the selected setups and view: values (and
of how many seconds a point is the mean), the ranges of the axes with the ticks of logarithmic
ones, the heights of the names at the ends of the lines, and the number of columns of small
multiples. For the dark look it exchanges colours (`theme.dark_colors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from dbbench.model import Json
from dbbench.report.page.charts.telemetry import Telemetry
from dbbench.report.page.charts.timelines import TimelineChart, Timelines
from dbbench.report.page.charts.traces import KINDS, areas, axes, lines, plotly_text, strip
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import LIGHT
from dbbench.units import GROUP

POINTS: Final = 120  # most points of a line in a small multiple; more are not legible
# small multiples have a second and a third column from these widths, px
COLUMNS: Final = (520, 860)
GAP: Final = 52  # px between two rows of small multiples: ticks, and the title of the next plot
ROW: Final = 13  # height of a row of the strip, px
MOST_WARNINGS: Final = 8  # labels of warnings above a chart
SMALL: Final = {"size": 11}
# of traces and axes in that view
RELATIVE: Final = {
    "hovertemplate": f"%{{y:,.0f}}{GROUP}%",
    "ticksuffix": " %",
}


def figures(seconds: Telemetry, timelines: Timelines) -> list[Json]:
    """Return the charts of a group for the script: id, title, and the figure as JSON without the
    template that all share. A headline has a second layout, `narrow`, for phones.
    """
    return [
        {"id": chart.ident, "title": chart.title, **_figure(chart, seconds, timelines)}
        for chart in timelines.charts
        if chart.panels
    ]


def _figure(
    chart: TimelineChart,
    seconds: Telemetry,
    timelines: Timelines,
) -> Json:
    traces: list[go.Scatter] = []
    if chart.kind == "stack":
        for arm in range(len(seconds.group.arms)):
            traces += areas(chart.panels, arm)
        return _plain(traces, _stack(chart, seconds))

    for n, panel in enumerate(chart.panels, 1):
        traces += lines(panel, seconds, n)
    if chart.kind == "grid":
        return _plain(traces, _grid(chart, seconds))

    # A headline has its strip, and a second layout for phones.
    ticks = strip(seconds, timelines.data["trials"])
    wide = _headline(chart, seconds, timelines.warnings, ticks, narrow=False)
    narrow = _headline(chart, seconds, timelines.warnings, ticks, narrow=True)
    return _plain([*traces, *ticks], wide) | {"narrow": _plain([], narrow)["layout"]}


def _plain(traces: Sequence[go.Scatter], layout: go.Layout) -> Json:
    """Return what `go.Figure(traces, layout).to_plotly_json()` returns; its copies would take more
    than half of the time that the page takes.
    """
    return {
        "data": [trace.to_plotly_json() for trace in traces],
        "layout": layout.to_plotly_json(),
    }


def picture() -> Json:
    """Return the layout that is added to a chart when it is saved as a picture."""
    title = {
        "font": {
            "size": 13,
            "color": LIGHT.ink,
        },
        "x": 0.01,
        "xanchor": "left",
    }
    plain: Json = go.Layout(title=title, paper_bgcolor=LIGHT.ground).to_plotly_json()
    return plain


def _headline(
    chart: TimelineChart,
    seconds: Telemetry,
    warnings: Sequence[tuple[str, int, int]],
    strip: Sequence[go.Scatter],
    narrow: bool,
) -> go.Layout:
    group = seconds.group

    # The strip is above the plot; `cut` is where the plot ends, as a share of the height.
    rows = len({trace.meta["row"] for trace in strip})
    plot = 280 if chart.ident == "tps" else 220
    height = ROW * rows + 14 if rows else 0
    cut = plot / (plot + height)
    top = 38 if warnings else 22
    longest = max(map(len, group.arms))
    left = max(56.0, 12 + 6.4 * min(longest, 20)) if rows and not narrow else 56
    right = 8 if narrow else 14 + 7.6 * min(longest, 24)

    # What is written above the plot: where the window begins, and warnings.
    above: Json = {
        "xref": "x",
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
    }
    window = above | {
        "x": seconds.warmup - 0.5,
        "xanchor": "left",
        "text": "window",
        "font": {"size": 11.5, "color": LIGHT.muted},
    }
    labels = [window]
    if seconds.warmup:
        labels.append(
            window
            | {
                "xanchor": "right",
                "xshift": -4,
                "text": "warm-up",
            }
        )
    for warning, second, arm in warnings[:MOST_WARNINGS]:
        labels.append(
            {
                **above,
                "name": f"arm {arm}",
                "x": second,
                "xanchor": "center",
                "yshift": 16,
                "text": f"▾ {plotly_text(warning)}",
                "font": SMALL | {"color": LIGHT.warn},
            }
        )

    # What is written in the plot and beside it.
    labels += [_empty(1), _cut(1)]
    if not narrow:
        labels += [_end_name(group, index) for index in range(len(group.arms))]

    layout = go.Layout(
        height=plot + height + top + 30,
        margin={"l": left, "r": right, "t": top, "b": 30},
        xaxis={
            "anchor": "y",
            "nticks": 5 if narrow else 9,
            "unifiedhovertitle": {"text": "second %{x}"},
        },
        yaxis={"domain": [0, cut], "anchor": "x"},
        shapes=_shapes(1, seconds),
        annotations=labels,
        meta={},
    )

    # The strip, a row for each arm.
    if rows:
        layout.yaxis2 = {
            "type": "category",
            "domain": [cut + (1 - cut) * 0.12, 1],
            "range": [rows - 0.4, -0.6],
            "dtick": 1,
            "tickfont": SMALL,
            "showline": False,
            "ticks": "",
            "anchor": "x",
        }
    return layout


def _end_name(group: Group, index: int) -> Json:
    """Return the name of an arm at the end of its line."""
    arm = group.arms[index]
    return {
        "name": f"end arm {index}",
        "xref": "x domain",
        "yref": "y domain",
        "x": 1,
        "y": 0,
        "xanchor": "left",
        "xshift": 7,
        "yanchor": "middle",
        "text": plotly_text(arm),
        "font": {"size": 12.5, "color": group.marks[arm].light},
    }


def _grid(chart: TimelineChart, seconds: Telemetry) -> go.Layout:
    layout = _cells(len(chart.panels), 178, 26, seconds)
    titles = []
    for n, panel in enumerate(chart.panels, 1):
        note = f", {panel.note}" if panel.note else ""
        title = panel.title or chart.title
        unit = panel.unit if panel.title else ""
        relative = f"% of {seconds.group.baseline}"
        titles.append(_title(n, "absolute means", title, unit + note))
        titles.append(_title(n, "relative means", title, relative + note))
        titles += [_empty(n), _cut(n)]
    layout.annotations = titles
    return layout


def _stack(chart: TimelineChart, seconds: Telemetry) -> go.Layout:
    arms = seconds.group.arms
    layout = _cells(len(arms), 150, 46, seconds, by_arm=True)
    for n in range(1, len(arms) + 1):
        layout[f"yaxis{n}"].update(
            range=[0, 100],
            tickvals=[0, 25, 50, 75, 100],
            ticksuffix=" %",
        )
    signs = []
    # The legend names the areas from below.
    for panel in chart.panels:
        kind = KINDS[panel.key]
        signs.append(f'<span style="color:{kind.sign_color}">{kind.sign}</span> {panel.title}')
    annotations: list[Json] = [
        {
            "name": "means",
            "xref": "paper",
            "yref": "paper",
            "x": 1,
            "y": 1,
            "xanchor": "right",
            "yanchor": "bottom",
            "yshift": 22,
            "text": "   ".join(signs),
            "font": {"size": 12.5, "color": LIGHT.ink},
        }
    ]
    # Each arm has a plot of its own with its name above it.
    for index, arm in enumerate(arms):
        annotations.append(_title(index + 1, f"arm {index}", arm, ""))
        annotations.append(_empty(index + 1, f" arm {index}"))
    layout.annotations = annotations
    return layout


def _cells(
    plots: int,
    height: int,
    top: int,
    seconds: Telemetry,
    by_arm: bool = False,
) -> go.Layout:
    # The script sets the domains, because they depend on the width.
    shapes = []
    for n in range(1, plots + 1):
        shapes += _shapes(n, seconds, f"arm {n - 1}" if by_arm else "")
    layout = go.Layout(
        margin={"l": 50, "r": 14, "t": top, "b": 30},
        grid={"xgap": 0.16, "ygap": GAP / (height + GAP)},
        shapes=shapes,
        meta={
            "columns": COLUMNS,
            "height": height,
            "gap": GAP,
            "points": POINTS,
        },
    )
    for n in range(1, plots + 1):
        x, y = axes(n)
        layout[f"xaxis{n}"] = {
            "anchor": y,
            "nticks": 5,
            "unifiedhovertitle": {"text": "around second %{x:.0f}"},
        }
        layout[f"yaxis{n}"] = {"anchor": x, "nticks": 5}
    return layout


def _title(
    n: int,
    name: str,
    title: str,
    scale: str,
) -> Json:
    x, y = axes(n)
    return {
        "name": name,
        "xref": f"{x} domain",
        "yref": f"{y} domain",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 4,
        "text": f"<b>{plotly_text(title)}</b> {plotly_text(scale)}",
        "font": {"size": 12.5, "color": LIGHT.ink},
    }


def _empty(n: int, arm: str = "") -> Json:
    x, y = axes(n)
    return {
        "name": f"empty{arm}",
        "xref": f"{x} domain",
        "yref": f"{y} domain",
        "x": 0.5,
        "y": 0.5,
        "text": "no data",
    }


def _cut(n: int) -> Json:
    x, y = axes(n)
    return {
        "name": "cut",
        "xref": f"{x} domain",
        "yref": f"{y} domain",
        "x": 1,
        "y": 1,
        "xanchor": "right",
        "yanchor": "top",
        "text": "cut; highest",
        "font": SMALL | {"color": LIGHT.warn},
    }


def _shapes(n: int, seconds: Telemetry, arm: str = "") -> list[Json]:
    x, y = axes(n)
    upright = {"xref": x, "yref": f"{y} domain", "y0": 0, "y1": 1}
    shapes = []
    # The warm-up is shaded; a line marks the second that a reader follows.
    if seconds.warmup:
        shapes.append(
            {
                **upright,
                "name": arm,
                "type": "rect",
                "x0": -0.5,
                "x1": seconds.warmup - 0.5,
                "fillcolor": LIGHT.shade,
                "line": {"width": 0},
                "layer": "below",
            }
        )
    shapes.append(
        {
            **upright,
            "name": f"marked {arm}",
            "type": "line",
            "x0": 0,
            "x1": 0,
            "line": {"color": LIGHT.warn, "width": 1.6},
            "layer": "above",
        }
    )
    return shapes
