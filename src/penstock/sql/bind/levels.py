"""Correlation over several levels: Spark resolves the columns of a subquery in the query directly around it only."""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.bind.context import CatalogView
from penstock.sql.bind.ctes import cte_of
from penstock.sql.bind.naming import output_name


def over_several(tree: exp.Expression, catalog: CatalogView) -> bool:
    """Whether a subquery has a column of a query that is not directly around it."""
    columns = [c for c in tree.find_all(exp.Column) if not isinstance(c.this, exp.Star)]
    names = _Names(catalog)
    return any(_depth(c) > 1 and names.level(c) > 1 for c in columns)


def _depth(column: exp.Column) -> int:
    """How many subqueries a column is in."""
    depth, node = 0, column.parent
    while node is not None and not isinstance(node, exp.With):
        depth += _is_subquery(node)
        node = node.parent
    return depth


def _is_subquery(node: exp.Expr) -> bool:
    if isinstance(node, exp.Subquery) or not isinstance(node, exp.Query):
        return False
    return node.parent is not None and not isinstance(node.parent, exp.SetOperation) and not _is_derived(node)


def _is_derived(node: exp.Expr) -> bool:
    """A derived table is at the level of its query."""
    parent = node.parent
    return isinstance(parent, exp.Subquery) and isinstance(parent.parent, (exp.From, exp.Join))


def _sources(select: exp.Select) -> list[exp.Expr]:
    sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
    return [s.this for s in sources if s is not None] + list(select.args.get("laterals") or [])


class _Names:
    """Which names the relations of a block have."""

    def __init__(self, catalog: CatalogView) -> None:
        self._catalog = catalog
        self._known: dict[int, frozenset[str] | None] = {}

    def level(self, column: exp.Column) -> int:
        """How many subqueries are between a column and the relation that it is of; 0 if it is not found."""
        table, name, level = column.table.lower(), column.parts[0].name.lower(), 0
        beside = False
        node: exp.Expr = column
        while node.parent is not None:
            parent = node.parent
            if isinstance(parent, exp.With):
                return 0
            if isinstance(parent, exp.Select):
                if table and any(s.alias_or_name.lower() == table for s in _sources(parent)):
                    return level
                # A derived table sees no column of the relations beside it.
                known = frozenset[str]() if beside else self._visible(parent)
                if known is None or name in known:
                    return level
                beside = False
            elif _is_subquery(node):
                level += 1
            elif isinstance(node, exp.Query):
                beside = beside or _is_derived(node)
            node = parent
        return 0

    def _visible(self, select: exp.Select) -> frozenset[str] | None:
        """The columns of a block's relations, and its aliases; None if not all are known."""
        if id(select) not in self._known:
            aliases = {e.alias.lower() for e in select.expressions if isinstance(e, exp.Alias)}
            found = self._sum(_sources(select))
            self._known[id(select)] = None if found is None else found | aliases
        return self._known[id(select)]

    def _sum(self, sources: list[exp.Expr]) -> frozenset[str] | None:
        out: set[str] = set()
        for source in sources:
            found = self._columns(source)
            if found is None:
                return None
            out |= found
        return frozenset(out)

    def _columns(self, source: exp.Expr) -> set[str] | frozenset[str] | None:
        alias = source.args.get("alias")
        if source.args.get("pivots"):
            return None
        if alias is not None and alias.columns:
            return {c.name.lower() for c in alias.columns}
        if isinstance(source, exp.Subquery):
            return self._outputs(source.this)
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            return None
        cte = cte_of(source)
        if cte is None:
            info = self._catalog.get(source.name)
            return None if info is None else {c.name.lower() for c in info.columns}
        named = cte.args["alias"].columns
        if named:
            return {c.name.lower() for c in named}
        return None if source.find_ancestor(exp.CTE) is cte else self._outputs(cte.this)

    def _outputs(self, query: exp.Expr) -> set[str] | frozenset[str] | None:
        while isinstance(query, (exp.Subquery, exp.SetOperation)):
            query = query.this
        if not isinstance(query, exp.Select):
            return None
        out: set[str] = set()
        for item in query.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                found = self._sum(_sources(query))
                if found is None:
                    return None
                out |= found
            elif isinstance(item, (exp.Aliases, exp.UDTF)):
                return None
            else:
                out.add(output_name(item).lower())
        return out
