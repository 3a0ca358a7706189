"""Correlation over several levels: Spark resolves the columns of a subquery in the query directly around it only."""

from __future__ import annotations

from sqlglot import exp


def over_several(tree: exp.Expression) -> bool:
    """Whether a subquery has a qualified column of a query that is not directly around it."""
    return any(c.table and _level(c) > 1 for c in tree.find_all(exp.Column))


def _level(column: exp.Column) -> int:
    """How many queries lie between a column and the relation that it names; 0 if it is not found."""
    name, level = column.table.lower(), 0
    node: exp.Expr = column
    while node.parent is not None:
        parent = node.parent
        if isinstance(parent, exp.With):
            return 0
        if isinstance(parent, exp.Select):
            if name in _relations(parent):
                return level
        # A derived table is at the level of its query.
        elif (
            isinstance(node, exp.Query)
            and not isinstance(node, exp.Subquery)
            and not isinstance(parent, exp.SetOperation)
        ):
            derived = isinstance(parent, exp.Subquery) and isinstance(parent.parent, (exp.From, exp.Join))
            level += not derived
        node = parent
    return 0


def _relations(select: exp.Select) -> set[str]:
    sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
    items = [s.this for s in sources if s is not None] + list(select.args.get("laterals") or [])
    return {i.alias_or_name.lower() for i in items}
