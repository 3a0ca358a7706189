"""Parsed queries → bound plans. Names are resolved here, once; later stages never look at the text."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.errors import fail
from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Join, LookupJoin, Named, Node, Project, Query, Recursive, Scan, SortTerm, col
from penstock.plan.passes import run_passes
from penstock.plan.predicates import deterministic
from penstock.plan.room import with_room
from penstock.sql.bind.batch import BatchQuery, bind_text
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import CatalogView, Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.emit import apply_emit
from penstock.sql.bind.exprs import column
from penstock.sql.bind.inlining import inlined
from penstock.sql.bind.quantified import refuse_arrays
from penstock.sql.bind.queries import Queries
from penstock.sql.names import unfit
from penstock.sql.query import ParsedQuery

__all__ = ["BatchQuery", "CatalogView", "bind", "bind_batch"]


def bind(query: ParsedQuery, catalog: CatalogView) -> Query:
    """Returns the plan of a continuous query, after all passes. Every refusal in the SQL reference is raised here.

    Errors have a position in the script that the query was parsed from.
    """
    try:
        return with_room(lambda: _bind(query, catalog))
    except CannotDecorrelate as why:
        place = query.script.place(why.at) if why.at is not None else None
        raise fail(
            "PSK-1012",
            "this correlated subquery is not supported",
            position=place or query.script.position(query.offset),
            sql=query.script.shown,
            hint="Write it as a join with a derived table that is grouped by what they have in common.",
        ) from None


def bind_batch(query: ParsedQuery, catalog: CatalogView) -> BatchQuery:
    """Returns a one-shot SELECT: its text for Spark and DuckDB, or its plan, if Spark SQL has no words for it."""
    made = bind_text(query, catalog)
    if isinstance(made, BatchQuery):
        return made
    options = query.options | {"unbounded_state": "true"}
    plan = bind(replace(query, once=True, presented=True, options=options), catalog)
    objects = dict.fromkeys(n.object for n in plan.root.walk() if isinstance(n, Scan))
    return BatchQuery("", tuple(objects), None, f"it has {made}", expands=plan.expands, plan=plan)


def _bind(query: ParsedQuery, catalog: CatalogView) -> Query:
    ctx = Context(query, catalog)
    ctx.query = query = replace(query, ast=inlined(ctx, query.ast))
    refuse_arrays(ctx, query.ast)
    block = Queries(ctx).bind(query.ast, None, {})
    names = _names(ctx, block)
    wanted = tuple(c.internal for c in block.cols)
    root = block.node
    if root.columns != wanted:
        root = Project(root, tuple(Named(n, col(n)) for n in wanted))
    root, emit = apply_emit(ctx, root)
    root = run_passes(root)
    _check_on_demand(ctx, root)
    if not query.once:
        _check_random(ctx, root)
    if "state_ttl" in ctx.options and not any(isinstance(n, Join) and n.ttl_ms for n in root.walk()):
        raise ctx.fail(
            "PSK-1012", "state_ttl applies to regular joins, and this query has none", hint="Remove state_ttl."
        )
    if "max_depth" in ctx.options and not any(isinstance(n, Recursive) for n in root.walk()):
        raise ctx.fail(
            "PSK-1012", "max_depth applies to WITH RECURSIVE, and this query has none", hint="Remove max_depth."
        )
    return Query(root, names, emit, _order(block, dict(zip(wanted, names, strict=True))), tuple(ctx.expanded))


def _check_random(ctx: Context, root: Node) -> None:
    """A row is retracted by computing it again, so that it must come out as before."""
    for n in root.walk():
        if not any(c.changelog for c in n.children):
            continue
        for e in n.expressions:
            if deterministic(e):
                continue
            raise ctx.fail(
                "PSK-1012",
                "a value that is another each time, such as rand() or uuid(), cannot be computed of rows that may be retracted",
                e.node,
                hint="Store it: give the table a column with DEFAULT uuid(), or compute it in the SELECT from the view.",
            )


def _names(ctx: Context, block: Block) -> tuple[str, ...]:
    """The names of the output columns: those written after the name of the object, or those of the SELECT."""
    written = ctx.query.columns
    if written and len(written) != len(block.cols):
        raise ctx.fail("PSK-1016", f"{len(written)} column names for {len(block.cols)} columns", written[0])
    names = tuple(c.name for c in (written or block.cols))
    if ctx.query.once:
        return names
    seen: set[str] = set()
    for i, name in enumerate(names):
        at = written[i] if written else None
        if name.lower() in seen:
            raise ctx.fail("PSK-1014", f"two output columns are named {name}", at, hint="Give one of them an alias.")
        reason = unfit(name)
        if reason is not None:
            raise ctx.fail(
                "PSK-1015", f"{reason}: it is the name of an output column", at, hint="Give the column another alias."
            )
        if name.startswith("__"):
            raise ctx.fail("PSK-1015", f"the output column name {name} is reserved", at)
        seen.add(name.lower())
    return names


def _order(block: Block, names: dict[str, str]) -> tuple[SortTerm, ...]:
    """The order in which a view presents its rows, over the names of its columns."""
    out = []
    for key in block.order:
        node = key.expr.node.transform(lambda n: column(names[n.name]) if isinstance(n, exp.Column) else n)
        out.append(SortTerm(node.sql(dialect=DIALECT), key.desc, key.nulls_first))
    return tuple(out)


def _check_on_demand(ctx: Context, root: Node) -> None:
    """An on-demand lookup table can only be probed by key: its rows are never all present."""
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
