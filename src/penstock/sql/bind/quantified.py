"""`e IN (select)` and `e op ANY | ALL (select)`, with SQL's NULL semantics.

All are forms of ANY: `IN` is `= ANY`, and `op ALL` is the negation of ANY with the opposite comparison. ANY is true if a row
matches; otherwise NULL if a comparison with some row is; otherwise false.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.sql.bind.context import Context
from penstock.sql.trees import bare

_OPPOSITE: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}
_TWO_VALUED = "two_valued"


@dataclass(frozen=True)
class AnyOf:
    """`values op ANY (query)`, or its negation."""

    op: type[exp.Expression]
    values: list[exp.Expression]
    query: exp.Expression
    negated: bool = False


def is_quantified(node: exp.Expression) -> bool:
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    return type(node) in _OPPOSITE and isinstance(node.expression, (exp.Any, exp.All)) and _query(node) is not None


def _query(node: exp.Expression) -> exp.Expression | None:
    inner = bare(node.expression.this)
    return inner if isinstance(inner, exp.Query) else None


def any_of(node: exp.Expression) -> AnyOf:
    """A quantified comparison as a form of ANY."""
    left = bare(node.this)
    values = list(left.expressions) if isinstance(left, exp.Tuple) else [node.this]
    if isinstance(node, exp.In):
        return AnyOf(exp.EQ, values, node.args["query"])
    query = _query(node)
    assert query is not None
    every = isinstance(node.expression, exp.All)
    return AnyOf(_OPPOSITE[type(node)] if every else type(node), values, query, every)


def filters_only(part: exp.Expression) -> exp.Expression:
    """Marks the tests under AND and OR of a filter: NULL has the same effect as FALSE there."""
    if isinstance(part, (exp.And, exp.Or, exp.Paren)):
        for child in part.iter_expressions():
            filters_only(child)
    elif is_quantified(part):
        part.meta[_TWO_VALUED] = True
    return part


def three_valued(node: exp.Expression) -> bool:
    """Whether the surrounding expression distinguishes NULL from FALSE."""
    return not node.meta.get(_TWO_VALUED)


def refuse_arrays(ctx: Context, tree: exp.Expression) -> None:
    """Raises PSK-1012 for a comparison with ANY or ALL of an array, which Spark does not have."""
    for node in tree.find_all(*_OPPOSITE):
        side = node.expression
        called = isinstance(side, exp.Any) and not isinstance(bare(side.this), (exp.Query, exp.Values))
        called = called or (isinstance(side, exp.Anonymous) and side.name.lower() in ("all", "some"))
        # Otherwise any(…) is the aggregate.
        if called and not isinstance(node.this, exp.Boolean):
            raise ctx.fail(
                "PSK-1012",
                "a comparison with ANY or ALL is with a query, not with an array",
                node,
                hint="Write exists(a, x -> e = x) for ANY, forall(a, x -> e = x) for ALL.",
            )
