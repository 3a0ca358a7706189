"""OVER: analytic calls become Analytic nodes, one per PARTITION BY / ORDER BY."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.functions import AggregateFunction, Result, find_analytic
from penstock.plan.nodes import Analytic, Expr, Node, SortKey, WindowCall, WindowFrame
from penstock.sql import intervals
from penstock.sql.bind.aggregates import (
    call_arguments,
    check_maintained,
    is_recomputed,
    refuse_nulls,
    sort_keys,
    unmarked,
    within_group,
)
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import column, to_expr, type_of
from penstock.sql.bind.named import NamedWindows
from penstock.sql.functions import called_aggregate, name_of
from penstock.sql.trees import with_parts

_UP_TO_HERE = WindowFrame("rows", None, 0)
"""The frame that ranking functions have, whether it is written or not."""
_Group = tuple[tuple[Expr, ...], tuple[SortKey, ...]]


class Analytics:
    """Collects the analytic calls of one SELECT and adds their nodes to a plan."""

    def __init__(self, ctx: Context, named: list[exp.Expression]) -> None:
        self.ctx = ctx
        self.named = NamedWindows(ctx, named)
        self.groups: dict[_Group, list[WindowCall]] = {}
        self._seen: dict[str, str] = {}

    def extract(self, node: exp.Expression, origin: exp.Expression | None = None) -> exp.Expression:
        """Replaces every OVER call in a bound expression by the column for its result."""
        if isinstance(node, exp.Window):
            text = node.sql(dialect=DIALECT)
            if text not in self._seen:
                self._seen[text] = self._add(node, origin)
            return column(self._seen[text])
        return with_parts(node, lambda part: self.extract(part, origin))

    def apply(self, node: Node, within: tuple[Expr, ...] = ()) -> Node:
        """`within`: extra expressions for every PARTITION BY."""
        for (partition, order), calls in self.groups.items():
            node = Analytic(node, (*within, *partition), order, tuple(calls))
        self.groups = {}
        return node

    def _add(self, node: exp.Window, origin: exp.Expression | None) -> str:
        partition, order, spec = self._window(node, origin)
        inner = node.this
        condition: exp.Expression | None = None
        ignore = False
        ordered: list[exp.Expression] = []
        while isinstance(inner, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
            if isinstance(inner, exp.Filter):
                condition = inner.expression.this
            if isinstance(inner, exp.WithinGroup):
                ordered = list(inner.expression.expressions)
            ignore = ignore or isinstance(inner, exp.IgnoreNulls)
            inner = inner.this
        analytic, aggregate = find_analytic(name_of(inner) or ""), called_aggregate(inner)
        if analytic is not None:
            func = analytic.name
        elif aggregate is not None:
            func = aggregate.name
            check_maintained(self.ctx, aggregate, origin if origin is not None else inner)
        else:
            raise self.ctx.fail("PSK-1012", "this function cannot have OVER", origin)
        picks = analytic.name in ("lag", "lead", "nth_value") if analytic is not None else False
        edge = picks or (aggregate is not None and aggregate.edge)
        refuse_nulls(self.ctx, node.this, edge=edge, name=func, origin=origin)
        args = call_arguments(inner)
        args = self._within(aggregate, inner, args, ordered, origin)
        args, within = unmarked(aggregate is not None and aggregate.edge, args)
        if aggregate is not None and is_recomputed(aggregate, args):
            raise self.ctx.fail(
                "PSK-1012",
                f"{func}() with these arguments cannot have OVER in a continuous query",
                origin,
                hint="Group by the partition instead, and join the result.",
            )
        ignore = ignore or within
        if any(isinstance(a, (exp.Distinct, exp.Order)) for a in args):
            raise self.ctx.fail("PSK-1012", f"{func}() with DISTINCT or ORDER BY inside cannot have OVER", origin)
        if func == "count" and (not args or isinstance(args[0], (exp.Star, exp.Literal))):
            args = []
        if func == "median":
            func, args = "percentile", [args[0], exp.Literal.number("0.5")]
        if condition is not None:
            if aggregate is None or analytic is not None or aggregate.edge:
                raise self.ctx.fail(
                    "PSK-1012",
                    f"FILTER cannot be used with {func}() OVER: it applies only to aggregates",
                    origin,
                    hint="Filter the rows with WHERE in a derived table.",
                )
            args = args or [exp.Literal.number(1)]
            at = (aggregate.decides or 0) % len(args)
            args[at] = exp.Case(ifs=[exp.If(this=condition.copy(), true=args[at])])
        if analytic is not None and analytic.needs_order and not order:
            raise self.ctx.fail(
                "PSK-1019",
                f"{func}() needs ORDER BY in its OVER",
                origin,
                hint=f"Write {func}({'…' if args else ''}) OVER (… ORDER BY …).",
            )
        name = self.ctx.fresh("win")
        counts = aggregate is not None and aggregate.result is Result.BIGINT
        if counts or (analytic is not None and analytic.ranks):
            self.ctx.types[name] = "bigint"
        frame = self._frame(spec, order, origin)
        frameless = analytic is not None and not analytic.framed and (func in ("lag", "lead") or frame != _UP_TO_HERE)
        if frame is not None and frameless:
            hint = "Leave it out: it would mean nothing."
            raise self.ctx.fail("PSK-1012", f"{func}() cannot have a frame", origin, hint=hint)
        call = WindowCall(name, func, tuple(to_expr(self.ctx, a) for a in args), frame, ignore)
        self.groups.setdefault((partition, order), []).append(call)
        return name

    def _within(
        self,
        function: AggregateFunction | None,
        call: exp.Expression,
        args: list[exp.Expression],
        ordered: list[exp.Expression],
        origin: exp.Expression | None,
    ) -> list[exp.Expression]:
        """The arguments with the value of WITHIN GROUP."""
        where = origin if origin is not None else call
        args, order = within_group(self.ctx, function, call, args, ordered, where)
        if order:
            raise self.ctx.fail(
                "PSK-1012",
                f"{name_of(call)}() with this WITHIN GROUP cannot have OVER in a continuous query",
                where,
                hint="Group by the partition instead, and join the result.",
            )
        return args

    def _window(self, node: exp.Window, origin: exp.Expression | None) -> _Parts:
        partition, order_node, spec = self.named.parts(node, origin)
        order = sort_keys(self.ctx, order_node.expressions) if order_node is not None else ()
        return tuple(to_expr(self.ctx, p) for p in partition), order, spec

    def _frame(
        self, spec: exp.Expression | None, order: tuple[SortKey, ...], origin: exp.Expression | None
    ) -> WindowFrame | None:
        if spec is None:
            return None
        unit = str(spec.args.get("kind") or "range").lower()
        if unit not in ("rows", "range", "groups"):
            raise self.ctx.fail("PSK-1012", f"{unit.upper()} is not supported in a frame", origin)
        sides = [str(spec.args.get(f"{end}_side") or "").upper() for end in ("start", "end")]
        start = self._edge(spec.args.get("start"), sides[0], origin, order, unit)
        end = self._edge(spec.args.get("end") or "CURRENT ROW", sides[1], origin, order, unit)
        if unit == "range" and len(order) != 1 and any(v not in (0, None) for v in (start, end)):
            raise self.ctx.fail("PSK-1012", "RANGE with a distance needs exactly one ORDER BY key", origin)
        if unit == "groups" and not order:
            hint = "Write OVER (… ORDER BY … GROUPS BETWEEN …)."
            raise self.ctx.fail(
                "PSK-1019", "GROUPS needs ORDER BY: it counts rows of equal order as one", origin, hint=hint
            )
        backwards = (start is None and sides[0] == "FOLLOWING") or (end is None and sides[1] == "PRECEDING")
        if backwards or (start is not None and end is not None and start > end):
            raise self.ctx.fail("PSK-1012", "the frame ends before it begins", origin)
        exclude = spec.text("exclude").lower() or "no others"
        made: WindowFrame = WindowFrame(unit, start, end, None if exclude == "no others" else exclude)  # type: ignore[arg-type]
        return made

    def _edge(
        self, value: object, side: str, origin: exp.Expression | None, order: tuple[SortKey, ...], unit: str
    ) -> int | float | None:
        sign = -1 if side == "PRECEDING" else 1
        if isinstance(value, str):
            return 0 if value.upper() == "CURRENT ROW" else None
        if unit != "range" and not (isinstance(value, exp.Literal) and value.is_int):
            raise self.ctx.fail("PSK-1012", f"a bound of {unit.upper()} must be a whole number", origin)
        if isinstance(value, exp.Literal) and not value.is_string:
            return sign * (int(value.name) if value.is_int else float(value.name))
        interval = intervals.from_node(value) if isinstance(value, exp.Expression) else None
        if interval is None or interval.months:
            raise self.ctx.fail(
                "PSK-1012",
                "a frame bound must be a number, or an interval in days or smaller units",
                origin,
                hint="A one-shot SELECT can have months in a frame; in a view, join the rows whose time is BETWEEN t - INTERVAL '1' MONTH AND t.",
            )
        if order and type_of(self.ctx, order[0].expr.node) == "bigint":
            ms = intervals.millis(interval)
            if ms is None:
                raise self.ctx.fail("PSK-2008", "an interval over BIGINT time must be whole milliseconds", origin)
            return sign * ms
        return sign * interval.micros


_Parts = tuple[tuple[Expr, ...], tuple[SortKey, ...], exp.Expression | None]
