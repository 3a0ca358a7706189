"""ORDER BY inside an aggregate of a one-shot SELECT, written in Spark's SQL."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.functions import Result
from penstock.sql.bind.aggregates import call_arguments, order_refusal, plain_arguments, refuse_nulls
from penstock.sql.bind.context import Context
from penstock.sql.functions import called_aggregate


def write_out(ctx: Context, tree: exp.Expression) -> None:
    """`string_agg(a, s ORDER BY b)` → `… WITHIN GROUP (ORDER BY b)`; `array_agg(a ORDER BY b)` → a sorted list of structs."""
    for order in list(tree.find_all(exp.Order)):
        call = order.parent
        called = called_aggregate(call) if isinstance(call, exp.Expression) else None
        if not isinstance(call, exp.Expression) or not isinstance(call, exp.Func) or isinstance(call, exp.Window):
            continue
        if called is None or not called.ordered:
            raise order_refusal(ctx, called, call)
        above = call.parent
        if isinstance(above, exp.Window) or (isinstance(above, exp.Filter) and isinstance(above.parent, exp.Window)):
            raise ctx.fail("PSK-1012", f"{called.name}() with ORDER BY inside cannot have OVER", call)
        args, distinct, items = plain_arguments(call_arguments(call))
        if args:
            refuse_nulls(ctx, args[0], edge=False, name=called.name, origin=call)
        if called.result is Result.TEXT:
            _within(call, args, distinct, items)
        else:
            _sorted(ctx, call, args, distinct, items)


def _within(call: exp.Expr, args: list[exp.Expression], distinct: bool, items: list[exp.Expression]) -> None:
    if distinct:
        args = [exp.Distinct(expressions=args[:1]), *args[1:]]
    made = exp.Anonymous(this="listagg", expressions=args)
    call.replace(exp.WithinGroup(this=made, expression=exp.Order(expressions=items)))


def _sorted(
    ctx: Context, call: exp.Expr, args: list[exp.Expression], distinct: bool, items: list[exp.Expression]
) -> None:
    value = args[0].sql(dialect=DIALECT)
    keys = [i.this.sql(dialect=DIALECT) if isinstance(i, exp.Ordered) else i.sql(dialect=DIALECT) for i in items]
    if distinct and any(k != value for k in keys):
        raise ctx.fail("PSK-1012", "array_agg(DISTINCT a ORDER BY b) needs the same expression twice", call)
    # After the word STRUCT, Spark's lexer takes >>> for the end of nested types.
    fields = ", ".join(f"'k{i}', {k}" for i, k in enumerate(keys))
    row = f"CASE WHEN ({value}) IS NOT NULL THEN named_struct('v', {value}, {fields}) END"
    where = call.parent if isinstance(call.parent, exp.Filter) else None
    only = f" FILTER (WHERE {where.expression.this.sql(dialect=DIALECT)})" if where is not None else ""
    collected = f"collect_list({'DISTINCT ' if distinct else ''}{row}){only}"
    text = f"transform(array_sort({collected}, (l, r) -> {_comparison(items)}), s -> s.v)"
    made: exp.Expr = exp.maybe_parse(text, dialect=DIALECT)
    (where or call).replace(made)


def _comparison(items: list[exp.Expression]) -> str:
    """-1, 0 or 1 for two rows `l` and `r`, by their keys."""
    text = "0"
    for i, item in reversed(list(enumerate(items))):
        desc = isinstance(item, exp.Ordered) and bool(item.args.get("desc"))
        given = item.args.get("nulls_first") if isinstance(item, exp.Ordered) else None
        null = -1 if (not desc if given is None else given) else 1
        less = 1 if desc else -1
        text = (
            f"CASE WHEN l.k{i} <=> r.k{i} THEN {text} WHEN l.k{i} IS NULL THEN {null} WHEN r.k{i} IS NULL THEN {-null} "
            f"WHEN l.k{i} < r.k{i} THEN {less} ELSE {-less} END"
        )
    return text
