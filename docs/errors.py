"""Write docs/errors.md from the tables of errors, warnings and durability classes in dbbench/errors/.

Run `make map` after an error or a warning was added or its text changed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.errors import Kind, durability_kinds, error_kinds, warning_kinds

PAGE: Final = Path(__file__).with_suffix(".md")
HEAD: Final = """\
# Errors and warnings

`dbbench explain ID` prints an entry of this list, and `dbbench explain --all` prints all of them. An error message
has the ID, the evidence, what was or was not changed, and the next command. An error during a trial marks that trial as
failed, and the run continues with the next trial. Any other error ends the command.

## Exit statuses

- **0**: success. For `run`: every trial has a result, and none failed.
- **1**: a trial failed, or dbbench itself failed.
- **2**: the command line, the plan or the environment is wrong. Nothing was changed.
- **3**: a regression. Only `compare --gate` and `nightly` return it.
- **4**: the result is inconclusive. Only `compare --gate` and `nightly` return it.
- **5**: refused for safety. Nothing was changed.
- **130**, **143**: interrupted (SIGINT), terminated (SIGTERM). Run the same command again to resume.
"""
# first ID of a group -> heading of the group
GROUPS: Final = {
    "E001": "Usage and plans",
    "E101": "Devices: refused for safety",
    "E201": "Programs, permissions and resources",
    "E301": "Filesystems, layers and operations",
    "E321": "Sources, recordings and other hosts",
    "E346": "Processes and verification of the work",
    "E401": "Database server",
    "E501": "Dataset",
    "E601": "Load generator",
    "E801": "Results and nightly runs",
    "E820": "Power-loss lab",
    "E830": "Import and fleet",
    "E900": "Program",
}
WARNINGS_HEAD: Final = """\
## Warnings

A warning is a remark about a trial. If it makes the trial **suspect**, something disturbed the trial: its block is
repeated, and tables show how many suspect trials a number includes. Other warnings say what a number means. dbbench
never excludes a trial because of its result.
"""
CLASSES_HEAD: Final = """\
## Durability classes

What each class rests on, worst first. [durability.md](durability.md) describes the power-loss lab, which counted.
"""


def page() -> str:
    """Return the text of docs/errors.md."""
    parts = [HEAD, *_errors(), WARNINGS_HEAD, *_warnings(), CLASSES_HEAD, *_classes()]
    return "\n".join(parts).rstrip() + "\n"


def _errors() -> Iterator[str]:
    for name, kind in error_kinds().items():
        if name in GROUPS:
            yield f"## {GROUPS[name]}\n"
        yield _entry(name, kind, f"Exit status {kind.exit_code}.")


def _warnings() -> Iterator[str]:
    for name, kind in warning_kinds().items():
        yield _entry(name, kind, "The trial is suspect." if kind.suspect else "")


def _classes() -> Iterator[str]:
    for name, kind in durability_kinds().items():
        lines = [_filled(kind.mechanism), "", _filled(f"*Counted:* {kind.counts}")]
        if kind.repeat:
            lines += ["", "*Repeat:*", "", *[f"- {line}" for line in kind.repeat.splitlines()]]
        yield "\n".join([f"### {name}: {kind.title}", "", *lines, ""])


def _entry(name: str, kind: Kind, note: str) -> str:
    lines = [_filled(kind.meaning), "", _filled(f"*Remedy:* {kind.remedy} {note}".rstrip())]
    return "\n".join([f"### {name}: {kind.title}", "", *lines, ""])


def _filled(text: str) -> str:
    return textwrap.fill(
        text,
        120,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
