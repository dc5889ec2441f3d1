"""Run the commands of docs/tutorial.md and write their output into it.

The tutorial is its own script. Each `console` block holds commands (`$ ...`) and their output,
which is replaced by that of this run; `console head=N` keeps the first N lines. A block in
another language whose first line is a comment with a file name is written to that file. Blocks
of `sh` are for the reader and are not run. Everything happens in a temporary directory; commands
that make the dump use a private PostgreSQL server. Needs root; run it with `make docs`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines import ENGINES
from dbbench.engines.port import Place
from dbbench.model import merge_settings

ROOT: Final = Path(__file__).resolve().parents[1]
TUTORIAL: Final = ROOT / "docs/tutorial.md"
SHOWN_AS: Final = "/srv/bench"  # the temporary directory, as the tutorial shows it
LIMIT_S: Final = 3600  # for each command
INCONCLUSIVE: Final = 4  # exit status: the data do not support an answer
BLOCK: Final = re.compile(r"^```(\w+)(?: head=(\d+))?\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
FILE: Final = re.compile(r"\A(?:#|--) (\S+\.(?:toml|sql))\b")
CLIENTS: Final = ("createdb", "psql", "pg_dump")  # commands of a server, which runs only for them


def commands(text: str, language: str = "console") -> list[str]:
    """Return the commands in the blocks of that language, in order."""
    prefix = "$ " if language == "console" else ""
    bodies = [body for kind, _, body in BLOCK.findall(text) if kind == language]
    lines = [line for body in bodies for line in body.splitlines() if line.startswith(prefix)]
    return [line.removeprefix(prefix).partition("  #")[0].strip() for line in lines]


@contextmanager
def server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a private PostgreSQL server with its files in `folder`; yield the variables by which its
    clients find it.
    """
    engine = ENGINES["postgres"]
    place = Place(folder / "s", folder / "logs", None)
    if not (folder / "data").exists():
        engine.create(folder / "data", place)
    with engine.serving(
        folder / "data", merge_settings(("default", engine.defaults(None))), place
    ) as running:
        yield {
            "PGHOST": str(running.socket_dir),
            "PGUSER": running.user,
        }


@contextmanager
def workplace() -> Iterator[Path]:
    """Yield a temporary directory; it is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="dbb", dir="/var/tmp"))
    folder.chmod(0o755)  # the account of the server must be able to enter it
    try:
        (folder / "bench").mkdir()
        yield folder / "bench"
    finally:
        shutil.rmtree(folder)


def output_of(command: str, folder: Path) -> str:
    """Run the command in that directory and return its stdout, without what differs between
    machines.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    environment = {
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "110",
    }
    with ExitStack() as stack:
        if command.startswith(CLIENTS):
            environment |= stack.enter_context(server(folder.parent / "server"))
        done = process.run(
            ["bash", "-c", command], cwd=folder, env=environment, ok=range(256), timeout_s=LIMIT_S
        )
    if done.returncode not in (0, INCONCLUSIVE):
        raise SystemExit(f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return normalised(done.stdout, folder)


def normalised(text: str, folder: Path) -> str:
    """Return the text with a fixed directory, and without dates, trailing spaces and the name of
    the machine.
    """
    text = text.replace(str(folder), SHOWN_AS).replace(os.uname().nodename, "db1")
    text = re.sub(r"/root/\.cache|/home/[^/\s]+/\.cache", "~/.cache", text)
    text = re.sub(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?", r"2026-11-21\g<1>09:00:00", text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def regenerated(text: str, folder: Path) -> str:
    """Return the tutorial with the output of its commands, which run in `folder` now."""

    def replaced(block: re.Match[str]) -> str:
        language, head, body = block.groups()
        name = FILE.match(body)
        if name is not None:
            target = folder / name[1]
            target.parent.mkdir(exist_ok=True)
            target.write_text(body, encoding="utf-8")
        if language != "console":
            return block[0]
        shown = []
        for line in body.splitlines():
            if line.startswith("$ "):
                print(line, flush=True)
                lines = output_of(line.removeprefix("$ "), folder).splitlines()
                kept = [*lines[: int(head)], "..."] if head and len(lines) > int(head) else lines
                shown += [line, *kept]
        fence = f"```console head={head}" if head else "```console"
        return "\n".join([fence, *shown, "```"]) + "\n"

    return BLOCK.sub(replaced, text)


if __name__ == "__main__":
    with workplace() as work:
        TUTORIAL.write_text(
            regenerated(TUTORIAL.read_text(encoding="utf-8"), work), encoding="utf-8"
        )
