"""Damage to a text, and the rule that what reads it answers or refuses within seconds."""

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dbbench.errors import DbbenchError
from dbbench.plan import catalog

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
ROOT: Final = Path(__file__).parents[2]
CASES: Final = int(os.environ.get("DBBENCH_FUZZ", "100"))
# a case takes some milliseconds; an expression that backtracks without end takes minutes
SLOWEST_S: Final = 5.0
SHIPPED: Final = catalog.catalog()
PIECES: Final = [
    "",
    "0",
    "-1",
    "99999999999999999999999",
    "1e999",
    "nan",
    "None",
    "\0",
    "\n",
    "\n\n",
    ":",
    "=",
    ",",
    ";",
    "(",
    "[",
    "{",
    '"',
    "\\",
    "\\x0a",
    "\u202e",
    "é",
    "𝟙",
    "a" * 3000,
    " " * 3000,
    "0x",
    "%",
]
VALUES: Final = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    "",
    "x",
    "12",
    [],
    {},
    [[]],
    {"a": None},
    [1, 2, 3],
    "nan",
    1e308,
]


def fixture(name: str) -> str:
    """Recorded output."""
    return (FIXTURES / name).read_text(errors="replace")


def damaged(text: str, draw: random.Random) -> str:
    """The text with one to four pieces cut out, doubled, replaced or cut off; or with a line less
    or more.
    """
    if draw.random() < 0.2:
        lines = text.splitlines(keepends=True)
        at = draw.randint(0, len(lines))
        return "".join([*lines[:at], *draw.choice([[], ["newer: 1\n"]]), *lines[at + 1 :]])
    for _ in range(draw.randint(1, 4)):
        begin = draw.randint(0, len(text))
        end = min(len(text), begin + draw.choice([0, 1, 3, 20, 200, len(text)]))
        piece = draw.choice([*PIECES, text[begin:end] * 2])
        text = text[:begin] + piece + text[end:]
    if draw.random() < 0.3:
        numbers = list(re.finditer(r"\d+", text))
        if numbers:
            hit = draw.choice(numbers)
            text = text[: hit.start()] + draw.choice(PIECES) + text[hit.end() :]
    return text


def bent(node: Any, draw: random.Random) -> Any:
    """JSON with a value of another kind somewhere."""
    if draw.random() < 0.1 or not isinstance(node, dict | list) or not node:
        return draw.choice(VALUES)
    if isinstance(node, list):
        at = draw.randrange(len(node))
        return [bent(value, draw) if place == at else value for place, value in enumerate(node)]
    key = draw.choice(list(node))
    if draw.random() < 0.2:  # a missing key
        return {name: value for name, value in node.items() if name != key}
    return {name: bent(value, draw) if name == key else value for name, value in node.items()}


def extended(node: Any, value: object) -> Any:
    """JSON with one more key in every object. One whose keys are numbers is a table, as the bins of
    a histogram.
    """
    if isinstance(node, list):
        return [extended(item, value) for item in node]
    if isinstance(node, dict) and not any(key.isdigit() for key in node):
        return {"newer": value} | {name: extended(item, value) for name, item in node.items()}
    return node


def case(text: str, seed: int) -> str:
    """The recorded text, damaged by that seed; JSON also as JSON."""
    draw = random.Random(seed)
    if text.startswith(("{", "[")) and draw.random() < 0.6:
        with contextlib.suppress(ValueError):
            node = json.loads(text)
            for _ in range(draw.randint(1, 3)):
                node = bent(node, draw)
            return json.dumps(node)
    return damaged(text, draw)


def held(
    parse: Callable[[str], object],
    text: str,
    allowed: tuple[type[Exception], ...],
) -> None:
    """One case: an answer or an allowed error, in time."""
    began = time.process_time()
    with contextlib.suppress(DbbenchError, *allowed):
        found = parse(text)
        if hasattr(found, "__next__"):
            list(found)
    assert time.process_time() - began < SLOWEST_S
