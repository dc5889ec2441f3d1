"""The page in a real browser, opened from disk: its requests, its charts and its buttons."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import plotly.graph_objects as go
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from dbbench.compare import rows
from dbbench.report.page.charts.nights import Course, NightPoint
from dbbench.report.page.html import render
from dbbench.results import LoadedRun, load_run
from dbbench.units import number

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import synthetic
from synthetic import Shape

from tests.browser.chromium import DARK, LIGHT, STILL, command, errors, requests, screen, until

pytestmark = pytest.mark.needs("chromium", "chromedriver")
TPCB = (("postgres", "pgbench-tpcb"),)
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """Three filesystems, two engines and a scan, three blocks; five seconds of one trial without sar."""
    return load_run(synthetic.write(tmp_path_factory.mktemp("results"), Shape(gaps=(10, 15))))


@pytest.fixture(scope="module")
def page(demo: LoadedRun, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its page's address; it is one of twenty nights."""
    return written(tmp_path_factory.mktemp("page"), demo, nights())


def nights() -> list[Course]:
    """One series with a step, a gap and an acceptance."""
    ratios = [None if n == 5 else 0.9 if n < 12 else 0.8 for n in range(20)]
    points = [
        NightPoint(f"2026-03-{n + 1:02}", r, r and r * 0.98, r and r * 1.02, n != 3) for n, r in enumerate(ratios)
    ]
    return [Course("postgres pgbench-tpcb", "xfs", "ext4", tuple(points), (("2026-03-15", "a new kernel"),))]


def written(folder: Path, run: LoadedRun, courses: Sequence[Course] = ()) -> str:
    """The address of the run's page in `folder`."""
    path = folder / "report.html"
    path.write_text(render([run], nights=courses), encoding="utf-8")
    return path.as_uri()


def scroll_through(browser: WebDriver) -> None:
    """Bring each chart into view, one after the other, and wait for it; the page unpacks its data after it loads."""
    until(browser, "return document.querySelector('.timelines.shown .chart')")
    for box in browser.find_elements(By.CSS_SELECTOR, ".timelines.shown .chart"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", box)
        until(browser, "return arguments[0].dataset.drawn", box)


def test_every_chart_is_drawn_when_it_comes_into_view_and_nothing_is_asked_for(browser: WebDriver, page: str) -> None:
    """One request (the file), no word on the console, ink in each chart of each group, none before its time."""
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


def test_the_table_on_the_screen_has_the_figures_of_compare(browser: WebDriver, demo: LoadedRun, page: str) -> None:
    """As a person reads them: throughput of each arm, in each engine."""
    browser.get(page)
    for group, engine in (("c0", "postgres"), ("c1", "mariadb")):
        lines = browser.find_elements(By.CSS_SELECTOR, f"#t-{group} tbody tr")
        shown = {
            line.find_element(By.CSS_SELECTOR, ".name").text: line.find_element(By.CSS_SELECTOR, ".main").text
            for line in lines
        }
        assert {r.fs_setup: number(r.value) for r in rows(demo.trials, "ext4") if r.engine == engine} == shown


def test_copied_csv_has_raw_numbers(browser: WebDriver, demo: LoadedRun, page: str) -> None:
    """One value a column, as compare gives it; the copied markdown has a line an arm."""
    browser.get(page)
    browser.execute_script(
        "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
    )
    browser.find_element(By.CSS_SELECTOR, '[data-copy=csv][data-table="t-c1"]').click()
    table = list(csv.DictReader(io.StringIO(browser.execute_script("return window.copied"))))
    primary = {cell.workload.name: cell.workload.primary for cell in demo.run.cells}
    wanted = {r.fs_setup: r for r in rows(demo.trials, "ext4", primary) if r.engine == "mariadb"}
    assert {line["fs_setup"] for line in table} == set(wanted)
    for line in table:
        assert float(line["tps"]) == pytest.approx(wanted[line["fs_setup"]].value)
        assert line["lo"] == "" or float(line["lo"]) == pytest.approx(wanted[line["fs_setup"]].lo)
    browser.find_element(By.CSS_SELECTOR, '[data-copy=markdown][data-table="t-c1"]').click()
    lines = browser.execute_script("return window.copied").splitlines()
    assert len(lines) == 5 and lines[2].startswith("| ext4 full |")


def test_zoom_of_one_chart_moves_all_and_the_address_brings_it_back(browser: WebDriver, page: str) -> None:
    """The state is in the address: opened anew, the same seconds are seen; a double click shows all again."""
    browser.get(page)
    scroll_through(browser)
    browser.execute_script("return Plotly.relayout('g-c0-tps', {'xaxis.range[0]': 4.5, 'xaxis.range[1]': 14.5})")
    ranges = (
        "return [...document.querySelectorAll('.timelines.shown .chart')].flatMap(c => "
        "c._fullLayout._subplots.xaxis.map(x => c._fullLayout[x.replace('x', 'xaxis')].range.join()))"
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
def test_figures_are_what_plotly_knows_under_every_switch(browser: WebDriver, page: str, switch: str) -> None:
    """Each figure passes plotly's own schema, whatever is switched on; nothing is said on the console."""
    browser.get(page + (f"#{switch}=1" if switch else ""))
    scroll_through(browser)
    figures = browser.execute_script(FIGURES)
    assert len(figures) == 7
    for ident, figure in figures:
        assert go.Figure(figure).data, ident
    assert errors(browser) == []


def test_a_gap_is_nowhere_drawn_as_a_zero_or_bridged(browser: WebDriver, tmp_path: Path) -> None:
    """One trial without sar from second 10 to 15: no area and no line has a point there; zeros are not invented."""
    run = load_run(synthetic.write(tmp_path, Shape(arms=("ext4",), work=TPCB, blocks=1, gaps=(10, 15))))
    browser.get(written(tmp_path, run))
    scroll_through(browser)
    figures = dict(browser.execute_script(FIGURES))
    for ident in ("g-c0-cpu", "g-c0-disk", "g-c0-await"):
        for trace in figures[ident]["data"]:
            inside = [y for x, y in zip(trace["x"], trace["y"], strict=True) if x is not None and 9.5 < x < 14.5]
            assert all(y is None for y in inside), (ident, trace.get("name"))
            assert len([y for y in trace["y"] if y is not None]) >= 20
    strip = [trace for trace in figures["g-c0-tps"]["data"] if trace["yaxis"] == "y2"]
    assert [[x for x in t["x"] if x is not None] for t in strip if t["meta"]["of"] == "missing"] == [[9.5, 14.5]]


def test_the_median_of_the_trials_is_drawn(browser: WebDriver, demo: LoadedRun, page: str) -> None:
    """Second by second the line is the median of the three trials' series, within the step of the packing."""
    browser.get(page)
    scroll_through(browser)
    trace = next(t for t in dict(browser.execute_script(FIGURES))["g-c0-tps"]["data"] if t.get("name") == "xfs")
    trials = [t for t in demo.trials if (t.fs_setup, t.workload) == ("xfs", "pgbench-tpcb")]
    columns = [found[0]["tps"] for t in trials if (found := demo.series(t)) is not None]
    wanted = [sorted(v for v in second if v is not None)[1] for second in zip(*columns, strict=True)]
    assert trace["y"] == pytest.approx(wanted, abs=0.1)


def test_a_warning_leads_to_its_second(browser: WebDriver, page: str) -> None:
    """The link of W014 shows the timelines of its trial with the second marked."""
    browser.get(page)
    link = browser.find_element(By.CSS_SELECTOR, "#W014 .go a")
    assert link.text == "show second 10"
    link.click()
    box = until(browser, "return document.querySelector('.timelines.shown .chart[data-drawn]')")
    marked = "return (arguments[0].layout.shapes || []).filter(s => s.type === 'line' && s.x0 === 10).length"
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
    names = "return [...new Set(document.getElementById('g-c0-tps').data.map(t => t.name).filter(n => n))]"
    until(browser, f"return (() => {{ {names} }})().join() === 'btrfs'")


def test_a_page_without_timelines_works(browser: WebDriver, tmp_path: Path) -> None:
    """Without the library the buttons of the tables still work, and the console has no error."""
    run = load_run(synthetic.write(tmp_path, Shape(arms=("ext4", "xfs"), work=TPCB, series=False)))
    browser.get(written(tmp_path, run))
    assert not browser.execute_script("return 'Plotly' in window")
    browser.find_element(By.CSS_SELECTOR, "#t-c0 th[data-sort] button").click()
    browser.find_element(By.ID, "theme").click()
    assert errors(browser) == []


def test_a_second_in_an_hour_is_seen(browser: WebDriver, tmp_path: Path) -> None:
    """One stalled second of 3600 is counted in the table and has its tick above the throughput of the whole hour."""
    shape = Shape(arms=("ext4", "xfs"), work=TPCB, blocks=1, measure_s=3600, stalls=(1805,))
    browser.get(written(tmp_path, load_run(synthetic.write(tmp_path, shape))))
    counted = [e.text for e in browser.find_elements(By.CSS_SELECTOR, "#t-c0 [data-metric=stalls_per_h]")]
    assert sorted(text.split("\n") for text in counted) == [["0"], ["1", "longest 1\u202fs"]]
    scroll_through(browser)
    ticks = "return document.getElementById('g-c0-tps').data.filter(t => /stalled/.test(t.hovertemplate)).map(t => t.x)"
    assert [[x for x in xs if x is not None] for xs in browser.execute_script(ticks)] == [[1805]]


def test_every_chart_of_the_page_itself_can_be_saved(browser: WebDriver, page: str) -> None:
    """As SVG with its title and the versions, its colours in it; as PNG of twice the size, with ink."""
    browser.get(page)
    browser.execute_script("window.kept = []; URL.createObjectURL = (blob) => (kept.push(blob), '#'); "
                           "HTMLAnchorElement.prototype.click = () => {}")  # fmt: skip
    charts = browser.find_elements(By.CSS_SELECTOR, "main figure:has(svg[viewBox]):not(:has(.chart))")
    assert len(charts) >= 4  # three plots of trials, one of nights
    for chart in charts:
        for button in chart.find_elements(By.CSS_SELECTOR, ".buttons button"):
            browser.execute_script("arguments[0].click()", button)
    until(browser, f"return kept.length === {2 * len(charts)}")
    texts = browser.execute_async_script(
        "Promise.all(kept.filter(b => b.type === 'image/svg+xml').map(b => b.text())).then(arguments[0])"
    )
    assert len(texts) == len(charts)
    assert all("PostgreSQL 15.18" in text and "<style" not in text for text in texts)
    assert "fill: rgb(" in texts[0] and "relative to ext4" in texts[0]
    sizes = browser.execute_script("return kept.filter(b => b.type === 'image/png').map(b => b.size)")
    assert len(sizes) == len(charts) and min(sizes) > 2000
    assert errors(browser) == []


WIDER = """return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().width &&
  e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('.skip')).map(e => e.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_on_a_phone_nothing_goes_sideways(browser: WebDriver, page: str, look: dict[str, str]) -> None:
    """At 390 px no element is wider than the screen, each chart is drawn, and the narrow plot of the trials is seen."""
    screen(browser, 390, 844)
    command(browser, "Emulation.setEmulatedMedia", media="", features=[look, STILL])
    browser.get(page)
    browser.execute_script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    scroll_through(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    assert browser.execute_script(WIDER) == []
    assert [e.is_displayed() for e in browser.find_elements(By.CSS_SELECTOR, ".dots svg")] == [False, True] * 3
    assert errors(browser) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_trade_offs_and_fast_scans_fit_the_screen(
    browser: WebDriver, demo: LoadedRun, tmp_path: Path, width: int
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
    sideways = "const box = document.querySelector('#t-choose').parentElement; return box.scrollWidth - box.clientWidth"
    assert browser.execute_script(sideways) <= 0


def test_large_numbers_and_long_names_fit_a_phone(browser: WebDriver, tmp_path: Path) -> None:
    """Figures of ten digits, and a setup whose name is as long as a line; each figure has its heading next to it."""
    name = "btrfs-raid10-zstd-nodatacow-space-cache-v2-noatime"
    run = load_run(synthetic.write(tmp_path, Shape(arms=("ext4", "xfs", name), work=TPCB)))
    large = [
        replace(trial, summary={key: value and value * 1e7 for key, value in trial.summary.items()})
        for trial in run.trials
    ]
    screen(browser, 390, 844)
    browser.get(written(tmp_path, replace(run, trials=tuple(large), lab=synthetic.lab())))
    assert browser.execute_script(WIDER) == []
    heading = "return getComputedStyle(document.querySelector('#t-c0 td[data-metric=tps]'), '::before').content"
    assert browser.execute_script(heading) == '"tx/s"'


@pytest.mark.parametrize(("look", "width"), [(LIGHT, 1280), (DARK, 1280), (LIGHT, 390)], ids=["light", "dark", "phone"])
def test_axe_finds_nothing(browser: WebDriver, page: str, look: dict[str, str], width: int) -> None:
    """No violation of axe-core's rules, with every chart drawn and every panel open."""
    command(browser, "Emulation.setEmulatedMedia", media="", features=[look, STILL])
    screen(browser, width)
    browser.get(page)
    browser.execute_script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    scroll_through(browser)
    browser.execute_script((files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    browser.set_script_timeout(110)  # 30 s by default; axe takes 5 s where nothing else runs
    found = browser.execute_async_script(
        "axe.run().then(arguments[0], (e) => arguments[0]({violations: [{id: `${e}`}]}))"
    )
    assert [(v["id"], [n["html"][:200] for n in v.get("nodes", [])][:3]) for v in found["violations"]] == []


def test_without_a_script_the_answer_is_there(browser: WebDriver, page: str) -> None:
    """Verdict, tables and the plot of every trial are seen, controls that would do nothing are not."""
    command(browser, "Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.get(page)
        document = command(browser, "DOM.getDocument")["root"]["nodeId"]

        def box(selector: str) -> bool:
            node = command(browser, "DOM.querySelector", nodeId=document, selector=selector)["nodeId"]
            try:
                return bool(command(browser, "DOM.getBoxModel", nodeId=node)["model"]["height"] > 0)
            except Exception:  # the protocol has no other word for "is not displayed"
                return False

        seen = (".sentence", "#t-c0 tbody tr", ".dots svg.wide", ".spark", "#timelines .nojs", "#t-space", ".command")
        assert [selector for selector in seen if not box(selector)] == []
        hidden = ("#theme", ".controls", ".buttons", ".chart")
        assert [selector for selector in hidden if box(selector)] == []
    finally:
        command(browser, "Emulation.setScriptExecutionDisabled", value=False)


def test_print_has_every_chart_of_every_group(browser: WebDriver, page: str) -> None:
    """Before printing all are drawn, also those that were never in view; the PDF has several pages."""
    browser.get(page)
    pdf = command(browser, "Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
    assert len(pdf) > 300_000
    drawn = "return [...document.querySelectorAll('.chart')].every(c => c.querySelector('.scatterlayer path'))"
    assert until(browser, drawn)
    assert errors(browser) == []


def test_theme_button_goes_round(browser: WebDriver, page: str) -> None:
    """Automatic, dark, light, automatic; the ground changes with it, and the charts' lines do."""
    browser.get(page)
    scroll_through(browser)
    ground = "return getComputedStyle(document.body).backgroundColor"
    line = "return document.getElementById('g-c0-tps').data.find(t => t.name === 'ext4').line.color"
    button, light = browser.find_element(By.ID, "theme"), browser.execute_script(line)
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
    run = load_run(synthetic.write(tmp_path, Shape(arms=("ext4", "btrfs", "ext4-nobarrier"), work=TPCB)))
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
    shape = Shape(arms=("ext4", "<b>xfs"), work=TPCB, hostile=HOSTILE, failed=("ext4.postgres.pgbench-tpcb-b1-a1",))
    results = tmp_path / "results"
    run = load_run(synthetic.write(results, shape))
    browser.get(written(tmp_path, run))
    scroll_through(browser)
    assert browser.title == "dbbench demo"
    assert "<b>xfs" in [e.text for e in browser.find_elements(By.CSS_SELECTOR, "#t-c0 .name")]
    ends = browser.execute_script("return document.getElementById('g-c0-tps').querySelector('.infolayer').textContent")
    assert "<b>xfs" in ends
    assert errors(browser) == []
