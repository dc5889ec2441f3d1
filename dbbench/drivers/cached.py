"""Whether the files of a load are so small that the page cache holds them (W116)."""

from __future__ import annotations

from dbbench.machine import host
from dbbench.machine.limits import cgroup
from dbbench.model import Cell, TrialWarning
from dbbench.units import size_text


def could_hold(cell: Cell) -> int:
    """Return the memory that could cache the file: the plan's if the kernel enforces it, otherwise the machine's."""
    if cell.memory_bytes is not None and not isinstance(cgroup.hierarchy(), str):
        return cell.memory_bytes
    return host.memory_bytes() or 0


def warnings(size: int, memory: int, beyond: float = 1) -> tuple[TrialWarning, ...]:
    """W116 for files of `size` bytes that are smaller than `beyond` times the memory."""
    if size >= beyond * memory:
        return ()
    text = f"{size_text(size)} in files, {size / memory:.2g} times the memory that could hold them"
    return (TrialWarning("W116", text),)
