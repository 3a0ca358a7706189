"""Functions by the names that statements have for them: Postgres names, aggregates, generators."""

from __future__ import annotations

import re

from sqlglot import exp

from penstock.plan.dialect import DIALECT, Phrase
from penstock.plan.functions import AggregateFunction, find_aggregate


def call(name: str, *args: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(args))


def _split(text: exp.Expression, sep: exp.Expression) -> exp.Expression:
    """string_to_array(s, sep): the separator is a literal, not a pattern; an empty string gives an empty array."""
    if isinstance(sep, exp.Literal) and sep.is_string:
        pattern: exp.Expression = exp.Literal.string(re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", sep.name))
    else:
        pattern = call("concat", exp.Literal.string("\\Q"), sep, exp.Literal.string("\\E"))
    empty = exp.cast(call("array"), exp.DataType.build("ARRAY<STRING>", dialect=DIALECT))
    return exp.If(
        this=exp.EQ(this=text.copy(), expression=exp.Literal.string("")), true=empty, false=call("split", text, pattern)
    )


_RENAMED = {
    "make_array": "array",
    "array_to_string": "array_join",
    "clock_timestamp": "now",
    "statement_timestamp": "now",
    "transaction_timestamp": "now",
    "to_hex": "hex",
    "chr": "char",
}


def name_of(node: exp.Expr) -> str | None:
    """The lower-case name of the function that a node calls; None if it is not a call."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if isinstance(node, Phrase):
        return str(node.this).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else None


def translate(node: exp.Expression) -> exp.Expression:
    """Translates one call of a Postgres name to Spark; its arguments are already translated. Returns the node itself if nothing changes."""
    if not isinstance(node, exp.Anonymous):
        return node
    name = node.name.lower()
    if name == "string_to_array" and len(node.expressions) == 2:
        return _split(*node.expressions)
    if name == "strpos" and len(node.expressions) == 2:
        return call("locate", *reversed(node.expressions))
    new = _RENAMED.get(name)
    return call(new, *node.expressions) if new is not None else node


STRUCT_WINDOWS = frozenset({"window", "session_window"})


def struct_window(node: exp.Expr) -> str | None:
    """The lower-case name if the node is a call of a window function of Spark, whose value is a struct of `start` and `end`."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name if name in STRUCT_WINDOWS else None


NOW = frozenset(
    {
        "now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "current_timestamp", "current_date", "current_time",
        "curdate", "localtimestamp", "localtime",
    }
)  # fmt: skip


def is_now(node: exp.Expression) -> bool:
    return name_of(node) in NOW


GENERATORS: dict[str, int] = {
    "explode": 1,
    "explode_outer": 1,
    "posexplode": 2,
    "posexplode_outer": 2,
    "unnest": 1,
    "inline": 0,
    "inline_outer": 0,
    "json_tuple": 0,
    "stack": 0,
    "variant_explode": 3,
    "variant_explode_outer": 3,
    "range": 1,
    "generate_series": 1,
}


OWN = frozenset(
    {
        *_RENAMED,
        *GENERATORS,
        "string_to_array",
        "strpos",
        "table",
        "descriptor",
        "proctime",
        "nearest",
        "current_setting",
    }
)
"""Names that mean something in a statement, although Spark has no function of that name."""


def called_aggregate(node: exp.Expression) -> AggregateFunction | None:
    """The function if the node is an aggregate call."""
    if isinstance(node, exp.Any):
        # ANY without a comparison before it is the function.
        alone = isinstance(node.this, exp.Paren) and not isinstance(node.parent, exp.Binary)
        return find_aggregate("any") if alone else None
    return find_aggregate(name_of(node) or "")


def generator_name(node: exp.Expression) -> str | None:
    """The lower-case name if the node is a call of a table-generating function."""
    if isinstance(node, exp.Unnest):
        return "unnest"
    name = name_of(node)
    return name if name in GENERATORS else None
