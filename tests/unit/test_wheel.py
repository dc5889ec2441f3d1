"""The files of the wheel and the sdist, built from a clean copy of the checkout."""

import importlib.metadata
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from dbbench import process

ROOT: Final = Path(__file__).parents[2]
TAKEN: Final = (
    "dbbench",
    "fs_setups",
    "workloads",
    "reports",
    "tests",
    "docs",
    "benchmarks",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "pyproject.toml",
    "setup.cfg",
)
BUILD: Final = (
    "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + "
    "sys.argv[1])(sys.argv[2])"
)
BUILD_S: Final = 120.0
NEEDED: Final = 77  # of setuptools: as pyproject.toml asks


def _too_old() -> bool:
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) < NEEDED
    except importlib.metadata.PackageNotFoundError:
        return True


pytestmark = [
    pytest.mark.starts_processes,
    pytest.mark.skipif(
        _too_old(), reason=f"needs setuptools {NEEDED} or later (requirements-test.lock)"
    ),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout without what builds and tests leave in it; symlinks stay symlinks."""
    folder = tmp_path_factory.mktemp("checkout")
    left_out = [f"--exclude={name}" for name in ("__pycache__", "*.egg-info", "*.pyc")]
    archive = folder.parent / "checkout.tar"
    process.run(["tar", "-C", ROOT, "-cf", archive, *left_out, *TAKEN], timeout_s=BUILD_S)
    process.run(["tar", "-C", folder, "-xf", archive], timeout_s=BUILD_S)
    return folder


@pytest.fixture(scope="module")
def wheel(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the copy."""
    return built("wheel", copy, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the copy."""
    return built("sdist", copy, tmp_path_factory.mktemp("sdist"))


def built(kind: str, checkout: Path, target: Path) -> Path:
    """What setuptools makes of a checkout, without pip and without a network."""
    process.run([sys.executable, "-c", BUILD, kind, target], cwd=checkout, timeout_s=BUILD_S)
    return next(target.iterdir())


def files_of(wheel: Path) -> set[str]:
    """The names in a wheel, but for its metadata."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def wanted(checkout: Path) -> set[str]:
    """All modules, py.typed, studies, texts of errors, and every data file under `dbbench/data`,
    where links lead.
    """
    modules = {
        f"dbbench/{path.relative_to(checkout / 'dbbench')}"
        for path in (checkout / "dbbench").rglob("*.py")
    }
    data = {
        f"dbbench/data/{path.relative_to((checkout / folder).parent)}"
        for folder in (
            "fs_setups",
            "workloads",
            "reports",
            "docs/plans",
            "docs/systemd",
            "packaging/installer",
        )
        for path in (checkout / folder).rglob("*")
        if path.is_file()
    }
    tables = {
        f"dbbench/{folder}/{path.name}"
        for folder in ("plan/studies", "errors")
        for path in (checkout / "dbbench" / folder).glob("*.toml")
    }
    tables |= {f"dbbench/data/{path.name}" for path in (checkout / "dbbench/data").glob("*.toml")}
    return modules | data | tables | {"dbbench/py.typed"}


def test_wheel_holds_all_that_is_needed_and_nothing_else(copy: Path, wheel: Path) -> None:
    """Modules, TOML, Lua, templates, assets, example plans, units and py.typed; no tests, documents
    or benchmarks. A kind of file that is in none of the patterns would be missing without
    anybody noticing. The command `dbbench`, its licence and that of the vendored script are
    there.
    """
    files = files_of(wheel)
    archive = zipfile.ZipFile(wheel)
    assert files == wanted(copy)
    suffixes = {".toml", ".lua", ".sql", ".fio", ".j2", ".css", ".js", ".py", ".typed", ".timer"}
    assert {
        suffix for suffix in suffixes if any(name.endswith(suffix) for name in files)
    } == suffixes
    metadata = {
        name.split(".dist-info/")[1]: name for name in archive.namelist() if ".dist-info/" in name
    }
    assert "dbbench = dbbench.__main__:main" in archive.read(metadata["entry_points.txt"]).decode()
    assert any(name.endswith("LICENSE") for name in metadata)
    assert "dbbench/data/reports/assets/plotly-basic.LICENSE.txt" in files


def test_a_wheel_made_of_the_sdist_is_the_same(
    wheel: Path,
    sdist: Path,
    tmp_path: Path,
) -> None:
    """The sdist holds all that the wheel is made of; its links have become files."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (tmp_path / "out").mkdir()
    again = built("wheel", next((tmp_path / "unpacked").iterdir()), tmp_path / "out")
    assert files_of(again) == files_of(wheel)
