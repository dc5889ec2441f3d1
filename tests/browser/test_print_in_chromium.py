"""The page on paper: the answer, on request everything, and no name that breaks."""

import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from tests.browser.chromium import LIGHT, STILL, command, errors, screen, until
from tests.browser.pages import printed_pages

pytestmark = pytest.mark.needs("chromium", "chromedriver")


# Names of setups that are not on one line.
BROKEN = """return [...document.querySelectorAll('td .name b, th .name b')].filter(b => b.getClientRects().length > 1)
  .map(b => b.textContent)"""


def on_paper(browser: WebDriver, *sections: str) -> list[str]:
    """Return which sections are seen on paper."""
    seen = "return arguments[0].filter(id => document.getElementById(id).getClientRects().length)"
    command(browser, "Emulation.setEmulatedMedia", media="print", features=[LIGHT, STILL])
    screen(browser, 703)  # A4 without its margins
    found: list[str] = browser.execute_script(seen, sections)
    return found


def test_print_has_the_answer_and_on_request_everything(browser: WebDriver, page: str) -> None:
    """At most 8 pages: answer, tables, charts and conditions. With "Print everything" also the
    trials, the environment, and each chart, even if it was never in view.
    """
    sections = ("verdict", "results", "trials", "timelines", "conditions", "environment")
    drawn = (
        "return [...document.querySelectorAll(arguments[0])].every(c => "
        "c.querySelector('.scatterlayer path'))"
    )
    browser.get(page)
    assert 2 <= printed_pages(browser) <= 8
    assert until(browser, drawn, ".chart.headline")
    assert on_paper(browser, *sections) == ["verdict", "results", "timelines", "conditions"]
    browser.execute_script("document.querySelector('[data-switch=everything]').click()")
    assert printed_pages(browser) > 8
    assert until(browser, drawn, ".chart")
    assert on_paper(browser, *sections) == list(sections)
    assert errors(browser) == []


def test_print_breaks_no_name_and_cuts_no_table(browser: WebDriver, page: str) -> None:
    """The name of each setup is on one line in each table, and no table is wider than the paper."""
    browser.get(page)
    assert on_paper(browser, "results") == ["results"]
    assert browser.execute_script(BROKEN) == []
    wide = (
        "return [...document.querySelectorAll('table')].map(t => t.getBoundingClientRect().right)"
    )
    assert max(browser.execute_script(wide)) <= 704


def test_print_repeats_the_names_of_columns(browser: WebDriver, page: str) -> None:
    """Chromium leaves buttons out of a head that it repeats on the next page, so on paper the names
    are text.
    """
    browser.get(page)
    command(browser, "Emulation.setEmulatedMedia", media="print", features=[LIGHT, STILL])
    style = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert browser.execute_script(style, ".results thead") == "table-header-group"
    assert browser.execute_script(style, ".results th[data-sort] button") == "contents"
