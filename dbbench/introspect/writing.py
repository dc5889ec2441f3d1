"""Write the kept statements: a TOML file, and next to it scripts for pgbench, or one Lua script for sysbench with the
statements of a slow log as they were logged.

Text of the recording gets into pgbench's scripts without backslashes and colons, and never into Lua or TOML.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import TokenType as T

from dbbench.errors import LiveServerUnreadable
from dbbench.introspect.recordings import RecordedStatements
from dbbench.introspect.rules import (
    ParameterType,
    Role,
    Rule,
    Statement,
    rewritten,
    roles_of,
    rule_of,
    script_fault,
    words_of,
)
from dbbench.model.base import shipped
from dbbench.units import percent, size_text

WEIGHTS: Final = 10_000  # the sum of the weights, to which calls are scaled: pgbench adds weights in an int
ARGUMENTS: Final = 255  # values of a statement that pgbench can send
ENTRY: Final = 20  # bytes of the index of workloads/dbbench_recorded.lua per statement
SAMPLE_BYTES: Final = 12 * 2**20  # of all statements next to a Lua script; a plan accepts files of 16 MiB
Ask = Callable[..., list[tuple[Any, ...]]]  # (statement, *values) -> rows; raises LiveServerUnreadable

_TOML: Final = """\
# Written from {source}: {kept} statements of {all}, {share} of the calls as recorded.
# Each statement is a transaction of its own, because the recording has no transactions. Weights are numbers of calls.
# {values}
title   = "Statements recorded from {source}"
driver  = "{driver}"
engines = [{engines}]
script  = "{script}"
beside  = {beside}
{more}
{dataset}

[parameters.clients]
type    = "integer"
default = 4
min     = 1
help    = "number of sessions"

[parameters.rate]
type    = "integer"
default = 0
min     = 0
help    = "scheduled statements per second, latency measured from the schedule (open loop); 0 = as fast as possible"
"""
_PGBENCH: Final = """
[parameters.threads]
type    = "integer"
default = 2
min     = 1
help    = "number of pgbench threads (at most one per client)"

[parameters.protocol]
type    = "string"
default = "prepared"
choices = ["extended", "prepared"]
help    = "protocol for sending statements; `simple` is not possible, because the parameters are untyped"
"""


def written(
    name: str, recording: RecordedStatements, scripts: Sequence[str], engines: Sequence[str], dataset: str
) -> dict[str, bytes]:
    """Return the content of the workload's files, by name; the first is the TOML file.

    `scripts`: those of pgbench for the kept statements; without them it is written for sysbench. `dataset`: the line
    that defines what is loaded.
    """
    source = re.sub(r"[^A-Za-z0-9._-]", "_", recording.source.rpartition("/")[2])  # for comments and a string
    whole = sum(each.calls for each in recording.kept)
    weights = [max(1, round(WEIGHTS * each.calls / whole)) for each in recording.kept]
    if scripts:
        files = {f"{name}-{number:03}.sql": text.encode() for number, text in enumerate(scripts, 1)}
        more = f"weights = {weights}"
        values = "Parameters are drawn by the rules in the scripts. Edit those that are marked GUESSED."
    else:
        files = _for_sysbench(name, recording.kept, weights)
        more = 'options = { mysql-ignore-errors = "all" }  # counted as errors of the trial, with W019'
        values = "The statements have the values of the log."
    first, *others = files
    exact, _ = recording.shares([each for each in recording.kept if not each.why])
    text = _TOML.format(
        source=source, kept=len(recording.kept), all=len(recording.kept) + len(recording.left_out), values=values,
        share=percent(exact, 1), driver="pgbench" if scripts else "sysbench", script=first, beside=_list(others),
        engines=", ".join(f'"{engine}"' for engine in engines), more=more, dataset=dataset,
    )  # fmt: skip
    return {f"{name}.toml": (text + (_PGBENCH if scripts else "")).encode(), **files}


def _list(names: Sequence[str]) -> str:
    return "[\n" + "".join(f'    "{name}",\n' for name in names) + "]" if names else "[]"


def _for_sysbench(name: str, kept: Sequence[Statement], weights: Sequence[int]) -> dict[str, bytes]:
    """Return the script and its statements, whose format the script describes."""
    kinds, index, texts = bytearray(), bytearray(), bytearray()
    begin = ENTRY * sum(len(statement.samples) for statement in kept)
    for statement, weight in zip(kept, weights, strict=True):
        database = statement.database.encode(errors="surrogateescape").hex() or "-"
        kinds += f"{weight} {database} {len(statement.samples)}\n".encode()
        for sample in statement.samples:
            text = sample.encode(errors="surrogateescape")
            index += b"%010d %08d\n" % (begin + len(texts), len(text))
            texts += text
    script = (shipped() / "workloads/dbbench_recorded.lua").read_bytes()
    return {f"{name}.lua": script, f"{name}.statements": bytes(kinds + b"\n" + index + texts)}


def scripts_of(recording: RecordedStatements, ask: Ask | None, most: int) -> list[str]:
    """Return pgbench's scripts of the kept statements, none for a slow log; move those that cannot be run again, and
    all but the `most` frequent, to `left_out`. `ask` queries a server with their tables."""
    scripts = []
    for number, statement in enumerate(list(recording.kept)):
        try:
            if number - len(recording.left_out) >= most:
                raise ValueError(f"not among the {most} most frequent statements")
            if recording.dialect == "postgres":
                scripts.append(pgbench_script(statement, ask))
            else:
                _logged(statement, SAMPLE_BYTES // min(most, len(recording.kept)), ask)
        except ValueError as error:
            recording.leave_out(statement, str(error))
    return scripts


def _logged(statement: Statement, most_bytes: int, ask: Ask | None) -> None:
    """Keep samples of at most that size together. Raises ValueError if none fits or the server refuses the first."""
    sizes = itertools.accumulate(len(text.encode(errors="surrogateescape")) + ENTRY for text in statement.samples)
    statement.samples[:] = statement.samples[: sum(size <= most_bytes for size in sizes)]
    if not statement.samples:
        raise ValueError(f"longer than {size_text(most_bytes)}")
    if re.match(r"insert\b(?!.*\b(ignore|duplicate)\b)", statement.text, re.IGNORECASE | re.DOTALL):
        statement.why = "inserts its recorded keys again; those that exist are errors of the trial"
    if ask:
        try:
            ask(f"USE `{statement.database.replace('`', '``')}`") if statement.database else None
            ask("COMMIT")  # in the read-only transaction of `reading`, a change cannot even be prepared
            ask("PREPARE dbbench_asked FROM %s", statement.samples[0])
        except LiveServerUnreadable as error:
            raise ValueError(f"the server refuses it ({error.evidence.split(': ', 1)[-1]})") from None


def pgbench_script(statement: Statement, ask: Ask | None) -> str:
    """Return the script of a statement of pg_stat_statements; `ask` queries a server with its tables.

    Notes in `statement.why` in which respects it differs from the recorded one. Raises ValueError with the reason if no
    script can send it.
    """
    text = rewritten(words_of(statement.text, "postgres"))
    if fault := script_fault(text):
        raise ValueError(fault)
    words, (roles, tables) = words_of(text, "postgres"), roles_of(text)
    types = _types(ask, text, roles, tables) if ask else {}
    rules, lines, guessed = dict[int, Rule](), [f"-- {statement.calls} calls"], False
    numbers = dict.fromkeys(int(word[1:]) for kind, word in words if kind == T.PARAMETER)
    for number in numbers:
        role = roles.get(number, Role())
        rule = rule_of(role, types.get(number))
        if rule is None:
            raise ValueError(f"a parameter of type {types[number].type if number in types else role.type}")
        rules[number], guessed = rule, guessed or rule.guessed
    expressions = dict[int, str]()
    for number in sorted(numbers, key=lambda each: (rules[each].after, each)):
        expressions[number] = _assigned(number, rules, expressions, lines)
    words = _forgiving(words)
    statement_text = ""
    for kind, word in words:
        piece = expressions[int(word[1:])] if kind == T.PARAMETER else word
        statement_text += f" {piece}" if statement_text.endswith(":") and piece.startswith(":p") else piece
    arguments = re.findall(r"(?<!:):p\w+", statement_text)
    if len(arguments) > ARGUMENTS:
        raise ValueError(f"{len(arguments)} values; pgbench can send {ARGUMENTS}")
    reasons = ["guessed values"] if guessed else []
    if len(words) != len(words_of(text, "postgres")):
        reasons.append("rows whose key exists are not inserted (ON CONFLICT DO NOTHING)")
    if ask and (difference := _other_plan(ask, statement.text, statement_text)):
        reasons.append(difference)
    statement.why = "; ".join(reasons)
    return "\n".join([*lines, f"{statement_text};"]) + "\n"


def _assigned(number: int, rules: dict[int, Rule], expressions: dict[int, str], lines: list[str]) -> str:
    """Add the lines that draw the values of a parameter; return the expression with their variables."""
    rule, low = rules[number], rules.get(rules[number].after)
    lines.append(f"-- ${number}: {rule.note}" if rule.note else f"-- ${number}")
    names = [f"p{number}"] if rule.expression.count("{}") == 1 else [
        f"p{number}_{index}" for index in range(1, rule.expression.count("{}") + 1)
    ]  # fmt: skip
    begin = f":p{rule.after} + " if low and low.expression == "{}" else ""
    lines += [f"\\set {name} {begin}random({rule.least}, {rule.most})" for name in names]
    variables = [f":{name}" for name in names]
    if low and not begin and rule.sum:
        return rule.sum.format(expressions[rule.after], variables[0])
    return rule.expression.format(*variables)


def _forgiving(words: list[tuple[T, str]]) -> list[tuple[T, str]]:
    """Return an insert that does nothing if its key already exists: an error would end the client."""
    plain = [word.lower() for _, word in words]
    if plain[0] != "insert" or "conflict" in plain:
        return words
    place = next((index for index, word in enumerate(plain) if word == "returning"), len(words))
    return [*words[:place], (T.VAR, " ON CONFLICT DO NOTHING "), *words[place:]]


def _types(ask: Ask, text: str, roles: dict[int, Role], tables: tuple[str, ...]) -> dict[int, ParameterType]:
    """Return types and the values of columns, queried from the server. Raises ValueError if it refuses the text."""
    try:
        ask(f"PREPARE dbbench_asked AS {text}")
        types = ask("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'dbbench_asked'")[0][0]
        ask("DEALLOCATE dbbench_asked")
    except LiveServerUnreadable as error:
        raise ValueError(f"the server refuses it ({error.evidence.split(': ', 1)[-1]})") from None
    return {number: ParameterType(type_, _values(ask, roles.get(number, Role()).column, tables))
            for number, type_ in enumerate(types, 1)}  # fmt: skip


def _values(ask: Ask, column: str, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a column in the server's statistics."""
    if not column or not tables:
        return ()
    return tuple(str(row[0]) for row in ask(
        "SELECT unnest(coalesce(most_common_vals::text::text[], '{}') || coalesce(histogram_bounds::text::text[], "
        "'{}')) FROM pg_stats WHERE attname = %s AND tablename = ANY(%s)",
        column, list(tables),
    ))  # fmt: skip


def _other_plan(ask: Ask, recorded: str, rebuilt: str) -> str:
    """Compare the generic plans of both statements. Return the difference, "" if there is none or the recorded text
    cannot be prepared. Raises ValueError if the server refuses the rebuilt statement."""
    count = iter(range(1, ARGUMENTS + 1))
    try:
        plan = _plan(ask, re.sub(r"(?<!:):p\w+", lambda _: f"${next(count)}", rebuilt))
    except LiveServerUnreadable as error:
        raise ValueError(f"the server refuses it ({error.evidence.split(': ', 1)[-1]})") from None
    try:
        expected = _plan(ask, recorded)
    except LiveServerUnreadable:
        return ""
    return "" if plan == expected else f"another plan: {', '.join(plan)} instead of {', '.join(expected)}"


def _plan(ask: Ask, text: str) -> list[str]:
    ask("SET plan_cache_mode = force_generic_plan")
    ask(f"PREPARE dbbench_planned AS {text}")
    try:
        types = ask("SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'dbbench_planned'")
        values = f"({', '.join(['NULL'] * types[0][0])})" if types[0][0] else ""
        ((tree,),) = ask(f"EXPLAIN (FORMAT JSON) EXECUTE dbbench_planned{values}")
    finally:
        ask("DEALLOCATE dbbench_planned")
    return [*_nodes(tree[0]["Plan"])]


def _nodes(node: dict[str, Any]) -> list[str]:
    """Return all nodes of a plan with their tables and indexes."""
    of = " ".join(str(node[key]) for key in ("Node Type", "Relation Name", "Index Name") if key in node)
    return [of, *(inner for below in node.get("Plans", ()) for inner in _nodes(below))]
