"""The commands of docs/tutorial.md exist, and its plan and workload load;
tests/system/test_tutorial.py runs it.
"""

import re
import runpy
import shlex
from pathlib import Path
from typing import Final

import click
import pytest

from dbbench import plan
from dbbench.cli import group
from dbbench.commands.options import Options
from dbbench.plan.catalog import catalog

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
SCRIPT: Final = runpy.run_path(str(ROOT / "docs/tutorial.py"))
COMMANDS: Final = [*SCRIPT["commands"](TEXT), *SCRIPT["commands"](TEXT, "sh")]
DBBENCH: Final = [line for line in COMMANDS if line.startswith("dbbench ")]


def parsed(arguments: list[str]) -> click.Context:
    """Parse a command line without running it; the context of its last command."""
    context = group.make_context("dbbench", list(arguments), obj=Options())
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("command", DBBENCH)
def test_every_command_of_the_tutorial_exists(command: str) -> None:
    """With each of its options."""
    assert parsed(shlex.split(command)[1:]).command.name


def test_the_tutorial_covers_the_way_to_an_answer() -> None:
    """Ten numbered steps, which use these commands. Each one that is run is followed by what it
    printed. A wrong option would be noticed above.
    """
    for kind, _, body in SCRIPT["BLOCK"].findall(TEXT):
        assert kind != "console" or not re.search(r"^\$ .*\n(?:\$|\Z)", body, re.MULTILINE), body
    with pytest.raises(click.UsageError):
        parsed(["run", "plan.toml", "--no-such-option"])
    assert [str(number) for number in range(1, 11)] == re.findall(
        r"^## (\d+)\. ",
        TEXT,
        re.MULTILINE,
    )
    assert {"doctor", "init", "plan", "run", "compare", "explain"} <= {
        line.split()[1] for line in DBBENCH
    }


def test_plan_and_workload_of_the_tutorial_load(tmp_path: Path) -> None:
    """What a reader copies out of it has no error."""
    for _, _, body in SCRIPT["BLOCK"].findall(TEXT):
        name = SCRIPT["FILE"].match(body)
        if name is not None:
            (tmp_path / name[1]).parent.mkdir(exist_ok=True)
            (tmp_path / name[1]).write_text(body, encoding="utf-8")
    head = "-- PostgreSQL database dump\n-- Dumped from database version 15.1\n"
    (tmp_path / "shop.dump").write_text(f"{head}--\n-- PostgreSQL database dump complete\n--\n")
    ours = catalog([tmp_path])
    assert {"orders", "scan"} == {
        spec.name for spec in plan.load(tmp_path / "plan.toml", ours).workload
    }


def test_what_differs_between_machines_is_not_shown() -> None:
    """Directories, times and the name of the host."""
    shown = SCRIPT["normalised"](
        "/var/tmp/x/bench/a  \n2031-01-02 03:04:05 b\n", Path("/var/tmp/x/bench")
    )
    assert shown == "/srv/bench/a\n2026-11-21 09:00:00 b\n"
