"""powercut.json: what the power-cut lab found, with the images and logs of harmed cuts beside it, under checksums."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from dbbench.errors import ResultDamaged
from dbbench.model import LabFacts, plain
from dbbench.store.files import read_bytes, sha256, write_json, write_text
from dbbench.store.trials import SUMS, damage

LAB: Final = "powercut.json"
KEPT: Final = "powercut"  # folder of images and logs

_LAB: TypeAdapter[LabFacts] | None = None


def save_lab(folder: Path, lab: LabFacts) -> None:
    """Write powercut.json and the checksums, whole."""
    (folder / SUMS).unlink(missing_ok=True)  # it would be of the one before
    write_json(folder / LAB, plain(lab))
    files = [folder / LAB, *sorted(path for path in (folder / KEPT).glob("*") if path.is_file())]
    write_text(folder / SUMS, "".join(f"{sha256(path)}  {path.relative_to(folder)}\n" for path in files))


def load_lab(folder: Path, *, verify: bool = True) -> LabFacts | None:
    """The content of powercut.json; None where no lab was. ResultDamaged names what is not as it was written."""
    global _LAB
    path = folder / LAB
    if not path.is_file():
        return None
    if _LAB is None:
        _LAB = TypeAdapter(LabFacts)
    if verify and (faults := damage(folder, LAB)):
        raise ResultDamaged(
            f"{folder}: " + "; ".join(faults),
            effect="Nothing was changed.",
            remedy="Restore the folder from a copy, or examine the plan again under another --name.",
        )
    try:
        return _LAB.validate_json(read_bytes(path))
    except (OSError, ValidationError, ValueError) as error:
        raise ResultDamaged(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
