"""CREATE FUNCTION. A function is a record of the catalogue; calls are replaced by its body where they are used."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from penstock.catalog.declared import without_lengths
from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import fail
from penstock.plan.dialect import DIALECT
from penstock.plan.functions import find_aggregate
from penstock.runtime.engine import Engine
from penstock.runtime.statements.ddl import check_columns
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import replaced
from penstock.runtime.statements.faithful import check_expressions
from penstock.sql import statements as st
from penstock.sql.bind import bind_batch
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.inlining import RETURNS, Inlining, substituted
from penstock.sql.bind.tablefunctions import names, with_table
from penstock.sql.bind.windows import bound_of, window_kind
from penstock.sql.files import READ_FILES
from penstock.sql.functions import OWN, generator_name
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_constant
from penstock.sql.tokens import Script


def create_function(engine: Engine, s: st.CreateFunction) -> None:
    """Spark checks the body: an expression over columns that have the names and types of the parameters, a query with NULLs for these."""
    with engine.ddl:
        gone = replaced(engine, s.name, s.or_replace, s.if_not_exists)
        if gone is None:
            return
        call = exp.Anonymous(this=s.name)
        own = s.name.lower() in OWN | {READ_FILES} or window_kind(call) or bound_of(call) or find_aggregate(s.name)
        if own:
            raise fail("PSK-1003", f"{s.name} is a function of Penstock.", hint="Choose another name.")
        if engine.compute.batch.has_function(s.name):
            raise fail("PSK-1003", f"{s.name} is a function of Spark, or one in Python.", hint="Choose another name.")
        programs = engine.settings.security.allow_programs
        defaults = [(c, parse_constant(c.default, programs=programs)) for c in s.parameters if c.default is not None]
        called = (a for e in (s.body, *(e for _, e in defaults)) for a in e.find_all(exp.Anonymous))
        if any(a.name.lower() == s.name.lower() for a in called):
            raise fail("PSK-1017", f"{s.name} would call itself.", hint="WITH RECURSIVE repeats a step.")
        check_expressions(engine, s, s.body)
        inlining = Inlining(engine.catalog, None, programs=programs)
        options, read = _table(engine, s) if s.table is not None else (_value(engine, s, inlining), ())
        engine.compute.batch.constants([(c, inlining.tree(e)) for c, e in defaults])
        if any(o.id in read for o in gone):
            raise fail("PSK-1017", f"{s.name} would read itself.", hint="Give the new function another name.")
        info = ObjectInfo(
            id=engine.catalog.new_id(),
            name=s.name,
            kind=Kind.FUNCTION,
            columns=s.parameters,
            sql=s.text,
            options=options,
            expands=tuple(dict.fromkeys((*inlining.used, *read))),
            comment=s.comment,
        )
        with drafting(engine, gone) as draft:
            draft.attach(info)


def _value(engine: Engine, s: st.CreateFunction, inlining: Inlining) -> dict[str, str]:
    """The options of a function that returns a value."""
    if (
        has_aggregate(s.body)
        or s.body.find(exp.Window)
        or any(generator_name(n) for n in s.body.find_all(exp.Expression))
    ):
        raise fail(
            "PSK-1012",
            "A function is computed for one row: it has no aggregate, OVER or generator.",
            hint="Write RETURNS TABLE … RETURN SELECT …, and call it in FROM.",
        )
    body = inlining.tree(s.body)
    columns = {c.name.lower(): exp.column(c.name, quoted=True) for c in s.parameters}
    text = substituted(body.copy(), s.name, dict(columns)).sql(dialect=DIALECT)
    (found,) = engine.compute.batch.schema(f"SELECT {text} AS r FROM __parameters", {"__parameters": s.parameters})
    if s.returns is not None:
        result = f"SELECT CAST(({text}) AS {without_lengths(s.returns)}) AS r FROM __parameters"
        engine.compute.batch.schema(result, {"__parameters": s.parameters})
    return {RETURNS: s.returns or found.type}


def _table(engine: Engine, s: st.CreateFunction) -> tuple[dict[str, str], tuple[int, ...]]:
    """The options of a function that returns a table, and the ids of all objects that its query names."""
    assert s.table is not None
    catalog = engine.catalog
    programs = engine.settings.security.allow_programs
    parameters = frozenset(c.name.lower() for c in s.parameters)
    known = names(Inlining(catalog, None, programs=programs).tree(s.body, parameters), catalog)
    for c in s.parameters:
        if c.name.lower() in known.columns | known.relations:
            raise fail(
                "PSK-1014",
                f"{c.name} is a parameter of {s.name} and a name in its query.",
                hint="Give the parameter another name.",
            )
    nulls = {c.name.lower(): _null(c.type) for c in s.parameters}
    tree = substituted(s.body.copy(), s.name, nulls)
    assert isinstance(tree, exp.Expression)
    batch = bind_batch(ParsedQuery(Script(s.text), tree, s.text, 0), catalog)
    if batch.files:
        raise fail("PSK-1012", "A function cannot read files.")
    infos = [i for i in (catalog.get(n) for n in batch.objects) if i is not None]
    found = engine.compute.batch.schema(batch.spark_sql, {i.name: i.columns for i in infos}, batch.plan)
    columns = s.table or found
    if len(columns) != len(found):
        raise fail("PSK-1016", f"{s.name} returns {len(columns)} columns, and its query has {len(found)}.")
    check_columns(engine, columns)
    return {RETURNS: "table"} | with_table(columns, found), (*(i.id for i in infos), *batch.expands)


def _null(kind: str) -> exp.Expr:
    return exp.Paren(this=sqlglot.parse_one(f"CAST(NULL AS {without_lengths(kind)})", dialect=DIALECT))
