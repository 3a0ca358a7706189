"""CREATE VIEW that is not materialized: a named query, expanded where it is used."""

from __future__ import annotations

from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.catalog.store import Catalog
from penstock.catalog.types import to_arrow
from penstock.errors import PenstockError, fail
from penstock.plan.nodes import SortTerm
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.limits import UNLIMITED
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import replaced
from penstock.runtime.statements.faithful import check_query
from penstock.sql import statements as st
from penstock.sql.bind import bind, bind_batch
from penstock.sql.bind.batch import BatchQuery
from penstock.sql.located import located
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script


def create_named_query(engine: Engine, s: st.CreateNamedQuery) -> None:
    """The query must be valid as a continuous or as a one-shot query; Spark tells the types of its columns."""
    with engine.ddl:
        gone = replaced(engine, s.name, s.or_replace, s.if_not_exists)
        if gone is None:
            return
        columns, order, named = _described(engine, s)
        check_query(engine, s.query)
        for c in columns:
            to_arrow(c.type)
        if any(o.id in named for o in gone):
            raise fail("PSK-1017", f"{s.name} would read itself.", hint="Give the new view another name.")
        info = ObjectInfo(
            id=engine.catalog.new_id(),
            name=s.name,
            kind=Kind.NAMED_QUERY,
            columns=columns,
            sql=s.text,
            expands=named,
            order=order,
        )
        with drafting(engine, gone) as draft:
            draft.attach(info)


def _described(
    engine: Engine, s: st.CreateNamedQuery
) -> tuple[tuple[Column, ...], tuple[SortTerm, ...], tuple[int, ...]]:
    """The columns and the order of the view, and the ids of all objects that it names."""
    try:
        query = bind(s.query, engine.catalog)
        with located(s.query):
            compiled, _ = engine.jobs.planner.compile(None, "view", query, engine.catalog.by_id, UNLIMITED, "")
        read = tuple(i for i in compiled.objects if engine.catalog.has_id(i))
        return compiled.outputs[0].columns, query.order, (*read, *query.expands)
    except PenstockError as error:
        # Some queries can only be run once: those with an unbounded join of sources, for example.
        try:
            columns, batch = _once(engine, s)
        except PenstockError:
            raise error from None
        return columns, (), (*_read(engine, batch), *batch.expands)


def _once(engine: Engine, s: st.CreateNamedQuery) -> tuple[tuple[Column, ...], BatchQuery]:
    batch = bind_batch(s.query, engine.catalog)
    if batch.files:
        raise fail("PSK-1012", "A view cannot read files.")
    infos = [i for i in (engine.catalog.get(n) for n in batch.objects) if i is not None]
    with located(s.query):
        columns = engine.compute.batch.schema(batch.spark_sql, {i.name: i.columns for i in infos}, batch.plan)
    names = [i.name for i in s.query.columns] or [c.name for c in columns]
    unordered = not any(s.query.presents(n) and n.args.get("order") for n in s.query.ast.walk())
    if len(names) != len(columns) or len({n.lower() for n in names}) < len(names) or not unordered:
        raise fail("PSK-1012", "This view can only be read once.")
    return tuple(Column(n, c.type) for n, c in zip(names, columns, strict=True)), batch


def _read(engine: Engine, batch: BatchQuery) -> list[int]:
    return [i.id for i in (engine.catalog.get(n) for n in batch.objects) if i is not None]


def check_named_queries(engine: Engine, grown: ObjectInfo, imagined: Catalog) -> None:
    """Raises PSK-1009 if an added column would change the columns of a view that reads the object."""
    for info in engine.catalog.objects(Kind.NAMED_QUERY):
        if grown.id in info.expands and not _keeps_columns(engine, info, imagined):
            raise fail(
                "PSK-1009",
                f"{info.name} selects all columns of {grown.name}.",
                hint="Name the columns there, or drop it first.",
            )


def _keeps_columns(engine: Engine, info: ObjectInfo, imagined: Catalog) -> bool:
    (s,) = parse_script(info.sql, connectors="keep", programs=engine.settings.security.allow_programs)
    assert isinstance(s, st.CreateNamedQuery)
    try:
        return bind(s.query, imagined).names == tuple(c.name for c in info.columns)
    except PenstockError:
        batch = bind_batch(s.query, imagined)
        tables = {i.name: i.columns for i in (imagined.get(n) for n in batch.objects) if i is not None}
        return len(engine.compute.batch.schema(batch.spark_sql, tables, batch.plan)) == len(info.columns)


def whole(engine: Engine, info: ObjectInfo) -> ParsedQuery:
    """SELECT * FROM the view."""
    (s,) = parse_script(f"SELECT * FROM `{info.name}`", programs=engine.settings.security.allow_programs)
    assert isinstance(s, st.Select)
    return s.query
