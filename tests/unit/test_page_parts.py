"""Parts of the page that can be tested alone: numbers as text, packed series, the geometry of the
plots.
"""

import base64

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbbench import units
from dbbench.report.page.charts.timelines import NO_DATA, Packed, coarse, pack
from dbbench.report.page.theme import DARK, LIGHT, Look, Mark, template


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1925.94, "1 926"),
        (99.96, "100"),
        (63.44, "63.4"),
        (7.213, "7.21"),
        (0.1429, "0.143"),
        (0.0, "0"),
        (None, "–"),
        (float("nan"), "–"),
        (1234567.0, "1 234 567"),
        (-3.0, "−3"),
        (9.999, "10.0"),
    ],
)
def test_numbers_have_about_three_digits(value: float | None, text: str) -> None:
    """Grouped by a narrow no-break space; what was not measured is a dash, never a zero."""
    assert text.replace(" ", "\u202f") == units.number(value)


def test_changes_have_a_sign_and_a_real_minus() -> None:
    """Ratios are shown as changes; nothing rounds to −0.0."""
    assert [units.change(ratio) for ratio in (0.786, 0.99999, None)] == [
        "−21.4\u202f%",
        "0.0\u202f%",
        "–",
    ]
    assert units.interval(0.771, 1.005) == "−22.9..+0.5\u202f%"


def gaps(values: list[float | None]) -> NDArray[np.float64]:
    """As the page holds a column: None is NaN."""
    return np.array(values, np.float64)


def unpacked(content: Packed, length: int) -> list[list[float | None]]:
    """The rows as the page's script reads them."""
    low, step, text = content
    cells = np.frombuffer(base64.b64decode(text), "<u2")
    flat = [None if cell == NO_DATA else low + int(cell) * step for cell in cells]
    return [flat[i : i + length] for i in range(0, len(flat), length)]


Cells = st.lists(st.one_of(st.none(), st.floats(0, 1e7), st.just(0.0)), min_size=1, max_size=40)


@settings(deadline=None)
@given(st.lists(Cells, min_size=1, max_size=4))
def test_packed_series_come_back(rows: list[list[float | None]]) -> None:
    """Gaps stay gaps, the error is at most half a step, and a zero comes back as exactly zero."""
    length = max(map(len, rows))
    low, step, text = pack([gaps(row) for row in rows], length)
    back = unpacked((low, step, text), length)
    assert len(rows) == len(back)
    for row, got in zip(rows, back, strict=True):
        assert [v is None for v in row] + [True] * (length - len(row)) == [v is None for v in got]
        for value, again in zip(row, got, strict=False):
            if value is not None and again is not None:
                assert abs(value - again) <= step * 0.5000001 + 1e-12
                assert again == 0.0 or value != 0.0 or low < 0


def test_gaps_stay_gaps() -> None:
    """In coarse means a gap counts neither as a zero nor as a second. What is infinite is no data
    either.
    """
    means = coarse(gaps([4.0, None, 8.0, None, None, None, 1.0]), 3)
    np.testing.assert_array_equal(means, [6.0, np.nan, 1.0])
    assert unpacked(pack([gaps([1.0, float("inf")])], 2), 2) == [[1.0, None]]
    assert unpacked(pack([gaps([1.0, None, 2.0])], 3), 3) == [
        [1.0, None, pytest.approx(2.0, rel=1e-4)]
    ]


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_hues_tell_twelve_arms_apart_and_can_be_read_as_text(look: Look) -> None:
    """Hue with dash tells them apart, even without shapes. Names at the lines' ends have the hue of
    their arm: WCAG's 4.5 : 1 on the page's ground. The look of the charts passes plotly's own
    schema, and is not empty.
    """
    marks = [Mark(index, f"fs{index}") for index in range(12)]
    hues = [mark.light if look is LIGHT else mark.dark for mark in marks]
    assert len(set(zip(hues, (mark.dash for mark in marks), strict=True))) == 12
    assert min(contrast(hue, look.ground) for hue in hues[:8]) >= 4.5
    assert go.layout.Template(template(look)).layout.font.color == look.muted


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio of two colours."""
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
