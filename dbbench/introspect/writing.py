"""Write the kept statements: a TOML file, and next to it scripts for pgbench or one Lua script for sysbench.

No text of the recording is written verbatim: each statement is assembled from its tokens (`tokens`), in one line. In
pgbench's scripts no backslash and no colon of it remains; in Lua it appears only in quoted strings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dbbench.engines import profile_of
from dbbench.introspect.recordings import Token
from dbbench.introspect.rules import Kept, Rule, Sorted

WEIGHTS: Final = 10_000  # the sum of the weights, to which calls are scaled: pgbench adds weights in an int
Ruled = tuple[Kept, tuple[Rule, ...]]  # a statement with a rule per parameter

_TOML: Final = """\
# Written from {source}: {kept} statements of {all}, {share:.1%} of the calls.
# Each statement is a transaction of its own, because the recording has no transactions. Weights are numbers of calls.
# Parameters are drawn by the rules in the script{plural}. Edit those that are marked GUESSED.
title   = "Statements recorded from {source}"
driver  = "{driver}"
engines = [{engines}]
script  = "{script}"
{beside}{dataset}

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
_LUA: Final = """\
-- Written from {source} for sysbench: each event is one of these statements, drawn by its weight.

local con

-- An integer in [least, most] as text, because sysbench's own integers are smaller.
local function whole(least, most)
   return string.format("%.0f", least + math.floor(sysbench.rand.uniform_double() * (most - least + 1)))
end

local function one_of(texts)
   return texts[sysbench.rand.uniform(1, #texts)]
end

local STATEMENTS = {{
{statements}
}}

local total = 0
for _, one in ipairs(STATEMENTS) do
   total = total + one.weight
end

function thread_init()
   con = sysbench.sql.driver():connect()
end

function thread_done()
   con:disconnect()
end

function event()
   local point = sysbench.rand.uniform(1, total)
   for kind, one in ipairs(STATEMENTS) do
      point = point - one.weight
      if point <= 0 then
         con:query(one.statement())
         dbbench_kind = kind
         return
      end
   end
end
"""


def written(
    name: str, source: str, found: Sorted, ruled: Sequence[Ruled], engines: Sequence[str], dataset: str
) -> dict[str, str]:
    """Return the content of the workload's files, by name; the first is the TOML file.

    `dataset`: the line that defines what is loaded.
    """
    source = re.sub(r"[^A-Za-z0-9._-]", "_", source)  # becomes part of comments and of a string
    whole = sum(kept.calls for kept, _ in ruled)
    weights = [max(1, round(WEIGHTS * kept.calls / whole)) for kept, _ in ruled]
    by_pgbench = profile_of(engines[0]).generated == "pgbench"
    if by_pgbench:
        scripts = {f"{name}-{number:03}.sql": _pgbench(*statement) for number, statement in enumerate(ruled, 1)}
    else:
        rows = "\n".join(_lua(*statement, weight) for statement, weight in zip(ruled, weights, strict=True))
        scripts = {f"{name}.lua": _LUA.format(source=source, statements=rows)}
    first, *others = scripts
    several = f"beside  = {_list(others)}\nweights = [{', '.join(map(str, weights))}]\n" if by_pgbench else ""
    text = _TOML.format(
        source=source, kept=len(ruled), all=len(found.kept) + len(found.left_out), share=found.share,
        plural="s" if others else "", driver="pgbench" if by_pgbench else "sysbench",
        engines=", ".join(f'"{engine}"' for engine in engines), script=first, beside=several, dataset=dataset,
    )  # fmt: skip
    return {f"{name}.toml": text + (_PGBENCH if by_pgbench else ""), **scripts}


def _list(names: Sequence[str]) -> str:
    return "[\n" + "".join(f'    "{name}",\n' for name in names) + "]" if names else "[]"


def _pgbench(kept: Kept, rules: Sequence[Rule]) -> str:
    lines = [f"-- {kept.calls} calls"]
    pieces = {}
    for parameter, rule in zip(kept.parameters, rules, strict=True):
        variable = f"p{parameter[1:]}"
        first = f":p{rule.after[1:]} + " if rule.after else ""
        lines += [f"-- {parameter}: {rule.note}", f"\\set {variable} {first}random({rule.least}, {rule.most})"]
        pieces[parameter] = rule.expression.format(f":{variable}")
    statement = "".join(pieces.get(token.text, token.text) for token in _forgiving_conflicts(kept.tokens))
    return "\n".join([*lines, f"{statement};"]) + "\n"


def _lua(kept: Kept, rules: Sequence[Rule], weight: int) -> str:
    by_name = dict(zip(kept.parameters, rules, strict=True))
    pieces: list[str] = []
    plain, begins = "", dict.fromkeys(rule.after for rule in rules if rule.after)
    first = "".join(f"local {_local(name)} = {_drawn(by_name[name])} " for name in begins)
    for token in _forgiving_duplicates(kept.tokens):
        if token.kind == "parameter":
            drawn = _local(token.text) if token.text in begins else _drawn(by_name[token.text])
            pieces += [lua_string(plain), drawn]
            plain = ""
        else:
            plain += token.text
    pieces.append(lua_string(plain))
    notes = "".join(f"\n   -- {parameter}: {rule.note}" for parameter, rule in by_name.items())
    whole = " .. ".join(pieces)
    return (
        f"   -- {kept.calls} calls{notes}\n   {{weight = {weight}, statement = function() {first}return {whole} end}},"
    )


def _drawn(rule: Rule) -> str:
    if rule.texts:
        return f"one_of({{{', '.join(map(lua_string, rule.texts))}}})"
    begin = f"{_local(rule.after)} + " if rule.after else ""
    return f"whole({begin}{rule.least}, {begin}{rule.most})"


def _local(parameter: str) -> str:
    return f"p{parameter[1:]}"


def lua_string(text: str) -> str:
    """Return a quoted Lua string: everything except plain letters is escaped, so that nothing can end the string."""
    plain = {*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _=<>()*,.`'+-/?%&|!:;@~^$#[]{}"}
    return '"' + "".join(chr(b) if chr(b) in plain else f"\\{b:03}" for b in text.encode("utf-8", "replace")) + '"'


def _forgiving_duplicates(tokens: Sequence[Token]) -> list[Token]:
    """Return an insert that does nothing if its key already exists: an error would end the client."""
    first, *rest = tokens
    if not first.is_word("insert") or _has_word(tokens, "ignore", "duplicate"):
        return [*tokens]
    return [first, Token("word", " IGNORE"), *rest]


def _forgiving_conflicts(tokens: Sequence[Token]) -> list[Token]:
    """Return an insert that does nothing if its key already exists, in PostgreSQL's syntax."""
    whole = list(tokens)
    if not whole[0].is_word("insert") or _has_word(tokens, "conflict"):
        return whole
    nothing = Token("word", " ON CONFLICT DO NOTHING ")
    place = next((index for index, token in enumerate(whole) if token.is_word("returning")), len(whole))
    return [*whole[:place], nothing, *whole[place:]]


def _has_word(tokens: Sequence[Token], *words: str) -> bool:
    return any(token.kind == "word" and token.text.lower() in words for token in tokens)
