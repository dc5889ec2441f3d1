"""What marks an arm (hue, dash, point shape), and the light and dark looks of the charts. A hue
means an fs setup and nothing else anywhere on the page; dash and shape say the same without
colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dbbench.model import Json

# (on white, on black): the colours of Okabe and Ito (2008), which differ for every kind of colour
# blindness. Colours that are too pale for text on white are darkened there (yellow becomes olive),
# those too dark on black are lightened.
HUES: Final = (
    ("#0072b2", "#56b4e9"),  # blue
    ("#a06500", "#e69f00"),  # orange
    ("#007a58", "#2fc79b"),  # bluish green
    ("#b84700", "#f5813a"),  # vermilion
    ("#a3497c", "#e09cc3"),  # reddish purple
    ("#2278a4", "#9ad4f7"),  # sky blue
    ("#7a6f00", "#f0e442"),  # yellow
    ("#4d5661", "#c3ccd5"),  # grey in place of black
)
BAND: Final = (0.15, 0.2)  # opacity of a band on white and on black
PALE: Final = 0.55  # opacity of the trials around a median
# Pixels on, off; 5 dashes and 8 hues have no common factor, so 40 arms differ.
DASHES: Final = ((), (7, 3), (2, 3), (9, 3, 2, 3), (13, 4))
SHAPES: Final = (
    ("circle", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z"),
    ("square", "M-3.6-3.6h7.2v7.2h-7.2Z"),
    ("diamond", "M0-5L5 0L0 5L-5 0Z"),
    ("triangle-up", "M0-4.8L4.8 3.6H-4.8Z"),
    ("triangle-down", "M0 4.8L4.8-3.6H-4.8Z"),
    ("cross", "M-4.6-1.6h3v-3h3.2v3h3v3.2h-3v3h-3.2v-3h-3Z"),
    ("hexagon", "M-2.5-4.3h5L5 0L2.5 4.3h-5L-5 0Z"),
)
FONT: Final = (
    'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Liberation Sans","DejaVu '
    'Sans",sans-serif'
)


class Look(NamedTuple):
    """Colours of a chart's furniture. `kinds`: user, system, iowait, steal: greys, so that none
    looks like an arm.
    """

    ink: str
    muted: str
    rule: str
    shade: str
    warn: str
    ground: str
    kinds: tuple[str, str, str, str]


LIGHT: Final = Look(
    "#161b21",
    "#57616c",
    "#e3e5e4",
    "rgba(96,106,116,.10)",
    "#8a5300",
    "#fcfcfa",
    ("#3c4753", "#8a95a1", "#c9d0d6", "#a32a12"),
)
DARK: Final = Look(
    "#eaedf0",
    "#a5afb9",
    "#2b333b",
    "rgba(165,180,195,.11)",
    "#f3c069",
    "#111519",
    ("#d5dce3", "#8f9aa6", "#48535d", "#ff7a5c"),
)


@dataclass(frozen=True)
class Mark:
    """How one arm is drawn in every chart."""

    index: int
    name: str

    @property
    def short(self) -> str:
        """Return the name in at most 20 letters; long names often differ only at the end."""
        if len(self.name) <= 20:
            return self.name
        return f"{self.name[:9]}…{self.name[-10:]}"

    @property
    def light(self) -> str:
        return HUES[self.index % len(HUES)][0]

    @property
    def dark(self) -> str:
        return HUES[self.index % len(HUES)][1]

    @property
    def band(self) -> str:
        return fade(self.light, BAND[0])

    @property
    def pale(self) -> str:
        return fade(self.light, PALE)

    @property
    def dasharray(self) -> str:
        """Return the dashes for SVG: "7 3"; "" is a solid line."""
        return " ".join(map(str, DASHES[self.index % len(DASHES)]))

    @property
    def dash(self) -> str:
        """Return the dashes for plotly: "7px,3px"."""
        return ",".join(f"{n}px" for n in DASHES[self.index % len(DASHES)]) or "solid"

    @property
    def path(self) -> str:
        return SHAPES[self.index % len(SHAPES)][1]


def fade(color: str, opacity: float) -> str:
    """Return a colour "#rrggbb" with this opacity."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def dark_colors(marks: Sequence[Mark]) -> dict[str, str]:
    """Return the dark colour for each light one, for furniture and marks."""
    colors = dict(zip((*LIGHT[:-1], *LIGHT.kinds), (*DARK[:-1], *DARK.kinds), strict=True))
    for mark in marks:
        colors |= {
            mark.light: mark.dark,
            mark.band: fade(mark.dark, BAND[1]),
            mark.pale: fade(mark.dark, PALE),
        }
    return colors


def template(look: Look) -> Json:
    """Return the look as a plotly template, checked by plotly's schema; a plain dict for JSON."""
    import plotly.graph_objects as go  # importing it takes 0.2 s, and only the page needs it

    # Both axes have the colours of the look; what is set here, no chart repeats.
    axis = {
        "zeroline": False,
        "linecolor": look.muted,
        "tickcolor": look.muted,
        "gridcolor": look.rule,
    }
    layout = go.Layout(
        font={"family": FONT, "size": 12.5, "color": look.muted},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        separators="." + "\u202f",
        showlegend=False,
        dragmode="zoom",
        hovermode="x unified",
        hoverlabel={
            "bgcolor": look.ground,
            "bordercolor": look.muted,
            "font": {"size": 12.5, "color": look.ink},
        },
        modebar={
            "bgcolor": "rgba(0,0,0,0)",
            "color": look.muted,
            "activecolor": look.ink,
        },
        xaxis=axis
        | {
            "showgrid": False,
            "ticks": "outside",
            "ticklen": 4,
            "ticksuffix": " s",
            "hoverformat": ",.0f",
        }
        | {
            "showspikes": True,
            "spikemode": "across",
            "spikethickness": 1,
            "spikedash": "solid",
            "spikecolor": look.muted,
        },
        yaxis=axis
        | {
            "fixedrange": True,
            "rangemode": "tozero",
            "nticks": 5,
            "tickformat": ",",
        },
        annotationdefaults={
            "showarrow": False,
            "font": {
                "size": 12,
                "color": look.muted,
            },
        },
        shapedefaults={"line": {"width": 0}, "layer": "below"},
    )
    # Plotly checks the names; the script needs only values.
    plain: Json = go.layout.Template(layout=layout).to_plotly_json()
    return plain
