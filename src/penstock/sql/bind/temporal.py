"""Conjuncts with now(): they bound when a row enters and leaves the result."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr
from penstock.sql import intervals
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import ExprBinder, to_expr, type_of, walk_block
from penstock.sql.functions import is_now, name_of
from penstock.sql.trees import bare

_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_OPS: dict[type[exp.Expression], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "="}


def has_now(node: exp.Expression) -> bool:
    return any(is_now(n) for n in walk_block(node))


class Bounds:
    """Collects the conjuncts of one WHERE. A row is present while every `enter` ≤ now and now < every `exit`."""

    def __init__(self, ctx: Context, binder: ExprBinder) -> None:
        self.ctx = ctx
        self.binder = binder
        self.enter: list[exp.Expression] = []
        self.exit: list[exp.Expression] = []

    def add(self, node: exp.Expression) -> None:
        if isinstance(node, exp.Between):
            if has_now(node.this):
                self._compare(node.this, ">=", node.args["low"], node)
                self._compare(node.this, "<=", node.args["high"], node)
                return
            for op, bound in ((">=", node.args["low"]), ("<=", node.args["high"])):
                if not has_now(bound):
                    raise self.ctx.fail(
                        "PSK-2007", "both bounds of a BETWEEN must use now(); otherwise write two comparisons", node
                    )
                self._compare(node.this, op, bound, node)
            return
        own = _OPS.get(type(node))
        if own is None:
            raise self._misuse(node)
        self._compare(node.this, own, node.expression, node)

    def _compare(self, left: exp.Expression, op: str, right: exp.Expression, origin: exp.Expression) -> None:
        if has_now(left) and has_now(right):
            raise self._misuse(origin)
        if has_now(left):
            left, op, right = right, _FLIP[op], left
        shift = self._shift(right, origin)
        time = self.binder.bind(left)
        # left op now + shift, with t = left - shift: for t > now the row leaves at t, for t < now it enters after t.
        if op == ">":
            self.exit.append(self._millis(time, -shift, up=True))
        elif op == ">=":
            self.exit.append(self._plus(self._millis(time, -shift, up=False), 1))
        elif op == "<":
            self.enter.append(self._plus(self._millis(time, -shift, up=False), 1))
        elif op == "<=":
            self.enter.append(self._millis(time, -shift, up=True))
        else:
            self.enter.append(self._millis(time, -shift, up=True))
            self.exit.append(self._plus(self._millis(time, -shift, up=False), 1))

    def _shift(self, node: exp.Expression, origin: exp.Expression) -> int:
        """The number of milliseconds added to now()."""
        node = bare(node)
        if is_now(node):
            if name_of(node) in ("current_date", "curdate", "current_time", "localtime"):
                raise self._misuse(origin)
            return 0
        if isinstance(node, (exp.Add, exp.Sub)):
            base, other = node.this, node.expression
            if isinstance(node, exp.Add) and has_now(other):
                base, other = other, base
            value = intervals.from_node(other)
            ms = intervals.millis(value) if value else None
            if value is not None and ms is None:
                raise self.ctx.fail("PSK-2008", "the distance to now() must be whole milliseconds, not months", origin)
            if ms is not None and has_now(base):
                return self._shift(base, origin) + (ms if isinstance(node, exp.Add) else -ms)
        raise self._misuse(origin)

    def _millis(self, time: exp.Expression, shift: int, *, up: bool) -> exp.Expression:
        """`time` + shift in Unix milliseconds, rounded down, or up if `up`."""
        known = type_of(self.ctx, time)
        if known == "bigint":
            out = time.copy()
        elif known == "timestamp":
            base = time.copy()
            if up:
                micro = exp.Interval(this=exp.Literal.string("999"), unit=exp.Var(this="MICROSECOND"))
                base = exp.Add(this=base, expression=micro)
            out = exp.Anonymous(this="unix_millis", expressions=[base])
        else:
            out = exp.Anonymous(this="__millis", expressions=[time.copy()])
        return self._plus(out, shift)

    def _plus(self, node: exp.Expression, ms: int) -> exp.Expression:
        if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Literal) and node.expression.is_int:
            ms += int(node.expression.name) * (1 if isinstance(node, exp.Add) else -1)
            node = node.this
        if ms == 0:
            return node
        kind = exp.Add if ms > 0 else exp.Sub
        base = exp.Paren(this=node) if isinstance(node, exp.Binary) else node
        return kind(this=base, expression=exp.Literal.number(abs(ms)))

    def _misuse(self, node: exp.Expression) -> Exception:
        return self.ctx.fail(
            "PSK-2007", "now() is only allowed in a conjunct of WHERE that compares it with a time column", node
        )

    def result(self) -> tuple[Expr | None, Expr | None]:
        return self._merge(self.enter, "greatest"), self._merge(self.exit, "least")

    def _merge(self, parts: list[exp.Expression], function: str) -> Expr | None:
        if not parts:
            return None
        node = parts[0] if len(parts) == 1 else exp.Anonymous(this=function, expressions=parts)
        return to_expr(self.ctx, node)
