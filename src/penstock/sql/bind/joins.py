"""Join conditions: keys, time bounds and residual, and their checks."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr, Filter, IntervalBound, Join, JoinKind, Node
from penstock.sql import intervals
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.exprs import all_of, conjuncts, to_expr, type_of
from penstock.sql.trees import bare

_COMPARE: dict[type[exp.Expression], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "="}
_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
# Join kinds in which a condition on one side alone may be pushed into that side.
_PUSH_LEFT = ("inner", "right", "semi")
_PUSH_RIGHT = ("inner", "left", "semi", "anti", "mark")

JOIN_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}


class Conditions:
    """The bound conjuncts of ON, classified by use."""

    def __init__(self, ctx: Context, left: Node, right: Node, kind: str, parts: list[exp.Expression]) -> None:
        self.ctx = ctx
        self.left, self.right, self.kind = left, right, kind
        self.left_keys: list[Expr] = []
        self.right_keys: list[Expr] = []
        self.null_safe: set[int] = set()
        self.residual: list[exp.Expression] = []
        lefts, rights = frozenset(left.columns), frozenset(right.columns)
        to_left: list[exp.Expression] = []
        to_right: list[exp.Expression] = []
        for part in (p for whole in parts for p in conjuncts(whole)):
            refs = Expr(part).refs
            if refs - lefts - rights:
                raise CannotDecorrelate
            if isinstance(part, exp.Boolean) and part.this:
                continue
            if refs and refs <= lefts and kind in _PUSH_LEFT:
                to_left.append(part)
            elif refs and refs <= rights and kind in _PUSH_RIGHT:
                to_right.append(part)
            elif not self._key(part, lefts, rights):
                self.residual.append(part)
        if to_left:
            self.left = Filter(left, to_expr(ctx, all_of(to_left)))
        if to_right:
            self.right = Filter(right, to_expr(ctx, all_of(to_right)))

    def _key(self, part: exp.Expression, lefts: frozenset[str], rights: frozenset[str]) -> bool:
        if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
            return False
        a, b = bare(part.this), bare(part.expression)
        ra, rb = Expr(a).refs, Expr(b).refs
        if not ra or not rb:
            return False
        if ra <= rights and rb <= lefts:
            a, b, ra, rb = b, a, rb, ra
        if not (ra <= lefts and rb <= rights):
            return False
        if isinstance(part, exp.NullSafeEQ):
            self.null_safe.add(len(self.left_keys))
        self.left_keys.append(to_expr(self.ctx, a))
        self.right_keys.append(to_expr(self.ctx, b))
        return True

    def time_bound(self) -> IntervalBound | None:
        """The bound on right time − left time, if it has both ends and both columns are event time. Removes the conditions it covers."""
        if self.left.changelog or self.right.changelog or self.ctx.query.once:
            return None
        lefts = {t.column for t in self.left.times}
        rights = {t.column for t in self.right.times}
        for i, (a, b) in enumerate(zip(self.left_keys, self.right_keys, strict=True)):
            if a.column in lefts and b.column in rights and i not in self.null_safe:
                return IntervalBound(a, b, 0, 0)
        found: dict[tuple[str, str], list[tuple[int | None, int | None, exp.Expression, bool]]] = {}
        for part in self.residual:
            for left, right, lower, upper, exact in self._bounds(part, lefts, rights):
                found.setdefault((left, right), []).append((lower, upper, part, exact))
        for (left, right), items in found.items():
            lowers = [lo for lo, _, _, _ in items if lo is not None]
            uppers = [up for _, up, _, _ in items if up is not None]
            if lowers and uppers:
                used = [id(part) for _, _, part, exact in items if exact]
                self.residual = [p for p in self.residual if id(p) not in used]
                return IntervalBound(_expr(left), _expr(right), max(lowers), min(uppers))
        return None

    def why_unbounded(self) -> str | None:
        """The reason why conditions that compare times of both sides are not a bound; None if there are no such conditions."""
        lefts, rights = set(self.left.columns), set(self.right.columns)
        marked = {t.column for n in (self.left, self.right) for t in n.times}
        for part in self.residual:
            for left, right, lower, upper, _ in self._bounds(part, lefts, rights):
                unmarked = [c for c in (left, right) if c not in marked]
                types = ("timestamp", "bigint") if len(unmarked) == 1 else ("timestamp",)
                times = all(self.ctx.types.get(c) in types for c in unmarked)
                if unmarked and times and (lower is not None or upper is not None):
                    shown = " and ".join(c.replace("$", ".") for c in unmarked)
                    return f"this join is bounded by times, but there is no watermark on {shown}"
        for part in self.residual:
            if self._bounds(part, lefts & marked, rights & marked):
                return "this join is bounded in time on one side only"
        return None

    def _bounds(
        self, part: exp.Expression, lefts: set[str], rights: set[str]
    ) -> list[tuple[str, str, int | None, int | None, bool]]:
        """For a comparison of two times: left column, right column, lower, upper, and whether the bound fully covers it."""
        if isinstance(part, exp.Between):
            low = self._compare(part.this, ">=", part.args["low"], lefts, rights)
            high = self._compare(part.this, "<=", part.args["high"], lefts, rights)
            if low and high and low[:2] == high[:2]:
                lower = low[2] if low[2] is not None else high[2]
                upper = high[3] if high[3] is not None else low[3]
                return [(low[0], low[1], lower, upper, low[4] and high[4])]
            return []
        op = _COMPARE.get(type(part))
        one = self._compare(part.this, op, part.expression, lefts, rights) if op else None
        return [one] if one else []

    def _compare(
        self, a: exp.Expression, op: str, b: exp.Expression, lefts: set[str], rights: set[str]
    ) -> tuple[str, str, int | None, int | None, bool] | None:
        x, y = _shifted(self.ctx, a), _shifted(self.ctx, b)
        if x is None or y is None:
            return self._difference(a, op, b, lefts, rights)
        if x[0] in lefts and y[0] in rights:
            x, y, op = y, x, _FLIP[op]
        if not (x[0] in rights and y[0] in lefts):
            return None
        # right + x op left + y, that is right - left op y - x.
        return _limits(y[0], x[0], op, y[1] - x[1])

    def _difference(
        self, a: exp.Expression, op: str, b: exp.Expression, lefts: set[str], rights: set[str]
    ) -> tuple[str, str, int | None, int | None, bool] | None:
        """`a.ts - b.ts <= INTERVAL …`, or reversed."""
        limit = constant(b)
        if limit is None:
            a, b, op = b, a, _FLIP[op]
            limit = constant(b)
        a = bare(a)
        if limit is None or not isinstance(a, exp.Sub):
            return None
        x, y = _shifted(self.ctx, a.this), _shifted(self.ctx, a.expression)
        if x is None or y is None:
            return None
        limit += y[1] - x[1]
        if x[0] in lefts and y[0] in rights:
            x, y, op, limit = y, x, _FLIP[op], -limit
        if not (x[0] in rights and y[0] in lefts):
            return None
        return _limits(y[0], x[0], op, limit)


def _limits(left: str, right: str, op: str, distance: int) -> tuple[str, str, int | None, int | None, bool]:
    lower = distance if op in (">", ">=", "=") else None
    upper = distance if op in ("<", "<=", "=") else None
    return left, right, lower, upper, op in (">=", "<=", "=")


def _expr(name: str) -> Expr:
    return Expr(exp.Column(this=exp.Identifier(this=name, quoted=True)))


def constant(node: exp.Expression) -> int | None:
    """An interval, or a whole number (of milliseconds)."""
    node = bare(node)
    value = intervals.from_node(node)
    if value is not None:
        return intervals.millis(value)
    if isinstance(node, exp.Literal) and node.is_int:
        return int(node.name)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and node.this.is_int:
        return -int(node.this.name)
    return None


def _shifted(ctx: Context, node: exp.Expression) -> tuple[str, int] | None:
    """`column ± constant` as (column, milliseconds)."""
    node = bare(node)
    if isinstance(node, exp.Column):
        return node.name, 0
    if isinstance(node, (exp.Add, exp.Sub)):
        base, shift = _shifted(ctx, node.this), constant(node.expression)
        whole = isinstance(bare(node.expression), exp.Interval) or type_of(ctx, node.this) == "bigint"
        if base is not None and shift is not None and whole:
            return base[0], base[1] + (shift if isinstance(node, exp.Add) else -shift)
    return None


def regular_join(
    ctx: Context,
    left: Node,
    right: Node,
    kind: JoinKind,
    parts: list[exp.Expression],
    origin: exp.Expression | None,
    *,
    mark: str | None = None,
) -> Join:
    """Builds a regular or interval join. Without an equality all rows have the same key: each is compared with all of the other side."""
    c = Conditions(ctx, left, right, kind, parts)
    bound = c.time_bound() if mark is None else None
    if not c.left_keys:
        one = Expr(exp.Literal.number(1))
        c.left_keys, c.right_keys = [one], [one]
    residual = to_expr(ctx, all_of(c.residual)) if c.residual else None
    if bound is None and ctx.streaming(left) and ctx.streaming(right):
        allowed = "state_ttl" in ctx.options or ctx.options.get("unbounded_state", "").lower() == "true"
        if not allowed:
            why = c.why_unbounded()
            raise ctx.fail("PSK-3001", why or "unbounded join between streaming sources", origin, hint=_way_out(why))
    keys = (tuple(c.left_keys), tuple(c.right_keys))
    ttl = _state_ttl(ctx) if bound is None else None
    return Join(c.left, c.right, kind, *keys, residual, frozenset(c.null_safe), bound, ttl, mark)


def _way_out(why: str | None) -> str | None:
    if why is None or "watermark" not in why:
        return None
    return "Declare WATERMARK FOR … on the source; or allow the state with WITH (state_ttl = …) or WITH (unbounded_state = true)."


def _state_ttl(ctx: Context) -> int | None:
    text = ctx.options.get("state_ttl")
    if text is None:
        return None
    length = intervals.from_text(text)
    millis = intervals.millis(length) if length is not None else None
    if millis is None or millis <= 0:
        raise ctx.fail("PSK-1011", f"state_ttl = '{text}' is not a duration", hint="Write a duration such as '1 hour'.")
    return millis
