"""WITH RECURSIVE: binds the step like any query, over a placeholder for r, and converts its plan to a `Recursive` node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from sqlglot import exp

from penstock.plan.nodes import (
    Aggregate,
    Analytic,
    Distinct,
    Expr,
    Filter,
    Generate,
    Join,
    Linear,
    Node,
    Project,
    Reads,
    Recursive,
    SetOp,
    TopN,
    Union,
    Values,
)
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import all_of, column, conjuncts, to_expr
from penstock.sql.bind.joins import regular_join
from penstock.sql.bind.scope import Col

MAX_DEPTH = 10_000
"""Default limit on the steps of a recursion."""

_WHAT: dict[type[Node], str] = {
    Aggregate: "an aggregate",
    Analytic: "an analytic function",
    Distinct: "DISTINCT",
    Generate: "a generator",
    SetOp: "EXCEPT or INTERSECT",
    TopN: "LIMIT",
    Union: "UNION",
}


def reads(query: exp.Expression, name: str) -> bool:
    """True if a query references that table."""
    return _mentions(query, name) > 0


def _mentions(query: exp.Expression, name: str) -> int:
    return sum(1 for t in query.find_all(exp.Table) if t.name.lower() == name.lower())


@dataclass(frozen=True)
class _Rows(Linear):
    """The placeholder for r in the plan of a step, until it is a Recursive."""

    reads: ClassVar[Reads] = Reads.OWN
    column_names: ClassVar[tuple[str, ...]] = ("names",)

    names: tuple[str, ...]

    def described(self) -> str:
        return f"Rows [{', '.join(self.names)}]"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @cached_property
    def changelog(self) -> bool:
        return True


@dataclass(frozen=True)
class Reference:
    """The meaning of a recursive query's name inside its step."""

    node: Node
    cols: tuple[Col, ...]


@dataclass(frozen=True)
class Recursion:
    """A query of WITH RECURSIVE, bound at each reference."""

    name: str
    query: exp.Expression

    def bind(
        self,
        ctx: Context,
        bind_query: Callable[..., Block],
        env: dict[str, Any],
        columns: tuple[str, ...],
        origin: exp.Expression,
    ) -> Block:
        union = self.query
        if not isinstance(union, exp.Union) or any(
            union.args.get(k) for k in ("order", "limit", "offset", "with_", "by_name")
        ):
            raise ctx.fail(
                "PSK-1012",
                f"the recursive query {self.name} is not of the form: first part UNION [ALL] step",
                self.query,
                hint="Write the initial rows, then UNION, then a SELECT that reads the query itself.",
            )
        if reads(union.this, self.name):
            raise ctx.fail(
                "PSK-1012",
                f"only the last part of the UNION may read {self.name}",
                union.this,
                hint="Recursion has one step: one SELECT that reads the query once.",
            )
        if _mentions(union.expression, self.name) > 1:
            raise _Step(ctx, self.name, union.expression).refused(f"reads {self.name} twice")
        base = bind_query(union.this, None, env)
        if columns and len(columns) != len(base.cols):
            raise ctx.fail("PSK-1016", f"{len(columns)} column names for {len(base.cols)} columns", origin)
        shown = columns or tuple(c.name for c in base.cols)
        prefix = ctx.fresh(self.name.replace("$", "_"))
        names = tuple(f"{prefix}${n}" for n in shown)
        for name, c in zip(names, base.cols, strict=True):
            if c.internal in ctx.types:
                ctx.types[name] = ctx.types[c.internal]
        cols = tuple(Col(n, i) for n, i in zip(shown, names, strict=True))
        step = bind_query(union.expression, None, {**env, self.name.lower(): (Reference(_Rows(names), cols), {}, ())})
        if len(step.cols) != len(base.cols):
            raise ctx.fail("PSK-1016", f"the two sides have {len(base.cols)} and {len(step.cols)} columns", union)
        flow = _Step(ctx, self.name, union.expression).of(step.exact())
        other = flow.other or Values((ctx.fresh("one$x"),), ((Expr(exp.Literal.number(1)),),))
        lefts, rights = flow.keys or ([exp.Literal.number(1)], [exp.Literal.number(1)])
        if ctx.options.get("unbounded_state", "").lower() != "true" and any(map(ctx.streaming, (base.node, other))):
            raise ctx.fail(
                "PSK-3001",
                "a recursion over streams keeps every row forever",
                origin,
                hint="Read tables or views, or allow it with WITH (unbounded_state = true).",
            )
        made = Recursive(
            base.exact(),
            other,
            names,
            tuple(to_expr(ctx, k) for k in lefts),
            tuple(to_expr(ctx, k) for k in rights),
            to_expr(ctx, all_of(flow.conditions)) if flow.conditions else None,
            tuple(to_expr(ctx, flow.exprs[c.internal]) for c in step.cols),
            not union.args.get("distinct"),
            _max_depth(ctx),
        )
        return Block(made, list(cols))


@dataclass
class _Flow:
    """The part of a step above r, so far. `exprs` defines each column over the columns of r and of `other`."""

    exprs: dict[str, exp.Expression]
    other: Node | None = None
    lefts: list[exp.Expression] = field(default_factory=list)
    rights: list[exp.Expression] = field(default_factory=list)
    conditions: list[exp.Expression] = field(default_factory=list)

    @property
    def keys(self) -> tuple[list[exp.Expression], list[exp.Expression]] | None:
        return (self.lefts, self.rights) if self.lefts else None


class _Step:
    def __init__(self, ctx: Context, name: str, query: exp.Expression) -> None:
        self.ctx = ctx
        self.name = name
        self.query = query

    def of(self, root: Node) -> _Flow:
        if sum(isinstance(n, _Rows) for n in root.walk()) != 1:
            raise self.refused(f"reads {self.name} in a subquery")
        return self._sorted(self._flow(root))

    def refused(self, what: str) -> Exception:
        return self.ctx.fail(
            "PSK-1012",
            f"the step of the recursive query {self.name} {what}",
            self.query,
            hint=f"A step can only inner-join {self.name} once with other relations, filter and project.",
        )

    def _flow(self, node: Node) -> _Flow:
        match node:
            case _Rows():
                return _Flow({c: column(c) for c in node.columns})
            case Project():
                flow = self._flow(node.child)
                flow.exprs = {i.name: _replaced(i.expr.node, flow.exprs) for i in node.items}
                return flow
            case Filter():
                flow = self._flow(node.child)
                flow.conditions += [_replaced(p, flow.exprs) for p in conjuncts(node.predicate.node)]
                return flow
            case Join(kind="inner", time_bound=None, ttl_ms=None):
                return self._join(node)
            case Join(time_bound=None, ttl_ms=None):
                what = {"left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}.get(
                    node.kind, "EXISTS, IN or another subquery"
                )
                raise self.refused(f"applies {what} to it")
        raise self.refused(f"applies {_WHAT.get(type(node), 'a temporal join')} to it")

    def _join(self, node: Join) -> _Flow:
        inside = any(isinstance(n, _Rows) for n in node.left.walk())
        mine, his = (node.left, node.right) if inside else (node.right, node.left)
        keys = (node.left_keys, node.right_keys) if inside else (node.right_keys, node.left_keys)
        flow = self._flow(mine)
        flow.exprs |= {c: column(c) for c in his.columns}
        for i, (a, b) in enumerate(zip(*keys, strict=True)):
            if a.refs or b.refs:
                same = exp.NullSafeEQ if i in node.null_safe else exp.EQ
                flow.conditions.append(same(this=_replaced(a.node, flow.exprs), expression=b.node.copy()))
        if node.residual is not None:
            flow.conditions += [_replaced(p, flow.exprs) for p in conjuncts(node.residual.node)]
        if flow.other is None:
            flow.other = his
            return flow
        both = frozenset((*flow.other.columns, *his.columns))
        parts = [p for p in flow.conditions if Expr(p).refs and Expr(p).refs <= both]
        flow.conditions = [p for p in flow.conditions if not any(p is q for q in parts)]
        flow.other = regular_join(self.ctx, flow.other, his, "inner", parts, self.query)
        return flow

    def _sorted(self, flow: _Flow) -> _Flow:
        """Conditions on the other side alone become its filter; equalities between the two sides become keys."""
        others = frozenset(flow.other.columns) if flow.other is not None else frozenset()
        alone, rest = [], []
        for part in flow.conditions:
            refs = Expr(part).refs
            if refs and refs <= others:
                alone.append(part)
                continue
            sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
            his = next((s for s in sides if Expr(s).refs and Expr(s).refs <= others), None)
            mine = next((s for s in sides if s is not his and Expr(s).refs and not Expr(s).refs & others), None)
            if his is not None and mine is not None:
                flow.lefts.append(mine)
                flow.rights.append(his)
            else:
                rest.append(part)
        if alone and flow.other is not None:
            flow.other = Filter(flow.other, to_expr(self.ctx, all_of(alone)))
        flow.conditions = rest
        return flow


def _replaced(node: exp.Expression, exprs: dict[str, exp.Expression]) -> exp.Expression:
    """The expression with each column replaced by its definition."""

    def change(n: exp.Expression) -> exp.Expression:
        if not isinstance(n, exp.Column):
            return n
        found = exprs[n.name].copy()
        return found if isinstance(found, (exp.Column, exp.Literal)) else exp.Paren(this=found)

    return node.copy().transform(change)


def _max_depth(ctx: Context) -> int:
    text = ctx.options.get("max_depth")
    if text is None:
        return MAX_DEPTH
    if not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise ctx.fail(
            "PSK-1011", f"max_depth = '{text}' is not a number of steps", hint="Write a whole number from 1 to 1000000."
        )
    return int(text)
