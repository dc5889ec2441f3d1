"""The page in a real browser, opened from disk: its requests, its charts and its buttons."""

import base64
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import plotly.graph_objects as go
import pytest
import synthetic
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from synthetic import TPCB, Shape

from dbbench.compare import rows
from dbbench.report.page.charts.nights import Course, NightPoint
from dbbench.report.page.html import render
from dbbench.results import LoadedRun
from dbbench.units import number
from tests.browser.chromium import DARK, LIGHT, STILL, command, errors, requests, screen, until

pytestmark = pytest.mark.needs("chromium", "chromedriver")
HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """Three filesystems, two engines and a scan, three blocks; five seconds of one trial without
    sar.
    """
    return synthetic.loaded(tmp_path_factory.mktemp("results"), Shape(gaps=(10, 15)))


@pytest.fixture(scope="module")
def page(demo: LoadedRun, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its page's address; it is one of twenty nights."""
    return written(tmp_path_factory.mktemp("page"), demo, nights())


def nights() -> list[Course]:
    """One series with a step, a gap and an acceptance."""
    ratios = [None if n == 5 else 0.9 if n < 12 else 0.8 for n in range(20)]
    points = [
        NightPoint(f"2026-03-{n + 1:02}", r, r and r * 0.98, r and r * 1.02, n != 3)
        for n, r in enumerate(ratios)
    ]
    return [
        Course(
            "postgres pgbench-tpcb",
            "xfs",
            "ext4",
            tuple(points),
            (("2026-03-15", "a new kernel"),),
        )
    ]


def written(
    folder: Path,
    run: LoadedRun,
    courses: Sequence[Course] = (),
) -> str:
    """The address of the run's page in `folder`."""
    path = folder / "report.html"
    path.write_text(render([run], nights=courses), encoding="utf-8")
    return path.as_uri()


def scroll_through(browser: WebDriver) -> None:
    """Bring each chart into view, one after the other, and wait for it; the page unpacks its data
    after it loads.
    """
    until(browser, "return document.querySelector('.timelines.shown .chart')")
    for box in browser.find_elements(By.CSS_SELECTOR, ".timelines.shown .chart"):
        browser.execute_script(
            "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", box
        )
        until(browser, "return arguments[0].dataset.drawn", box)


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


# Names of setups that are not on one line.
BROKEN = """return [...document.querySelectorAll('td .name b, th .name b')].filter(b => b.getClientRects().length > 1)
  .map(b => b.textContent)"""


def printed_pages(browser: WebDriver) -> int:
    """Print the page on A4 and return the number of pages."""
    pdf = command(browser, "Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(pdf)))


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
