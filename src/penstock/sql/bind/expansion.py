"""Named queries (CREATE VIEW), which are expanded where they are used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError
from penstock.sql.bind.context import Context
from penstock.sql.bind.ctes import cte_of, is_cte, is_object, own_object
from penstock.sql.bind.inlining import inlined
from penstock.sql.bind.presentation import present
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateNamedQuery

_CTE = "__view_"
"""The names of the CTEs that views become in a one-shot query."""
_NESTED = "__cte_"


@lru_cache(maxsize=256)
def _parsed(sql: str, programs: bool) -> ParsedQuery:
    (statement,) = parse_script(sql, connectors="keep", programs=programs)
    assert isinstance(statement, CreateNamedQuery)
    return statement.query


def expansion(ctx: Context, info: ObjectInfo, at: exp.Expression) -> exp.Expression:
    """The query of a view, for use at a place of another one: a copy whose errors point at that place.

    Its order of presentation is left out: within a query it means nothing.
    """
    ctx.expanded[info.id] = info
    query = _parsed(info.sql, ctx.script.reading.programs)
    tree = inlined(ctx, query.ast).copy()
    for node in list(tree.walk()):
        if isinstance(node, exp.Anonymous) and node.name == "__probe":
            number = node.expressions[0]
            number.set("this", str(int(number.name) + len(ctx.probes)))
    ctx.probes += query.probes
    place = next((n.meta for n in at.walk() if "start" in n.meta), {})
    for node in tree.walk():
        node.meta.pop("start", None)
        node.meta.pop("end", None)
        if "start" in place and isinstance(node, (exp.Identifier, exp.Func)):
            node.meta.update(start=place["start"], end=place["end"])
    top = tree
    while isinstance(top, exp.Subquery) and not any(top.args.get(k) for k in ("order", "limit", "offset")):
        top = top.this
    if top.args.get("order") and not top.args.get("limit") and not top.args.get("offset"):
        top.set("order", None)
    return tree


@contextmanager
def expanding(ctx: Context, info: ObjectInfo, at: exp.Expression) -> Iterator[None]:
    """An error in the view names it, and has a position in the statement that uses it."""
    try:
        yield
    except PenstockError as error:
        error.detail = f"in view {info.name}: {error.detail}"
        error.position = ctx.position(at) or error.position
        raise


def expanded(ctx: Context, tree: exp.Expression) -> exp.Expression:
    """A one-shot query whose views are CTEs of its own, before those that it has: a view does not see those."""
    taken = next((c for c in tree.find_all(exp.CTE) if c.alias.lower().startswith((_CTE, _NESTED))), None)
    if taken is not None:
        raise ctx.fail("PSK-1015", f"the name {taken.alias} is reserved", taken.args["alias"])
    made: dict[int, exp.CTE] = {}
    _expand(ctx, tree, made)
    if made:
        clause = tree.args.get("with_") or exp.With(expressions=[])
        clause.set("expressions", [*made.values(), *clause.expressions])
        tree.set("with_", clause)
    _separate(tree)
    return tree


def _expand(ctx: Context, tree: exp.Expression, made: dict[int, exp.CTE]) -> None:
    """Lets the tables of a query name the CTEs of views, and adds those to `made`, each after the ones that it reads."""
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or table.args.get("db") or is_cte(table):
            continue
        info = ctx.catalog.get(table.name)
        if info is None or info.kind is not Kind.NAMED_QUERY:
            continue
        name = f"{_CTE}{info.name}"
        if info.id not in made:
            with expanding(ctx, info, table):
                inner = expansion(ctx, info, table)
                _expand(ctx, inner, made)
            for own in inner.find_all(exp.Table):
                if not is_cte(own) and not own.name.startswith(_CTE):
                    own_object(own)
            columns = [exp.Identifier(this=c.name, quoted=True) for c in info.columns]
            alias = exp.TableAlias(this=exp.Identifier(this=name, quoted=True), columns=columns)
            made[info.id] = exp.CTE(this=inner, alias=alias)
        if table.args.get("alias") is None:
            table.set("alias", exp.TableAlias(this=exp.Identifier(this=table.name, quoted=True)))
        table.set("this", exp.Identifier(this=name, quoted=True))
        if isinstance(tree, exp.Select) and isinstance(table.parent, exp.From) and table.parent.parent is tree:
            present(tree, info)


def _in_view(table: exp.Table) -> bool:
    cte = table.find_ancestor(exp.CTE)
    while cte is not None and not cte.alias.startswith(_CTE):
        cte = cte.find_ancestor(exp.CTE)
    return cte is not None


def _separate(tree: exp.Expression) -> None:
    """Gives nested CTEs names of their own: the SQL library moves all of them to the top, where they would hide objects and each other.

    So do CTEs that would hide an object which a function reads. Those of views are before them.
    """
    top = tree.args.get("with_")
    hidden = {t.name.lower() for t in tree.find_all(exp.Table) if is_object(t) and not _in_view(t)}
    ctes = enumerate(tree.find_all(exp.CTE))
    nested = {id(c): i for i, c in ctes if c.parent is not top or c.alias.lower() in hidden}
    read = [(t, c) for t in tree.find_all(exp.Table) if (c := cte_of(t)) is not None and id(c) in nested]
    for table, cte in read:
        if table.args.get("alias") is None:
            table.set("alias", exp.TableAlias(this=exp.Identifier(this=table.name, quoted=True)))
        table.set("this", exp.Identifier(this=f"{_NESTED}{nested[id(cte)]}_{cte.alias}", quoted=True))
    for cte in tree.find_all(exp.CTE):
        if id(cte) in nested:
            name = f"{_NESTED}{nested[id(cte)]}_{cte.alias}"
            cte.args["alias"].set("this", exp.Identifier(this=name, quoted=True))
