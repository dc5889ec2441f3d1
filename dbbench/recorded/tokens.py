"""SQL taken apart into words: enough to find parameters and literals, and to be sure where a statement ends.

Nothing is understood of the grammar. What two readers could take apart differently (see `faults`) is not taken at all:
the text comes from a stranger and goes into scripts that pgbench and sysbench read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_KINDS: Final = {
    "blank": r"\s+",
    "comment": r"--(?=\s|$)[^\n]*|#[^\n]*|/\*.*?\*/",
    "quoted": r'"(?:[^"]|"")*"|`(?:[^`]|``)*`',
    "string": r"'(?:[^']|'')*'",
    "dollar": r"\$([A-Za-z_]\w*)?\$.*?\$\1?\$",
    "parameter": r"\$\d+|\?",
    "number": r"0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?",
    "word": r"[^\W\d][\w$]*",
    "sign": r"::|[^\s\w]",
}
_MYSQL: Final = {**_KINDS, "quoted": r"`(?:[^`]|``)*`", "string": r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""}
_POSTGRES: Final = {**_KINDS, "comment": r"--[^\n]*|/\*.*?\*/", "parameter": r"\$\d+"}


def _pattern(kinds: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in kinds.items()), re.DOTALL)


def _with_tag(kinds: dict[str, str]) -> dict[str, str]:
    return {**kinds, "dollar": r"\$(?P<tag>[A-Za-z_]\w*)?\$.*?\$(?(tag)(?P=tag))\$"}


_PATTERNS: Final = {
    "postgres": _pattern(_with_tag(_POSTGRES)),
    "mysql": _pattern({name: kind for name, kind in _MYSQL.items() if name != "dollar"}),
}


_OPEN: Final = ("'", '"', "`", "$")  # as signs of their own: what they begin has no end


@dataclass(frozen=True)
class Token:
    """A piece of a statement. `kind` is a key of the table above."""

    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, in any case."""
        return self.kind == "word" and self.text.lower() in words


def tokens_of(statement: str, dialect: str) -> list[Token]:
    """All of the statement, without comments and with single blanks. `dialect`: postgres, mysql.

    Joined, the texts are the statement again. ValueError where a piece is none of the above (an open quote).
    """
    found: list[Token] = []
    at = 0
    pattern = _PATTERNS[dialect]
    while at < len(statement):
        match = pattern.match(statement, at)
        if match is None or (match.lastgroup == "sign" and match[0] in _OPEN):
            raise ValueError("a quote is left open")
        kind = match.lastgroup if match.lastgroup != "tag" else "dollar"
        at = match.end()
        if kind in ("blank", "comment"):
            kind, text = "blank", " "
            if found and found[-1].kind == "blank":
                continue
        else:
            text = match[0]
        found.append(Token(str(kind), text))
    while found and (found[-1].kind == "blank" or found[-1].text == ";"):
        found.pop()
    return found[1:] if found and found[0].kind == "blank" else found


def faults(statement: str, tokens: list[Token]) -> str:
    """Why the statement may not be written into a script; "" where it may.

    A backslash outside of a literal is a command to pgbench, and what one inside does depends on the server's settings;
    a colon before a name is a variable to pgbench; comments of MySQL may be executed.
    """
    if re.search(r"/\*[!M]", statement):
        return "a comment that is executed"
    if any(token.text == ";" for token in tokens):
        return "several statements in one"
    text = "".join(token.text for token in tokens)
    if "/*" in text or "*/" in text or re.search(r"/\*(?:(?!\*/).)*/\*", statement, re.DOTALL):
        return "a comment that is open, or within another"
    if "\\" in text:
        return "a backslash"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return "a line break or control character in a literal"
    if re.search(r"(?<!:):[A-Za-z_]", text):
        return "a colon before a name"
    return ""
