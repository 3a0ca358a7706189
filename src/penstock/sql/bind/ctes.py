"""Which tables of a query are its CTEs."""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.bind.context import Context

_OBJECT = "object"


def own_object(table: exp.Table) -> None:
    """Marks a table that is an object of the catalogue, whatever CTEs are around it."""
    table.meta[_OBJECT] = True


def check_with(ctx: Context, clause: exp.Expression) -> None:
    """Raises PSK-1014 for two CTEs of one name in a WITH, PSK-1012 for its SEARCH and CYCLE."""
    if clause.args.get("search"):
        hint = "Select the depth or the path in the step, and order or filter by it."
        raise ctx.fail(
            "PSK-1012", "SEARCH and CYCLE are not supported in WITH RECURSIVE", clause.args["search"], hint=hint
        )
    seen: set[str] = set()
    for cte in clause.expressions:
        if cte.alias.lower() in seen:
            raise ctx.fail("PSK-1014", f"WITH has two queries named {cte.alias}", cte.args["alias"])
        seen.add(cte.alias.lower())


def is_object(table: exp.Table) -> bool:
    return bool(table.meta.get(_OBJECT))


def is_cte(table: exp.Table) -> bool:
    return cte_of(table) is not None


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The CTE that a table is, of the query that it is in or of one around it. A CTE sees those before it and, if it is recursive, itself."""
    name = table.name.lower()
    below: exp.Expr = table
    node = None if is_object(table) else table.parent
    while node is not None:
        clause = node.args.get("with_")
        seen = list(clause.expressions) if clause is not None and clause is not below else []
        if isinstance(node, exp.With):
            at = next(i for i, c in enumerate(node.expressions) if c is below)
            seen = node.expressions[: at + bool(node.args.get("recursive"))]
        found = next((c for c in seen if c.alias.lower() == name), None)
        if isinstance(found, exp.CTE):
            return found
        below, node = node, node.parent
    return None
