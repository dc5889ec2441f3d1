"""The release checklist, in order: `make release`. It stops at the first item that fails, and tags
after the last.

make release                                   hours; as root or with sudo, on a quiet machine
python packaging/release.py --list
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dbbench import __version__

ROOT: Final = Path(__file__).resolve().parents[1]
TAG: Final = f"v{__version__}"
SUDO: Final = [] if os.geteuid() == 0 else ["sudo"]
BIN: Final = ROOT / ".venv/bin"


class Item(NamedTuple):
    """One item; `check` returns "" or what is wrong."""

    title: str
    check: Callable[[], str]


def command(*argv: str | Path) -> Callable[[], str]:
    """Return a check that a command of the checkout ends with status 0; its output goes to the
    terminal.
    """

    def check() -> str:
        status = subprocess.run(
            argv,
            cwd=ROOT,
            check=False,
        ).returncode
        return f"{' '.join(map(str, argv))} ended with status {status}" if status else ""

    return check


def changelog(text: str, version: str) -> str:
    """Return what is wrong with the changelog: it requires a section of the version, with a date
    and entries.
    """
    if re.search(r"^## Unreleased\n+(?!## )\S", text, re.MULTILINE):
        return "CHANGELOG.md has entries under Unreleased"
    section = re.search(
        rf"^## {re.escape(version)} \((.*?)\)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if section is None:
        return f"CHANGELOG.md has no section {version}"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", section[1]):
        return f'CHANGELOG.md has "{version} ({section[1]})" instead of a date'
    return (
        ""
        if re.search(r"^- ", section[2], re.MULTILINE)
        else f"section {version} of CHANGELOG.md has no entries"
    )


def unchanged() -> str:
    """Return which tracked files differ from the commit."""
    done = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return (
        f"files differ from the commit:\n{done.stdout.rstrip()}"
        if done.stdout.strip() or done.returncode
        else ""
    )


def demo_twice() -> str:
    """Return what is wrong with two demos: the second one runs no trials."""
    with tempfile.TemporaryDirectory(prefix="dbbench-release-", dir="/var/tmp") as work:
        argv = [
            *SUDO,
            BIN / "dbbench",
            "run",
            "docs/plans/demo.toml",
            "--name",
            "demo",
            "--results",
            work,
        ]
        kept: list[list[str]] = []
        for _time in range(2):
            if (
                status := subprocess.run(
                    argv,
                    cwd=ROOT,
                    check=False,
                ).returncode
            ) != 0:
                return f"the demo ended with status {status}"
            kept.append(sorted(path.name for path in Path(work, "demo/trials").iterdir()))
        return "" if kept[0] and kept[0] == kept[1] else "the second demo ran trials"


def not_tagged() -> str:
    """Return an error if the tag exists already."""
    done = subprocess.run(
        ["git", "tag", "--list", TAG], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f"the tag {TAG} exists" if done.stdout.strip() else ""


ITEMS: Final = (
    Item("no local changes", unchanged),
    Item(f"no tag {TAG} yet", not_tagged),
    Item(
        "the changelog has a dated section",
        lambda: changelog((ROOT / "CHANGELOG.md").read_text(), __version__),
    ),
    Item("generated documents are current", command("make", "map")),
    Item("generating them changed nothing", unchanged),
    Item("make test", command("make", "test")),
    Item("make test-all", command("make", "test-all")),
    Item("make coverage", command("make", "coverage")),
    Item("the demo, twice", demo_twice),
    Item("make bench", command("make", "bench")),
    Item("packages", command("make", "dist")),
    Item(
        "packages in bare roots",
        command(*SUDO, BIN / "pytest", "-m", "long or soak", "tests/system/packages"),
    ),
    Item("tag", command("git", "tag", "-a", TAG, "-m", f"dbbench {__version__}")),
)


def checked(items: Sequence[Item]) -> int:
    """Check the items in order; 1 at the first one that fails, and 0 after the last."""
    for number, item in enumerate(items, 1):
        print(f"{number}/{len(items)} {item.title}", flush=True)
        began = time.monotonic()
        if problem := item.check():
            print(f"FAILED: {item.title}: {problem}", flush=True)
            return 1
        print(f"    ok ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


def main() -> int:
    """Run the checklist, or print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--list",
        action="store_true",
        help="print the items and check nothing",
    )
    if parser.parse_args().list:
        print("\n".join(item.title for item in ITEMS))
        return 0
    return checked(ITEMS)


if __name__ == "__main__":
    sys.exit(main())
