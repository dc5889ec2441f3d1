"""The page on narrow screens: nothing goes sideways, no word breaks, and long tables fold."""

from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from synthetic import TPCB, Shape

from dbbench.results import LoadedRun
from tests.browser.chromium import DARK, LIGHT, STILL, command, errors, screen
from tests.browser.pages import scroll_through, written
from tests.browser.test_print_in_chromium import BROKEN

pytestmark = pytest.mark.needs("chromium", "chromedriver")


WIDER = """return [...document.querySelectorAll('body *')].filter(e => !e.closest('.skip, .facts') &&
  e.getBoundingClientRect().width && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML)"""


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_on_a_phone_nothing_goes_sideways(
    browser: WebDriver,
    page: str,
    look: dict[str, str],
) -> None:
    """At 390 px no element is wider than the screen (tables of facts scroll in their box), each
    chart is drawn, and the narrow plot of the trials is seen.
    """
    screen(browser, 390, 844)
    command(browser, "Emulation.setEmulatedMedia", media="", features=[look, STILL])
    browser.get(page)
    browser.execute_script(
        "for (const fold of document.querySelectorAll('details')) fold.open = true"
    )
    scroll_through(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    assert browser.execute_script(WIDER) == []
    assert [
        e.is_displayed() for e in browser.find_elements(By.CSS_SELECTOR, "#trials .dots svg")
    ] == [False, True] * 3
    assert errors(browser) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_trade_offs_and_fast_scans_fit_the_screen(
    browser: WebDriver,
    demo: LoadedRun,
    tmp_path: Path,
    width: int,
) -> None:
    """Three workloads next to each other, and bars of scans of 10 GB/s."""
    fast = [
        replace(trial, summary={**trial.summary, "mb_per_s": rate and rate * 20})
        for trial in demo.trials
        for rate in (trial.summary.get("mb_per_s"),)
    ]
    screen(browser, width, 844)
    browser.get(written(tmp_path, replace(demo, trials=tuple(fast))))
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    sideways = (
        "const box = document.querySelector('#t-choose').parentElement; return box.scrollWidth - "
        "box.clientWidth"
    )
    assert browser.execute_script(sideways) <= 0


def test_large_numbers_and_long_names_fit_a_phone(browser: WebDriver, tmp_path: Path) -> None:
    """Figures of ten digits, and a setup whose name is as long as a line."""
    name = "btrfs-raid10-zstd-nodatacow-space-cache-v2-noatime"
    run = synthetic.loaded(tmp_path, Shape(arms=("ext4", "xfs", name), work=TPCB))
    large = [
        replace(trial, summary={key: value and value * 1e7 for key, value in trial.summary.items()})
        for trial in run.trials
    ]
    screen(browser, 390, 844)
    browser.get(written(tmp_path, replace(run, trials=tuple(large), lab=synthetic.lab())))
    assert browser.execute_script(WIDER) == []


CUT = """return [...document.querySelectorAll('svg text')].filter(text => {
  const box = text.getBoundingClientRect(), frame = text.closest('svg').getBoundingClientRect();
  return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1);
}).map(text => `${text.closest("svg").getAttribute("class")}: ${text.textContent}`).join(" | ")"""


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_titles_of_charts_are_not_cut(browser: WebDriver, tmp_path: Path, width: int) -> None:
    """Of variants with long names, and of a baseline with one."""
    variant = "limit=model-iops3200-read1ms-write1ms-flush20ms-cached+clients=64"
    name = "btrfs-raid10-zstd-nodatacow-space-cache-v2"
    run = synthetic.loaded(tmp_path, Shape(arms=(name, "ext4"), work=TPCB))
    cells = tuple(replace(cell, variant=variant) for cell in run.run.cells)
    run = replace(run, run=replace(run.run, cells=cells))
    run = synthetic.with_trials(run, lambda _: {"variant": variant})
    screen(browser, width, 844)
    browser.get(written(tmp_path, run))
    browser.execute_script(
        "for (const fold of document.querySelectorAll('details')) fold.open = true"
    )
    assert browser.execute_script(CUT) == ""


LABELS = """return [...document.querySelectorAll('#trials .dots svg.narrow text.arm')]
  .map(text => text.lastChild.textContent)"""


def test_long_names_of_setups_differ_in_the_dot_plot(browser: WebDriver, tmp_path: Path) -> None:
    """What is left of two names that differ only at the end."""
    name = "btrfs-raid10-zstd-nodatacow-{}"
    arms = ("ext4", name.format("noatime"), name.format("discard"))
    screen(browser, 390, 844)
    browser.get(written(tmp_path, synthetic.loaded(tmp_path, Shape(arms=arms, work=TPCB))))
    labels = browser.execute_script(LABELS)
    assert sorted(labels) == ["btrfs-rai…ow-discard", "btrfs-rai…ow-noatime"]


def test_a_phone_shows_three_columns_and_the_rest_on_tap(browser: WebDriver, page: str) -> None:
    """A table stays a table; no more than twelve screens, because sections are closed until they
    are tapped.
    """
    screen(browser, 390, 844)
    browser.get(page)
    assert browser.execute_script("return document.documentElement.scrollHeight") <= 12 * 844
    browser.execute_script(
        "for (const fold of document.querySelectorAll('#results details')) fold.open = true"
    )
    assert browser.execute_script(BROKEN) == []
    seen = (
        "return [...document.querySelectorAll('#t-c0 tbody tr:first-child > *')].filter(c => "
        "c.offsetWidth).length"
    )
    assert browser.execute_script(seen) == 3
    button = browser.find_element(By.CSS_SELECTOR, ".scroll:has(#t-c0) + .wider")
    button.click()
    assert browser.execute_script(seen) > 10 and button.text == "Fewer columns"
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    trials = browser.find_element(By.CSS_SELECTOR, "#trials .dots svg.narrow")
    assert not trials.is_displayed()
    browser.find_element(By.CSS_SELECTOR, "#trials summary").click()
    assert trials.is_displayed()


INSIDE = r"""
const broken = [], walk = document.createTreeWalker(document.querySelector('.page'), NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode, parent = text.parentElement;
  if (!parent.getClientRects().length || parent.closest('svg, pre, code')) continue;
  for (const word of text.data.matchAll(/[^\s\-·\/_=,.:]{3,}/g)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const tops = new Set([...range.getClientRects()].filter((box) => box.width).map((box) => Math.round(box.top)));
    if (tops.size > 1) broken.push(text.data);
  }
}
return broken;
"""


def test_no_word_breaks_inside_on_a_phone(browser: WebDriver, page: str) -> None:
    """With every section open, with three columns and with all."""
    screen(browser, 390, 844)
    browser.get(page)
    browser.execute_script(
        "for (const fold of document.querySelectorAll('details')) fold.open = true"
    )
    assert browser.execute_script(INSIDE) == []
    browser.execute_script(
        "for (const button of document.querySelectorAll('.wider')) button.click()"
    )
    assert browser.execute_script(INSIDE) == []
