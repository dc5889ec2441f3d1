"""TOML files that a person writes: read with line numbers, all flaws at once, with "did you mean".

`tomllib` gives values without places, so a small scanner walks the same text once more and notes on which
line each key stands. It runs only on text that `tomllib` has accepted, and so needs no error handling.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from dbbench.errors import FileMissing, PlanInvalid

Noun = TypeVar("Noun")
Key = tuple[str | int, ...]  # ("workload", 0, "clients")

_BARE_VALUE: Final = re.compile(r"[^,\]}#\n]*")
_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY_PART: Final = re.compile(r"""\s*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)\s*""")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'", re.DOTALL
)


@dataclass(frozen=True)
class Flaw:
    """One thing that is wrong with a file, and where."""

    key: Key
    text: str


@dataclass
class Document:
    """A TOML file as read: its data, the line of every key, and the flaws found so far."""

    path: Path
    data: dict[str, Any]
    lines: dict[Key, int]
    text: str
    flaws: list[Flaw] = field(default_factory=list)

    def line(self, key: Key) -> int | None:
        """The line of `key`, or of the nearest table around it that stands in the file."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.lines:
                return self.lines[key[:length]]
        return None

    def where(self, key: Key) -> str:
        """`plan.toml:12`, or the path alone for what stands nowhere."""
        line = self.line(key)
        return f"{self.path}:{line}" if line else f"{self.path}"

    def flaw(self, key: Key, text: str) -> None:
        """Note that something is wrong; `finish` raises all of them."""
        if not any(known.key == key and known.text == text for known in self.flaws):
            self.flaws.append(Flaw(key, text))

    def finish(self) -> None:
        """PlanInvalid with every flaw, in the order of the file; nothing where there is none."""
        if not self.flaws:
            return
        ordered = sorted(self.flaws, key=lambda flaw: self.line(flaw.key) or 0)
        count = f"{len(ordered)} errors" if len(ordered) > 1 else "an error"
        told = "\n".join(f"  {self.where(flaw.key)}  {flaw.text}" for flaw in ordered)
        raise PlanInvalid(f"{self.path} has {count}:\n{told}", effect="Nothing was changed.")


def read(path: Path) -> Document:
    """The file, parsed. FileMissing; PlanInvalid where it is no TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise FileMissing(f"{path} is not a file", effect="Nothing was changed.") from None
    except PermissionError as error:
        raise FileMissing(f"{path} cannot be read: {error.strerror}", effect="Nothing was changed.") from None
    except UnicodeDecodeError as error:
        raise PlanInvalid(f"{path} is not UTF-8: byte {error.start}", effect="Nothing was changed.") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = re.sub(r" \(at line (\d+), column \d+\)$", "", str(error))
        line = re.search(r"at line (\d+)", str(error))
        place = f"{path}:{line[1]}" if line else f"{path}:{text.count(chr(10)) + 1}"
        raise PlanInvalid(f"{place}  not TOML: {told}", effect="Nothing was changed.") from None
    return Document(path, data, _Scanner(text.replace("\r\n", "\n")).scan(), text)


def typed(document: Document, kind: type[Noun], data: dict[str, Any], at: Key = ()) -> Noun | None:
    """`data` as a noun; None where it has flaws, which are noted with the lines of the keys below `at`."""
    before = len(document.flaws)
    _unknown_keys(document, kind, data, at)
    try:
        noun = TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        _note_findings(document, error, at)
        return None
    return noun if len(document.flaws) == before else None


def _note_findings(document: Document, error: ValidationError, at: Key) -> None:
    """Pydantic's findings as flaws: one a key, also where a union makes one finding for each member."""
    by_key: dict[Key, list[str]] = {}
    for found in error.errors():
        place = (*at, *found["loc"])
        if found["type"] == "missing":
            document.flaw(place[:-1], f'"{place[-1]}" is missing')
        elif found["type"] not in ("extra_forbidden", "unexpected_keyword_argument"):  # _unknown_keys tells
            by_key.setdefault(_known_part(document, place), []).append(_told(found))
    for key, told in by_key.items():
        name = next((str(part) for part in reversed(key) if isinstance(part, str)), "")
        document.flaw(key, f'"{name}" ' + " or ".join(dict.fromkeys(told)).replace(" or should be ", " or "))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "clients"?`, or the known words where they are few and none is near."""
    words = sorted(known)
    few = f"; known: {', '.join(words)}" if 0 < len(words) <= 20 else ""
    return _near(word, words) or few


def _near(word: str, known: Iterable[str]) -> str:
    hits = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{hits[0]}"?' if hits else ""


def _told(found: Any) -> str:
    """One of pydantic's findings in the words of a TOML file."""
    given = found.get("input")
    if found["type"] in ("literal_error", "enum"):
        known = re.findall(r"'([^']*)'", found["ctx"]["expected"])
        return f"should be one of {', '.join(known)}, not {given!r}{_near(str(given), known)}"
    message = str(found["msg"]).removeprefix("Value error, ").replace("Input should be", "should be")
    message = message.replace("a valid tuple", "a list").replace("a valid dictionary", "a table")
    return message.replace("expected", "should be", 1)


def _known_part(document: Document, key: Key) -> Key:
    """`key` without the names of union members that pydantic puts into a place."""
    for length in range(len(key), 0, -1):
        if key[:length] in document.lines:
            return key[:length]
    return key[:1]


def _unknown_keys(document: Document, kind: Any, data: Any, at: Key) -> None:
    if isinstance(data, list | tuple):
        inner = next((arg for arg in typing.get_args(kind) if arg is not Ellipsis), None)
        for index, item in enumerate(data):
            _unknown_keys(document, inner, item, (*at, index))
    elif isinstance(data, dict) and typing.get_origin(kind) is dict:
        for name, item in data.items():
            _unknown_keys(document, typing.get_args(kind)[1], item, (*at, name))
    elif isinstance(data, dict) and dataclasses.is_dataclass(kind):
        fields = written_fields(kind)
        for name, item in data.items():
            if name in fields:
                _unknown_keys(document, fields[name], item, (*at, name))
            else:
                document.flaw((*at, name), f'unknown key "{name}"{did_you_mean(name, fields)}')


def written_fields(kind: Any) -> dict[str, Any]:
    """The keys that a person may write for a dataclass (its aliases), with their types."""
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        alias = next((meta.alias for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, FieldInfo)), None)
        if not name.startswith("__") and typing.get_origin(hint) is not typing.ClassVar:
            fields[alias or name] = _bare(hint)
    return fields


def _bare(hint: Any) -> Any:
    """A type without Annotated and without "or None"."""
    if typing.get_origin(hint) is typing.Annotated:
        return _bare(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _bare(kinds[0]) if len(kinds) == 1 else None
    return hint


class _Scanner:
    """Walks TOML text and notes the line of each key, table and element of an array."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Key, int] = {}
        self.tables: dict[Key, int] = {}  # array of tables -> how many elements so far

    def scan(self) -> dict[Key, int]:
        table: Key = ()
        while self._skip_blank():
            if self.text.startswith("[[", self.at):
                table = self._array_header()
            elif self.text[self.at] == "[":
                self.at += 1
                table = self._resolved(self._key())
                self._note(table)
                self.at += 1  # the closing bracket
            else:
                self._pair(table)
        return self.lines

    def _array_header(self) -> Key:
        self.at += 2
        name = self._key()
        array = (*self._resolved(name[:-1]), name[-1])
        self._note(array)
        index = self.tables.get(array, 0)
        self.tables[array] = index + 1
        self._note((*array, index))
        self.at += 2  # the closing brackets
        return (*array, index)

    def _resolved(self, name: Key) -> Key:
        """A header's name with the index of the last element where it goes through an array of tables."""
        place: Key = ()
        for part in name:
            place = (*place, part)
            if place in self.tables:
                place = (*place, self.tables[place] - 1)
        return place

    def _pair(self, table: Key) -> None:
        key = self._key()
        for length in range(1, len(key) + 1):
            self._note((*table, *key[:length]))
        self.at += 1  # the equals sign
        self._value((*table, *key))

    def _key(self) -> Key:
        parts: list[str] = []
        while match := _KEY_PART.match(self.text, self.at):
            part = match[1]
            parts.append(next(iter(tomllib.loads(f"{part}=0"))))
            self.at = match.end()
            if not self.text.startswith(".", self.at):
                break
            self.at += 1
        return tuple(parts)

    def _value(self, key: Key) -> None:
        self._skip_blank()
        if string := _STRING.match(self.text, self.at):
            self.at = string.end()
        elif self.text.startswith("[", self.at):
            self._array(key)
        elif self.text.startswith("{", self.at):
            self._inline_table(key)
        else:
            bare = _BARE_VALUE.match(self.text, self.at)
            self.at = bare.end() if bare else self.at + 1

    def _array(self, key: Key) -> None:
        self.at += 1
        index = 0
        while self._skip_blank() and self.text[self.at] != "]":
            self._note((*key, index))
            self._value((*key, index))
            self._skip_comma()
            index += 1
        self.at += 1

    def _inline_table(self, key: Key) -> None:
        self.at += 1
        while self._skip_blank() and self.text[self.at] != "}":
            self._pair(key)
            self._skip_comma()
        self.at += 1

    def _skip_comma(self) -> None:
        if self._skip_blank() and self.text[self.at] == ",":
            self.at += 1

    def _skip_blank(self) -> bool:
        """Skip spaces, line ends and comments; False at the end of the text."""
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def _note(self, key: Key) -> None:
        self.lines.setdefault(key, self.text.count("\n", 0, self.at) + 1)
