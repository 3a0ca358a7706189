"""The select list: stars, generators and output names."""

from __future__ import annotations

from sqlglot import exp

from penstock.catalog.types import to_arrow
from penstock.sql.bind.draft import Draft, Items
from penstock.sql.bind.extras import refuse_star
from penstock.sql.bind.generators import generate, refuse_series
from penstock.sql.bind.naming import output_name
from penstock.sql.bind.scope import Col, Relation
from penstock.sql.functions import generator_name


class SelectList:
    """The items after SELECT. Extends the draft by its generators."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def items(self) -> Items:
        """(parsed expression, output name) pairs, with stars expanded and generators moved below the list."""
        out: Items = []
        for item in self.draft.select.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                out += self._star(item)
                continue
            core = item.this if isinstance(item, (exp.Alias, exp.Aliases)) else item
            if generator_name(core) is not None:
                refuse_series(self.draft.ctx, core)
                out += self._generator(item, core)
            elif isinstance(item, exp.Aliases):
                raise self.draft.ctx.fail("PSK-1012", "only a generator can have several aliases", item)
            else:
                out.append((core, output_name(item)))
        return out

    def _star(self, item: exp.Expression) -> Items:
        star = item if isinstance(item, exp.Star) else item.this
        if isinstance(item, exp.Column):
            relation = self.draft.scope.relation(item.table)
            if relation is None and (fields := self._fields(item)) is not None:
                return fields
            if relation is None:
                raise self.draft.ctx.fail("PSK-1002", f"{item.table} is not in FROM", item)
            cols = list(relation.cols)
        else:
            cols = list(self.draft.scope.visible())
        refuse_star(self.draft.ctx, star)
        dropped = {c.name.lower(): c for c in star.args.get("except_") or []}
        known = {c.name.lower() for c in cols}
        for name, node in dropped.items():
            if name not in known:
                raise self.draft.ctx.fail("PSK-1004", f"unknown column {node.name}", node)
        if not cols:
            raise self.draft.ctx.fail("PSK-1012", "* has no columns here", item)
        return [(self._internal(c.internal), c.name) for c in cols if c.name.lower() not in dropped]

    def _fields(self, item: exp.Column) -> Items | None:
        """`st.*`, the fields of a struct, if `st` is a column of a known type."""
        table, owner = item.args["table"], item.args.get("db")
        relation = self.draft.scope.relation(owner.name) if owner is not None else None
        cols = (
            (relation.find(table.name) if relation is not None else []) if owner else self.draft.scope.find(table.name)
        )
        kind = self.draft.ctx.types.get(cols[0].internal, "") if len(cols) == 1 else ""
        if not kind.startswith("struct<") or any(item.this.args.values()):
            return None
        parts = {"table": table, "db": owner} if owner is not None else {"table": table}
        names = [to_arrow(kind).field(i).name for i in range(to_arrow(kind).num_fields)]
        return [(exp.Column(this=exp.Identifier(this=n, quoted=True), **parts), n) for n in names]

    def _internal(self, internal: str) -> exp.Expression:
        """A reference, in parsed form, that can only resolve to this column."""
        relation = self.draft.scope.relation("__star")
        if relation is None:
            every = dict.fromkeys(c.internal for r in self.draft.scope.relations for c in r.cols)
            self.draft.scope.relations.append(Relation("__star", tuple(Col(i, i, hidden=True) for i in every)))
        return exp.Column(
            this=exp.Identifier(this=internal, quoted=True), table=exp.Identifier(this="__star", quoted=True)
        )

    def _generator(self, item: exp.Expression, core: exp.Expression) -> Items:
        if self.draft.select.args.get("group"):
            raise self.draft.ctx.fail(
                "PSK-1012",
                "a generator is not allowed in a grouped SELECT",
                item,
                hint="Put it into a derived table or LATERAL VIEW.",
            )
        names = (
            [i.name for i in item.expressions]
            if isinstance(item, exp.Aliases)
            else [item.alias]
            if isinstance(item, exp.Alias)
            else None
        )
        self.draft.node, cols = generate(self.draft.ctx, self.draft.node, core, self.draft.binder(), names, False)
        self.draft.scope.relations.append(Relation(None, tuple(Col(c.name, c.internal, hidden=True) for c in cols)))
        self.draft.scope.relations = [r for r in self.draft.scope.relations if r.alias != "__star"]
        return [(self._internal(c.internal), c.name) for c in cols]
