"""The packages of `make dist`, installed in a bare root of Debian 12: each runs the tiny plan, and all run the same.

Takes the root of `make releases`, which is built where none is kept, and two minutes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.model.base import plain
from dbbench.plan import expand, load
from dbbench.plan.catalog import catalog
from dbbench.plan.expanding import identity
from tests import releases

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))

import artifacts

ROOT: Final = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout: git lists the files of the packages"),
    pytest.mark.needs("root", "debootstrap", "dpkg-deb", "git", "fs:overlay", "fs:ext4", "fs:xfs"),
]
TINY: Final = "/mnt/packaging/debian/tests/tiny"  # the test of the .deb: autopkgtest starts it too


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    assert artifacts.main(["--dist", str(folder), "--level", "1"]) == 0
    return folder


def digest(plan_sha256: str, cells: Any, order: Any) -> str:
    """A digest of the plan, its cells and their order."""
    return hashlib.sha256(json.dumps([plan_sha256, cells, order], sort_keys=True).encode()).hexdigest()


def expected() -> str:
    """The digest of the tiny plan in the checkout."""
    shipped = catalog()
    plan = load(ROOT / "docs/plans/tiny.toml", shipped)
    expanded = expand(plan, shipped)
    return digest(identity(plan, expanded.cells), plain(expanded.cells), plain(expanded.order))


def tried(work: Path, package: Path, *steps: Sequence[str], path: str = "") -> str:
    """Install a package in a root with database servers, run the tiny plan there, and return the digest of the run."""
    with releases.entered(releases.equipped("debian12"), work) as inside:
        shutil.copy(package, work / "tmp")
        for step in steps:
            inside(*step)
        where = f"PATH={path}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        inside("env", "AUTOPKGTEST_TMP=/tmp", where, TINY)
    run = json.loads((work / "tmp/results/tiny/run.json").read_text())
    return digest(run["plan_sha256"], run["cells"], run["order"])


def test_the_wheel_runs_the_tiny_plan(dist: Path, tmp_path: Path) -> None:
    """In a virtual environment with the locked packages; its manual is where `man` looks for it."""
    (wheel,) = dist.glob("*.whl")
    pip = (f"{releases.VENV}/bin/pip", "install", "-q", "--no-index", "--no-deps", f"/tmp/{wheel.name}")
    manual = ("test", "-s", f"{releases.VENV}/share/man/man1/dbbench.1")
    assert tried(tmp_path, wheel, pip, manual, path=f"{releases.VENV}/bin:") == expected()


def test_the_deb_runs_the_tiny_plan(dist: Path, tmp_path: Path) -> None:
    """With the packages that it depends on; units, manual and completion are there, and removing it leaves nothing."""
    (deb,) = dist.glob("*.deb")
    apt = ("apt-get", "-qy", "--no-install-recommends")
    steps = [
        ("apt-get", "update", "-q"),
        (*apt, "install", f"/tmp/{deb.name}"),
        ("test", "-s", "/usr/share/man/man5/dbbench-plan.5.gz"),
        ("test", "-s", "/usr/lib/systemd/system/dbbench-nightly@.timer"),
        ("bash", "-c", ". /usr/share/bash-completion/completions/dbbench && complete -p dbbench"),
        ("sh", "-c", "! dpkg --verify dbbench | grep ."),
        ("sh", "-c", f"test \"$(cd / && dbbench --version)\" = '{version(dist)}'"),
    ]
    assert tried(tmp_path, deb, *steps) == expected()
    with releases.entered(releases.equipped("debian12"), tmp_path / "again") as inside:
        shutil.copy(deb, tmp_path / "again/tmp")
        inside("dpkg", "--install", "--force-depends", f"/tmp/{deb.name}")
        inside("dpkg", "--purge", "--force-depends", "dbbench")
        inside("sh", "-c", "! ls -d /usr/lib/dbbench /usr/bin/dbbench 2>/dev/null")


def version(dist: Path) -> str:
    """What `dbbench --version` prints of the commit that the wheel was built of."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        commit, day, *changed = archive.read("dbbench/commit.txt").decode().strip().split(maxsplit=2)
    return f"dbbench {artifacts.__version__} (commit {commit} of {day}" + (f", {changed[0]})" if changed else ")")
