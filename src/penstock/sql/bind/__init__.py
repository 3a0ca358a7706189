"""Parsed queries → bound plans. Names are resolved here, once; nothing looks into the text again."""

from __future__ import annotations

from penstock.errors import fail
from penstock.plan.nodes import Join, LookupJoin, Named, Node, Project, Query, Recursive, Scan, col
from penstock.plan.passes import run_passes
from penstock.plan.room import with_room
from penstock.sql.bind.batch import BatchQuery, bind_batch
from penstock.sql.bind.context import CatalogView, Context
from penstock.sql.bind.correlation import Uncorrelated
from penstock.sql.bind.emit import apply_emit
from penstock.sql.bind.queries import Queries
from penstock.sql.names import unfit
from penstock.sql.query import ParsedQuery

__all__ = ["BatchQuery", "CatalogView", "bind", "bind_batch"]


def bind(query: ParsedQuery, catalog: CatalogView, *, statement_text: str | None = None) -> Query:
    """The plan of a continuous query, after all passes. Every refusal of the SQL reference is made here.

    Errors have their place in the script the query was parsed from; `statement_text` is shown where there is no place.
    """
    try:
        return with_room(lambda: _bind(query, catalog))
    except Uncorrelated:
        raise fail("PSK-1012", "this correlated subquery is not supported", sql=statement_text) from None


def _bind(query: ParsedQuery, catalog: CatalogView) -> Query:
    ctx = Context(query, catalog)
    block = Queries(ctx).bind(query.ast, None, {})
    seen: set[str] = set()
    for c in block.cols:
        if c.name.lower() in seen:
            raise ctx.fail("PSK-1014", f"two output columns are named {c.name}", hint="Give one of them an alias.")
        reason = unfit(c.name)
        if reason is not None:
            raise ctx.fail(
                "PSK-1015", f"{reason}: it is the name of an output column", hint="Give the column an alias."
            )
        if c.name.startswith("__"):
            raise ctx.fail("PSK-1015", f"the output column name {c.name} is reserved")
        seen.add(c.name.lower())
    wanted = tuple(c.internal for c in block.cols)
    root = block.node
    if root.columns != wanted:
        root = Project(root, tuple(Named(n, col(n)) for n in wanted))
    root, emit = apply_emit(ctx, root)
    root = run_passes(root)
    _check_on_demand(ctx, root)
    if "state_ttl" in ctx.options and not any(isinstance(n, Join) and n.ttl_ms for n in root.walk()):
        raise ctx.fail(
            "PSK-1012", "state_ttl is for regular joins, and this query has none", hint="Leave state_ttl out."
        )
    if "max_depth" in ctx.options and not any(isinstance(n, Recursive) for n in root.walk()):
        raise ctx.fail("PSK-1012", "max_depth is for WITH RECURSIVE, and this query has none", hint="Leave it out.")
    return Query(root, tuple(c.name for c in block.cols), emit)


def _check_on_demand(ctx: Context, root: Node) -> None:
    """A table whose rows are fetched when they are asked for can only be asked: it is never there as a whole."""
    asked = {id(n.right) for n in root.walk() if isinstance(n, LookupJoin)}
    for n in root.walk():
        if isinstance(n, Scan) and id(n) not in asked:
            info = ctx.catalog.get(n.object)
            if info is not None and info.on_demand:
                raise ctx.fail(
                    "PSK-3003",
                    f"{info.name} is looked up on demand, so it can only be the right side of a lookup join",
                    hint="Use strategy = 'replicated' to read it as a table.",
                )
