"""Turns `rn <= n` over ROW_NUMBER, RANK or DENSE_RANK into a Top-N per partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

from sqlglot import exp

from penstock.plan.nodes import Analytic, Expr, Filter, Node, Project, TopN
from penstock.plan.passes.rebuild import transform
from penstock.plan.predicates import filtered, split

_RANKS = ("row_number", "rank", "dense_rank")


def rank_filters(root: Node) -> Node:
    """Turns an Analytic node with a single rank, and a filter on that rank, into a TopN, which keeps n rows instead of all."""
    return transform(root, _change)


def _change(node: Node) -> Node:
    if not isinstance(node, Filter):
        return node
    chain: list[Project] = []
    below = node.child
    while isinstance(below, Project):
        chain.append(below)
        below = below.child
    if not isinstance(below, Analytic) or len(below.calls) != 1 or below.calls[0].func not in _RANKS:
        return node
    call = below.calls[0]
    if any(not any(i.name == call.name and i.expr.column == call.name for i in p.items) for p in chain):
        return node
    parts = split(node.predicate)
    for part in parts:
        limit, exact = _limit(part, call.name)
        if limit is None or limit < 1:
            continue
        rank = cast(Literal["row_number", "rank", "dense_rank"], call.func)
        made: Node = TopN(below.child, below.partition, below.order, limit, rank=rank, rank_name=call.name)
        for project in reversed(chain):
            made = replace(project, child=made)
        return filtered(made, [p for p in parts if p is not part or not exact])
    return node


def _limit(part: Expr, name: str) -> tuple[int | None, bool]:
    """For `name <= n` and similar: n, and whether the limit fully covers the condition."""
    node = part.node
    if not isinstance(node, (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ)):
        return None, False
    a, b = node.this.unnest(), node.expression.unnest()
    below = isinstance(node, (exp.LT, exp.LTE))
    if isinstance(b, exp.Column) and b.name == name:
        a, b, below = b, a, isinstance(node, (exp.GT, exp.GTE))
    if not (isinstance(a, exp.Column) and a.name == name and isinstance(b, exp.Literal) and b.is_int):
        return None, False
    n = int(b.name)
    if isinstance(node, exp.EQ):
        return n, n == 1
    if not below:
        return None, False
    return (n, True) if isinstance(node, (exp.LTE, exp.GTE)) else (n - 1, True)
