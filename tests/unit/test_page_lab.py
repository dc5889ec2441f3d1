"""The page's section on power loss: what was tested, the findings, and the conclusions that they
permit.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.report.page.html import render
from dbbench.results import LoadedRun
from tests.support.pages import Seen

SMALL = Shape(arms=("ext4", "xfs"), work=TPCB, blocks=1)


def with_lab(tmp_path: Path, **how: Any) -> LoadedRun:
    """A run whose folder holds a lab too."""
    return dataclasses.replace(synthetic.loaded(tmp_path, SMALL), lab=synthetic.lab(**how))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (
            {},
            (
                "0 of 223 cuts (< 1.3 % at 95 %)",
                "PostgreSQL 15.18, full_page_writes=off",
                "64 MiB",
                "/dev/loop9 is",
                "harmed (5 of 6 are needed)",
                "ext4-md1: layers (md)",
            ),
        ),
        (
            {"contradiction": "cut 1 (checkpoint, seed 1): lost: 3 of 512"},
            (
                "error E821, a bug in dbbench:",
                "class full: cut 1 (checkpoint, seed 1): lost: 3 of 512",
            ),
        ),
        ({"blind": True}, ("The test is inconclusive for PostgreSQL", "lab blind: no statement")),
    ],
)
def test_lab_has_its_section(
    how: dict[str, Any],
    told: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """Cuts, commits, controls, invalid cuts with their reason, what was not examined; never "safe".
    A contradicted class is shown as the fault of the program that it is; a blind lab confirms
    nothing.
    """
    text = Seen(render([with_lab(tmp_path, **how)])).text
    assert [word for word in told if word not in text] == []
    assert (
        "safe"
        not in text[
            text.index("Power was cut") : text.index("Environment", text.index("Power was cut"))
        ]
    )


def test_page_of_a_lab_alone_begins_with_it(tmp_path: Path) -> None:
    """It mentions no trials, and names the command that repeats the lab. A run without a lab has no
    section. Paths and parameters are taken out of it too.
    """
    loaded = with_lab(tmp_path)
    text = render([loaded], redact=("paths", "params"))
    assert "/dev/loop9" not in text and "full_page_writes=off" not in text
    assert "powercut" not in render([dataclasses.replace(loaded, lab=None)])
    alone = dataclasses.replace(loaded, run=dataclasses.replace(loaded.run, order=()), trials=())
    page = render([alone])
    assert (
        'href="#powercut"' in page and 'href="#verdict"' not in page and "dbbench powercut" in page
    )
    both = render([loaded])
    assert (
        'href="#verdict"' in both and "dbbench powercut" not in both and "<div hidden>" not in both
    )
    assert "setups ×" in both
    assert "setups ×" not in page
