"""Predicates taken apart and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from sqlglot import exp

from penstock.plan.nodes import Expr, Filter, Node


def split(predicate: Expr) -> list[Expr]:
    """The parts of an AND."""
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
    """The node under a filter, if there is anything to filter by."""
    return Filter(node, joined(parts)) if parts else node


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over other column names."""

    def change(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and node.name in names:
            return exp.Column(this=exp.Identifier(this=names[node.name], quoted=True))
        return node

    return Expr(expr.node.copy().transform(change))
