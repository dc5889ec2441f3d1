"""The page of a run, and what it says."""

import json
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import synthetic
from synthetic import Shape

from dbbench.report.page.html import build
from dbbench.report.sentences import plain_text
from dbbench.results import LoadedRun


class Seen(HTMLParser):
    """Elements with their attributes, scripts with their content, and all text outside of them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


def loaded(tmp_path: Path, shape: Shape) -> LoadedRun:
    """A run of that shape, written and read back."""
    return synthetic.loaded(tmp_path, shape)


def model(tmp_path: Path, shape: Shape) -> SimpleNamespace:
    """Its page."""
    return build([loaded(tmp_path, shape)])


def data_of(page: Seen) -> dict[str, Any]:
    """The results that it carries for a download."""
    ids = [attributes.get("id") for tag, attributes in page.elements if tag == "script"]
    found: dict[str, Any] = json.loads(page.scripts[ids.index("results-data")])
    return found


def notices(page: SimpleNamespace) -> str:
    """All notices as text."""
    shown = (*page.verdict.caveats, *page.verdict.notices)
    return " ".join(text.replace("**", "") for _, text in shown)


def said(page: SimpleNamespace) -> str:
    """The answer as text."""
    return " ".join(
        plain_text(parts) for _, words in page.verdict.answers for parts in words.sentences
    )
