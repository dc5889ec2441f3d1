"""A small /sys of block devices."""

from pathlib import Path
from typing import Final

STAT: Final = "1547 62 54721 158 1183 13236 1271928 303 0 152 483 2 0 2097160 2 225 19"


def add(sys: Path, name: str, number: str, folder: Path) -> None:
    """One device of the tree, of 1 GiB."""
    for place in (folder / "holders", folder / "slaves", sys / "class/block", sys / "dev/block"):
        place.mkdir(parents=True, exist_ok=True)
    (folder / "dev").write_text(number + "\n")
    (folder / "size").write_text("2097152\n")
    (folder / "stat").write_text(STAT + "\n")
    (sys / "class/block" / name).symlink_to(folder)
    (sys / "dev/block" / number).symlink_to(folder)
