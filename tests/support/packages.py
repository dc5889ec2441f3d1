"""Packages of dbbench in bare roots."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dbbench.model.base import plain
from dbbench.plan import expand, load
from dbbench.plan.catalog import catalog
from dbbench.plan.expanding import identity
from tests import releases

ROOT: Final = Path(__file__).parents[2]
TINY: Final = "/mnt/packaging/debian/tests/tiny"  # the test of the .deb: autopkgtest starts it too
UPDATE: Final = ("apt-get", "update", "-q")
APT: Final = ("apt-get", "install", "-qy", "--no-install-recommends")
VENV: Final = "/opt/a path with spaces"


def digest(plan_sha256: str, cells: Any, order: Any) -> str:
    """A digest of the plan, its cells and their order."""
    return hashlib.sha256(
        json.dumps([plan_sha256, cells, order], sort_keys=True).encode()
    ).hexdigest()


def expected() -> str:
    """The digest of the tiny plan in the checkout."""
    shipped = catalog()
    plan = load(ROOT / "docs/plans/tiny.toml", shipped)
    expanded = expand(plan, shipped)
    return digest(identity(plan, expanded.cells), plain(expanded.cells), plain(expanded.order))


def digest_of(run: Path) -> str:
    """The digest of a run."""
    found = json.loads((run / "run.json").read_text())
    return digest(found["plan_sha256"], found["cells"], found["order"])


def tried(
    root: Path,
    work: Path,
    package: Path | None,
    *steps: Sequence[str],
    path: str = "",
) -> str:
    """Install a package in a root, run the tiny plan there, and return the digest of the run."""
    with releases.entered(root, work) as inside:
        if package is not None:
            shutil.copy(package, work / "tmp")
        for step in steps:
            inside(*step)
        where = f"PATH={path}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        inside("env", "AUTOPKGTEST_TMP=/tmp", where, TINY)
    return digest_of(work / "tmp/results/tiny")
