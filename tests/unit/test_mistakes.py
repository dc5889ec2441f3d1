"""Mistakes that people make with the command line and with files: each message names the mistake
and what to do instead.
"""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli
from dbbench.errors.similar_names import did_you_mean
from tests.support.files import write_file

ZFS = ["zfs", "zfs-16k", "zfs-slog", *(f"name{number}" for number in range(20))]
SETUPS = ["xfs", "btrfs", "ext4", *ZFS]
LOOP = """name = "x"
fs_setups = ["ext4"]
[engine]
name = "postgres"
[workload]
name = "scan"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two directories, a plan and a page."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write_file(tmp_path / "good.toml", LOOP)
    write_file(tmp_path / "page.html", "<!DOCTYPE html>")
    (tmp_path / "plan.toml.gz").write_bytes(gzip.compress(LOOP.encode()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nfs_setups: [ext4]\n", "looks like YAML"),
        ("# comment\n\n---\nname: x\n", "looks like YAML"),
        ("- ext4\n- xfs\n", "looks like YAML"),
        ('{\n  "name": "x"\n}\n', "looks like JSON"),
        ("<!DOCTYPE html>\n<html>", "looks like HTML"),
        ("-- PostgreSQL database dump\nSET x = 1;\n", "looks like SQL"),
        ("name = \u201cx\u201d\n", ":1  invalid TOML: there are typographic quotes"),
        ("\x7fELF\0", "is a binary file, not a text"),
        (
            "name = 'x'\nblocks = 3\u00a0\n",
            ":2  invalid TOML: there is an invisible character, U+00A0",
        ),
        ('name = "x"\nblocks: 3\n', ":2  invalid TOML: there is a : instead of ="),
    ],
)
def test_files_in_other_formats(text: str, words: str, folder: Path, printed: Any) -> None:
    """The format is named, and how to get a plan."""
    path = write_file(folder / "plan.toml", text)
    assert words in printed("plan", str(path), code=2)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_text_in_another_encoding(encoding: str, folder: Path, printed: Any) -> None:
    """As editors of Windows save it."""
    path = folder / "plan.toml"
    path.write_text('name = "m\u00fcnchen"\n', encoding=encoding)
    said = {"utf-16": "the text is UTF-16", "latin-1": "the text is not UTF-8"}
    assert f"{said[encoding]}; save the file as UTF-8" in printed("plan", str(path), code=2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r'label = "a\nerror E999: b"', r'"a\nerror E999: b"'),
        (r'"a\u2028b" = 1', r'unknown key "a\nb"'),
        ("baseline = [1]", '"baseline" must be a string'),
        ("expect = { ext4 = 'worse' }", '"ext4" must be slower, not'),
        ("deadlines = { load = '1h' }", '"load" is not a key of this table; known: canary'),
        ("deadlines = { mesure = '1h' }", '; did you mean "measure"?'),
        ("memory = '1Gi'", 'such as "4GiB" (KiB, MiB, GiB, TiB; kB, MB, GB, TB)'),
        ("warmup = '2 hours'", 'such as "90s" (ms, s, min, h)'),
        ("fs_setup = ['ext4']", "has an error:"),
        ("memory = 2", '"memory" must be 8 MiB or more, not 2'),
        ("operations = 'backup'", '"operations" must be a list in [ ]'),
        ("[device]\nlimit = 5", '"limit" must be a table in { }'),
    ],
)
def test_a_value_of_a_plan_begins_no_line_of_a_message(
    line: str,
    words: str,
    folder: Path,
    printed: Any,
) -> None:
    """Otherwise a plan could forge messages."""
    if line.startswith("label"):
        line = 'fs_setups = [{ use = "xfs", ' + line + " }]"
    text = LOOP.replace('fs_setups = ["ext4"]', line)
    assert words in printed("plan", str(write_file(folder / "plan.toml", text)), code=2)


def test_a_misspelt_name_of_a_workload_is_one_error(folder: Path, printed: Any) -> None:
    """Without its name, the other keys of a workload cannot be checked; the misspelt one is."""
    text = LOOP.replace('name = "scan"', 'nam = "scan"\nclients = 1')
    words = printed("plan", str(write_file(folder / "plan.toml", text)), code=2)
    assert "has an error:" in words
    assert 'plan.toml:6  unknown key "nam"; did you mean "name"?' in words


@pytest.mark.parametrize(
    ("at", "words", "code"),
    [
        ("/dev/shm", "an image in memory (/dev/shm), from which nothing reaches a disk", 0),
        ("/etc/passwd", "Name a directory as `at` in [device].", 5),
    ],
)
@pytest.mark.starts_processes
@pytest.mark.needs("engine:postgres")
def test_places_of_an_image(
    at: str,
    words: str,
    code: int,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In memory, and not in a directory."""
    text = f'{LOOP}[device]\nkind = "loop"\nsize = "1GiB"\nat = "{at}"\n'
    path = write_file(folder / "plan.toml", text)
    assert cli.run(("plan", str(path))) == code
    assert words in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("XFS", 'did you mean "xfs"?'),
        ("Btrfs", 'did you mean "btrfs"?'),
        ("xsf", 'did you mean "xfs"?'),
        ("ntfs", ""),
        ("zfs-lz4", "; those of zfs: zfs, zfs-16k, zfs-slog"),
    ],
)
def test_names_of_setups(word: str, hint: str) -> None:
    """Without regard to case; what is only half alike is not proposed."""
    found = did_you_mean(word, SETUPS)
    assert found.removeprefix("; ") == hint.removeprefix("; ")


def test_words_of_other_programs_are_known() -> None:
    """Where the key exists."""
    assert did_you_mean("threads", ["clients", "tables"]) == '; did you mean "clients"?'
    assert did_you_mean("repetitions", ["blocks", "operations"]) == '; did you mean "blocks"?'
    assert 'did you mean "bin", the directory' in did_you_mean("version", ["bin", "name"])
    assert "bin" not in did_you_mean("version", ["name", "seed"])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["init", "--dirs", "a,", "b"], "a list has commas and no spaces: a,b"),
        (["init", "--dirs", "a", "b"], "a list has commas and no spaces: a,b"),
        (["init", "--fs", "ext4", ",xfs"], "a list has commas and no spaces: ext4,xfs"),
        (["init", "a"], "`dbbench init` takes no arguments"),
        (["plan", "good.toml", "b.toml"], 'unexpected argument "b.toml"'),
        (["run", "good"], 'does not exist Nothing was changed. Did you mean "good.toml"?'),
        (["run", "goood.toml"], 'Did you mean "good.toml"?'),
        (["run", "x.toml"], "Write a plan with: dbbench init"),
        (["plan", "-"], "a plan is read from a file"),
        (["run", ""], "the word after run is empty: is a variable not set?"),
        (["run", "good.toml", "--results", ""], "the word after --results is empty"),
        (["run", "--blocks"], "See: dbbench run --help"),
        (["fs", "./mine.toml"], "name it without a path"),
        (["fs", "ext4 xfs"], "write a comma between two names"),
        (["run", "good.toml", "--name", "-x"], "a letter or digit first, at most 240"),
        (["run", "good.toml", "--wipe", "yes"], "--wipe has no effect"),
        (["run", "--wipe", "good.toml"], "expected the identity of a disk"),
        (["compare", "page.html"], "page.html is a page, not the folder of a run"),
        (["show", "good.toml"], "good.toml is a file, not the folder of a run"),
        (["show", "/etc"], "/etc is a directory without run.json, not the folder of a run"),
        (["plan", "plan.toml.gz"], "plan.toml.gz is a binary file, not a text"),
        (["run", "--notify", "nosuch x"], '"nosuch x" does not begin with a program'),
        (["run", "--notify", "echo '"], "No closing quotation"),
        (["run", "--results", "good.toml"], "is a file"),
        (["probe", "/dev/nosuch"], "Name a directory on that disk; lsblk lists"),
        (["powercut", "good.toml", "--cuts", "x"], "expected a whole number of 2 or more, not x"),
        (["powercut", "good.toml", "--cuts", "1"], "expected a whole number of 2 or more, not 1"),
        (["list"], 'did you mean "show"?'),
        (["completion"], "Choose from: bash, zsh, fish"),
        (["explain", "no-barier"], 'did you mean "no-barrier"?'),
        (["nightly", "run", "good.toml", "--junit", "none/x.xml"], "none is not a directory in"),
        (["init", "--engine", "postgresql"], 'did you mean "postgres"?'),
        (["init", "--budget", "8"], "requires a unit: write 8ms, 8s or 8min"),
        (["size", "good.toml", "--rate", "9", "--p99", "5"], "requires a unit: write 5ms, 5s or"),
        (["probe", ".", "--time", "5"], "requires a unit: write 5ms, 5s or 5min"),
        (["compare", "x", "--format", "jsn"], 'did you mean "json"?'),
        (["init", "--dirs", "a,a", "--engine", "postgres"], "Nothing was written."),
        (["init", "-o", "none/x.toml", "--engine", "postgres"], "Nothing was written."),
    ],
)
def test_command_lines(argv: list[str], words: str, printed: Any) -> None:
    """The message says what is wrong with the word."""
    assert words in " ".join(printed(*argv, code=2).split())


def test_a_directory_that_does_not_exist(folder: Path, printed: Any) -> None:
    """The remedy is the command that creates it."""
    text = printed("init", "--dirs", "a,none", "--engine", "postgres", code=5)
    assert f"mkdir -p {folder}/none" in " ".join(text.split())


def test_the_results_folder_is_named_with_its_path(folder: Path, printed: Any) -> None:
    """The command was given in another directory."""
    text = printed("compare", "x", code=2)
    assert f"{folder}/results does not exist" in " ".join(text.split())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_plan_that_may_not_be_read(folder: Path, printed: Any) -> None:
    """Its owner and mode are named."""
    (folder / "good.toml").chmod(0)
    assert "has mode 0000" in printed("plan", "good.toml", code=2)


@pytest.mark.parametrize("word", ["W12", "w012", "W-012", "12"])
def test_an_id_in_another_form(word: str, printed: Any) -> None:
    """The zeros may be left out."""
    assert printed("explain", word).startswith("W012: ")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("XFS", "xfs is an fs setup: dbbench fs xfs"),
        ("pgbench", "pgbench-tpcb is a workload: dbbench workload pgbench-tpcb"),
        ("percona", "percona-2012 is a study: dbbench study percona-2012"),
        ("tps", "tps is a metric: dbbench compare RUN --metric tps"),
        ("checkpoint", "Similar: W002 (no checkpoint in the window)"),
        ("101", "Similar: E101 (the device or directory cannot be used), W101"),
        ("nix", "All of them: dbbench explain --all"),
    ],
)
def test_words_that_are_no_id(word: str, words: str, printed: Any) -> None:
    """The list in which the word is, or the IDs whose text has it."""
    assert words in " ".join(printed("explain", word, code=2).split())
