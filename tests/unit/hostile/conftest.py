"""A results folder with two runs, and files that must stay as they are."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import results
from tests.support.files import write_file
from tests.support.hostile import SECRET, TEXT
from tests.support.runs import small_run


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Yield a file of another user, which must be unchanged at the end."""
    path = write_file(tmp_path / "victim", TEXT)
    yield path
    assert path.read_text() == TEXT


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """Yield a file whose content must not be shown, and which must be unchanged at the end."""
    path = write_file(tmp_path / "secret", SECRET)
    yield path
    assert path.read_text() == SECRET


@pytest.fixture
def copy(two_runs: Path, tmp_path: Path) -> Path:
    """A results folder with the runs `good` and `bad`, for this test alone."""
    return Path(shutil.copytree(two_runs, tmp_path / "r"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run without trials."""
    return results.create_run(tmp_path / "results", small_run(), "# plan\n")


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """The folder of a finished trial."""
    synthetic.write(tmp_path / "results", Shape(work=TPCB, blocks=1))
    return next((tmp_path / "results/demo/trials").iterdir())


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the runs `good` and `bad`, to be copied."""
    results_folder = tmp_path_factory.mktemp("two") / "results"
    for name in ("good", "bad"):
        synthetic.write(results_folder, Shape(name=name, arms=("ext4", "xfs"), work=TPCB, blocks=1))
    return results_folder
