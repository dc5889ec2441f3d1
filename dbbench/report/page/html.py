"""From the page model to one HTML file with its styles, scripts and data, and a policy that allows nothing else.

All text goes through jinja2's autoescape. The scripts are allowed by their SHA-256, connections are not allowed
at all; JSON is in a separate block with `<` written as \\u003c, so that no name can end it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dbbench import __version__, units
from dbbench.compare import remarks
from dbbench.metrics.histogram import LEAST_ABOVE
from dbbench.model.base import shipped
from dbbench.report.page.headline import SIGNS
from dbbench.report.page.model import PageModel
from dbbench.report.page.power_loss import HEADINGS

LIBRARY: Final = "plotly-cartesian.min.js"
# The page has these scripts in this order in a single function, so a file can use the declarations of earlier files,
# and none of them is global.
SCRIPTS: Final = ("data.js", "figures.js", "page.js", "pictures.js")
HEAD_SCRIPT: Final = "head.js"


def html(model: PageModel) -> str:
    """Return the whole page as text."""
    folder = shipped() / "reports"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        change=units.change,
        interval=units.interval,
        number=units.number,
        count=units.count,
        times=units.times,
        remarks=remarks.texts,
    )
    head, library, script = (
        Markup(text) for text in (_asset(folder, HEAD_SCRIPT), _asset(folder, LIBRARY), _own_script(folder))
    )
    return environment.get_template("page.html.j2").render(
        page=model,
        version=__version__,
        signs=SIGNS,
        cut_headings=HEADINGS,
        least_above=LEAST_ABOVE,
        style=Markup(_asset(folder, "page.css")),
        head_script=head,
        library=library,
        script=script,
        policy=_policy([head, library, script]),
        drawing=embedded(model.drawing),
        results=embedded(model.results),
    )


def embedded(content: Any) -> Markup:
    """Return JSON that is safe inside a script element. Raises ValueError for NaN; keys keep their order."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _asset(folder: Path, name: str) -> str:
    return (folder / "assets" / name).read_text(encoding="utf-8").strip()


def _own_script(folder: Path) -> str:
    return '(() => {\n"use strict";\n' + "\n".join(_asset(folder, name) for name in SCRIPTS) + "\n})();"


def _policy(scripts: list[Markup]) -> str:
    """Return the content security policy: it allows these scripts, inline styles, and pictures made by the page."""
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
