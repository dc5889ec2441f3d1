"""Pages that the tests of a browser open."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from dbbench.report.page.charts.nights import Course, NightPoint
from dbbench.report.page.html import render
from dbbench.results import LoadedRun
from tests.browser.chromium import command, until

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"
)


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


def printed_pages(browser: WebDriver) -> int:
    """Print the page on A4 and return the number of pages."""
    pdf = command(browser, "Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(pdf)))
