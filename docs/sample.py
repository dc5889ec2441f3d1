"""Run the demo and put its verdict and its page into the README: `make docs`, or `python
docs/sample.py RUN` for the folder of a demo that was run already.

The sample is the demo's answer and the table of SAMPLE. docs/sample.html is the page, without
the names of hosts. The picture, docs/report.png, is that page from its top to the end of
the verdict, as Chromium shows it. Needs root, a quiet machine, and ten minutes.
"""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import Final

from dbbench import process

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "docs/sample.html"
PICTURE: Final = ROOT / "docs/report.png"
SAMPLE: Final = "mariadb sysbench-oltp-read-write "
WIDTH: Final = 1200
TRIAL_LINK: Final = re.compile(r'<a href="trials/[^"]*">([^<]*)</a>')
LIMIT_S: Final = 3600
SETTLE_S: Final = 2.0
# The height in px from the top of the page to the end of the verdict, with a margin.
END: Final = (
    "return document.querySelector('#verdict').getBoundingClientRect().bottom + window.scrollY + 20"
)


def sampled(readme: str, printed: str) -> str:
    """Return the README with the answer of the demo and the table of SAMPLE. Raises ValueError if
    there is no table.
    """
    answer, *tables = printed.strip().split("\n\n")
    table = next((part for part in tables if part.startswith(SAMPLE)), None)
    if table is None:
        raise ValueError(f"the demo printed no table of {SAMPLE}")
    # findings about several tables follow
    rows = takewhile(lambda line: line[:2].strip() != "!", table.splitlines())
    lines = "".join(line.rstrip() + "\n" for line in [*answer.splitlines(), "", *rows])
    return re.sub(
        rf"^```\n[^`]*^{re.escape(SAMPLE)}[^`]*^```$",
        lambda _: f"```\n{lines}```",
        readme,
        flags=re.MULTILINE,
    )


def photographed(page: Path) -> bytes:
    """Return a PNG of the beginning of a report page."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    from tests.browser.chromium import FLAGS, LIGHT, STILL, command, screen, until

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            command(
                browser,
                "Emulation.setEmulatedMedia",
                media="",
                features=[LIGHT, STILL],
            )
            screen(browser, WIDTH)
            browser.get(page.resolve().as_uri())
            height = int(until(browser, END))
            before = 0
            while height != before:  # until nothing moves any more
                screen(browser, WIDTH, height)
                time.sleep(SETTLE_S)
                before = height
                height = int(until(browser, END))
            shot = command(browser, "Page.captureScreenshot", format="png")
        finally:
            browser.quit()
    return base64.b64decode(shot["data"])


def main(run: Path | None) -> None:
    """Write README, page and picture from the demo in `run`; None: run it first."""
    with tempfile.TemporaryDirectory(prefix="dbb", dir="/var/tmp") as folder:
        results = Path(folder)
        environment = {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        program = [sys.executable, "-m", "dbbench"]
        if run is None:
            argv = [
                *program,
                "run",
                ROOT / "docs/plans/demo.toml",
                "--name",
                "demo",
                "--results",
                results,
            ]
            process.run(argv, env=environment, timeout_s=LIMIT_S)
            run = results / "demo"
        argv = [*program, "compare", run.name, "--results", run.parent]
        printed = process.run(
            argv,
            env=environment,
            ok=(0, 4),
            cwd=ROOT,
        ).stdout
        README.write_text(sampled(README.read_text(encoding="utf-8"), printed), encoding="utf-8")
        argv = [
            *program,
            "report",
            run.name,
            "--results",
            run.parent,
            "--output",
            PAGE,
            "--redact",
            "hosts",
        ]
        process.run(argv, env=environment)
        # The page stands alone, without the folder of its trials.
        whole = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(TRIAL_LINK.sub(r"\1", whole), encoding="utf-8")
        PAGE.chmod(0o644)
        PICTURE.write_bytes(photographed(PAGE))


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))  # for tests.browser
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else None)
