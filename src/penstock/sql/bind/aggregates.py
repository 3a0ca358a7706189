"""Aggregate calls: parsed call → AggCall, and expressions over the output of an Aggregate."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.plan.dialect import DIALECT
from penstock.plan.functions import AggregateFunction, Path, Result
from penstock.plan.nodes import AggCall, Expr, Named, SortKey
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.exprs import column, computed, to_expr, type_of, walk_block
from penstock.sql.foreign import FUNCTIONS
from penstock.sql.functions import called_aggregate, name_of
from penstock.sql.trees import bare, with_parts

_ALWAYS_WITHIN = ("percentile_cont", "percentile_disc")
_LAST_ARGUMENTS = ("this", "expression", "expressions", "quantile", "separator", "offset", "default", "accuracy")


def is_aggregate(node: exp.Expression) -> bool:
    return called_aggregate(node) is not None


def has_aggregate(node: exp.Expression) -> bool:
    """True if the expression itself contains an aggregate, not under OVER and not in a nested query."""
    if isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.Window):
        call = node.this
        while isinstance(call, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
            if isinstance(call, exp.Filter) and has_aggregate(call.expression):
                return True
            call = call.this
        order = node.args.get("order")
        inner = [*call.iter_expressions(), *([order] if order else []), *(node.args.get("partition_by") or [])]
        return any(has_aggregate(i) for i in inner)
    return is_aggregate(node) or any(has_aggregate(c) for c in node.iter_expressions())


def sort_keys(ctx: Context, ordered: Sequence[exp.Expression]) -> tuple[SortKey, ...]:
    """Converts bound ORDER BY items to sort keys. By default, NULLs come first when ascending and last when descending."""
    out = []
    for item in ordered:
        if isinstance(item, exp.Ordered):
            desc = bool(item.args.get("desc"))
            first = item.args.get("nulls_first")
            out.append(SortKey(to_expr(ctx, item.this), desc, (not desc) if first is None else bool(first)))
        else:
            out.append(SortKey(to_expr(ctx, item)))
    return tuple(out)


def call_arguments(node: exp.Expression) -> list[exp.Expression]:
    out: list[exp.Expression] = []
    keys = [k for k in _LAST_ARGUMENTS if k in node.args and not (isinstance(node, exp.Anonymous) and k == "this")]
    for key in keys:
        value = node.args[key]
        out += (
            [v for v in value if isinstance(v, exp.Expression)]
            if isinstance(value, list)
            else [value]
            if isinstance(value, exp.Expression)
            else []
        )
    return out


def plain_arguments(
    args: list[exp.Expression],
) -> tuple[list[exp.Expression], bool, list[exp.Expression]]:
    """The arguments without DISTINCT and ORDER BY, whether there is DISTINCT, and the items of ORDER BY."""
    ordered: list[exp.Expression] = []
    if args and isinstance(args[-1], exp.Order):
        ordered = args[-1].expressions
        args = [*args[:-1], args[-1].this]
    distinct = bool(args) and isinstance(args[0], exp.Distinct)
    if distinct:
        args = [*args[0].expressions, *args[1:]]
    return args, distinct, ordered


def unmarked(edge: bool, args: list[exp.Expression]) -> tuple[list[exp.Expression], bool]:
    """The arguments of a call, and whether it ignores NULL: `first(a IGNORE NULLS)`, `first(a, true)`."""
    ignore = False
    if args and isinstance(args[0], (exp.IgnoreNulls, exp.RespectNulls)):
        ignore = isinstance(args[0], exp.IgnoreNulls)
        args = [args[0].this, *args[1:]]
    if edge and len(args) == 2 and isinstance(args[1], exp.Boolean):
        ignore = ignore or bool(args[1].this)
        args = args[:1]
    return args, ignore


def order_refusal(ctx: Context, function: AggregateFunction | None, node: exp.Expr) -> PenstockError:
    """The error for ORDER BY inside a call whose value does not depend on it, or is not computed by it."""
    name = function.name if function is not None else "this function"
    by = {
        "first_value": "min_by(a, b), or max_by(a, b) for DESC",
        "last_value": "max_by(a, b), or min_by(a, b) for DESC",
    }
    edge = function is not None and function.edge
    hint = f"Write {by.get(name, 'min_by(a, b) or max_by(a, b)')}." if edge else None
    return ctx.fail("PSK-1012", f"{name}() cannot have ORDER BY", node, hint=hint)


def check_maintained(ctx: Context, function: AggregateFunction, node: exp.Expression) -> None:
    """Refuses a Spark aggregate whose value differs from one computation to the next."""
    if function.path is Path.REFUSED:
        raise ctx.fail(
            "PSK-1012",
            f"the aggregate {function.name}() is not supported in a continuous query, because its value is random",
            node,
            hint="Create a view of its input, and SELECT the aggregate from the view.",
        )


def is_recomputed(function: AggregateFunction, args: Sequence[exp.Expression]) -> bool:
    """Whether a call has no incremental form."""
    more = function.most is not None and len(args) > function.most
    return function.path is Path.RECOMPUTED or more


def within_group(
    ctx: Context,
    function: AggregateFunction | None,
    call: exp.Expression,
    args: list[exp.Expression],
    within: list[exp.Expression],
    origin: exp.Expression,
) -> tuple[list[exp.Expression], tuple[SortKey, ...]]:
    """The arguments of a call, after the value of WITHIN GROUP if it has one, and the order if that is descending."""
    written = name_of(call) or "this function"
    if not within and written not in _ALWAYS_WITHIN:
        return args, ()
    if function is None or written != function.within:
        hint = "Write percentile_cont(p) WITHIN GROUP (ORDER BY x)." if "percentile" in written else None
        raise ctx.fail("PSK-1012", f"{written}() cannot have WITHIN GROUP", origin, hint=hint)
    if len(within) != 1 or len(args) != (0 if written == "mode" else 1):
        shape = f"Write {written}({'' if written == 'mode' else 'p'}) WITHIN GROUP (ORDER BY x)."
        raise ctx.fail("PSK-1007", f"{written}() is ordered by one value", origin, hint=shape)
    keys = sort_keys(ctx, within)
    value = within[0].this if isinstance(within[0], exp.Ordered) else within[0]
    return [value, *args], keys if keys[0].desc else ()


def refuse_nulls(ctx: Context, node: exp.Expression, *, edge: bool, name: str, origin: exp.Expression | None) -> None:
    """Raises PSK-1012 for IGNORE NULLS or RESPECT NULLS after a call whose value does not depend on it."""
    while isinstance(node, (exp.Filter, exp.WithinGroup)):
        node = node.this
    if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)) and not edge:
        words = "IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else "RESPECT NULLS"
        raise ctx.fail(
            "PSK-1012", f"{name}() cannot have {words}", origin or node, hint="Leave it out: it would mean nothing."
        )


def agg_call(ctx: Context, node: exp.Expression, name: str, origin: exp.Expression | None = None) -> AggCall:
    """`node` is bound: an aggregate, possibly under FILTER, IGNORE NULLS or WITHIN GROUP."""
    condition: Expr | None = None
    ignore = False
    order: tuple[SortKey, ...] = ()
    inner = node
    within: list[exp.Expression] = []
    while True:
        if isinstance(inner, exp.Filter):
            condition = to_expr(ctx, inner.expression.this)
        elif isinstance(inner, exp.IgnoreNulls):
            ignore = True
        elif isinstance(inner, exp.WithinGroup):
            within = list(inner.expression.expressions)
        elif not isinstance(inner, exp.RespectNulls):
            break
        inner = inner.this
    function = called_aggregate(inner)
    assert function is not None
    func = function.name
    if node is not inner:
        refuse_nulls(ctx, node, edge=function.edge, name=func, origin=origin)
    check_maintained(ctx, function, origin if origin is not None else inner)
    args, distinct, ordered = plain_arguments(call_arguments(inner))
    if args:
        refuse_nulls(ctx, args[0], edge=function.edge, name=func, origin=origin)
    args, marked = unmarked(function.edge, args)
    ignore = ignore or marked
    if ordered:
        order = sort_keys(ctx, ordered)
    if within and function.ordered:
        order = sort_keys(ctx, within)
    elif ordered and not function.ordered:
        raise order_refusal(ctx, function, origin or node)
    elif not ordered:
        args, order = within_group(ctx, function, inner, args, within, origin or node)
    if distinct and not args:
        raise ctx.fail(
            "PSK-1007", f"{func}(DISTINCT) has no argument", origin or node, hint=f"Write {func}(DISTINCT a)."
        )
    recomputed = is_recomputed(function, args) or (distinct and function.counts)
    if function.constant is not None and len(args) > 1 and to_expr(ctx, args[1]).refs:
        raise ctx.fail("PSK-1007", f"the {function.constant} must be a constant", origin or node)
    if func == "median":
        func, args = "percentile", [args[0], exp.Literal.number("0.5")]
    if func == "percentile" and not order and (type_of(ctx, args[0]) or "").startswith("interval"):
        # The kernel computes numbers.
        recomputed = True
    if func == "count_if":
        both = to_expr(ctx, args[0]).node
        if condition is not None:
            both = exp.And(this=exp.Paren(this=condition.node), expression=exp.Paren(this=both))
        func, args, condition = "count", [], to_expr(ctx, both)
    if func == "count" and not distinct and (not args or isinstance(args[0], (exp.Star, exp.Literal))):
        args = []
    for a in args:
        if any(is_aggregate(n) or isinstance(n, exp.Window) for n in walk_block(a)):
            raise ctx.fail("PSK-1019", f"{func}() cannot contain an aggregate or analytic call", node)
        if isinstance(a, exp.Star):
            raise ctx.fail("PSK-1007", f"{func}(*) is not valid", node)
    return AggCall(name, func, tuple(to_expr(ctx, a) for a in args), distinct, condition, order, ignore, recomputed)


def _type(ctx: Context, call: AggCall) -> str | None:
    """The type of a call, if it is known without Spark."""
    if call.recomputed:
        return None
    if call.function.result is Result.SAME:
        return computed(type_of(ctx, call.args[0].node))
    return "bigint" if call.function.result is Result.BIGINT else None


class Grouped:
    """Rewrites expressions over the input of an Aggregate into expressions over its output."""

    def __init__(
        self, ctx: Context, keys: Sequence[Named], own: frozenset[str], grouping: dict[str, str] | None = None
    ) -> None:
        """`own` are the columns of the input; any other column belongs to the outer query."""
        self.ctx = ctx
        self.own = own
        self.keys = {k.expr.sql(): k.name for k in keys}
        self.names = frozenset(k.name for k in keys)
        self.calls: list[AggCall] = []
        self.grouping = grouping or {}
        self._by_text: dict[str, str] = {}

    def rewrite(self, node: exp.Expression, origin: exp.Expression | None = None) -> exp.Expression:
        hit = self.keys.get(node.sql(dialect=DIALECT))
        if hit is not None:
            return column(hit)
        if isinstance(node, (exp.Grouping, exp.GroupingId)):
            return self._grouping(node, origin)
        if isinstance(node, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)) and not isinstance(
            node.parent, exp.Window
        ):
            core: exp.Expression = node
            while isinstance(core, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
                core = core.this
            if is_aggregate(core):
                return self._call(node, origin)
        if isinstance(node, exp.Window):
            return self._window(node, origin)
        if is_aggregate(node):
            return self._call(node, origin)
        if isinstance(node, exp.Column):
            if node.name in self.names:
                return node
            if node.name not in self.own:
                raise CannotDecorrelate
            shown = node.name.rpartition("$")[2]
            foreign = self._foreign(origin)
            if foreign is not None:
                hint = f"Did you mean {FUNCTIONS[foreign.name.lower()]}?"
                raise self.ctx.fail("PSK-1006", f"unknown function {foreign.name}", foreign, hint=hint)
            raise self.ctx.fail(
                "PSK-1019",
                f"column {shown} is neither grouped nor inside an aggregate",
                origin,
                hint=f"Add {shown} to GROUP BY, or write any_value({shown}).",
            )
        return with_parts(node.copy(), lambda part: self.rewrite(part, origin), node)

    def _foreign(self, origin: exp.Expression | None) -> exp.Anonymous | None:
        """A call of an aggregate of another system, whose argument looks like a column that is not grouped."""
        calls = origin.find_all(exp.Anonymous) if origin is not None else ()
        return next((c for c in calls if c.name.lower() in FUNCTIONS), None)

    def _window(self, node: exp.Window, origin: exp.Expression | None) -> exp.Expression:
        """The function under OVER is analytic, not an aggregate of the group; its arguments may contain aggregates."""

        def change(part: exp.Expression) -> exp.Expression:
            return self._analytic(part, origin) if part is node.this else self.rewrite(part, origin)

        return with_parts(node.copy(), change, node)

    def _analytic(self, node: exp.Expression, origin: exp.Expression | None) -> exp.Expression:
        call = node.copy()
        target, source = call, node
        while isinstance(target, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
            if isinstance(target, (exp.Filter, exp.WithinGroup)):
                target.set("expression", self.rewrite(source.expression, origin))
            target, source = target.this, source.this
        with_parts(target, lambda part: self.rewrite(part, origin), source)
        return call

    def _call(self, node: exp.Expression, origin: exp.Expression | None = None) -> exp.Expression:
        text = node.sql(dialect=DIALECT)
        if isinstance(node, exp.WithinGroup) or node.find(exp.WithinGroup, exp.Order) is not None:
            text = repr(node)
        name = self._by_text.get(text)
        if name is None:
            name = self.ctx.fresh("agg")
            made = agg_call(self.ctx, node, name, origin)
            self._by_text[text] = name
            self.calls.append(made)
            if (known := _type(self.ctx, made)) is not None:
                self.ctx.types[name] = known
        return column(name)

    def _grouping(self, node: exp.Expression, origin: exp.Expression | None) -> exp.Expression:
        args = [node.this] if isinstance(node, exp.Grouping) and node.this is not None else list(node.expressions)
        flags = []
        for a in args:
            flag = self.grouping.get(bare(a).sql(dialect=DIALECT))
            if flag is None:
                raise self.ctx.fail(
                    "PSK-1019", "the argument of grouping() must be a key of GROUPING SETS, ROLLUP or CUBE", origin
                )
            flags.append(flag)
        if not flags:
            flags = list(self.grouping.values())
            if not flags:
                raise self.ctx.fail("PSK-1019", "grouping_id() needs GROUPING SETS, ROLLUP or CUBE", origin)
        out: exp.Expression = column(flags[0])
        for f in flags[1:]:
            out = exp.Add(
                this=exp.Mul(this=exp.Paren(this=out), expression=exp.Literal.number(2)), expression=column(f)
            )
        # The types that Spark gives to them.
        kind = "TINYINT" if isinstance(node, exp.Grouping) else "BIGINT"
        return exp.cast(exp.Paren(this=out) if len(flags) > 1 else out, kind)
