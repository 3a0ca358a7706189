"""Time joins: ASOF, temporal (FOR SYSTEM_TIME AS OF) and probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from penstock.plan.nodes import AsofJoin, Expr, Node, ProbeJoin, TemporalJoin, col
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import ExprBinder, conjuncts, to_expr, type_of
from penstock.sql.bind.joins import Conditions, constant
from penstock.sql.bind.scope import Col, Relation, Scope
from penstock.sql.trees import bare


@dataclass(frozen=True)
class TimeJoins:
    """Binds the conditions of time joins."""

    ctx: Context

    def _keys(self, c: Conditions, what: str, item: exp.Expression) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        if c.residual or c.null_safe:
            raise self.ctx.fail(
                "PSK-3003",
                f"ON of {what} join can only contain equalities",
                item,
                hint="Put other conditions into WHERE.",
            )
        return tuple(c.left_keys), tuple(c.right_keys)

    def _append_only(self, node: Node, what: str, item: exp.Expression) -> None:
        if node.changelog and not self.ctx.query.once:
            raise self.ctx.fail(
                "PSK-3003",
                f"{what} join needs append-only rows here",
                item,
                hint="Join a source or an append-only stream.",
            )

    def asof(
        self,
        left: Node,
        right: Node,
        bound: list[exp.Expression],
        call: exp.Expression,
        binder: ExprBinder,
        item: exp.Expression,
    ) -> Node:
        kind: Literal["inner", "left"] = "inner" if call.expressions[0].name == "inner" else "left"
        matching = [(binder.bind(p), p) for p in conjuncts(call.expressions[1])] if len(call.expressions) == 2 else []
        if len(call.expressions) == 1:
            # Without MATCH_CONDITION, ON has the comparison of the times.
            matching = [(p, item) for p in bound if not isinstance(p, exp.EQ)]
            bound = [p for p in bound if isinstance(p, exp.EQ)]
        elif len(call.expressions) > 2:
            raise self.ctx.fail("PSK-3003", "MATCH_CONDITION must be one condition", item)
        self._append_only(left, "an ASOF", item)
        self._append_only(right, "an ASOF", item)
        lefts, rights = frozenset(left.columns), frozenset(right.columns)
        shape = (
            "Write MATCH_CONDITION (a.ts >= b.ts [AND a.ts - b.ts <= INTERVAL …]), "
            "or MATCH_CONDITION (NEAREST (a.ts, b.ts) [AND abs(a.ts - b.ts) <= INTERVAL …])."
        )
        direction: Literal["backward", "forward", "nearest"] | None = None
        strict, tolerance = False, None
        left_time = right_time = None
        differences: list[tuple[exp.Expression, int]] = []
        for node, origin in matching:
            if (
                isinstance(node, exp.Anonymous)
                and node.name.upper() == "NEAREST"
                and len(node.expressions) == 2
                and direction is None
            ):
                direction, (left_time, right_time) = "nearest", node.expressions
                continue
            if isinstance(node, (exp.GT, exp.GTE, exp.LT, exp.LTE)):
                a, b = bare(node.this), bare(node.expression)
                flipped = isinstance(node, (exp.LT, exp.LTE))
                limit = constant(b)
                if isinstance(a, exp.Sub | exp.Abs) and limit is not None and isinstance(node, exp.LTE):
                    differences.append((a, limit))
                    continue
                if Expr(a).refs <= rights and Expr(b).refs <= lefts:
                    a, b, flipped = b, a, not flipped
                if (
                    direction is None
                    and Expr(a).refs
                    and Expr(b).refs
                    and Expr(a).refs <= lefts
                    and Expr(b).refs <= rights
                ):
                    direction = "forward" if flipped else "backward"
                    strict = isinstance(node, (exp.GT, exp.LT))
                    left_time, right_time = a, b
                    continue
            raise self.ctx.fail("PSK-3003", "this match condition is not supported", origin, hint=shape)
        if direction is None or left_time is None or right_time is None:
            raise self.ctx.fail("PSK-3003", "the match condition does not compare the two times", item, hint=shape)
        if not (Expr(left_time).refs <= lefts and Expr(right_time).refs <= rights):
            raise self.ctx.fail("PSK-3003", "the left time must come first in the match condition", item, hint=shape)
        for distance, limit in differences:
            if limit < 0 or not _is_distance(distance, left_time, right_time, direction):
                raise self.ctx.fail(
                    "PSK-3003", "the tolerance must use the times of the match condition", item, hint=shape
                )
            tolerance = limit if tolerance is None else min(tolerance, limit)
        c = Conditions(self.ctx, left, right, "asof", bound)
        keys = self._keys(c, "an ASOF", item)
        both = bool(left.times) and Expr(right_time).column in {t.column for t in right.times}
        eager = not both or self.ctx.options.get("asof", "").lower() == "eager"
        return AsofJoin(
            left,
            right,
            kind,
            *keys,
            to_expr(self.ctx, left_time),
            to_expr(self.ctx, right_time),
            direction,
            strict,
            tolerance,
            eager,
        )

    def temporal(
        self,
        left: Node,
        right: Node,
        kind: Literal["inner", "left"],
        bound: list[exp.Expression],
        call: exp.Expression,
        binder: ExprBinder,
        item: exp.Expression,
    ) -> Node:
        self._append_only(left, "a temporal", item)
        time = binder.bind(call.expressions[0])
        if not Expr(time).refs <= frozenset(left.columns):
            raise self.ctx.fail(
                "PSK-3003", "FOR SYSTEM_TIME AS OF must name a time of the left side", call.expressions[0]
            )
        c = Conditions(self.ctx, left, right, "temporal", bound)
        keys = self._keys(c, "a temporal", item)
        if not keys[0]:
            raise self.ctx.fail("PSK-3002", "a temporal join needs an equality", item)
        return TemporalJoin(left, right, kind, *keys, to_expr(self.ctx, time), self._version(right, keys[1], item))

    def _version(self, right: Node, keys: tuple[Expr, ...], item: exp.Expression) -> Expr:
        """The column for the time from which a row is valid: the event time, or the only time column that is not a key."""
        times = [t.column for t in right.times]
        if not times:
            used = {k.column for k in keys}
            for wanted in ("timestamp", "bigint"):
                times = times or [c for c in right.columns if self.ctx.types.get(c) == wanted and c not in used]
        if len(times) != 1:
            raise self.ctx.fail(
                "PSK-3003",
                "cannot determine the column for the time from which a row is valid",
                item,
                hint="The right side needs exactly one event time, TIMESTAMP or BIGINT column besides its key.",
            )
        return col(times[0])

    def probe(
        self, left: Node, right: Node, before: Scope, relation: Relation, call: exp.Expression, item: exp.Expression
    ) -> tuple[Node, Relation]:
        """The join, and the relation with the two columns that it adds."""
        self._append_only(left, "a probe", item)
        self._append_only(right, "a probe", item)
        probe = self.ctx.probes[int(call.expressions[0].name)]
        sides = (ExprBinder(self.ctx, before), ExprBinder(self.ctx, Scope([relation])))
        keys = [tuple(s.expr(exp.Column(this=k.copy())) for k in probe.keys) for s in sides]
        if probe.times is not None:
            times = [s.expr(t) for s, t in zip(sides, probe.times, strict=True)]
        else:
            times = []
            for node in (left, right):
                if len(node.times) != 1:
                    raise self.ctx.fail(
                        "PSK-3003",
                        "both sides of a probe join need exactly one event-time column",
                        item,
                        hint="Add TIMESTAMPS (a.ts, b.ts).",
                    )
                times.append(col(node.times[0].column))
        prefix = self.ctx.fresh(probe.alias or "probe")
        offset, at = f"{prefix}$offset_ms", f"{prefix}$probe_ts"
        self.ctx.types[offset] = "bigint"
        known = type_of(self.ctx, times[0].node)
        if known is not None:
            self.ctx.types[at] = known
        added = Relation(probe.alias, (Col("offset_ms", offset), Col("probe_ts", at)))
        made = ProbeJoin(left, right, keys[0], keys[1], times[0], times[1], probe.offsets_ms, offset, at)
        return made, added


def _is_distance(
    node: exp.Expression,
    left: exp.Expression,
    right: exp.Expression,
    direction: Literal["backward", "forward", "nearest"],
) -> bool:
    """Whether the node is the distance between the two times: later minus earlier, or its `abs` if either may be later."""
    absolute = isinstance(node, exp.Abs)
    difference = bare(node.this) if absolute else node
    if not isinstance(difference, exp.Sub):
        return False
    given = (bare(difference.this).sql(), bare(difference.expression).sql())
    pair = (left.sql(), right.sql())
    if absolute:
        return given in (pair, pair[::-1])
    return direction != "nearest" and given == (pair if direction == "backward" else pair[::-1])
