"""ORDER BY … LIMIT n OFFSET m over a query."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr, SortKey, TopN, col
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.exprs import to_expr


def limited(ctx: Context, block: Block, query: exp.Expression, order: list[SortKey]) -> None:
    """Adds a TopN for ORDER BY … LIMIT n OFFSET m to `block`. ORDER BY is also the order of a view, and alone it is refused elsewhere."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    if limit is not None and isinstance(limit.expression, exp.Var) and limit.expression.name.upper() == "ALL":
        limit = None
    if limit is None and offset is None:
        if order and not ctx.query.presents(query):
            raise ctx.fail("PSK-4001", "ORDER BY without LIMIT is unbounded on a stream", query.args["order"])
        block.order = order or block.order
        return
    ties = limit is not None and _with_ties(ctx, limit, offset, order)
    count = _whole(ctx, amount(ctx, limit), "LIMIT") if limit is not None else None
    skip = _whole(ctx, offset.expression, "OFFSET") if offset is not None else 0
    if count is None and order:
        raise ctx.fail(
            "PSK-4001", "ORDER BY with OFFSET but without LIMIT is unbounded on a stream", query.args["order"]
        )
    if block.deferred:
        raise CannotDecorrelate
    own = frozenset(block.node.columns)
    partition = [col(d) for d in block.domain]
    for part in block.correlated:
        side = next((s for s in (part.this, part.expression) if isinstance(part, exp.EQ) and Expr(s).refs <= own), None)
        if side is None:
            raise CannotDecorrelate
        partition.append(to_expr(ctx, side))
    if ctx.query.presents(query) and {k.expr.column for k in order} <= {c.internal for c in block.cols}:
        block.order = list(order)
    block.node = TopN(block.node, tuple(partition), tuple(order), count, skip, "rank" if ties else None)
    block.single = block.single or (count == 1 and not ties)


def is_all(order: exp.Expression) -> bool:
    """ORDER BY ALL: every selected column, from the left to the right."""
    item = order.expressions[0] if len(order.expressions) == 1 else None
    core = item.this if isinstance(item, exp.Ordered) else item
    if not isinstance(core, exp.Column) or core.table or not isinstance(core.this, exp.Identifier):
        return False
    return core.name.upper() == "ALL" and not core.this.args.get("quoted")


def _with_ties(ctx: Context, limit: exp.Expression, offset: exp.Expression | None, order: list[SortKey]) -> bool:
    """FETCH FIRST n ROWS WITH TIES: also the rows that are equal to the last one in ORDER BY."""
    options = limit.args.get("limit_options")
    ties = options is not None and bool(options.args.get("with_ties"))
    if ties and (offset is not None or not order):
        raise ctx.fail("PSK-1012", "WITH TIES needs ORDER BY, and cannot be combined with OFFSET", limit)
    return ties


def amount(ctx: Context, limit: exp.Expression) -> exp.Expression | None:
    """The number in LIMIT n or FETCH FIRST n ROWS ONLY; 1 if FETCH has none."""
    options = limit.args.get("limit_options")
    odd = [
        k for k, v in limit.args.items() if v and k not in ("this", "expression", "count", "direction", "limit_options")
    ]
    odd += [k for k in ("percent",) if options is not None and options.args.get(k)]
    if odd:
        raise ctx.fail(
            "PSK-1012", f"LIMIT with {odd[0].replace('_', ' ').upper()} is not supported", limit, hint="Write LIMIT n."
        )
    if isinstance(limit, exp.Fetch):
        return limit.args.get("count") or exp.Literal.number(1)
    found: exp.Expression | None = limit.expression
    return found


def _whole(ctx: Context, node: exp.Expression | None, what: str) -> int:
    if isinstance(node, exp.Literal) and node.is_int:
        return int(node.name)
    raise ctx.fail("PSK-1012", f"{what} must be a whole number", node)
