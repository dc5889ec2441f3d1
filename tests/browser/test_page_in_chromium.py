"""The page in a real browser, opened from disk: its tables, its buttons and its theme."""

import csv
import io
from importlib.resources import files
from pathlib import Path

import pytest
import synthetic
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from synthetic import TPCB, Shape

from dbbench.compare import rows
from dbbench.report.page.html import render
from dbbench.results import LoadedRun
from dbbench.units import number
from tests.browser.chromium import DARK, LIGHT, STILL, command, errors, screen, until
from tests.browser.pages import HOSTILE, scroll_through, written

pytestmark = pytest.mark.needs("chromium", "chromedriver")


def test_the_table_on_the_screen_has_the_figures_of_compare(
    browser: WebDriver,
    demo: LoadedRun,
    page: str,
) -> None:
    """As a person reads them: throughput of each arm, in each engine."""
    browser.get(page)
    for group, engine in (("c0", "postgres"), ("c1", "mariadb")):
        lines = browser.find_elements(By.CSS_SELECTOR, f"#t-{group} tbody tr")
        shown = {
            line.find_element(By.CSS_SELECTOR, ".name").text: line.find_element(
                By.CSS_SELECTOR, ".main"
            ).text
            for line in lines
        }
        assert {
            r.fs_setup: number(r.value) for r in rows(demo.trials, "ext4") if r.engine == engine
        } == shown


def test_copied_csv_has_raw_numbers(
    browser: WebDriver,
    demo: LoadedRun,
    page: str,
) -> None:
    """One value a column, as compare gives it; the copied answer has the tables and the
    commands.
    """
    browser.get(page)
    browser.execute_script(
        "navigator.clipboard.writeText = (text) => { window.copied = text; return "
        "Promise.resolve(); }"
    )
    browser.find_element(By.CSS_SELECTOR, '[data-copy=csv][data-table="t-c1"]').click()
    table = list(csv.DictReader(io.StringIO(browser.execute_script("return window.copied"))))
    primary = {cell.workload.name: cell.workload.primary for cell in demo.run.cells}
    wanted = {r.fs_setup: r for r in rows(demo.trials, "ext4", primary) if r.engine == "mariadb"}
    assert {line["fs_setup"] for line in table} == set(wanted)
    for line in table:
        assert float(line["tps"]) == pytest.approx(wanted[line["fs_setup"]].value)
        assert line["lo"] == "" or float(line["lo"]) == pytest.approx(wanted[line["fs_setup"]].lo)
    browser.find_element(By.ID, "copy-answer").click()
    answer = browser.execute_script("return window.copied")
    assert browser.find_element(By.CSS_SELECTOR, ".sentence").text.split(".")[0] in answer
    assert (
        "| xfs " in answer
        and "/mkfs.xfs " in answer
        and "mount -o " in answer
        and "shared_buffers = " in answer
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_a_figure_leads_to_its_formula_and_its_files(
    browser: WebDriver,
    demo: LoadedRun,
    width: int,
) -> None:
    """By a click, without hovering: the formula and the key open, and from there the files of the
    trials, which exist. Each column of each table is explained.
    """
    path = demo.path / "report.html"
    path.write_text(render([demo]), encoding="utf-8")
    screen(browser, width, 844)
    browser.get(path.as_uri())
    explained = browser.find_element(By.ID, "m-tps")
    assert not explained.is_displayed()
    browser.find_element(By.CSS_SELECTOR, "#t-c0 [data-metric=tps] a").click()
    until(browser, "return arguments[0].getClientRects().length", explained)
    assert "transactions ÷ seconds" in explained.text and "summary.tps" in explained.text
    unexplained = (
        "return [...document.querySelectorAll('.results [data-metric] a')].map(a => "
        "a.getAttribute('href'))"
        ".filter(to => !document.querySelector(to))"
    )
    assert browser.execute_script(unexplained) == []
    hints = "return [...new Set([...document.querySelectorAll('[title]')].map(e => e.className))]"
    # the badge is the durability class, which has its entry
    assert browser.execute_script(hints) in ([], ["badge"])
    browser.find_element(By.CSS_SELECTOR, "details:has(#m-tps) a[href='#files']").click()
    file = browser.find_element(By.CSS_SELECTOR, "#files ~ dl a")
    until(browser, "return arguments[0].getClientRects().length", file)
    links = browser.find_elements(By.CSS_SELECTOR, "#files ~ dl a")
    assert len(links) == len(demo.trials)
    assert all((demo.path / str(link.get_dom_attribute("href"))).is_file() for link in links)


@pytest.mark.parametrize(
    ("look", "width"),
    [(LIGHT, 1280), (DARK, 1280), (LIGHT, 390)],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_nothing(
    browser: WebDriver,
    page: str,
    look: dict[str, str],
    width: int,
) -> None:
    """No violation of axe-core's rules, with every chart drawn and every panel open."""
    command(browser, "Emulation.setEmulatedMedia", media="", features=[look, STILL])
    screen(browser, width)
    browser.get(page)
    browser.execute_script(
        "for (const fold of document.querySelectorAll('details')) fold.open = true"
    )
    scroll_through(browser)
    browser.execute_script((files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    browser.set_script_timeout(110)  # 30 s by default; axe takes 5 s where nothing else runs
    found = browser.execute_async_script(
        "axe.run().then(arguments[0], (e) => arguments[0]({violations: [{id: `${e}`}]}))"
    )
    assert [
        (v["id"], [n["html"][:200] for n in v.get("nodes", [])][:3]) for v in found["violations"]
    ] == []


def test_without_a_script_the_answer_is_there(browser: WebDriver, page: str) -> None:
    """Verdict, tables and the plot of every trial are seen, controls that would do nothing are
    not.
    """
    command(browser, "Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.get(page)
        document = command(browser, "DOM.getDocument")["root"]["nodeId"]

        def box(selector: str) -> bool:
            node = command(browser, "DOM.querySelector", nodeId=document, selector=selector)[
                "nodeId"
            ]
            try:
                return bool(command(browser, "DOM.getBoxModel", nodeId=node)["model"]["height"] > 0)
            except Exception:  # the protocol has no other word for "is not displayed"
                return False

        seen = (
            ".sentence",
            "#t-c0 tbody tr",
            ".dots svg.wide",
            "#timelines .nojs",
            "#t-space",
            ".command",
        )
        assert [selector for selector in seen if not box(selector)] == []
        hidden = ("#theme", ".controls", ".buttons", ".chart")
        assert [selector for selector in hidden if box(selector)] == []
    finally:
        command(browser, "Emulation.setScriptExecutionDisabled", value=False)


SMALL = """
return [...document.querySelectorAll("svg text")].filter((text) => text.getClientRects().length)
  .filter((text) => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a < 11).length;
"""


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_text_of_pictures_is_never_smaller_than_11_px(
    browser: WebDriver, page: str, width: int
) -> None:
    """A picture that is scaled to a narrow screen takes its text with it."""
    screen(browser, width)
    browser.get(page)
    assert browser.execute_script(SMALL) == 0


def test_theme_button_goes_round(browser: WebDriver, page: str) -> None:
    """Automatic, dark, light, automatic; the ground changes with it, and the charts' lines do."""
    browser.get(page)
    scroll_through(browser)
    ground = "return getComputedStyle(document.body).backgroundColor"
    line = "return document.getElementById('g-c0-tps').data.find(t => t.name === 'ext4').line.color"
    button = browser.find_element(By.ID, "theme")
    light = browser.execute_script(line)
    for text, color, holds in (
        ("Theme: dark", "rgb(17, 21, 25)", "!=="),
        ("Theme: light", "rgb(252, 252, 250)", "==="),
        ("Theme: auto", "rgb(252, 252, 250)", "==="),
    ):
        button.click()
        assert button.text == text
        until(browser, f"{ground} === arguments[0]", color)
        until(browser, f"{line} {holds} arguments[0]", light)


def test_sorting_keeps_durability_classes_apart(browser: WebDriver, tmp_path: Path) -> None:
    """Whatever column the table is sorted by, the arm of another class stays below its line."""
    run = synthetic.loaded(tmp_path, Shape(arms=("ext4", "btrfs", "ext4-nobarrier"), work=TPCB))
    browser.get(written(tmp_path, run))

    def names() -> list[str]:
        return [e.text for e in browser.find_elements(By.CSS_SELECTOR, "#t-c0 tbody .name")]

    assert names() == ["ext4", "btrfs", "ext4-nobarrier"]
    heading = browser.find_elements(By.CSS_SELECTOR, "#t-c0 th[data-sort] button")[0]
    heading.click()
    heading.click()
    assert names() == ["btrfs", "ext4", "ext4-nobarrier"]


def test_hostile_names_run_nothing(browser: WebDriver, tmp_path: Path) -> None:
    """Markup in every name and text of the results is shown as text, in tables and in charts."""
    shape = Shape(
        arms=("ext4", "<b>xfs"),
        work=TPCB,
        hostile=HOSTILE,
        failed=("ext4.postgres.pgbench-tpcb-b1-a1",),
    )
    results = tmp_path / "results"
    run = synthetic.loaded(results, shape)
    browser.get(written(tmp_path, run))
    scroll_through(browser)
    assert browser.title == "dbbench demo"
    assert "<b>xfs" in [e.text for e in browser.find_elements(By.CSS_SELECTOR, "#t-c0 .name")]
    ends = browser.execute_script(
        "return document.getElementById('g-c0-tps').querySelector('.infolayer').textContent"
    )
    assert "<b>xfs" in ends
    assert errors(browser) == []
