"""What `make dist` builds, and the root of the container image."""

import re
import shutil
from pathlib import Path

import artifacts
import pytest

from tests import releases
from tests.support.packages import ROOT


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    assert artifacts.main(["--dist", str(folder), "--level", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def image(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root that the Containerfile makes of a bare root: what overlayfs takes as lower
    directories.
    """
    bare = releases.bare("debian12")
    work = tmp_path_factory.mktemp("image")
    (run,) = re.findall(
        r"^RUN ((?:.*\\\n)*.*)",
        (ROOT / "packaging/Containerfile").read_text(),
        re.MULTILINE,
    )
    with releases.entered(bare, work) as inside:
        shutil.copy(next(dist.glob("*.deb")), work / "tmp")
        inside("sh", "-c", run)
        (work / "merged/data").mkdir()
    return Path(f"{work}/upper:{bare}")
