"""The rules for all tests are enforced."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_roots import MANIFEST, RECIPES, intact
from tests.support.files import write_file


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run(["true"], check=False),
        os.fork,
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
    ],
    ids=[
        "run",
        "fork",
        "spawn",
    ],
)
def test_a_unit_test_that_starts_a_process_fails(start: object) -> None:
    """Unit tests are quick and need nothing of the machine."""
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        start()  # type: ignore[operator]


def test_what_a_test_needs_is_looked_for(request: pytest.FixtureRequest) -> None:
    """The reason of a skip names the program, filesystem and engine that are missing, and not those
    that exist.
    """
    conftest = request.config.pluginmanager.get_plugin(
        str(Path(__file__).parents[1] / "conftest.py")
    )
    assert conftest is not None
    reasons = ["the program no-such-program", "a kernel with no-such-fs", None, None]
    assert [*map(conftest._lacks, ("no-such-program", "fs:no-such-fs", "fs:proc", "sh"))] == reasons


@pytest.mark.starts_processes
def test_one_file_of_tests_is_run_by_pytest_alone() -> None:
    """Pytest runs a single file from any folder: its imports of `tests` and of its neighbours need
    no option.
    """
    there = Path(__file__).parents[1]
    files = [there / "unit/test_faults.py", there / "system/test_faults.py"]
    argv = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", *files]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_version_of_python_that_the_locks_support_is_linted() -> None:
    """tox has an environment for each, and `make test-all` runs those that are not its own."""
    root = Path(__file__).parents[2]
    assert "[testenv:lint-py3{11,12,13,14}]" in (root / "tox.ini").read_text()
    assert "range(11, 15)" in (root / "Makefile").read_text()
    # mypy checks for the version that it runs under
    assert "python_version" not in (root / "setup.cfg").read_text()


@pytest.mark.starts_processes
def test_tox_knows_every_environment_that_is_started() -> None:
    """By the Makefile or as the documents say."""
    root = Path(__file__).parents[2]
    texts = [path.read_text() for path in (root / "Makefile", root / "docs/dev/development.md")]
    names = sorted({name for text in texts for name in re.findall(r"tox run -e ([a-z]+)", text)})
    assert "lint" in names and "tests" in names
    argv = [
        sys.executable,
        "-m",
        "tox",
        "config",
        "-c",
        root / "tox.ini",
        "-e",
        ",".join(names),
        "-k",
        "package",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"[testenv:{name}]" in done.stdout for name in names)


def test_a_damaged_server_root_is_not_used(tmp_path: Path) -> None:
    """A root without its manifest, with a missing file or with a truncated file is made again."""
    program = write_file(tmp_path / "postgres", b"ELF" * 100)
    found = [intact(tmp_path)]
    (tmp_path / MANIFEST).write_text(json.dumps({"postgres": 300}))
    found.append(intact(tmp_path))
    for damage in (
        lambda: os.truncate(program, 299),
        program.unlink,
        lambda: (tmp_path / MANIFEST).write_text("{"),
    ):
        damage()
        found.append(intact(tmp_path))
    assert found == [False, True, False, False, False]


def test_a_server_root_is_known_by_what_it_is_made_from() -> None:
    """Recipes with any difference have separate roots."""
    recipe = RECIPES["postgres-19"]
    changed = [
        dataclasses.replace(recipe, suites=("sid",)),
        dataclasses.replace(recipe, packages=("postgresql-19",)),
    ]
    assert len({one.key for one in (*changed, *RECIPES.values())}) == len(RECIPES) + 2
