"""Small files of /proc and /sys. A file that is missing or unreadable is None: kernels and machines differ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def text(path: Path) -> str | None:
    """The stripped content, or None."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The content as an integer, or None."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def chosen(path: Path) -> str | None:
    """ "madvise" of "always [madvise] never"; the whole content where nothing is in brackets."""
    found = text(path)
    match = re.search(r"\[([^\]]+)\]", found or "")
    return match[1] if match else found


def common(paths: Iterable[Path]) -> str | None:
    """The distinct contents of files that should agree (one a CPU), sorted, joined by ", "; None: no file."""
    found = {content for path in paths if (content := text(path)) is not None}
    return ", ".join(sorted(found)) or None
