"""Joins with USING, and NATURAL joins: both sides have a column of each name, and the result has it once."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import JoinKind, Named, Node, Project, col
from penstock.sql.bind.chars import padded
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import column, to_expr
from penstock.sql.bind.scope import Col, Relation, Scope

Pair = tuple[str, str, str]
"""A name, and the columns of both sides that have it."""


def equalities_of(
    ctx: Context, names: list[str], before: Scope, relation: Relation, item: exp.Expression
) -> tuple[list[exp.Expression], list[Pair]]:
    """The equality of each name, and its columns. Raises PSK-1004 or PSK-1005 for a name that a side lacks, or has twice."""
    parts: list[exp.Expression] = []
    hide = []
    for name in names:
        lefts, rights = before.find(name), relation.find(name)
        if len(lefts) != 1 or len(rights) != 1:
            code, what = (
                ("PSK-1005", "ambiguous") if len(lefts) > 1 or len(rights) > 1 else ("PSK-1004", "not on both sides")
            )
            raise ctx.fail(code, f"the USING column {name} is {what}", item)
        both = exp.EQ(this=column(lefts[0].internal), expression=column(rights[0].internal))
        parts.append(padded(ctx, both))
        hide.append((lefts[0].name, lefts[0].internal, rights[0].internal))
    return parts, hide


def merged(ctx: Context, scope: Scope, node: Node, hide: list[Pair], kind: JoinKind) -> Node:
    """After USING each key is one column, before all others: that of the side which is never NULL, or COALESCE of both."""
    if not hide or kind in ("semi", "anti"):
        return node
    columns: list[Col] = []
    items: list[Named] = []
    for name, left, right in hide:
        internal = right if kind == "right" else left
        if kind == "full":
            internal = ctx.fresh(f"using${name}")
            both = exp.Coalesce(this=column(left), expressions=[column(right)])
            items.append(Named(internal, to_expr(ctx, both)))
        columns.append(Col(name, internal))
    gone = frozenset(c for _, left, right in hide for c in (left, right))
    scope.relations = [r.hide(gone) for r in scope.relations]
    scope.relations.insert(0, Relation(None, tuple(columns)))
    if items:
        node = Project(node, (*(Named(c, col(c)) for c in node.columns), *items))
    return node
