"""The report page at two sizes: bytes, seconds to render, to the first screen, and the browser's
heap at the end.

    .venv/bin/python benchmarks/page.py [--chromium /usr/bin/chromium]

Invented results (tests/fixtures/synthetic.py). Small: 12 trials of 600 s; large: 60 trials of
3600 s, sixteen series each. Seconds are this machine's; exit 1 where a budget is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from dbbench.report.page.html import render
from dbbench.results import load_run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/fixtures"))
import synthetic
from synthetic import Shape

ARMS = ("ext4", "xfs", "btrfs", "btrfs-zstd", "ext4-nobarrier", "zfs-8k")
TPCB = (("postgres", "pgbench-tpcb"),)


@dataclass(frozen=True)
class Budget:
    """The limits of a page. None: no limit."""

    bytes: float
    first_screen_s: float | None
    render_s: float | None
    heap_bytes: float | None


CASES = {
    "12 x 600": (
        Shape(arms=ARMS[:4], work=TPCB, blocks=3, warmup_s=60, measure_s=540),
        Budget(2.2e6, 2.0, None, None),
    ),
    "60 x 3600": (
        Shape(arms=ARMS, work=TPCB, blocks=10, warmup_s=60, measure_s=3540),
        Budget(5e6, None, 5.0, 150e6),
    ),
}
FIRST = "return document.querySelectorAll('.chart[data-drawn]').length > 0"


def browse(chromium: str, page: Path) -> tuple[float, float]:
    """Return the seconds until the verdict and the first chart are visible, and the heap in bytes
    after scrolling.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        began = time.monotonic()
        # a zoom in the address makes the page scroll to the timelines
        driver.get(f"{page.as_uri()}#s=0-100")
        while not driver.execute_script(FIRST):
            time.sleep(0.02)
        first_s = time.monotonic() - began
        for box in driver.find_elements("css selector", ".timelines.shown .chart"):
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
            while not driver.execute_script("return arguments[0].dataset.drawn", box):
                time.sleep(0.02)
        driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        heap = driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]
    finally:
        driver.quit()
    return first_s, float(heap)


def measure(
    name: str,
    shape: Shape,
    budget: Budget,
    chromium: str,
) -> bool:
    """Print a case; return whether it is within its limits."""
    with tempfile.TemporaryDirectory() as folder:
        run = synthetic.write(Path(folder, "results"), shape)
        began = time.monotonic()
        text = render([load_run(run)])
        render_s = time.monotonic() - began
        page = Path(folder, "report.html")
        page.write_text(text, encoding="utf-8")
        size = page.stat().st_size
        first_s, heap = browse(chromium, page)
    seconds = f"rendered in {render_s:.1f} s  first chart {first_s:.2f} s"
    print(f"{name:<10} {size / 1e6:.2f} MB  {seconds}  heap {heap / 1e6:.0f} MB")
    kept = [
        (size, budget.bytes),
        (first_s, budget.first_screen_s),
        (render_s, budget.render_s),
        (heap, budget.heap_bytes),
    ]
    return all(most is None or value <= most for value, most in kept)


def main() -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    asked = parser.parse_args()
    good = [
        measure(
            name,
            shape,
            budget,
            asked.chromium,
        )
        for name, (shape, budget) in CASES.items()
    ]
    print("ok" if all(good) else "missed: a budget above")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
