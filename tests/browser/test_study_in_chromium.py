"""The pages of a published study, and of the power-loss lab alone, in a real browser."""

from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from selenium.webdriver.remote.webdriver import WebDriver

from dbbench.report.page.html import render
from tests.browser.chromium import screen, until
from tests.unit.test_studies_page import COMPRESSION, of_study

pytestmark = pytest.mark.needs("chromium", "chromedriver")
KEYS = """return [...document.querySelectorAll("svg.swatch")].map(key => key.getBoundingClientRect())
               .filter(box => box.width).map(box => [box.width, box.height])"""


@pytest.mark.parametrize("width", [1280, 390])
def test_keys_of_the_arms_are_of_one_size(
    browser: WebDriver,
    tmp_path: Path,
    width: int,
) -> None:
    """Beside a figure and in a table: each is as large as the others."""
    path = tmp_path / "report.html"
    path.write_text(render([of_study(tmp_path / "run", *COMPRESSION)]), encoding="utf-8")
    screen(browser, width)
    browser.get(path.as_uri())
    until(browser, f"return (() => {{ {KEYS} }})().length > 12")
    sizes = browser.execute_script(KEYS)
    assert max(wide for wide, _high in sizes) <= 40 and max(high for _wide, high in sizes) <= 24


def test_a_phone_shows_the_lab_if_there_is_nothing_else(
    browser: WebDriver,
    tmp_path: Path,
) -> None:
    """Its section is open; those about the machine and the method wait for a tap."""
    run = synthetic.loaded(tmp_path / "run", synthetic.Shape(blocks=1))
    run = replace(run, run=replace(run.run, order=()), trials=(), lab=synthetic.lab())
    path = tmp_path / "report.html"
    path.write_text(render([run]), encoding="utf-8")
    screen(browser, 390)
    browser.get(path.as_uri())
    opened = "return [...document.querySelectorAll('main > section > .part[open]')].map(e => e.parentNode.id)"
    assert browser.execute_script(opened) == ["powercut"]
