"""Write the kept statements: a TOML file, and next to it scripts for pgbench, or one Lua script for sysbench with the
statements of a slow log as they were logged.

Text of the recording gets into pgbench's scripts without backslashes and colons, and never into Lua or TOML.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import TokenType as T

from dbbench.errors import LiveServerUnreadable
from dbbench.introspect.recordings import RecordedStatements
from dbbench.introspect.rules import (
    Role,
    Rule,
    Statement,
    column_types,
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

_TYPES: Final = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'dbbench_asked'"
_VARIABLE: Final = re.compile(r"(?<!:):p\w+")
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
    types = dict[str, str]()
    for statement in recording.kept if recording.dialect == "postgres" else ():
        with contextlib.suppress(ValueError):
            types |= column_types(rewritten(words_of(statement.text, "postgres")))
    scripts, share = list[str](), SAMPLE_BYTES // max(1, min(most, len(recording.kept)))
    for statement in list(recording.kept):
        try:
            if len(scripts) == most:
                raise ValueError(f"not among the {most} most frequent statements")
            if recording.dialect == "postgres":
                scripts.append(pgbench_script(statement, ask, types))
            else:
                _limit(statement, share, ask)
                scripts.append("")
        except ValueError as error:
            recording.leave_out(statement, str(error))
        except LiveServerUnreadable as error:
            recording.leave_out(statement, f"the server refuses it ({error.evidence.split(': ', 1)[-1]})")
    return [script for script in scripts if script]


def _limit(statement: Statement, most_bytes: int, ask: Ask | None) -> None:
    """Keep samples of at most that size together, and let the server check one. Raises ValueError if none fits."""
    sizes = itertools.accumulate(len(text.encode(errors="surrogateescape")) + ENTRY for text in statement.samples)
    statement.samples[:] = statement.samples[: sum(size <= most_bytes for size in sizes)]
    if not statement.samples:
        raise ValueError(f"longer than {size_text(most_bytes)}")
    if re.match(r"insert\b(?!.*\b(ignore|duplicate)\b)", statement.text, re.IGNORECASE | re.DOTALL):
        statement.why = "inserts its recorded keys again; those that exist are errors of the trial"
    if ask:
        if statement.database:
            ask(f"USE `{statement.database.replace('`', '``')}`")
        ask("COMMIT")  # in the read-only transaction of `reading`, a change cannot even be prepared
        ask("PREPARE dbbench_asked FROM %s", statement.samples[0])


def pgbench_script(statement: Statement, ask: Ask | None, types: dict[str, str]) -> str:
    """Return the script of a statement of pg_stat_statements; `ask` queries a server with its tables, `types` are those
    of columns, for guesses without it.

    Notes in `statement.why` in which respects it differs from the recorded one. Raises ValueError with the reason if no
    script can send it, LiveServerUnreadable if the server refuses it.
    """
    recorded = words_of(statement.text, "postgres")
    text = rewritten(recorded)
    if fault := script_fault(text):
        raise ValueError(fault)
    words, rules = words_of(text, "postgres"), _rules_of(text, ask, types)
    lines, expressions = [f"-- {statement.calls} calls"], dict[int, str]()
    for number in sorted(rules, key=lambda each: (rules[each].after, each)):
        expressions[number] = _assigned(number, rules, expressions, lines)
    sent = ""
    for kind, word in _forgiving(words):
        piece = expressions[int(word[1:])] if kind == T.PARAMETER else word
        sent += f" {piece}" if sent.endswith(":") and piece.startswith(":p") else piece
    pieces = _VARIABLE.split(sent)
    if len(pieces) - 1 > ARGUMENTS:
        raise ValueError(f"{len(pieces) - 1} values; pgbench can send {ARGUMENTS}")
    reasons = ["guessed values"] if any(rule.guessed for rule in rules.values()) else []
    if _forgiving(words) != words:
        reasons.append("rows whose key exists are not inserted (ON CONFLICT DO NOTHING)")
    if ask:
        numbered = "".join(f"{piece}${number}" for number, piece in enumerate(pieces[:-1], 1)) + pieces[-1]
        plan, expected = _plan(ask, numbered), ""
        with contextlib.suppress(LiveServerUnreadable):  # `interval $1` cannot be prepared
            expected = _plan(ask, "".join(word for _, word in recorded))
        if expected not in ("", plan):
            reasons.append(f"another plan: {plan} instead of {expected}")
    statement.why = "; ".join(reasons)
    return "\n".join([*lines, f"{sent};"]) + "\n"


def _rules_of(text: str, ask: Ask | None, columns: dict[str, str]) -> dict[int, Rule]:
    """Return the rules of all parameters. Raises ValueError if one has none."""
    roles, tables = roles_of(text)
    types = _prepared(ask, text, _TYPES)[0][0] if ask else []
    rules = dict[int, Rule]()
    for number in dict.fromkeys(int(word[1:]) for kind, word in words_of(text, "postgres") if kind == T.PARAMETER):
        role = roles.get(number, Role())
        role.type = role.type or columns.get(role.column, "")
        if ask:
            role.type, role.values = types[number - 1], _values(ask, role.column, tables)
        if (rule := rule_of(role)) is None:
            raise ValueError(f"a parameter of type {role.type}")
        rules[number] = rule
    return rules


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


def _values(ask: Ask, column: str, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a column in the server's statistics."""
    if not column or not tables:
        return ()
    return tuple(str(row[0]) for row in ask(
        "SELECT unnest(coalesce(most_common_vals::text::text[], '{}') || coalesce(histogram_bounds::text::text[], "
        "'{}')) FROM pg_stats WHERE attname = %s AND tablename = ANY(%s)",
        column, list(tables),
    ))  # fmt: skip


def _prepared(ask: Ask, text: str, *questions: str) -> list[tuple[Any, ...]]:
    """Prepare a statement and return the answer to the last question. Raises the server's own error."""
    ask(f"PREPARE dbbench_asked AS {text}")
    try:
        return [ask(question) for question in questions][-1]
    finally:
        ask("DEALLOCATE dbbench_asked")


def _plan(ask: Ask, text: str) -> str:
    """Return the nodes of the plan for unknown values, with their tables and indexes."""
    ((types,),) = _prepared(ask, text, _TYPES)
    values = f"({', '.join(['NULL'] * len(types))})" if types else ""
    question = f"EXPLAIN (FORMAT JSON) EXECUTE dbbench_asked{values}"
    ((tree,),) = _prepared(ask, text, "SET plan_cache_mode = force_generic_plan", question)
    nodes, parts = [tree[0]["Plan"]], list[str]()
    while nodes:
        node = nodes.pop()
        parts.append(" ".join(str(node[key]) for key in ("Node Type", "Relation Name", "Index Name") if key in node))
        nodes += node.get("Plans", ())
    return ", ".join(parts)
