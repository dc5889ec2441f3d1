"""Draw docs/map.svg: the packages of dbbench in the order of their layers (setup.cfg), with what
each is for.

Run `make map` after a package was added or moved. The words are the first sentences of the
packages' docstrings.
"""

from __future__ import annotations

import ast
import configparser
import html
import textwrap
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
WIDTH = 980
ROW = 62
GAP = 8
MARGIN = 12
STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #161b21 } .name { font-weight: 700; font-size: 15px }
rect { fill: #f3f5f4; stroke: #a8b0b6 }
@media (prefers-color-scheme: dark) { text { fill: #eaedf0 } rect { fill: #1b2127; stroke: #4a555f } }
"""


def layers() -> list[list[str]]:
    """Return the packages and modules of each layer, highest first."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["importlinter:contract:rooms"]["layers"].split("\n")
    return [
        [word.strip().removeprefix("dbbench.") for word in line.split("|")]
        for line in lines
        if line.strip()
    ]


def purpose(name: str) -> str:
    """Return the first sentence of the docstring of a package or module."""
    path = ROOT / "dbbench" / name
    head = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = " ".join((ast.get_docstring(ast.parse(head.read_text(encoding="utf-8"))) or "").split())
    return text.split(". ")[0].rstrip(".").replace("`", "")


def box(
    name: str,
    x: float,
    y: float,
    width: float,
) -> str:
    """Return the box of a package: its name, and its purpose in at most two lines."""
    wrapped = textwrap.wrap(
        purpose(name),
        int((width - 20) / 6.8),
        max_lines=2,
        placeholder=" …",
    )
    texts = [f'<text class="name" x="{x + 10}" y="{y + 18}">{name}</text>']
    texts += [
        f'<text x="{x + 10}" y="{y + 34 + 15 * i}">{html.escape(line)}</text>'
        for i, line in enumerate(wrapped)
    ]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{ROW - GAP}" rx="4"/>' + "".join(texts)


def drawn() -> str:
    """Return the whole picture."""
    rows = layers()
    boxes = []
    for number, names in enumerate(rows):
        width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names)
        for place, name in enumerate(names):
            boxes.append(
                box(
                    name,
                    round(MARGIN + place * (width + GAP), 1),
                    MARGIN + number * ROW,
                    round(width, 1),
                )
            )
    height = 2 * MARGIN + len(rows) * ROW - GAP
    title = (
        "The packages of dbbench. Each imports only packages below it; packages side by side do "
        "not import each other."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img"><title>{title}</title><style>{STYLE}</style>\n'
        + "\n".join(boxes)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    (ROOT / "docs/map.svg").write_text(drawn(), encoding="utf-8")
