"""Turns subqueries in expressions into joins: semi, anti and mark joins for predicates, left joins for scalar subqueries."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Filter, JoinKind, Node
from penstock.sql.bind.block import Block
from penstock.sql.bind.chars import without_length
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import Lift
from penstock.sql.bind.decorrelation import Decorrelation
from penstock.sql.bind.exprs import ExprBinder, column, to_expr
from penstock.sql.bind.joins import regular_join
from penstock.sql.bind.quantified import any_of, is_quantified, three_valued
from penstock.sql.bind.relations import BindQuery, Ctes
from penstock.sql.bind.scope import Scope
from penstock.sql.bind.unknown import Unknown, holds, matches
from penstock.sql.trees import bare

_TEST = "__subquery"


class Subqueries:
    def __init__(self, ctx: Context, bind_query: BindQuery, ctes: Ctes) -> None:
        self.ctx = ctx
        self.decorrelation = Decorrelation(ctx, bind_query, ctes)
        self._later: dict[str, exp.Expression] = {}

    # -- as a whole conjunct of WHERE ----------------------------------------------------------------------------------

    def is_predicate(self, node: exp.Expression) -> bool:
        """True if the whole node is [NOT] EXISTS (…), e [NOT] IN (select) or e op ANY | ALL (select)."""
        inner = bare(node.this) if isinstance(node, exp.Not) else node
        return (isinstance(inner, exp.Exists) and isinstance(inner.this, exp.Query)) or is_quantified(inner)

    def predicate(self, node: Node, scope: Scope, part: exp.Expression) -> Node:
        """Keeps the rows of `node` for which the predicate is true, with a semi or anti join."""
        negated = isinstance(part, exp.Not)
        inner = bare(part.this) if negated else part
        if isinstance(inner, exp.Exists):
            block, parts = self._bind(inner.this, node, scope, None, part, lenient=True)
            if block.total:
                # There is always one row.
                return Filter(node, to_expr(self.ctx, exp.false())) if negated else node
            return self._join(node, block, "anti" if negated else "semi", parts, part)
        test = any_of(inner)
        negated ^= test.negated
        values = [ExprBinder(self.ctx, scope).bind(v) for v in test.values]
        block, parts = self._tested(test.query, node, scope, len(values), None, part)
        parts = [*parts, *matches(test.op, values, block.cols)]
        made = self._join(node, block, "anti" if negated else "semi", parts, part)
        if not negated:
            return made
        made, unknown = self._unknown(made, scope, test.query, values, None, part)
        return Filter(made, to_expr(self.ctx, exp.Not(this=exp.Paren(this=unknown))))

    # -- anywhere else -------------------------------------------------------------------------------------------------

    def later(self, node: exp.Expression) -> exp.Expression:
        """A placeholder for a subquery that is attached once the plan is ready for it. The values compared with it stay visible."""
        name = self.ctx.fresh("__sub")
        self._later[name] = node
        place = exp.Parameter(this=exp.Var(this=name))
        if is_quantified(node):
            return exp.Anonymous(this=_TEST, expressions=[place, *(v.copy() for v in any_of(node).values)])
        return place

    def resolve(self, node: Node, scope: Scope, expression: exp.Expression, lift: Lift) -> tuple[Node, exp.Expression]:
        """Attaches the subqueries whose placeholders are in `expression`; `lift` rewrites outer columns to columns of `node`."""
        if not self._later:
            return node, expression
        for place in list(expression.find_all(exp.Parameter)):
            query = self._later.get(place.name)
            if query is None:
                continue
            target: exp.Expression = place
            if isinstance(place.parent, exp.Anonymous) and place.parent.name == _TEST:
                target = place.parent
                node, value = self._test(node, scope, query, [v.copy() for v in target.expressions[1:]], lift)
            else:
                node, value = self.attach(node, scope, query, lift)
            if target is expression:
                return node, value
            target.replace(value)
        return node, expression

    def attach(
        self, node: Node, scope: Scope, query: exp.Expression, lift: Lift | None = None
    ) -> tuple[Node, exp.Expression]:
        """Joins `node` with a subquery. Returns the join and the expression for the subquery's value."""
        if isinstance(query, exp.Exists):
            return self._exists(node, scope, query, lift)
        if is_quantified(query):
            return self._test(node, scope, query, any_of(query).values, lift)
        return self._scalar(node, scope, query, lift)

    def _exists(
        self, node: Node, scope: Scope, query: exp.Expression, lift: Lift | None
    ) -> tuple[Node, exp.Expression]:
        block, parts = self._bind(query.this, node, scope, lift, query, lenient=True)
        if block.total:
            return node, exp.true()
        mark = self.ctx.fresh("mark")
        return self._join(node, block, "mark", parts, query, mark), column(mark)

    def _test(
        self, node: Node, scope: Scope, query: exp.Expression, values: list[exp.Expression], lift: Lift | None
    ) -> tuple[Node, exp.Expression]:
        """e IN (select) and similar tests: TRUE if a row matches, else NULL if one might, else FALSE."""
        test = any_of(query)
        block, parts = self._tested(test.query, node, scope, len(values), lift, query)
        mark = self.ctx.fresh("mark")
        made = self._join(node, block, "mark", [*parts, *matches(test.op, values, block.cols)], query, mark)
        value: exp.Expression = column(mark)
        if three_valued(query) or test.negated:
            made, unknown = self._unknown(made, scope, test.query, values, lift, query)
            value = exp.Paren(this=holds(value, unknown))
        return made, exp.Paren(this=exp.Not(this=value)) if test.negated else value

    def _tested(
        self, query: exp.Expression, node: Node, scope: Scope, width: int, lift: Lift | None, origin: exp.Expression
    ) -> tuple[Block, list[exp.Expression]]:
        block, parts = self._bind(query, node, scope, lift, origin)
        if len(block.cols) != width:
            raise self.ctx.fail("PSK-1016", f"the subquery has {len(block.cols)} columns instead of {width}", origin)
        return block, parts

    def _unknown(
        self,
        node: Node,
        scope: Scope,
        query: exp.Expression,
        values: list[exp.Expression],
        lift: Lift | None,
        origin: exp.Expression,
    ) -> tuple[Node, exp.Expression]:
        """Whether a comparison with some row is NULL."""
        block, parts = self._bind(query, node, scope, lift, origin)
        unknown = Unknown(self.ctx, node, block, values)
        return unknown.counted(parts) or unknown.marked(parts, origin)

    def _scalar(
        self, node: Node, scope: Scope, query: exp.Expression, lift: Lift | None
    ) -> tuple[Node, exp.Expression]:
        block, parts = self._bind(query.this, node, scope, lift, query, lenient=True)
        if len(block.cols) != 1:
            raise self.ctx.fail("PSK-1016", f"a scalar subquery must have one column, not {len(block.cols)}", query)
        if not block.single:
            raise self.ctx.fail(
                "PSK-1012",
                "a scalar subquery must return one row",
                query,
                hint="Select an aggregate without GROUP BY, or add LIMIT 1.",
            )
        internal = block.cols[0].internal
        value = block.deferred.get(internal) or without_length(self.ctx, column(internal))
        if not isinstance(value, (exp.Column, exp.Func)):
            value = exp.Paren(this=value)
        kind: JoinKind = "inner" if block.total and not block.correlated else "left"
        return self._join(node, block, kind, parts, query), value

    # -- joins ---------------------------------------------------------------------------------------------------------

    def _join(
        self,
        node: Node,
        block: Block,
        kind: JoinKind,
        parts: list[exp.Expression],
        origin: exp.Expression,
        mark: str | None = None,
    ) -> Node:
        return regular_join(self.ctx, node, block.node, kind, parts, origin, mark=mark)

    def _bind(
        self,
        query: exp.Expression,
        node: Node,
        scope: Scope,
        lift: Lift | None,
        origin: exp.Expression,
        *,
        lenient: bool = False,
    ) -> tuple[Block, list[exp.Expression]]:
        """Returns a subquery and the conditions that join it with `node`.

        An aggregate without GROUP BY has a row even if nothing matches. `lenient`: the caller computes the values of that row.
        """
        found = self.decorrelation.of(
            query, node, scope, origin, lift=lift, accepts=lambda block, parts: lenient or not block.deferred
        )
        return found.block, found.parts
