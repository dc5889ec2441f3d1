"""dbbench: which filesystem should hold my database, by how much, and how sure are we? The road of
one trial is in `dbbench/run/trial.py`. From Python: `load_run(path)` reads results,
`render(runs)` makes the report page, `dbbench.compare` holds the verdicts.
"""

from __future__ import annotations

from typing import Any

__all__ = ["__version__", "load_run", "render"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the two public functions on first use, so that `import dbbench` is fast."""
    if name == "load_run":
        from dbbench.results import load_run

        return load_run
    if name == "render":
        from dbbench.report.page.html import render

        return render
    raise AttributeError(f"module 'dbbench' has no attribute {name!r}")
