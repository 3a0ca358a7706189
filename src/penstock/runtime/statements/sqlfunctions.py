"""CREATE FUNCTION. A function is a record of the catalogue; calls are replaced by its body where they are used."""

from __future__ import annotations

from sqlglot import exp

from penstock.catalog.declared import without_lengths
from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import fail
from penstock.plan.dialect import DIALECT
from penstock.runtime.engine import Engine
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import replaced
from penstock.runtime.statements.faithful import check_expressions
from penstock.sql import statements as st
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.inlining import RETURNS, Inlining, substituted
from penstock.sql.functions import generator_name


def create_function(engine: Engine, s: st.CreateFunction) -> None:
    """Spark checks the body over columns that have the names and types of the parameters."""
    with engine.ddl:
        gone = replaced(engine, s.name, s.or_replace, s.if_not_exists)
        if gone is None:
            return
        if engine.compute.batch.has_function(s.name):
            raise fail("PSK-1003", f"{s.name} is a function of Spark, or one in Python.", hint="Choose another name.")
        if any(a.name.lower() == s.name.lower() for a in s.body.find_all(exp.Anonymous)):
            raise fail("PSK-1017", f"{s.name} would call itself.", hint="WITH RECURSIVE repeats a step.")
        if (
            has_aggregate(s.body)
            or s.body.find(exp.Window)
            or any(generator_name(n) for n in s.body.find_all(exp.Expression))
        ):
            raise fail("PSK-1012", "A function is computed for one row: it has no aggregate, OVER or generator.")
        check_expressions(engine, s, s.body)
        inlining = Inlining(engine.catalog, None, programs=engine.settings.security.allow_programs)
        body = inlining.tree(s.body)
        names = {c.name.lower(): exp.column(c.name, quoted=True) for c in s.parameters}
        text = substituted(body.copy(), s.name, dict(names)).sql(dialect=DIALECT)
        (found,) = engine.compute.batch.schema(f"SELECT {text} AS r FROM __parameters", {"__parameters": s.parameters})
        if s.returns is not None:
            result = f"SELECT CAST(({text}) AS {without_lengths(s.returns)}) AS r FROM __parameters"
            engine.compute.batch.schema(result, {"__parameters": s.parameters})
        engine.compute.batch.defaults(s.parameters)
        info = ObjectInfo(
            id=engine.catalog.new_id(),
            name=s.name,
            kind=Kind.FUNCTION,
            columns=s.parameters,
            sql=s.text,
            options={RETURNS: s.returns or found.type},
            expands=tuple(inlining.used),
            comment=s.comment,
        )
        with drafting(engine, gone) as draft:
            draft.attach(info)
