"""`dbbench --version`: the version, and the commit that the program was made of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from dbbench import __version__

BAKED: Final = "commit.txt"  # `make dist` writes "8511515 2026-11-23" or "" into this file of the package
_GIT_S: Final = 10.0


def _print(ctx: click.Context, _param: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        click.echo(f"dbbench {__version__} ({described(Path(__file__).parents[1])})")
        ctx.exit()


version_option = click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print,
                              help="Print the version and the commit, and exit.")  # fmt: skip


def described(package: Path) -> str:
    """Return "commit 8511515 of 2026-11-23" for the directory of the package, or "commit unknown".

    A wheel or .deb contains the line; a checkout asks git, and says whether files of it were changed since.
    """
    try:
        words = (package / BAKED).read_text(encoding="utf-8").strip().split(maxsplit=2)
    except OSError:
        words = of_checkout(package.parent).split(maxsplit=2)
    if len(words) < 2:
        return "commit unknown"
    return f"commit {words[0]} of {words[1]}" + (f", {words[2]}" if words[2:] else "")


def of_checkout(folder: Path) -> str:
    """Return "COMMIT DATE" of a checkout, with "with local changes" where tracked files differ; "" without git."""
    from dbbench import process
    from dbbench.errors import DbbenchError

    if not (folder / ".git").exists() or not process.find("git"):
        return ""
    git: list[str | Path] = ["git", "-c", f"safe.directory={folder}", "-C", folder]
    try:
        line = process.run([*git, "log", "-1", "--format=%h %cs"], timeout_s=_GIT_S, note=False).stdout.strip()
        changed = process.run([*git, "status", "--porcelain", "--untracked-files=no"], timeout_s=_GIT_S, note=False)
    except DbbenchError:
        return ""
    return f"{line} with local changes" if changed.stdout.strip() else line
