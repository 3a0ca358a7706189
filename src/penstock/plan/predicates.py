"""Splits, combines and rewrites predicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from sqlglot import exp

from penstock.plan.nodes import Expr, Filter, Node, col

_NONDETERMINISTIC = frozenset(
    {
        "rand",
        "random",
        "randn",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "randstr",
        "uniform",
    }
)


def split(predicate: Expr) -> list[Expr]:
    """The conjuncts of a predicate."""
    node = cast(exp.Expression, predicate.node.unnest())
    if isinstance(node, exp.And):
        return split(Expr(node.this)) + split(Expr(node.expression))
    return [Expr(node)]


def joined(parts: Sequence[Expr]) -> Expr:
    out: exp.Expression | None = None
    for part in parts:
        node: exp.Expression = exp.Paren(this=part.node.copy()) if isinstance(part.node, exp.Or) else part.node.copy()
        out = node if out is None else exp.And(this=out, expression=node)
    assert out is not None
    return Expr(out)


def filtered(node: Node, parts: Sequence[Expr]) -> Node:
    """The node, filtered if there are any conjuncts."""
    return Filter(node, joined(parts)) if parts else node


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with columns renamed."""
    return replaced(expr, {a: col(b) for a, b in names.items()})


def replaced(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """The expression with columns replaced by expressions."""

    def change(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.name not in by:
            return node
        made = by[node.name].node.copy()
        return made if isinstance(made, (exp.Column, exp.Literal, exp.Func)) else exp.Paren(this=made)

    return Expr(expr.node.copy().transform(change))


def deterministic(expr: Expr) -> bool:
    """True if equal rows always give equal values, so that the expression can be computed anywhere."""
    for node in expr.node.walk():
        if isinstance(node, exp.Anonymous) and node.name.lower() in _NONDETERMINISTIC:
            return False
    return True


_TOTAL = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not, exp.In, exp.Is, exp.Between, exp.EQ,
    exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
)  # fmt: skip
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def total(predicate: Expr, types: Mapping[str, str]) -> bool:
    """True if the predicate has a value for every row: it compares columns and constants of the same kind. `types` are those of the columns, where known."""
    for node in predicate.node.walk():
        if not isinstance(node, _TOTAL):
            return False
        if isinstance(node, _COMPARED):
            sides = [node.this, node.expression]
        elif isinstance(node, exp.Between):
            sides = [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, exp.In):
            sides = [node.this, *node.expressions]
            if not node.expressions:
                return False
        else:
            continue
        kinds = {_kind(s, types) for s in sides}
        if len(kinds) != 1 or None in kinds:
            return False
    return True


def _kind(node: exp.Expression, types: Mapping[str, str]) -> str | None:
    node = cast(exp.Expression, node.unnest())
    if isinstance(node, exp.Literal):
        return "string" if node.is_string else "number"
    if isinstance(node, exp.Boolean):
        return "boolean"
    if isinstance(node, exp.Column):
        kind = types.get(node.name)
        if kind is None:
            return None
        return "number" if kind.partition("(")[0] in _NUMBERS else kind
    return None
