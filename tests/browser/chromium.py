"""Chromium for the tests of the page: its flags, its window and its log."""

import json
import time
from typing import Any

from selenium.webdriver.remote.webdriver import WebDriver

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)
LIGHT = {"name": "prefers-color-scheme", "value": "light"}
DARK = {"name": "prefers-color-scheme", "value": "dark"}
# no smooth scrolling: a click finds its target
STILL = {"name": "prefers-reduced-motion", "value": "reduce"}


def command(browser: WebDriver, name: str, **arguments: Any) -> Any:
    """A command of the browser's own protocol."""
    return browser.execute_cdp_cmd(name, arguments)


def screen(browser: WebDriver, width: int = 1280, height: int = 1000) -> None:
    """A window of this size; below 500 px a phone."""
    command(
        browser,
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=width < 500,
    )


def until(
    browser: WebDriver,
    script: str,
    *arguments: Any,
    within_s: float = 120.0,
) -> Any:
    """What the script returns, once it is true."""
    end = time.monotonic() + within_s
    while not (found := browser.execute_script(script, *arguments)):
        assert time.monotonic() < end, script
        time.sleep(0.05)
    return found


def errors(browser: WebDriver) -> list[str]:
    """What the console printed."""
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser: WebDriver) -> list[str]:
    """Addresses that were asked for."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
