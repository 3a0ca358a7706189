"""`e IN (select)` of a one-shot SELECT, where the surrounding expression distinguishes NULL from FALSE.

Spark returns FALSE there instead of NULL. So a test that is not itself a condition is rewritten to EXISTS tests.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.context import Context
from penstock.sql.bind.unwritable import Unwritable
from penstock.sql.trees import bare


def write_out(ctx: Context, tree: exp.Expression) -> None:
    """Rewrites each such test in the tree."""
    # Innermost first, because rewriting copies the enclosing query.
    for node in reversed(list(tree.find_all(exp.In))):
        if node.args.get("query") is not None and not _is_condition(node):
            node.replace(_written(ctx, node))


def _is_condition(node: exp.Expression) -> bool:
    """True if NULL has the same effect as FALSE for the test, or for its negation."""
    at = node
    while isinstance(at.parent, exp.Paren):
        at = at.parent
    if isinstance(at.parent, exp.Not):
        at = at.parent
    while isinstance(at.parent, (exp.And, exp.Or, exp.Paren)):
        at = at.parent
    above = at.parent
    if isinstance(above, exp.If):
        case = above.parent
        return above.this is at and not (isinstance(case, exp.Case) and case.this is not None)
    return isinstance(above, (exp.Where, exp.Having, exp.Qualify)) or (
        isinstance(above, exp.Join) and at.arg_key == "on"
    )


def _written(ctx: Context, node: exp.In) -> exp.Expression:
    value, query = node.this, bare(node.args["query"])
    if isinstance(bare(value), exp.Tuple):
        raise Unwritable("IN (select) of several values outside of a condition")
    found = exp.EQ(this=exp.column("__v", quoted=True), expression=exp.Paren(this=value.copy()))
    unknown = exp.Is(this=exp.column("__v", quoted=True), expression=exp.Null())
    outside = any(c.table and c.table.lower() not in _tables(query) for c in query.find_all(exp.Column))
    if outside and (not _plain(query) or any(not c.table for c in value.find_all(exp.Column))):
        raise Unwritable("a correlated IN (select) outside of a condition")
    exists = _inside if outside else _exists
    null = exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null())
    case = exp.Case(
        ifs=[
            exp.If(this=exists(query, found), true=exp.true()),
            exp.If(this=exp.And(this=null, expression=exists(query, exp.true())), true=exp.Null()),
            exp.If(this=exists(query, unknown), true=exp.Null()),
        ],
        default=exp.false(),
    )
    return exp.Paren(this=case)


def _exists(query: exp.Expression, condition: exp.Expression) -> exp.Expression:
    """An EXISTS test: whether a row of the query, whose column is `__v`, satisfies a condition."""
    names = [exp.to_identifier("__v", quoted=True)]
    alias = exp.TableAlias(this=exp.to_identifier("__q", quoted=True), columns=names)
    select = exp.Select(expressions=[exp.Literal.number(1)])
    select.set("from_", exp.From(this=exp.Subquery(this=query.copy(), alias=alias)))
    select.set("where", exp.Where(this=condition.copy()))
    return exp.Exists(this=select)


def _plain(query: exp.Expression) -> bool:
    """True if a condition on the query's column can be added to its WHERE."""
    shaped = ("group", "having", "qualify", "distinct", "limit", "offset", "with_", "laterals")
    if not isinstance(query, exp.Select) or any(query.args.get(a) for a in shaped) or len(query.expressions) != 1:
        return False
    item = query.expressions[0]
    return not isinstance(item, exp.Star) and not has_aggregate(item) and item.find(exp.Window) is None


def _inside(query: exp.Expression, condition: exp.Expression) -> exp.Expression:
    """The same test with the condition in the query's own WHERE."""
    select = query.copy()
    assert isinstance(select, exp.Select)
    item = select.expressions[0].unalias()

    def put(node: exp.Expression) -> exp.Expression:
        return exp.Paren(this=item.copy()) if isinstance(node, exp.Column) and node.name == "__v" else node

    select.set("expressions", [exp.Literal.number(1)])
    select.set("order", None)
    return exp.Exists(this=select.where(condition.copy().transform(put), copy=False))


def _tables(query: exp.Expression) -> set[str]:
    return {n.alias_or_name.lower() for n in query.find_all(exp.Table, exp.Subquery, exp.CTE, exp.UDTF)}
