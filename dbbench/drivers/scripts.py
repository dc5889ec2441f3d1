"""Where the scripts of a workload lie."""

from __future__ import annotations

from pathlib import Path

from dbbench import catalog
from dbbench.errors import FileMissing


def located(script: str) -> Path:
    """The file of a workload's script: a full path, or one among the shipped workloads. FileMissing."""
    path = catalog.shipped() / "workloads" / script  # a full path stays what it is
    if not path.is_file():
        raise FileMissing(
            f"the script {script} is neither a built-in one nor a file",
            effect="No load was started.",
            remedy="Name a script of the driver, or a file that lies beside the workload's TOML file.",
        )
    return path.resolve()
