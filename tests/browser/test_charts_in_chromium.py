"""The charts of the page in a real browser: they are drawn when they come into view, and can be
zoomed, filtered and saved.
"""

from pathlib import Path

import plotly.graph_objects as go
import pytest
import synthetic
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from synthetic import TPCB, Shape

from dbbench.results import LoadedRun
from tests.browser.chromium import errors, requests, until
from tests.browser.pages import printed_pages, scroll_through, written

pytestmark = pytest.mark.needs("chromium", "chromedriver")


def test_every_chart_is_drawn_when_it_comes_into_view_and_nothing_is_asked_for(
    browser: WebDriver, page: str
) -> None:
    """One request (the file), no word on the console, ink in each chart of each group, none before
    its time.
    """
    browser.get(page)
    assert browser.execute_script("return document.querySelectorAll('[data-drawn]').length") == 0
    groups = browser.find_elements(By.CSS_SELECTOR, "#which option")
    assert len(groups) == 3
    for group in groups:
        group.click()
        scroll_through(browser)
    ink = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map("
        "c => c.querySelectorAll('.scatterlayer path.js-line, .scatterlayer path.js-fill').length)"
    )
    assert len(ink) == 19 and min(ink) > 0
    assert errors(browser) == []
    assert requests(browser) == [page]


def test_zoom_of_one_chart_moves_all_and_the_address_brings_it_back(
    browser: WebDriver, page: str
) -> None:
    """The state is in the address: opened anew, the same seconds are seen; a double click shows all
    again.
    """
    browser.get(page)
    scroll_through(browser)
    browser.execute_script(
        "return Plotly.relayout('g-c0-tps', {'xaxis.range[0]': 4.5, 'xaxis.range[1]': 14.5})"
    )
    ranges = (
        "return [...document.querySelectorAll('.timelines.shown .chart')].flatMap(c => "
        "c._fullLayout._subplots.xaxis.map(x => c._fullLayout[x.replace('x', "
        "'xaxis')].range.join()))"
    )
    until(browser, f"return (() => {{ {ranges} }})().every(r => r === '4.5,14.5')")
    assert browser.current_url.endswith("#s=5-15")
    browser.get("about:blank")
    browser.get(page + "#s=5-15&theme=dark&full=1")
    scroll_through(browser)
    assert set(browser.execute_script(ranges)) == {"4.5,14.5"}
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    browser.execute_script("document.getElementById('g-c0-p95').emit('plotly_doubleclick')")
    until(browser, f"return (() => {{ {ranges} }})().every(r => r === '-0.5,24.5')")


FIGURES = """return [...document.querySelectorAll('.timelines.shown .chart')].map(c => [c.id,
  JSON.parse(JSON.stringify({data: c.data, layout: c.layout}))])"""


@pytest.mark.parametrize("switch", ["", "relative", "log", "trials", "full"])
def test_figures_are_what_plotly_knows_under_every_switch(
    browser: WebDriver,
    page: str,
    switch: str,
) -> None:
    """Each figure passes plotly's own schema, whatever is switched on; nothing is reported on the
    console.
    """
    browser.get(page + (f"#{switch}=1" if switch else ""))
    scroll_through(browser)
    figures = browser.execute_script(FIGURES)
    assert len(figures) == 7
    for ident, figure in figures:
        assert go.Figure(figure).data, ident
    assert errors(browser) == []


def test_a_gap_is_nowhere_drawn_as_a_zero_or_bridged(browser: WebDriver, tmp_path: Path) -> None:
    """One trial without sar from second 10 to 15: no area and no line has a point there; zeros are
    not invented.
    """
    run = synthetic.loaded(tmp_path, Shape(arms=("ext4",), work=TPCB, blocks=1, gaps=(10, 15)))
    browser.get(written(tmp_path, run))
    scroll_through(browser)
    figures = dict(browser.execute_script(FIGURES))
    for ident in ("g-c0-cpu", "g-c0-disk", "g-c0-await"):
        for trace in figures[ident]["data"]:
            inside = [
                y
                for x, y in zip(trace["x"], trace["y"], strict=True)
                if x is not None and 9.5 < x < 14.5
            ]
            assert all(y is None for y in inside), (ident, trace.get("name"))
            assert len([y for y in trace["y"] if y is not None]) >= 20


def test_the_median_of_the_trials_is_drawn(
    browser: WebDriver,
    demo: LoadedRun,
    page: str,
) -> None:
    """Second by second the line is the median of the three trials' series, within the step of the
    packing.
    """
    browser.get(page)
    scroll_through(browser)
    trace = next(
        t
        for t in dict(browser.execute_script(FIGURES))["g-c0-tps"]["data"]
        if t.get("name") == "xfs"
    )
    trials = [t for t in demo.trials if (t.fs_setup, t.workload) == ("xfs", "pgbench-tpcb")]
    columns = [found[0]["tps"] for t in trials if (found := demo.series(t)) is not None]
    wanted = [
        sorted(v for v in second if v is not None)[1] for second in zip(*columns, strict=True)
    ]
    assert trace["y"] == pytest.approx(wanted, abs=0.1)


def test_a_chart_that_is_cut_says_so_also_on_paper(browser: WebDriver, tmp_path: Path) -> None:
    """One second is fifty times as slow as the others: the chart of p95 shows the others, and names
    the highest value. With "Full range" nothing is cut.
    """
    shape = Shape(arms=("ext4",), work=TPCB, blocks=1, stalls=(12,))
    run = synthetic.loaded(tmp_path, shape)
    series = run.series(run.trials[0])
    assert series is not None
    highest = max(value or 0 for value in series[0]["p95_ms"])
    browser.get(written(tmp_path, run))
    scroll_through(browser)
    assert printed_pages(browser) > 1
    note = "return document.getElementById('g-c0-p95').textContent"
    assert f"cut; highest {highest:.0f}" in browser.execute_script(note)
    browser.find_element(By.CSS_SELECTOR, "[data-switch=full]").click()
    until(browser, f"{note}.includes('cut; highest') === false")


def test_a_warning_leads_to_its_second(browser: WebDriver, page: str) -> None:
    """The link of W014 shows the timelines of its trial with the second marked."""
    browser.get(page)
    link = browser.find_element(By.CSS_SELECTOR, "#W014 .go a")
    assert link.text == "show second 10"
    link.click()
    box = until(browser, "return document.querySelector('.timelines.shown .chart[data-drawn]')")
    marked = (
        "return (arguments[0].layout.shapes || []).filter(s => s.type === 'line' && s.x0 === "
        "10).length"
    )
    assert until(browser, marked, box) == 1
    assert len(browser.find_elements(By.CSS_SELECTOR, "[data-arm][aria-pressed=true]")) == 1


def test_chips_take_a_setup_out_of_all_charts(browser: WebDriver, page: str) -> None:
    """A chip switches its arm off in each chart; the last one cannot be switched off."""
    browser.get(page)
    scroll_through(browser)
    chips = browser.find_elements(By.CSS_SELECTOR, "#chips button")
    for chip in chips:
        chip.click()
    assert [chip.get_attribute("aria-pressed") for chip in chips] == ["false", "false", "true"]
    names = (
        "return [...new Set(document.getElementById('g-c0-tps').data.map(t => t.name).filter(n "
        "=> n))]"
    )
    until(browser, f"return (() => {{ {names} }})().join() === 'btrfs'")


def test_a_page_without_timelines_works(browser: WebDriver, tmp_path: Path) -> None:
    """Without the library the buttons of the tables still work, and the console has no error."""
    run = synthetic.loaded(tmp_path, Shape(arms=("ext4", "xfs"), work=TPCB, series=False))
    browser.get(written(tmp_path, run))
    assert not browser.execute_script("return 'Plotly' in window")
    browser.find_element(By.CSS_SELECTOR, "#t-c0 th[data-sort] button").click()
    browser.find_element(By.ID, "theme").click()
    assert errors(browser) == []


def test_a_second_in_an_hour_is_seen(browser: WebDriver, tmp_path: Path) -> None:
    """One stalled second of 3600 is counted in the table and has its tick above the throughput of
    the whole hour.
    """
    shape = Shape(arms=("ext4", "xfs"), work=TPCB, blocks=1, measure_s=3600, stalls=(1805,))
    browser.get(written(tmp_path, synthetic.loaded(tmp_path, shape)))
    counted = [
        e.text for e in browser.find_elements(By.CSS_SELECTOR, "#t-c0 [data-metric=stalls_per_h]")
    ]
    assert sorted(text.split("\n") for text in counted) == [["0"], ["1", "longest 1\u202fs"]]
    scroll_through(browser)
    ticks = (
        "return document.getElementById('g-c0-tps').data.filter(t => "
        "/stalled/.test(t.hovertemplate)).map(t => t.x)"
    )
    assert [[x for x in xs if x is not None] for xs in browser.execute_script(ticks)] == [[1805]]


def test_every_chart_can_be_saved(browser: WebDriver, page: str) -> None:
    """As SVG with its title and the versions, its colours in it; as PNG of twice the size, with
    ink. Timelines too.
    """
    browser.get(page)
    scroll_through(browser)
    browser.execute_script(
        "window.kept = []; const blobs = {}, make = URL.createObjectURL; "
        "URL.createObjectURL = (blob) => { const a = make(blob); blobs[a] = blob; return a; }; "
        "HTMLAnchorElement.prototype.click = function () { kept.push(blobs[this.href]); }; "
        "Plotly.downloadImage = (figure, o) => Plotly.toImage(figure, o).then((text) => kept.push("
        "o.format === 'svg' ? new Blob([decodeURIComponent(text)], {type: 'image/svg+xml'})"
        " : new Blob([text], {type: 'image/png'})))"
    )
    charts = [f for f in browser.find_elements(By.CSS_SELECTOR, "main figure") if f.is_displayed()]
    assert len(charts) >= 4 + 7  # plots of trials, nights, latency; the timelines of one group
    for chart in charts:
        for button in chart.find_elements(By.CSS_SELECTOR, ".buttons button"):
            browser.execute_script("arguments[0].click()", button)
    until(browser, f"return kept.length === {2 * len(charts)}")
    texts = browser.execute_async_script(
        "Promise.all(kept.filter(b => b.type === 'image/svg+xml').map(b => "
        "b.text())).then(arguments[0])"
    )
    assert len(texts) == len(charts)
    assert all("PostgreSQL 15.18" in text for text in texts)
    own = [text for text in texts if "relative to ext4" in text]
    assert len(own) == 3 and all("fill: rgb(" in text and "<style" not in text for text in own)
    sizes = browser.execute_script(
        "return kept.filter(b => b.type === 'image/png').map(b => b.size)"
    )
    assert len(sizes) == len(charts) and min(sizes) > 2000
    assert errors(browser) == []
