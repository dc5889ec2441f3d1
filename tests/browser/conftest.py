"""One browser for all tests of a file, which is reset before each test, and one page for all files."""

from collections.abc import Iterator

import pytest
import synthetic
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver
from synthetic import Shape

from dbbench.results import LoadedRun
from tests.browser.chromium import FLAGS, LIGHT, STILL, command, screen
from tests.browser.pages import nights, written


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """Yield Chromium with an empty profile; it logs its console and its network."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def as_new(browser: WebDriver) -> None:
    """Start each test on an empty page of 1280 px, light, with empty logs."""
    browser.get("about:blank")
    screen(browser)
    command(browser, "Emulation.setEmulatedMedia", media="", features=[LIGHT, STILL])
    for kind in ("browser", "performance"):
        browser.get_log(kind)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """Three filesystems, two engines and a scan, three blocks; five seconds of one trial without
    sar.
    """
    return synthetic.loaded(tmp_path_factory.mktemp("results"), Shape(gaps=(10, 15)))


@pytest.fixture(scope="session")
def page(demo: LoadedRun, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its page's address; it is one of twenty nights."""
    return written(tmp_path_factory.mktemp("page"), demo, nights())
