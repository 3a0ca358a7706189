"""Queries of any shape: WITH, SELECT, set operations, VALUES."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Distinct, Node, SetKind, SetOp, SortKey, Union, Values, col
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.ctes import check_with
from penstock.sql.bind.exprs import ExprBinder, to_expr
from penstock.sql.bind.limit import is_all, limited
from penstock.sql.bind.recursion import Recursion, reads
from penstock.sql.bind.relations import Ctes
from penstock.sql.bind.scope import Col, Relation, Scope
from penstock.sql.bind.select import SelectBinder
from penstock.sql.trees import bare


class Queries:
    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def bind(self, node: exp.Expression, outer: Scope | None, ctes: Ctes) -> Block:
        ctes = self._with(node, ctes)
        if isinstance(node, exp.Subquery) and not node.alias:
            block = self.bind(node.this, outer, ctes)
            self._limit(block, node)
            return block
        if isinstance(node, exp.Select):
            self.ctx.count_block(node)
            return SelectBinder(self.ctx, node, outer, ctes, self.bind).bind()
        if isinstance(node, exp.SetOperation):
            block = self._set(node, outer, ctes)
            self._limit(block, node)
            return block
        if isinstance(node, exp.Values):
            return self._values(node)
        raise self.ctx.fail("PSK-1012", "this kind of query is not supported", node)

    def _with(self, node: exp.Expression, ctes: Ctes) -> Ctes:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        env = dict(ctes)
        check_with(self.ctx, clause)
        for cte in clause.expressions:
            columns = tuple(c.name for c in cte.args["alias"].columns)
            recursive = bool(clause.args.get("recursive")) and reads(cte.this, cte.alias)
            made = Recursion(cte.alias, cte.this) if recursive else cte.this
            env[cte.alias.lower()] = (made, dict(env), columns)
        return env

    def _set(self, node: exp.SetOperation, outer: Scope | None, ctes: Ctes) -> Block:
        if node.args.get("by_name") or node.args.get("side") or node.args.get("kind"):
            raise self.ctx.fail("PSK-1012", "set operations match columns only by position", node)
        left, right = self.bind(node.this, outer, ctes), self.bind(node.expression, outer, ctes)
        if left.correlated or right.correlated:
            raise CannotDecorrelate
        if left.domain != right.domain:
            raise self.ctx.fail(
                "PSK-1012",
                "VALUES cannot be part of a set operation that uses columns of the outer query",
                node,
                hint="Write SELECT … UNION ALL SELECT ….",
            )
        if len(left.cols) != len(right.cols):
            raise self.ctx.fail("PSK-1016", f"the two sides have {len(left.cols)} and {len(right.cols)} columns", node)
        a, b = left.exact(), right.exact()
        made: Node
        everything = not node.args.get("distinct")
        if isinstance(node, exp.Union):
            inputs = (*(a.inputs if isinstance(a, Union) else (a,)), *(b.inputs if isinstance(b, Union) else (b,)))
            made = Union(inputs)
            if not everything:
                made = Distinct(made)
        else:
            kinds: dict[tuple[bool, bool], SetKind] = {
                (True, False): "except",
                (True, True): "except all",
                (False, False): "intersect",
                (False, True): "intersect all",
            }
            made = SetOp(kinds[isinstance(node, exp.Except), everything], a, b)
        cols = [Col(c.name, n) for c, n in zip(left.cols, made.columns, strict=False)]
        return Block(made, cols, domain=made.columns[len(cols) :])

    def _limit(self, block: Block, node: exp.Expression) -> None:
        order: list[SortKey] = []
        clause = node.args.get("order")
        if clause is not None:
            binder = ExprBinder(self.ctx, Scope([Relation(None, tuple(block.cols))]))
            every = is_all(clause) and not any(c.name.lower() == "all" for c in block.cols)
            numbers = [exp.Literal.number(i + 1) for i in range(len(block.cols))] if every else [None]
            for item, number in ((i, n) for i in clause.expressions for n in numbers):
                core = number or (item.this if isinstance(item, exp.Ordered) else item)
                if isinstance(core, exp.Literal) and core.is_int and 1 <= int(core.name) <= len(block.cols):
                    expr = col(block.cols[int(core.name) - 1].internal)
                else:
                    expr = to_expr(self.ctx, binder.bind(core), core)
                desc = isinstance(item, exp.Ordered) and bool(item.args.get("desc"))
                first = item.args.get("nulls_first") if isinstance(item, exp.Ordered) else None
                order.append(SortKey(expr, desc, not desc if first is None else bool(first)))
        limited(self.ctx, block, node, order)

    def _values(self, node: exp.Values) -> Block:
        rows = [tuple(r.expressions) if isinstance(r, exp.Tuple) else (bare(r),) for r in node.expressions]
        width = len(rows[0])
        if any(len(r) != width for r in rows):
            raise self.ctx.fail("PSK-1016", "the rows of VALUES differ in length", node)
        prefix = self.ctx.fresh("values")
        names = tuple(f"{prefix}$col{i + 1}" for i in range(width))
        binder = ExprBinder(self.ctx, Scope())
        made = Values(names, tuple(tuple(binder.expr(e) for e in r) for r in rows))
        return Block(made, [Col(f"col{i + 1}", n) for i, n in enumerate(names)])
