"""What was meant by a name that does not exist: "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_FEW: Final = 20  # names that a message lists
_LONGEST_WORD: Final = 64  # characters of a word for which similar words are searched
# Words for a key in other programs and in earlier versions -> the key.
_SYNONYMS: Final = {
    "repetitions": "blocks",
    "repeats": "blocks",
    "iterations": "blocks",
    "duration": "measure",
    "runtime": "measure",
    "seconds": "measure",
    "threads": "clients",
    "connections": "clients",
    "filesystems": "fs_setups",
    "setups": "fs_setups",
    "reference": "baseline",
    "disk": "device",
    "version": "bin",
    "start": "run",
    "list": "show",
    "results": "show",
    "status": "show",
    "check": "doctor",
    "pg": "postgres",
    "percona": "mysql",
}
_CLOSE: Final = 0.7  # "ntfs" is not "btrfs" (0.67)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return `; did you mean "clients"?`; without a similar one the known words, or those that
    begin alike, if they are few.
    """
    # A similar word, else all of them if they are few.
    words = sorted(names)
    beginning = word.partition("-")[0]
    alike = [name for name in words if name.partition("-")[0] == beginning]
    hint = near(word, words)
    if hint:
        return hint
    if 0 < len(words) <= _FEW:
        return f"; known: {', '.join(words)}"
    if 0 < len(alike) <= _FEW and len(word) <= _LONGEST_WORD:
        return f"; those of {beginning}: {', '.join(alike)}"
    return ""


def near(word: str, names: Sequence[str]) -> str:
    """Return the hint for a similar name; "" without one."""
    name = nearest(word, names)
    meaning = ", the directory of a version's programs" if name == "bin" else ""
    return f'; did you mean "{name}"{meaning}?' if name else ""


def nearest(word: str, names: Sequence[str]) -> str | None:
    """Return the name that differs in case or in a few letters, or has a synonym."""
    if len(word) > _LONGEST_WORD:
        return None
    lower = word.lower()
    by_lower = {name.lower(): name for name in names}
    synonym = _SYNONYMS.get(lower)
    if synonym in names:
        return synonym
    import difflib  # 2 ms, which only a mistake needs

    # Most letters are the same; in words of one length, fewer suffice.
    for name in difflib.get_close_matches(lower, by_lower, n=1, cutoff=0.6):
        ratio = difflib.SequenceMatcher(None, name, lower).ratio()
        if ratio >= _CLOSE or len(lower) == len(name):
            return by_lower[name]
    return None
