"""The glossary of the page: the words of docs/glossary.md, and links to them."""

import html
import re
from pathlib import Path

import synthetic
from synthetic import TPCB, Shape

from dbbench.report.page.html import render

ROOT = Path(__file__).parents[2]

ENTRY = re.compile(r'<div id="(g-[a-z-]+)"><dt>([^<]+)</dt><dd>(.*?)</dd>')


def test_the_page_explains_words_as_the_documents_do(tmp_path: Path) -> None:
    """Each entry is one of the documents', and each link leads to an entry."""
    page = render([synthetic.loaded(tmp_path, Shape(work=TPCB))])
    entries = ENTRY.findall(page)
    written = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for _, word, text in entries:
        plain = html.unescape(re.sub("</?code>", "`", text))
        assert f"- **{word}**: {plain}\n" in written
    links = set(re.findall(r'href="#(g-[a-z-]+)"', page))
    assert len(links) > 4
    assert links <= {ident for ident, _, _ in entries}
