"""LIMIT in a correlated query of a one-shot SELECT.

If the two sides of a correlating equality differ in type, Spark 4.3 applies LIMIT to all outer rows together. So the rows of each key are
numbered in an uncorrelated query, and a filter above it does the correlation.
"""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.context import Context
from penstock.sql.bind.unwritable import Unwritable
from penstock.sql.trees import bare

_SHAPED = ("group", "having", "qualify", "distinct", "with_", "laterals", "windows")


def write_out(ctx: Context, tree: exp.Expression) -> None:
    """Rewrites each such query in the tree."""
    for select in reversed(list(tree.find_all(exp.Select))):
        if select.args.get("limit") or select.args.get("offset"):
            _First(ctx, select).write_out()


class _First:
    """A SELECT with LIMIT or OFFSET, nested or not."""

    def __init__(self, ctx: Context, select: exp.Select) -> None:
        self.ctx = ctx
        self.select = select
        self._within = {
            s.alias_or_name.lower() for s in select.find_all(exp.Table, exp.Subquery, exp.UDTF, exp.Lateral, exp.CTE)
        }
        self._around = _around(select)
        self._known = _columns(ctx, select)

    def write_out(self) -> None:
        if not self._outer(self.select):
            return
        first, skipped = self._whole("limit"), self._whole("offset")
        items = [e.unalias() for e in self.select.expressions]
        total = not self.select.args.get("group") and any(has_aggregate(e) for e in items)
        if (isinstance(self.select.parent, exp.Exists) or total) and first != 0 and not skipped:
            self.select.set("limit", None)
            return
        self._expand()
        items = [e.unalias() for e in self.select.expressions]
        parts = self._conjuncts()
        inner = [p for p in parts if not self._outer(p)]
        pairs = [self._pair(p) for p in parts if self._outer(p)]
        if (
            None in pairs
            or any(self.select.args.get(a) for a in _SHAPED)
            or any(isinstance(e, exp.Star) or has_aggregate(e) or e.find(exp.Window) for e in items)
            or any(self._outer(e) for e in (*items, *self._order(), *(self.select.args.get("joins") or [])))
        ):
            self._refuse()
        self._numbered(inner, [p for p in pairs if p is not None], first, skipped)

    def _expand(self) -> None:
        """Expands `*` if FROM is a single object."""
        source = self.select.args["from_"].this if self.select.args.get("from_") else None
        info = self.ctx.catalog.get(source.name) if isinstance(source, exp.Table) else None
        every = self.select.expressions
        if source is None or info is None or self.select.args.get("joins") or len(every) != 1 or every[0] != exp.Star():
            return
        alias = source.alias_or_name
        listed = [exp.column(c.name, table=alias, quoted=True) for c in info.columns]
        self.select.set("expressions", listed)

    def _outer(self, node: exp.Expression) -> bool:
        """True if the node refers to an outer query."""
        return any(self._is_outer(c) for c in node.find_all(exp.Column))

    def _is_outer(self, column: exp.Column) -> bool:
        name = column.parts[0].name.lower()
        if column.table:
            return name in self._around and name not in self._within
        # An unqualified name belongs to this query if the query has, or may have, such a column.
        nearest = column.find_ancestor(exp.Select)
        own = nearest is None or nearest is self.select
        return own and bool(self._around) and self._known is not None and name not in self._known

    def _refuse(self) -> NoReturn:
        raise Unwritable("LIMIT in a correlated query that is more than a plain SELECT correlated by equalities")

    def _whole(self, clause: str) -> int:
        """The number in a clause; the default is all rows for LIMIT and 0 for OFFSET."""
        found = self.select.args.get(clause)
        if found is None:
            return -1 if clause == "limit" else 0
        number = found.expression
        if not isinstance(number, exp.Literal) or not number.is_int:
            self._refuse()
        return int(number.name)

    def _conjuncts(self) -> list[exp.Expression]:
        where = self.select.args.get("where")
        if where is None:
            return []
        return [bare(p) for p in where.this.flatten()] if isinstance(where.this, exp.And) else [bare(where.this)]

    def _pair(self, part: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
        """The inner and the outer side of an equality, if each refers only to its own query."""
        if not isinstance(part, exp.EQ) or part.find(exp.Query):
            return None
        for mine, other in ((part.this, part.expression), (part.expression, part.this)):
            outside = list(other.find_all(exp.Column))
            if mine.find(exp.Column) and not self._outer(mine) and outside and all(map(self._is_outer, outside)):
                return mine, other
        return None

    def _order(self) -> list[exp.Expression]:
        """ORDER BY over the query's own columns, with aliases and ordinals of outputs expanded."""
        made = {e.alias.lower(): e.this for e in self.select.expressions if isinstance(e, exp.Alias)}
        out = []
        for key in self.select.args["order"].expressions if self.select.args.get("order") else []:
            key = key.copy()
            of = key.this
            if isinstance(of, exp.Literal) and of.is_int and 1 <= int(of.name) <= len(self.select.expressions):
                key.set("this", self.select.expressions[int(of.name) - 1].unalias().copy())
            elif isinstance(of, exp.Column) and not of.table and of.name.lower() in made:
                key.set("this", made[of.name.lower()].copy())
            out.append(key)
        return out

    def _numbered(
        self, inner: list[exp.Expression], pairs: list[tuple[exp.Expression, exp.Expression]], first: int, skipped: int
    ) -> None:
        keys = [mine.copy() for mine, _ in pairs]
        order = self._order() or [exp.Ordered(this=k.copy()) for k in keys]
        number = exp.Window(
            this=exp.RowNumber(), partition_by=[k.copy() for k in keys], order=exp.Order(expressions=order)
        )
        names = [(f"__c{i}", e.output_name) for i, e in enumerate(self.select.expressions)]
        below = self.select.copy()
        listed = [exp.alias_(e.unalias(), n, quoted=True) for (n, _), e in zip(names, below.expressions, strict=True)]
        listed += [exp.alias_(k, f"__k{i}", quoted=True) for i, k in enumerate(keys)]
        below.set("expressions", [*listed, exp.alias_(number, "__r", quoted=True)])
        for clause in ("limit", "offset", "order"):
            below.set(clause, None)
        below.set("where", exp.Where(this=exp.and_(*(p.copy() for p in inner))) if inner else None)
        above: list[exp.Expression] = [
            exp.EQ(this=exp.column(f"__k{i}", quoted=True), expression=other.copy())
            for i, (_, other) in enumerate(pairs)
        ]
        place = exp.column("__r", quoted=True)
        above.append(exp.GT(this=place.copy(), expression=exp.Literal.number(skipped)))
        if first >= 0:
            above.append(exp.LTE(this=place.copy(), expression=exp.Literal.number(skipped + first)))
        out: list[exp.Expr] = [exp.column(n, quoted=True) for n, _ in names]
        if _is_scalar(self.select) and first == 1:
            out = [exp.Anonymous(this="any_value", expressions=out)]
        out = [exp.alias_(e, n, quoted=True) if n else e for e, (_, n) in zip(out, names, strict=True)]
        alias = exp.TableAlias(this=exp.to_identifier("__f", quoted=True))
        self.select.set("expressions", out)
        self.select.set("from_", exp.From(this=exp.Subquery(this=below, alias=alias)))
        self.select.set("where", exp.Where(this=exp.and_(*above)))
        for clause in ("limit", "offset", "order", "joins"):
            self.select.set(clause, None)


def _is_scalar(select: exp.Select) -> bool:
    """True if the query is a scalar subquery."""
    at = select.parent
    while isinstance(at, exp.Subquery) and isinstance(at.parent, exp.Subquery):
        at = at.parent
    return isinstance(at, exp.Subquery) and not isinstance(
        at.parent, (exp.From, exp.Join, exp.Lateral, exp.In, exp.Any, exp.All, exp.SetOperation, exp.CTE)
    )


def _around(select: exp.Select) -> set[str]:
    """The aliases that the outer queries read."""
    out = set()
    outer = select.find_ancestor(exp.Select)
    while outer is not None:
        read = (outer.args.get("from_"), *(outer.args.get("joins") or []), *(outer.args.get("laterals") or []))
        for clause in read:
            source = clause if clause is None or isinstance(clause, exp.Lateral) else clause.this
            out |= {source.alias_or_name.lower()} if source is not None else set()
        outer = outer.find_ancestor(exp.Select)
    return out


def _columns(ctx: Context, select: exp.Select) -> set[str] | None:
    """The unqualified names that a query can use: columns of its inputs and of its output. None if only Spark knows them."""
    out = {e.alias.lower() for e in select.expressions if isinstance(e, exp.Alias)}
    if select.args.get("laterals"):
        return None
    for clause in (select.args.get("from_"), *(select.args.get("joins") or [])):
        info = ctx.catalog.get(clause.this.name) if clause is not None and isinstance(clause.this, exp.Table) else None
        if clause is not None and info is None:
            return None
        out |= {c.name.lower() for c in info.columns} if info is not None else set()
    return out
