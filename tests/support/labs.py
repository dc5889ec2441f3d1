"""The power-loss lab in the process of a test: disks with a filesystem and the witness's tables."""

import contextlib
import dataclasses
from collections.abc import Iterator

from dbbench.labs.powercut.base_images import BaseImages, Images, Lab, files_of, make_base
from dbbench.labs.powercut.disk_images import copy
from dbbench.labs.powercut.targets import Control, control_target
from dbbench.run.workdir import WorkDir
from tests.support.servers import open_folder, spec
from tests.support.setups import ALL


@contextlib.contextmanager
def lab_of(
    setup: str,
    engine: str = "postgres",
    disks: int = 1,
) -> Iterator[tuple[Lab, BaseImages]]:
    """Yield a lab, and the base of a setup of the catalogue with a server at its defaults; the
    folder is removed.
    """
    with open_folder() as folder:
        workdir = WorkDir(folder / "w")
        workdir.root.mkdir()
        workdir.make()
        lab = Lab(workdir, folder, 1, lambda _: None)
        target = control_target(Control(setup, "", (), setup), spec(engine), ALL)
        yield lab, make_base(lab, dataclasses.replace(target, disks=disks))


def copied(lab: Lab, base: BaseImages) -> Images:
    """Return a copy of the base's disks, which a test may change."""
    disks = lab.disks("changed", base.target)
    for source, image in zip(files_of(base.images), files_of(disks), strict=True):
        copy(source, image)
    return disks
