"""The expressions of a statement as they were written, and as they are written back for Spark.

Structure is cut out: a nested query, ORDER BY inside a call, OVER. Its parts are compared on their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from penstock.errors import PenstockError, fail
from penstock.plan.dialect import CALL_END, DIALECT, SPAN
from penstock.plan.room import with_room
from penstock.sql.foreign import syntax_hint
from penstock.sql.functions import name_of
from penstock.sql.tokens import Script

_ATOMS = (exp.Column, exp.Star, exp.Null, exp.Boolean, exp.Identifier, exp.Placeholder, exp.Var)
_QUERIES = (exp.Query, exp.Values)
_ONE = exp.select("1")


class Written(NamedTuple):
    """An expression: its text in the script, from an offset on, and the text for Spark."""

    original: str
    copy: str
    offset: int


def written(text: str, *trees: exp.Expr | None, offset: int = 0) -> list[Written]:
    """The largest expressions of parsed trees. `text` is the script that they were parsed from, from `offset` on."""
    return with_room(lambda: [w for tree in trees if tree is not None for w in _written(text, tree, offset)])


def refusal(script: Script, found: Written, at: int, message: str) -> PenstockError:
    """The error for an expression that Spark does not know (with its message), or that would not be written back as it was."""
    where = script.position(found.offset + at, 1 if message else max(1, len(found.original.split("\n")[0]) - at))
    if message:
        hint = syntax_hint(found.original[max(0, at - 40) :])
        return fail("PSK-1001", _sentence(message), position=where, sql=script.shown, hint=hint)
    return fail(
        "PSK-1012",
        "this expression would not reach Spark as it is written",
        position=where,
        sql=script.shown,
        hint="Write it in another way; parentheses often help.",
    )


def _sentence(message: str) -> str:
    text = message.strip().splitlines()[0] if message.strip() else "Spark cannot read this expression"
    text = text.partition("] ")[2] if text.startswith("[") and "] " in text else text
    return text.partition(" SQLSTATE")[0].strip() or "Spark cannot read this expression"


def _written(text: str, tree: exp.Expr, base: int) -> Iterator[Written]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, _ATOMS):
            continue
        # A table function is structure, as a query is.
        if (
            SPAN not in node.meta
            or isinstance(node, _QUERIES)
            or isinstance(node.parent, exp.Table)
            or not _whole(node)
        ):
            stack += node.iter_expressions()
            continue
        cuts = list(_cuts(node))
        start, end = node.meta[SPAN]
        original = _cut(text, start - base, end - base, [(s - base, e - base, t) for s, e, t, _ in cuts])
        copy = node.transform(_stand_in) if cuts else node
        yield Written(original, copy.sql(dialect=DIALECT, comments=False), start)
        stack += [inner for *_, parts in cuts for inner in parts]


def _whole(node: exp.Expr) -> bool:
    """Whether a node has no call that stands for syntax of ours, no parameter, and no UNNEST."""
    return not any(
        isinstance(n, (exp.Placeholder, exp.Unnest)) or (isinstance(n, exp.Anonymous) and n.name.startswith("__"))
        for n in node.walk(prune=lambda n: isinstance(n, _QUERIES))
    )


_Cut = tuple[int, int, str, list[exp.Expr]]


def _cuts(node: exp.Expr) -> Iterator[_Cut]:
    """Start and end of a structure in the script, the text in its place, and the parts that are compared on their own."""
    stack = [node]
    while stack:
        n = stack.pop()
        kind = _kind(n)
        if kind == "query":
            start, end = n.meta[SPAN]
            yield start, end, "(SELECT 1)" if isinstance(n, exp.Subquery) else "SELECT 1", list(n.iter_expressions())
        elif kind == "quantifier":
            yield (*n.meta[SPAN], "(SELECT 1)", [n.this])
        elif kind == "ordered":
            yield n.meta["start"], n.meta[CALL_END], f"{name_of(n)}(1)", list(n.iter_expressions())
        elif kind == "window":
            call = _called(n)
            yield (*n.meta[SPAN], f"{name_of(call)}(1)", list(n.iter_expressions()))
        else:
            stack += n.iter_expressions()


def _kind(node: exp.Expr) -> str | None:
    """What structure a node is, if it is cut out."""
    if isinstance(node, _QUERIES):
        return "query" if SPAN in node.meta else None
    if isinstance(node, (exp.Any, exp.All)) and node.find(*_QUERIES) is not None:
        return "quantifier" if SPAN in node.meta else None
    if isinstance(node, exp.Window):
        return "window" if SPAN in node.meta and name_of(_called(node)) is not None else None
    called = isinstance(node, exp.Func) and CALL_END in node.meta and "start" in node.meta
    return "ordered" if called and any(isinstance(c, exp.Order) for c in node.iter_expressions()) else None


def _called(node: exp.Expr) -> exp.Expr:
    while isinstance(node, (exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        node = node.this
    return node


def _stand_in(node: exp.Expr) -> exp.Expr:
    kind = _kind(node)
    if kind == "query":
        return exp.Subquery(this=_ONE.copy()) if isinstance(node, exp.Subquery) else _ONE.copy()
    if kind == "quantifier":
        return exp.Subquery(this=_ONE.copy())
    if kind in ("ordered", "window"):
        return exp.Anonymous(this=name_of(_called(node)), expressions=[exp.Literal.number(1)])
    return node


def _cut(text: str, start: int, end: int, cuts: list[tuple[int, int, str]]) -> str:
    out = []
    for s, e, instead in sorted(cuts):
        out += [text[start:s], instead]
        start = e
    return "".join([*out, text[start:end]])
