"""What a PostgreSQL server says of parameters: their types, and the range of the column that each is compared with.

It only reads: the session is read-only (`live`), a statement is prepared and never executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dbbench.recorded.rules import Told, column_of, tables_of
from dbbench.recorded.sorting import Kept

Ask = Callable[..., list[tuple[Any, ...]]]  # (statement, *values) -> rows; raises what the server does


def told(ask: Ask, kept: Kept) -> list[Told]:
    """The parameters' types and ranges, in the order of `kept.parameters`; the server's own error where it refuses."""
    ask(f"PREPARE dbbench_asked AS {kept.text}")
    try:
        found = ask("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'dbbench_asked'")
    finally:
        ask("DEALLOCATE dbbench_asked")
    types = list(found[0][0])
    return [_told(ask, kept, parameter, types[int(parameter[1:]) - 1]) for parameter in kept.parameters]


def _told(ask: Ask, kept: Kept, parameter: str, type_: str) -> Told:
    column, tables = column_of(kept, parameter), tables_of(kept)
    if not column or not tables:
        return Told(type_)
    rows = ask(
        "SELECT histogram_bounds::text, most_common_vals::text FROM pg_stats "
        "WHERE attname = %s AND tablename = ANY(%s)",
        column, list(tables),
    )  # fmt: skip
    values = [int(word) for row in rows for text in row if text for word in re.findall(r"(?<=[{,])-?\d+(?=[,}])", text)]
    return Told(type_, min(values), max(values)) if values else Told(type_)
