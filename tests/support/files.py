"""Files that a test needs in its directory."""

from pathlib import Path


def write_file(path: Path, content: str | bytes = "") -> Path:
    """Write a file, make the directories above it, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
