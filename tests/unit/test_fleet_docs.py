"""The examples of docs/fleet: their syntax is valid, and the commands that they call exist."""

import ast
import importlib.util
import re
import subprocess
from pathlib import Path

import click
import pytest

from dbbench.cli import group

FOLDER = Path(__file__).parents[2] / "docs/fleet"
FILES = sorted(FOLDER.iterdir())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_python_examples_compile(path: Path) -> None:
    """They compile, and what they name of dbbench exists."""
    tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
    compile(tree, path.name, "exec")
    named = re.findall(r"dbbench\.fleet\.\w+", path.read_text(encoding="utf-8"))
    assert named and all(importlib.util.find_spec(name) for name in named)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_yaml_examples_load(path: Path) -> None:
    """A playbook is a list of plays with tasks, a cluster has a kind."""
    yaml = pytest.importorskip("yaml")
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        plays = document if isinstance(document, list) else [document]
        for play in plays:
            assert {"hosts", "tasks"} <= play.keys() or (
                "kind" in play and play.keys() & {"spec", "data"}
            )


@pytest.mark.starts_processes
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sbatch")), ids=lambda path: path.name)
def test_shell_examples_parse(path: Path) -> None:
    """bash reads them without a fault."""
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_commands_of_examples_exist(path: Path) -> None:
    """Each `dbbench ... --option` is a command with that option."""
    text = path.read_text(encoding="utf-8").replace("[dbbench, fleet, ", "dbbench fleet ")
    text = text.replace(", ", " ").replace("]", " ")
    lines = re.findall(
        r"(?<![/\w.-])dbbench ((?:fleet )?[a-z]+)\b([^#;\n]*(?:\n +--certs[^\n]*)?)", text
    )
    assert lines or path.name == "playbook.yaml"
    for words, rest in lines:
        command: click.Command | None = group
        for word in words.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None, words
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", rest)) <= known, (words, rest)


def test_document_names_each_example() -> None:
    """docs/fleet.md links to every file of its folder."""
    text = (FOLDER.parent / "fleet.md").read_text(encoding="utf-8")
    assert [path.name for path in FILES if f"(fleet/{path.name})" not in text] == []
