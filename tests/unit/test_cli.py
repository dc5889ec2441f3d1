"""The program: its errors, exit statuses, options and the environment that it is started in."""

import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from dbbench import cli, packages, process
from dbbench.commands import explain
from dbbench.commands.options import Options
from dbbench.errors import DeviceInUse, Terminated, durability_kinds
from dbbench.model import Durability
from tests.support.files import write_file
from tests.support.terminal import WideStream

Failing = Callable[[BaseException], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """A function that makes `explain` raise an error."""

    def fail(error: BaseException) -> None:
        @click.command()
        @click.argument("words", nargs=-1)
        def command(words: tuple[str, ...]) -> None:
            raise error

        monkeypatch.setattr(explain, "command", command)

    return fail


def test_an_error_is_evidence_where_effect_remedy(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four parts in this order on stderr; stdout has nothing; the exit code is the class's."""
    error = DeviceInUse(
        "/dev/x is in use",
        where='plan.toml:12  path = "/dev/x"',
        effect="Nothing was changed.",
        remedy="umount /dev/x",
    )
    failing(error)
    assert cli.run(["explain", "E104"]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "error E104: /dev/x is in use",
        '  plan.toml:12  path = "/dev/x"',
        "  Nothing was changed. umount /dev/x",
    ]


def test_a_fault_of_ours_has_an_id_and_no_traceback(failing: Failing, printed: Any) -> None:
    """An unexpected exception is E999; only -v prints the traceback."""
    failing(ValueError("surprise"))
    quiet = printed("explain", "E104", code=1)
    assert quiet.startswith("error E999: ValueError: surprise\n")
    assert "Traceback" not in quiet
    assert "Traceback" in printed("-v", "explain", "E104", code=1)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [(KeyboardInterrupt(), 130, "E902"), (Terminated("terminated"), 143, "E903")],
)
def test_being_stopped_has_its_exit_codes(
    failing: Failing,
    printed: Any,
    error: BaseException,
    code: int,
    told: str,
) -> None:
    """Ctrl-C and SIGTERM are not faults of dbbench and have separate IDs."""
    failing(error)
    assert told in printed("explain", "E104", code=code)


@pytest.mark.starts_processes
def test_ctrl_c_during_the_imports_prints_no_traceback() -> None:
    """The process ends by the signal, as a shell expects."""
    code = """import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "dbbench.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
from dbbench.__main__ import main
main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_an_account_without_a_home_has_the_root_directory(
    printed: Any,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without HOME, and not listed in passwd(5), as in some containers: it was a fault of dbbench."""

    def unlisted(uid: int) -> None:
        raise KeyError(uid)

    environ.pop("HOME", None)
    monkeypatch.setattr("pwd.getpwuid", unlisted)
    assert "a file is missing" in printed("explain", "E003")
    assert Path.home() == Path("/")


@pytest.mark.parametrize("home", [None, "", "/"])
def test_without_a_home_directory_the_accounts_own_is_used(
    home: str | None,
    printed: Any,
    environ: dict[str, str],
) -> None:
    """A system unit has no HOME. Children found the golden copies and the journal's key elsewhere."""
    environ.pop("HOME", None)
    if home is not None:
        environ["HOME"] = home
    printed("explain", "E003")
    assert environ["HOME"] == pwd.getpwuid(os.geteuid()).pw_dir


def test_relative_folders_of_the_environment_are_those_of_the_working_directory(
    printed: Any,
    environ: dict[str, str],
    here: Path,
) -> None:
    """Children have another one: they searched golden copies below the root directory."""
    environ["DBBENCH_CACHE"] = "cache"
    environ["DBBENCH_PATH"] = "/nonexistent:own:."
    printed("explain", "E003")
    assert environ["DBBENCH_CACHE"] == str(here / "cache")
    assert environ["DBBENCH_PATH"] == f"/nonexistent:{here}/own:{here}"


def test_a_home_directory_that_is_given_is_kept(
    printed: Any,
    environ: dict[str, str],
    tmp_path: Path,
) -> None:
    """As an administrator may set it for a unit, or sudo may keep it."""
    environ["HOME"] = str(tmp_path)
    printed("explain", "E003")
    assert environ["HOME"] == str(tmp_path)


def test_sigterm_becomes_an_error() -> None:
    """The handler raises in the main thread, so that everything is released."""
    assert cli.run(["explain", "E104"]) == 0
    with pytest.raises(Terminated):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["explian"], "explain"),
        (["nightly", "acept"], "accept"),
        (["show", "--resluts"], "--results"),
        (["compare"], ""),
        (["run", "a", "b"], ""),
        (["compare", "r", "--format", "x"], ""),
    ],
)
def test_wrong_usage_is_exit_code_2(
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    meant: str,
) -> None:
    """It looks like every other error: ID, what was probably meant, effect, and the next command."""
    assert cli.run(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error E008: ")
    assert not meant or re.search(f"did you mean .?{meant}", err, re.IGNORECASE)
    command = f"dbbench {argv[0]}" if argv[0] in cli.COMMANDS else "dbbench"
    assert f"Nothing was changed. See:  {command}" in err and " --help\n" in err


@pytest.mark.parametrize(
    ("before", "after"),
    [(["--json"], []), ([], ["--json"]), (["--no-color"], ["--json"]), (["-v"], ["--json", "-q"])],
)
def test_global_options_stand_before_or_after(
    printed: Any,
    before: list[str],
    after: list[str],
) -> None:
    """`dbbench --json explain W012` and `dbbench explain W012 --json` are the same."""
    assert json.loads(printed(*before, "explain", "W012", *after))["entries"][0]["id"] == "W012"


def test_every_durability_class_is_explained(printed: Any) -> None:
    """With its mechanism and its counts, also as a class is printed."""
    names = [*(flag.value for flag in Durability), "full"]
    assert list(durability_kinds()) == names
    text = printed("explain", "async-commit + torn-prevented (unit 16384, aligned)", "full")
    for name in ("async-commit", "torn-prevented", "full"):
        kind = durability_kinds()[name]
        assert f"{name}: {kind.title}" in text
    assert text.count("Counted: ") == 3


def test_paths_of_both_places_are_searched(tmp_path: Path) -> None:
    """--path before the command and after it are both taken; the one after it comes first."""
    for name in ("a", "b"):
        (tmp_path / name / "workloads").mkdir(parents=True)
    options = Options()
    argv = ["--path", str(tmp_path / "a"), "explain", "W012", "--path", str(tmp_path / "b")]
    with cli.group.make_context("dbbench", argv, obj=options) as context:
        cli.group.invoke(context)
    assert options.paths == [str(tmp_path / "b"), str(tmp_path / "a")]


@pytest.mark.parametrize(
    ("words", "ident", "remedy"),
    [
        (["plan", "none.toml"], "E003", "dbbench init"),
        (["nope"], "E008", "--help"),
        (["show", "--nope"], "E008", "--help"),
        (["plan", "--blocks", "many"], "E008", "--help"),
        (["fleet", "run"], "E008", "--help"),
        (["completion", "tcsh"], "E008", "--help"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_errors_are_json_on_demand(
    capsys: pytest.CaptureFixture[str],
    here: Path,
    words: list[str],
    ident: str,
    remedy: str,
    first: bool,
) -> None:
    """Nothing on stdout, and on stderr one document with all parts of the error, wherever --json
    stands, also after the word that is wrong.
    """
    assert cli.run(["--json", *words] if first else [*words, "--json"]) == 2
    out, err = capsys.readouterr()
    document = json.loads(err)
    error = document["error"]
    assert out == "" and (document["schema"], error["id"], error["exit_status"]) == (1, ident, 2)
    assert error["evidence"] and remedy in error["remedy"]


@pytest.mark.parametrize(
    "words",
    [["show"], ["clean"], ["clean", "--dry-run"], ["nightly", "status"], ["nightly", "baseline"]],
)
def test_a_results_folder_that_does_not_exist_is_an_error(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: list[str],
) -> None:
    """A typing error after --results is no empty folder."""
    assert cli.run([*words, "--results", str(tmp_path / "typo")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"the results folder {tmp_path}/typo does not exist" in " ".join(
        err.split()
    )


def test_colours_only_on_a_terminal_and_unless_forbidden(environ: dict[str, str]) -> None:
    """NO_COLOR, --no-color and a pipe each mean no colours."""
    environ.pop("NO_COLOR", None)
    terminal = SimpleNamespace(isatty=lambda: True)
    pipe = SimpleNamespace(isatty=lambda: False)
    assert Options().has_colour(terminal)  # type: ignore[arg-type]
    assert not Options().has_colour(pipe)  # type: ignore[arg-type]
    assert not Options(no_color=True).has_colour(terminal)  # type: ignore[arg-type]
    environ["NO_COLOR"] = "1"
    assert not Options().has_colour(terminal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("baked", "said"),
    [
        ("8511515 2026-11-23\n", "commit 8511515 of 2026-11-23"),
        (
            "8511515 2026-11-23 with local changes\n",
            "commit 8511515 of 2026-11-23, with local changes",
        ),
        ("", "commit unknown"),
        (None, "commit unknown"),
    ],
)
def test_the_commit_of_an_installed_program(
    tmp_path: Path,
    baked: str | None,
    said: str,
) -> None:
    """What the build wrote into the package; without that, and without a checkout, it is unknown."""
    if baked is not None:
        (tmp_path / cli.BAKED).write_text(baked)
    assert cli.version_text(tmp_path) == said


@pytest.mark.starts_processes
@pytest.mark.skipif(packages.find("git") is None, reason="needs git")
def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    """Git is asked, and changed files are mentioned; a damaged repository has no known commit."""
    git = ["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    write_file(tmp_path / "dbbench/a.py", "1")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        process.run([*git, *words])
    commit = cli.version_text(tmp_path / "dbbench")
    assert re.fullmatch(r"commit [0-9a-f]{7,} of \d{4}-\d\d-\d\d", commit)
    (tmp_path / "dbbench/a.py").write_text("2")
    assert cli.version_text(tmp_path / "dbbench") == f"{commit}, with local changes"
    (tmp_path / ".git/HEAD").write_text("x")
    assert cli.version_text(tmp_path / "dbbench") == "commit unknown"


def test_an_error_fits_the_terminal() -> None:
    """Its lines end between words, and the command of the remedy is a line of its own."""
    remedy = (
        "Resume it with:  dbbench run a-plan-with-a-long-name.toml --name a-run-with-a-long-name "
        "--results here"
    )
    with WideStream(60) as stderr, contextlib.redirect_stderr(stderr):
        cli.tell(
            DeviceInUse("/dev/sdb is in use: " + "mounted at /srv " * 8, remedy=remedy),
            Options(no_color=True),
        )
        lines = stderr.getvalue().splitlines()
    assert (
        lines[0].startswith("error E104: /dev/sdb")
        and lines[-1].strip() == remedy.partition(":  ")[2]
    )
    assert max(map(len, lines[:-1])) <= 60
