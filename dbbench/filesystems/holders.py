"""Who holds a filesystem: evidence for an unmount that fails. What /proc does not show us is not in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dbbench.mounts import Mount, mounts_of


def of_filesystem(at: Path, limit: int = 5) -> list[str]:
    """Processes with a file, working directory or root on the filesystem mounted at `at`; [] where it does not
    even answer stat(2) any more (xfs that was shut down)."""
    try:
        st_dev = at.stat().st_dev
    except OSError:
        return []
    found = []
    for process_dir in _processes():
        hit = next((link for link in _links(process_dir) if _on(link, st_dev)), None)
        if hit is not None:
            found.append(
                f"pid {process_dir.name} ({_name(process_dir)}): {hit.parent.name}/{hit.name} -> {_target(hit)}"
            )
        if len(found) == limit:
            break
    return found


def of_mounts(source: Path, number: str, limit: int = 5) -> list[str]:
    """Mounts of that device in any process's namespace, one line a namespace; then whoever has it open."""
    found: dict[str, str] = {}
    for process_dir in _processes():
        for mount in _mounts(process_dir):
            if mount.device == number or mount.source == str(source):
                space = _target(process_dir / "ns/mnt")
                found.setdefault(space, f"mounted at {mount.point} for pid {process_dir.name} ({_name(process_dir)})")
        for link in _links(process_dir):
            if _target(link) == str(source) and process_dir.name != str(os.getpid()):
                found.setdefault(str(link), f"open in pid {process_dir.name} ({_name(process_dir)})")
    return list(found.values())[:limit]


def _processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _mounts(process_dir: Path) -> tuple[Mount, ...]:
    try:
        return mounts_of(process_dir)
    except OSError:
        return ()  # it has ended


def _links(process_dir: Path) -> Iterator[Path]:
    yield from (process_dir / "cwd", process_dir / "root")
    try:
        yield from (process_dir / "fd").iterdir()
        yield from (process_dir / "map_files").iterdir()
    except OSError:
        return  # it has ended, or is not ours to look into


def _on(link: Path, st_dev: int) -> bool:
    try:
        return link.stat().st_dev == st_dev
    except OSError:
        return False


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return "?"


def _name(process_dir: Path) -> str:
    try:
        return (process_dir / "comm").read_text().strip()
    except OSError:
        return "?"
