"""Help, completion and explanations of errors."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli
from dbbench.errors import error_kinds, warning_kinds
from dbbench.plan import studies
from dbbench.plan.catalog import catalog
from tests.support.terminal import Terminal, dbbench_on


@pytest.mark.parametrize("argv", [[], ["fleet"]])
def test_a_group_without_a_command_prints_its_help(
    capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    """The help goes to stderr, without an error message."""
    assert cli.run(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"Usage: {' '.join(['dbbench', *argv])} [OPTIONS] COMMAND")


def test_every_command_has_its_help(printed: Any) -> None:
    """`dbbench --help` lists the groups in their order, each with its commands below it, and each
    of them explains itself.
    """
    lines = [line for line in printed("--help").splitlines() if not line.startswith("   ")]
    below = lines[lines.index("Measure:") + 1 : lines.index("Options:")]
    assert [line.split()[0] for line in below if line.startswith("  ")] == list(cli.COMMANDS)
    assert [line[:-1] for line in lines if line.endswith(":") and line[:-1] in cli.GROUPS] == list(
        cli.GROUPS
    )
    for name in cli.COMMANDS:
        assert f"Usage: dbbench {name}" in printed(name, "--help")


@pytest.mark.starts_processes  # git, for the commit of the version
def test_help_has_own_options_first_then_examples_and_exit_statuses(printed: Any) -> None:
    """Of a command, of a group and of dbbench; -V is --version."""
    headings = ["Options:", "Global options:", "Examples:", "Exit status:"]
    for words in (["compare"], ["run"], ["fleet", "run"], []):
        text = printed(*words, "--help")
        shown = [line for line in text.splitlines() if line in headings]
        assert shown == headings
        assert "--verbose" in text.partition("Global options:")[2]
    assert re.search("  130  .*resumes", text)
    assert printed("-V").startswith("dbbench ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, printed: Any) -> None:
    """It asks dbbench by the variable that `run` looks for."""
    assert f"_DBBENCH_COMPLETE={shell}_complete" in printed("completion", shell)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nightl", "nightly"),
        ("nightly acc", "accept"),
        ("fs btrfs-z", "btrfs-zstd"),
        ("study ru", "run"),
        ("compare --format junit --ba", "--baseline"),
        ("compare --metric p95", "p95_ms"),
        ("explain W01", "W012"),
        ("compare a --against de", "demo"),
        ("run pla", "pla"),
        ("show de", "demo"),
    ],
)
def test_completions(
    words: str,
    expected: str,
    tmp_path: Path,
    here: Path,
    environ: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Commands, names of the catalogues, runs of the results folder, options; a plan is a file."""
    (tmp_path / "results/demo").mkdir(parents=True)
    (tmp_path / "results/demo/run.json").touch()
    for name, value in (
        ("_DBBENCH_COMPLETE", "bash_complete"),
        ("COMP_WORDS", f"dbbench {words}"),
        ("COMP_CWORD", str(len(words.split()))),
    ):
        environ[name] = value
    cli.run([])
    kind = "file" if words.startswith("run") else "plain"
    assert f"{kind},{expected}" in capsys.readouterr().out.splitlines()


def test_every_id_can_be_explained(printed: Any) -> None:
    """`explain` knows each ID, in any case of letters; with `--all` it prints each with its remedy,
    on lines of at most 120 characters. Meaning and remedy have at most 60 words together.
    """
    for name in error_kinds():
        assert printed("explain", name.lower()).startswith(f"{name}: ")
    lines = printed("explain", "--all").splitlines()
    assert [line[:4] for line in lines if line[1:4].isdigit()] == [*error_kinds(), *warning_kinds()]
    assert sum(line.startswith("  Remedy: ") for line in lines) == len(error_kinds()) + len(
        warning_kinds()
    )
    assert max(map(len, lines)) <= 120
    kinds = error_kinds() | warning_kinds()
    assert {
        name for name, kind in kinds.items() if len(f"{kind.meaning} {kind.remedy}".split()) > 60
    } == set()


def test_an_unknown_id_names_its_neighbours(printed: Any) -> None:
    """An ID that does not exist is answered with a few of its group, and a word with the titles
    that contain it.
    """
    assert "E104" in printed("explain", "E199", code=2)
    err = printed("explain", "checkpoint", code=2)
    assert "W002 (no checkpoint in the window)" in err and "E104" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["plan"],
        ["compare"],
        ["fs"],
        ["workload"],
        ["workload", "from-statements"],
        ["study"],
        ["study", "run"],
        *(["nightly", each] for each in ("run", "status", "accept", "baseline")),
        *(["fleet", each] for each in ("run", "worker", "scheduler", "status", "stop")),
    ],
)
def test_help_has_examples_of_the_command(printed: Any, words: list[str]) -> None:
    """Each begins with the command itself, and fits a terminal of 80 columns."""
    examples = (
        printed(*words, "--help").partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    )
    assert examples and all(line.startswith(f"  dbbench {' '.join(words)}") for line in examples)
    assert max(map(len, examples)) <= 80


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("command", "names"),
    [("fs", catalog([]).setups), ("workload", catalog([]).workloads), ("study", studies.names())],
)
def test_catalogues_on_a_terminal_of_80_columns(
    tmp_path: Path,
    command: str,
    names: Collection[str],
) -> None:
    """No line is wider, and every name is whole at the start of a line."""
    terminal = Terminal(80, 24)
    assert dbbench_on(terminal, [command], tmp_path, os.environ, within_s=120) == 0
    assert not terminal.screen.wrapped
    assert {line.split(" ")[0] for line in terminal.screen.text.splitlines() if line} >= set(names)
