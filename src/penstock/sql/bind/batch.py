"""One-shot SELECT: resolves names and generates Spark SQL, and DuckDB SQL if both have the same meaning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Query
from penstock.plan.room import with_room
from penstock.sql.bind import chosen, firstrows, membership, named, oncewindows, ordered
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.context import CatalogView, Context, qualified
from penstock.sql.bind.ctes import check_with, is_cte
from penstock.sql.bind.expansion import expanded
from penstock.sql.bind.exprs import alias_hint, walk_block
from penstock.sql.bind.extras import refuse_join, refuse_star
from penstock.sql.bind.fields import refuse_count
from penstock.sql.bind.inlining import inlined
from penstock.sql.bind.levels import over_several
from penstock.sql.bind.limit import is_all
from penstock.sql.bind.naming import output_name
from penstock.sql.bind.presentation import present
from penstock.sql.bind.quantified import refuse_arrays
from penstock.sql.bind.recursion import reads
from penstock.sql.bind.simple import Unequal, duckdb_text
from penstock.sql.bind.unwritable import Unwritable
from penstock.sql.bind.windows import bound_of, window_kind
from penstock.sql.files import READ_FILES, FileRead, read_files_call
from penstock.sql.functions import generator_name, struct_window, translate
from penstock.sql.limits import MAX_BLOCKS
from penstock.sql.names import suggestion
from penstock.sql.query import ParsedQuery
from penstock.sql.trees import bare

_TIME_JOINS = {"__asof": "an ASOF join", "__temporal": "a temporal join", "__probe": "a probe join"}
_FILES = "files"
"""Marks a table that stands for the rows of files."""
_ABOUT_FILES = frozenset({"input_file_name", "input_file_block_start", "input_file_block_length"})
"""Functions that say which file a row comes from. Rows of objects come from none."""


@dataclass(frozen=True)
class BatchQuery:
    """`spark_sql` uses the objects' own (quoted) names; `objects` are the distinct names of the objects it reads.

    `duckdb_sql` is the same query for DuckDB, if it reads a single object and means the same in Spark and DuckDB; otherwise None, and `unequal` says why.
    """

    spark_sql: str
    objects: tuple[str, ...]
    duckdb_sql: str | None = None
    unequal: str | None = None
    files: tuple[tuple[str, FileRead], ...] = ()
    """The calls of read_files, each with the name that the query has for its rows."""
    expands: tuple[int, ...] = ()
    """The ids of the named queries that are part of it."""
    plan: Query | None = None
    """The plan in place of a text: Spark SQL has no words for the query, and the operators of views answer it."""


def bind_text(query: ParsedQuery, catalog: CatalogView) -> BatchQuery | str:
    """Resolves the tables of a SELECT. Checks its columns if it reads a single object; otherwise Spark does.

    What Spark SQL has no words for is returned.
    """
    try:
        return with_room(lambda: _bind_text(query, catalog))
    except Unwritable as part:
        return str(part)


def _bind_text(query: ParsedQuery, catalog: CatalogView) -> BatchQuery:
    ctx = Context(query, catalog)
    tree = expanded(ctx, inlined(ctx, query.ast).copy())
    empty = next((s for s in tree.find_all(exp.Select) if not s.expressions), None)
    if empty is not None:
        raise ctx.fail("PSK-1001", "SELECT has no columns", empty)
    _check_writable(tree, catalog)
    oncewindows.write_out(ctx, tree)
    _refuse(ctx, tree)
    _check_size(ctx, tree)
    refuse_arrays(ctx, tree)
    for clause in tree.find_all(exp.With):
        check_with(ctx, clause)
    for star in tree.find_all(exp.Star):
        refuse_star(ctx, star)
    for join in tree.find_all(exp.Join):
        refuse_join(ctx, join)
    for order in tree.find_all(exp.Order):
        if is_all(order) and isinstance(order.parent, exp.Query):
            order.expressions[0].set("this", exp.Var(this="ALL"))
    named.write_out(ctx, tree)
    _any_and_all(tree)
    ordered.write_out(ctx, tree)
    chosen.write_out(ctx, tree)
    firstrows.write_out(ctx, tree)
    membership.write_out(ctx, tree)
    files = _files(ctx, tree)
    objects: dict[str, ObjectInfo] = {}
    for table in list(tree.find_all(exp.Table)):
        if isinstance(table.this, exp.Identifier) and not table.meta.get(_FILES) and not is_cte(table):
            info = _resolve(ctx, table)
            objects.setdefault(info.name, info)
            alias = table.args.get("alias")
            if alias is None:
                table.set("alias", exp.TableAlias(this=exp.Identifier(this=table.name, quoted=True)))
            table.set("this", exp.Identifier(this=info.name, quoted=True))
    single = next(iter(objects.values())) if len(objects) == 1 else None
    if single is not None and isinstance(tree, exp.Select):
        _check_columns(ctx, tree, single)
        present(tree, single)
    _check_maps(tree, objects.values())
    _check_placeholders(ctx, tree)
    tree = tree.transform(translate)
    if isinstance(tree, exp.Select):
        _name_outputs(tree, query.ast)
    try:
        text = tree.sql(dialect=DIALECT, unsupported_level=ErrorLevel.IMMEDIATE)
    except UnsupportedError as error:
        raise ctx.fail(
            "PSK-1012", f"this query cannot be written in Spark SQL ({str(error).splitlines()[0]})"
        ) from None
    try:
        if single is None or len(list(tree.find_all(exp.Table))) > 1:
            raise Unequal("it does not read one object")
        return BatchQuery(text, tuple(objects), duckdb_text(tree, single), expands=tuple(ctx.expanded))
    except Unequal as why:
        return BatchQuery(text, tuple(objects), None, str(why), files, tuple(ctx.expanded))


def _files(ctx: Context, tree: exp.Expression) -> tuple[tuple[str, FileRead], ...]:
    """Gives the rows of each read_files(…) in FROM a name."""
    out: list[tuple[str, FileRead]] = []
    for table in list(tree.find_all(exp.Table)):
        call = table.this
        if isinstance(call, exp.Anonymous) and call.name.lower() == READ_FILES:
            name = f"__files_{len(out)}"
            out.append((name, read_files_call(ctx.script, call)))
            if table.args.get("alias") is None:
                table.set("alias", exp.TableAlias(this=exp.Identifier(this=READ_FILES, quoted=True)))
            table.set("this", exp.Identifier(this=name, quoted=True))
            table.meta[_FILES] = True
    about = next((n for n in tree.find_all(exp.Anonymous) if n.name.lower() in _ABOUT_FILES), None)
    if out and about is not None:
        hint = "Read one file at a time, and write its name as a column."
        raise ctx.fail("PSK-1012", f"{about.name}() does not know the files of {READ_FILES}", about, hint=hint)
    return tuple(out)


def _check_writable(tree: exp.Expression, catalog: CatalogView) -> None:
    if over_several(tree, catalog):
        raise Unwritable("correlation over several levels")
    for node in tree.walk():
        if isinstance(node, exp.Anonymous) and node.name.lower() in _TIME_JOINS:
            raise Unwritable(_TIME_JOINS[node.name.lower()])
        if isinstance(node, exp.WindowSpec) and node.args.get("exclude"):
            raise Unwritable("EXCLUDE")
        if isinstance(node, exp.WindowSpec) and node.text("kind").upper() == "GROUPS":
            raise Unwritable("a GROUPS frame")
        if isinstance(node, (exp.Any, exp.All)) and _quantified(node) and _membership(node) is None:
            raise Unwritable("a comparison with ANY or ALL")


def _quantified(node: exp.Expr) -> bool:
    return isinstance(node.parent, exp.Binary) and isinstance(bare(node.this), exp.Query)


def _membership(node: exp.Expr) -> exp.Expression | None:
    """`= ANY (select)` as IN, `<> ALL (select)` as NOT IN."""
    parent = node.parent
    made = exp.In(this=parent.this, query=exp.Subquery(this=bare(node.this))) if parent is not None else None
    if isinstance(node, exp.Any) and isinstance(parent, exp.EQ):
        return made
    return exp.Not(this=made) if isinstance(node, exp.All) and isinstance(parent, exp.NEQ) else None


def _refuse(ctx: Context, tree: exp.Expression) -> None:
    for cte in tree.find_all(exp.CTE):
        if isinstance(cte.this, exp.Union) and cte.this.args.get("distinct") and reads(cte.this, cte.alias):
            raise ctx.fail(
                "PSK-1012",
                f"the recursive query {cte.alias} uses UNION, which only continuous queries support",
                cte.this,
                hint="Put it into CREATE MATERIALIZED VIEW and select from that; or bound it and write UNION ALL.",
            )
    for call in tree.find_all(exp.Count):
        refuse_count(ctx, call)
    for node in tree.find_all(exp.Anonymous):
        if window_kind(node) or bound_of(node):
            raise ctx.fail(
                "PSK-1012",
                "a window belongs into GROUP BY or FROM",
                node,
                hint="Write GROUP BY TUMBLE(ts, INTERVAL …), and select window_start and window_end.",
            )


def _check_size(ctx: Context, tree: exp.Expression) -> None:
    """Raises PSK-1020 if the query has too many SELECT blocks once CTEs are inlined, as Spark does."""
    sizes: dict[str, int] = {}
    for cte in tree.find_all(exp.CTE, bfs=False):
        size = sum(1 for _ in cte.this.find_all(exp.Select))
        size += sum(sizes.get(t.name.lower(), 0) for t in cte.this.find_all(exp.Table))
        if size > MAX_BLOCKS:
            raise ctx.fail("PSK-1020", f"the query reads more than {MAX_BLOCKS} SELECT blocks", cte.args.get("alias"))
        sizes[cte.alias.lower()] = size


def _any_and_all(tree: exp.Expression) -> None:
    """Spark has no ANY or ALL over a query."""
    for node in list(tree.find_all(exp.Any, exp.All)):
        made = _membership(node) if _quantified(node) else None
        if made is not None and node.parent is not None:
            node.parent.replace(made)


def _check_maps(tree: exp.Expression, objects: Iterable[ObjectInfo]) -> None:
    """Spark 4.3 makes 0 of a NULL in a MAP that it groups by, where its code is generated; the operators of a view do not."""
    maps = {c.name.lower() for o in objects for c in o.columns if "map<" in c.type}
    for select in tree.find_all(exp.Select) if maps else ():
        if select.args.get("group"):
            keys = [e for e in select.expressions if not has_aggregate(e)] + select.args["group"].expressions
            if any(c.name.lower() in maps for key in keys for c in key.find_all(exp.Column)):
                raise Unwritable("GROUP BY a MAP")


def _check_placeholders(ctx: Context, tree: exp.Expression) -> None:
    hole = tree.find(exp.Placeholder)
    if hole is not None:
        raise ctx.fail("PSK-1018", "a parameter has no value", hole)


def _resolve(ctx: Context, table: exp.Table) -> ObjectInfo:
    if table.args.get("db"):
        raise qualified(ctx, table)
    info = ctx.catalog.get(table.name)
    if info is None:
        raise ctx.fail(
            "PSK-1002", f"{table.name} is not found", table, hint=suggestion(table.name, ctx.catalog.names())
        )
    if info.kind in (Kind.SINK, Kind.FUNCTION):
        raise ctx.fail("PSK-1008", f"{info.name} is a {info.kind.value} and cannot be read", table)
    return info


def _check_columns(ctx: Context, select: exp.Select, info: ObjectInfo) -> None:
    """Checks columns if FROM is the object itself: then every name is one of its columns or an alias."""
    source = select.args.get("from_")
    if (
        source is None
        or not isinstance(source.this, exp.Table)
        or select.args.get("joins")
        or select.args.get("laterals")
    ):
        return
    if (
        select.args.get("with_")
        or not isinstance(source.this.this, exp.Identifier)
        or source.this.args["alias"].columns
    ):
        return
    if source.this.args.get("pivots"):
        return
    alias = source.this.alias.lower()
    known = {c.name.lower() for c in info.columns}
    made = {e.alias.lower() for e in select.expressions if isinstance(e, exp.Alias)}
    # Spark has a column of this name where a query has the window.
    known |= {name for part in select.find_all(exp.Anonymous) if (name := struct_window(part)) is not None}
    hidden = "__weight"
    for key, value in select.args.items():
        for part in value if isinstance(value, list) else [value]:
            if key == "from_" or not isinstance(part, exp.Expression):
                continue
            for node in walk_block(part):
                if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                    continue
                names = [p.name.lower() for p in node.parts]
                own = names[1:] if len(names) > 1 and names[0] == alias else names
                if own[0] in known or own[0] == hidden or (len(names) == 1 and own[0] in made and key != "where"):
                    continue
                at = node.parts[len(names) - len(own)]
                if len(names) == 1 and own[0] in made:
                    raise ctx.fail("PSK-1004", f"unknown column {at.name}", at, hint=alias_hint(at.name))
                raise ctx.fail(
                    "PSK-1004",
                    f"unknown column {at.name}",
                    at,
                    hint=suggestion(at.name, [c.name for c in info.columns]),
                )


def _name_outputs(tree: exp.Select, original: exp.Expression) -> None:
    """Gives every output the name it had before the query was rewritten."""
    if len(tree.expressions) != len(original.expressions):
        return  # A star with exceptions replaces all outputs, which have their names.
    items = []
    for item, written in zip(tree.expressions, original.expressions, strict=True):
        plain = isinstance(item, (exp.Alias, exp.Aliases, exp.Column, exp.Star, exp.Dot, exp.UDTF))
        items.append(
            item if plain or generator_name(item) is not None else exp.alias_(item, output_name(written), quoted=True)
        )
    tree.set("expressions", items)
