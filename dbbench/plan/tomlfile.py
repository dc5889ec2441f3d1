"""TOML files written by a person: read with line numbers, all errors at once, with "did you mean".
`tomllib` returns values without their places, and tomlkit keeps the text of each item but not its
line, so a small scanner reads the same text again and notes the line of each key. It only runs on
text that `tomllib` has accepted and therefore needs no error handling.

The file is long because the errors of the scanner, of pydantic and of the values are noted with the
same lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import tomllib
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from dbbench.engines import ENGINES
from dbbench.errors import DbbenchError, PlanInvalid
from dbbench.errors.similar_names import did_you_mean, near, nearest
from dbbench.model.base import adapter
from dbbench.model.plan import LEAST_BYTES, NO_KEY, Plan
from dbbench.results.fileio import given_text
from dbbench.units import size_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Noun = TypeVar("Noun")
Named = TypeVar("Named", bound="DataclassInstance")
Key = tuple[str | int, ...]  # ("workload", 0, "clients")

MOST_BYTES: Final = 2**18  # size of a file; the longest known plan has a tenth of it
# Words in the names of settings of the whole machine that people want to vary.
_OF_HOST: Final = ("dirty_", "huge", "preempt", "swappiness", "thp")
_GLOBAL: Final = (
    ": a trial does not change what other programs of the machine use. Set it yourself and compare "
    "two runs"
)
_MOST_FLAWS: Final = 100  # the checks stop here, because a person does not read more at once
_LONGEST: Final = 400  # characters of the message of a flaw
_DEEPEST: Final = 16  # nesting of tables and lists; the deepest valid key has 5 parts
_LONG_KEY: Final = re.compile(
    rf"""(?<![A-Za-z0-9_-])(?:(?:"[^"\n]*+"|'[^'\n]*+'|[A-Za-z0-9_-]++)[ \t]*+\.[ \t]*+){{{_DEEPEST},}}"""
)
# pydantic's kind of error for a bound -> its words, and its name in the error
_BOUNDS: Final = {
    "greater_than": ("more than {}", "gt"),
    "greater_than_equal": ("{} or more", "ge"),
    "less_than": ("less than {}", "lt"),
    "less_than_equal": ("{} or less", "le"),
}
# How the message of tomllib begins -> that of dbbench.
_SYNTAX: Final = {
    "Illegal character '\\n'": "the closing quote is missing",
    "Unterminated string": "the closing quote is missing",
    "Unclosed array": "a list has no closing ], or a comma between two values or the quotes of a text are "
    "missing",
    "Unclosed inline table": "a table in braces has no closing }, or a comma or the quotes of a text are missing",
    "Expected '='": "there is no = after the name of the key",
    "Expected newline": 'there is something after the value; texts such as "4GiB" need quotes, each key its own '
    "line",
    "Invalid value": "the value is missing, or is a text without quotes",
    "Invalid statement": "the line begins with neither a key nor a [table]",
    "Unescaped": 'a single \\ in a text in "quotes"; write \\\\, or use single quotes',
    "Cannot overwrite": "the key or its table is given twice",
    "Cannot declare": "the table is given twice",
    "Duplicate": "the key is given twice",
}
# How a file in another format begins -> the format.
_FORMATS: Final = {
    r"\s*\{": "JSON",
    r"\s*<": "HTML or XML",
    r"\s*(?:--(?!-)|/\*)": "SQL",
    r"(?:\s|#[^\n]*\n)*(?:---|- |[\w-]+:(?:\s|\Z))": "YAML",
}
_COLON: Final = re.compile(r"\s*[\w.-]+\s*:")
_TYPOGRAPHIC: Final = re.compile("[\u201c\u201d\u201e\u2018\u2019]")
_INVISIBLE: Final = re.compile("[\u00a0\u200b\u202f\ufeff]")  # from web pages and word processors
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
# Texts, comments, punctuation, and everything between them.
_TOKEN: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    + r"|'''.*?'{3,5}"
    + r'|"(?:[^"\\\n]|\\.)*"'
    + r"|'[^'\n]*'"
    + r"""|#[^\n]*|[][{},=\n]|[^][{},=\n"'#]+""",
    re.DOTALL,
)


@dataclass
class Document:
    """A TOML file: its data, the line of every key, and the errors noted so far."""

    path: Path
    data: dict[str, Any]
    lines: dict[Key, int]
    text: str
    flaws: list[tuple[Key, str]] = field(default_factory=list)  # place and message

    def nearest(self, key: Key) -> Key:
        """Return `key`, or the nearest table around it that is in the file; () if there is none."""
        while key and key not in self.lines:
            key = key[:-1]
        return key

    def where(self, key: Key) -> str:
        """Return `plan.toml:12`, or only the path if the key is not in the file."""
        line = self.lines.get(self.nearest(key))
        return f"{self.path}:{line}" if line else f"{self.path}"

    def flaw(self, key: Key, text: str) -> None:
        """Note an error; `finish` raises all of them."""
        text = "\\n".join(text.splitlines())  # a value must not begin another line
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - 80]}...{text[-80:]}"
        if (key, text) not in self.flaws:
            self.flaws.append((key, text))
        if len(self.flaws) >= _MOST_FLAWS:
            self.finish()

    def flaw_elsewhere(self, key: Key, error: DbbenchError) -> None:
        """Note the error of another file, whose lines become one."""
        first, *lines = error.evidence.split("\n  ")
        self.flaw(key, f"{first} {'; '.join(lines)}".strip())

    def finish(self) -> None:
        """Raise PlanInvalid with every error in the order of the file, if there is any."""
        if not self.flaws:
            return
        ordered = sorted(self.flaws, key=lambda flaw: self.lines.get(self.nearest(flaw[0]), 0))
        count = f"{len(ordered)} errors" if len(ordered) > 1 else "an error"
        count += " or more" if len(ordered) == _MOST_FLAWS else ""
        lines = "\n".join(f"  {self.where(key)}  {text}" for key, text in ordered)
        raise PlanInvalid(f"{self.path} has {count}:\n{lines}")


def read(path: Path) -> Document:
    """Parse the file. Raises FileUnreadable, and PlanInvalid if it is not TOML or contains values
    that no plan, setup or workload can have.
    """
    # editors of Windows begin a file with this mark
    text = given_text(path, MOST_BYTES).removeprefix("\ufeff")
    if "\0" in text:
        raise PlanInvalid(f"{path} is a binary file, not a text", remedy="Name a text file.")
    # the time of tomllib grows with the square of the number of parts
    long = _LONG_KEY.search(text)
    if long:
        line = _line_at(text, long.start())
        raise PlanInvalid(f"{path}:{line}  a key has more than {_DEEPEST} parts")
    try:
        data = tomllib.loads(text)
        lines = _Scanner(text.replace("\r\n", "\n")).scan()
    except tomllib.TOMLDecodeError as error:
        _refuse_format(path, text)
        message, line = _explain_syntax(str(error), text)
        raise PlanInvalid(f"{path}:{line}  invalid TOML: {message[:_LONGEST]}") from None
    except RecursionError:  # on the line with the most brackets
        brackets = [line.count("[") + line.count("{") for line in text.split("\n")]
        line = 1 + brackets.index(max(brackets))
        raise PlanInvalid(f"{path}:{line}  values are nested too deeply") from None
    except ValueError:
        longest = max(re.finditer(r"\d+", text), key=lambda number: len(number[0]))
        line = _line_at(text, longest.start())
        raise PlanInvalid(f"{path}:{line}  a number has too many digits") from None
    document = Document(path, data, lines, text)
    _check_values(document)
    document.finish()
    return document


def _line_at(text: str, position: int) -> int:
    return 1 + text.count("\n", 0, position)


def _refuse_format(path: Path, text: str) -> None:
    """Raise PlanInvalid if the file begins like one in another format."""
    for begin, name in _FORMATS.items():
        if re.match(begin, text):
            raise PlanInvalid(
                f"{path} looks like {name}, but dbbench reads TOML: key = value",
                remedy="Write a plan to begin with:  dbbench init",
            )


def _explain_syntax(error: str, text: str) -> tuple[str, int]:
    """Return an error of tomllib in words for a person, and its line."""
    message, _, place = error.rpartition(" (at ")
    match = re.match(r"line (\d+)", place)
    line = int(match[1]) if match else _line_at(text, len(text))
    written = text.split("\n")[line - 1]
    if _TYPOGRAPHIC.search(written):
        return 'there are typographic quotes; write "', line
    if invisible := _INVISIBLE.search(written):
        return f"there is an invisible character, U+{ord(invisible[0]):04X}; write a space", line
    if _COLON.match(written):
        return "there is a : instead of = after the name of the key", line
    explained = (words for begin, words in _SYNTAX.items() if message.startswith(begin))
    return next(explained, message or error), line


def _check_values(document: Document) -> None:
    """Note TOML values that no plan can have: numbers beyond 64 bits, NaN, dates, NUL, deep
    nesting.
    """
    left: list[tuple[Key, Any]] = [((), document.data)]
    while left:
        key, value = left.pop()
        if isinstance(value, dict | list) and len(key) >= _DEEPEST:
            document.flaw(key, f'"{key[0]}" is nested too deeply')
        elif isinstance(value, dict):
            left += [((*key, name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            left += [((*key, index), inner) for index, inner in enumerate(value)]
        elif reason := _why_not(value):
            document.flaw(key, f'"{_name_in(key)}" {reason}')


def _name_in(key: Key) -> str:
    """Return the last name in a key, without indices."""
    return next((part for part in reversed(key) if isinstance(part, str)), "")


def _why_not(value: Any) -> str:
    """Return why a value is invalid for any key; "" if it is valid."""
    if isinstance(value, str):
        return "has a NUL character" if "\0" in value else ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else "is not a number"
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return ""
        return "is a number beyond 64 bits"
    return "is a date or a time of day, which no key accepts"


def convert(
    document: Document,
    kind: type[Noun],
    data: dict[str, Any],
    table: Key = (),
) -> Noun | None:
    """Convert `data` to a dataclass, or note its errors with the lines of the keys below `table`
    and return None. If only values are out of bounds, their defaults are returned, so that other
    checks find more.
    """
    before = len(document.flaws)
    _unknown_keys(document, kind, data, table)
    context = {"engines": tuple(ENGINES), "folder": document.path.absolute().parent}
    try:
        noun = adapter(kind).validate_python(data, context=context)
    except ValidationError as error:
        _note_findings(document, error, table)
        kinds = {finding["type"] for finding in error.errors()}
        if kinds <= {*_BOUNDS, "value_error"}:
            outside = {finding["loc"][0] for finding in error.errors()}
            rest = {name: value for name, value in data.items() if name not in outside}
            with contextlib.suppress(ValidationError):
                return adapter(kind).validate_python(rest, context=context)
        return None
    if len(document.flaws) == before:
        return noun
    return None


def read_as(
    path: Path,
    kind: type[Named],
    check: Callable[[Document, Named], None] = lambda _document, _noun: None,
) -> Named:
    """Return the content of a file, with the name of the file. Raises as `read`, with the errors
    that `check` notes.
    """
    document = read(path)
    noun = convert(document, kind, document.data)
    if noun is not None:
        check(document, noun)
    document.finish()
    assert noun is not None  # a file without flaws gives a value
    return dataclasses.replace(noun, name=path.stem)


def _note_findings(
    document: Document,
    error: ValidationError,
    table: Key,
) -> None:
    """Note pydantic's errors, one per key; a union reports an error for each of its members, whose
    names it adds.
    """
    by_key: dict[Key, list[str]] = {}
    for finding in error.errors():
        place = (*table, *finding["loc"])
        if finding["type"] == "missing":
            beside = [key[-1] for key, _ in document.flaws if key and key[:-1] == place[:-1]]
            # a misspelt key is one error
            if not any(nearest(str(name), [str(place[-1])]) for name in beside):
                document.flaw(place[:-1], f'"{place[-1]}" is missing')
        # `_unknown_keys` notes these
        elif finding["type"] not in ("extra_forbidden", "unexpected_keyword_argument"):
            key = document.nearest(place) or place[:1]
            by_key.setdefault(key, []).append(_message(finding))
    for key, texts in by_key.items():
        if len(texts) > 1:
            texts = [re.sub(r", not .*", "", text) for text in texts]
        text = " or ".join(dict.fromkeys(texts)).replace(" or must be ", " or ")
        document.flaw(key, f'"{_name_in(key)}" {text}')


def line_of(text: str, name: str) -> int | None:
    """Return the first line of a TOML text on which a key has that name; None without one."""
    lines = _Scanner(text.replace("\r\n", "\n")).scan()
    return next((line for key, line in lines.items() if key and key[-1] == name), None)


def _message(finding: Any) -> str:
    given = finding.get("input")
    kind = finding["type"]
    # A word that is not one of several: the nearest one is suggested.
    if kind in ("literal_error", "enum"):
        names = re.findall(r"'([^']*)'", finding["ctx"]["expected"])
        if finding["loc"][-1] == "[key]":
            hint = near(str(given), names) or f"; known: {', '.join(names)}"
            return f"is not a key of this table{hint}"
        several = "one of " if len(names) > 1 else ""
        return f"must be {several}{', '.join(names)}, not {given!r}{near(str(given), names)}"
    # A number beyond its bounds.
    if kind in _BOUNDS:
        text, name = _BOUNDS[kind]
        bound = finding["ctx"][name]
        is_size = bound > 0 and bound % 2**20 == 0
        limit = size_text(bound) if is_size else f"{bound:.10g}"
        reason = " (mkfs.xfs makes nothing smaller)" if bound == LEAST_BYTES else ""
        return f"must be {text.format(limit)}{reason}, not {given!r}"
    # Everything else: pydantic's text, in the words of TOML.
    message = (
        str(finding["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    )
    message = (
        message.replace("a valid string", "a string")
        .replace("a valid tuple", "a list in [ ]")
        .replace("a valid dictionary", "a table in { }")
        .replace("a valid boolean", "true or false")
        .replace("a valid number", "a number")
    )
    message = re.sub(r"a dictionary or an instance of \w+", "a table in { }", message)
    if kind.startswith("int"):
        return f"must be a whole number, not {'true' if given is True else repr(given)}"
    return message.replace("expected", "must be", 1)


def _unknown_keys(
    document: Document,
    kind: Any,
    data: Any,
    key: Key,
) -> None:
    # Lists and tables are searched to the bottom, because pydantic stops at the first.
    if isinstance(data, list | tuple):
        inner = next((arg for arg in typing.get_args(kind) if arg is not Ellipsis), None)
        for index, item in enumerate(data):
            _unknown_keys(document, inner, item, (*key, index))
    elif isinstance(data, dict) and typing.get_origin(kind) is dict:
        for name, item in data.items():
            _unknown_keys(document, typing.get_args(kind)[1], item, (*key, name))
    elif isinstance(data, dict) and dataclasses.is_dataclass(kind):
        fields = written_fields(kind)
        for name, item in data.items():
            if name in fields:
                _unknown_keys(document, fields[name], item, (*key, name))
            else:
                document.flaw((*key, name), f'unknown key "{name}"{hint_at(name, fields, key)}')


def hint_at(name: str, known: Iterable[str], table: Key) -> str:
    """Return what to write instead of an unknown key of a table."""
    if any(word in name for word in _OF_HOST):
        return _GLOBAL
    if table and name in written_fields(Plan):
        return ": it is a key of the plan itself, above its first section"
    return did_you_mean(name, known)


def written_fields(kind: Any) -> dict[str, Any]:
    """Return the keys that a person may write for a dataclass (its aliases), with their types."""
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        computed = name.startswith("__") or typing.get_origin(hint) is typing.ClassVar
        if computed or NO_KEY in marks:
            continue
        for meta in marks:
            if isinstance(meta, FieldInfo) and meta.alias:
                name = meta.alias
        fields[name] = _bare(hint)
    return fields


def _bare(hint: Any) -> Any:
    if typing.get_origin(hint) is typing.Annotated:
        return _bare(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(kinds) == 1:
            return _bare(kinds[0])
        return None
    return hint


class _Scanner:
    """Notes the line of each key, table and element of an array in TOML text."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self.tables: dict[Key, int] = {}  # array of tables -> index of its last element so far
        self.tokens: deque[tuple[int, str]] = deque()  # with their lines
        line = 1
        for match in _TOKEN.finditer(text):
            token = match[0].strip()
            if token and not token.startswith("#"):
                self.tokens.append((line, token))
            line += match[0].count("\n")

    def scan(self) -> dict[Key, int]:
        table: Key = ()
        while self.tokens:
            if self.tokens[0][1] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self.lines

    def _header(self) -> Key:
        # The tokens of [a.b] or [[a.b]], up to the closing bracket.
        line, _ = self.tokens.popleft()
        is_array = self.tokens[0][1] == "["
        if is_array:
            self.tokens.popleft()
        table: Key = ()
        *tables, name = self._key("]")
        # An element of an array has its number in the key.
        for part in tables:
            table = (*table, part)
            if table in self.tables:
                table = (*table, self.tables[table])
        table = (*table, name)
        self.lines.setdefault(table, line)
        if is_array:
            self.tokens.popleft()  # the second closing bracket
            self.tables[table] = self.tables.get(table, -1) + 1
            table = (*table, self.tables[table])
            self.lines[table] = line
        return table

    def _pair(self, key: Key) -> None:
        line = self.tokens[0][0]
        for part in self._key("="):
            key = (*key, part)
            self.lines.setdefault(key, line)
        self._value(key)

    def _key(self, end: str) -> list[str]:
        written = ""
        while (token := self.tokens.popleft()[1]) != end:
            written += token
        if _BARE_KEY.fullmatch(written):
            return [written]
        parts: list[str] = []
        inner: Any = tomllib.loads(f"{written} = 0")
        while isinstance(inner, dict):
            part, inner = next(iter(inner.items()))
            parts.append(part)
        return parts

    def _value(self, key: Key) -> None:
        token = self.tokens.popleft()[1]
        index = 0
        while token == "[" and not self._ends("]"):
            self.lines[*key, index] = self.tokens[0][0]
            self._value((*key, index))
            index += 1
        while token == "{" and not self._ends("}"):
            self._pair(key)

    def _ends(self, bracket: str) -> bool:
        """Skip a comma and the closing bracket; return whether it was next."""
        if self.tokens[0][1] == ",":
            self.tokens.popleft()
        return self.tokens[0][1] == bracket and bool(self.tokens.popleft())
