"""SELECT: on the view store where DuckDB and Spark agree on its meaning, on Spark otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.runtime.statements.constants import Bound
from penstock.runtime.statements.copying import file_rows
from penstock.runtime.statements.engines import for_duckdb, spark_as_known
from penstock.runtime.statements.faithful import check_query
from penstock.runtime.statements.points import NotPoint, PointSelect, matched, point_select
from penstock.runtime.statements.prepared import Bindings, Prepared
from penstock.runtime.statements.readable import check_readable
from penstock.runtime.statements.rules import keeper
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.visible import rows_of_key, visible, written
from penstock.sql import statements as st
from penstock.sql.bind import BatchQuery, bind_batch
from penstock.sql.located import located
from penstock.sql.query import ParsedQuery


def select(session: Session, query: ParsedQuery, prepared: Prepared | None = None, *, mapped: bool = False) -> pa.Table:
    """The rows of a one-shot query. It sees each object as of one whole epoch, plus the writes of an open transaction.

    `WITH (stale = true)` reads the current contents, even of queries that have failed or are stopped. `prepared` is the statement that the
    query comes from: it gets the bindings, for later runs. A `mapped` result may be larger than the memory limit.
    """
    engine = session.engine
    kept = prepared.bindings if prepared is not None and not prepared.places else None
    batch = kept.batch if kept is not None and kept.hold(engine.catalog) else bind_batch(query, engine.catalog)
    known = [i for i in (engine.catalog.get(n) for n in batch.objects) if i is not None]
    check_readable(engine, known, stale=_stale(query))
    if session.variables is not None:
        return _select_ruled(session, query, batch, known)
    if _is_stored(session, known):
        rows = (
            _select_point(session, point, {}) if (point := _point(session, query, batch, known)) is not None else None
        )
        if rows is None and (text := for_duckdb(engine.settings, batch)) is not None:
            rows = _typed(engine.store.query(text, {i.name: i.id for i in known}, mapped=mapped))
        if rows is not None:
            if prepared is not None and isinstance(prepared.statement, st.Select):
                prepared.bindings = Bindings(
                    tuple(known), batch, _point(session, prepared.statement.query, batch, known)
                )
            return rows
    check_query(engine, query)
    with located(query):
        files = {name: file_rows(engine, read) for name, read in batch.files}
        return engine.compute.batch.select(batch.spark_sql, visible(session, known) | files, batch.plan)


def _select_ruled(session: Session, query: ParsedQuery, batch: BatchQuery, known: Sequence[ObjectInfo]) -> pa.Table:
    """The result over the rows that the session sees; nothing else is ever read by the query."""
    engine = session.engine
    if batch.files:
        raise fail("PSK-0012", "A session with variables cannot read files.", position=batch.files[0][1].position)
    keep = {i.name: keeper(engine, i, session.variables) for i in known}
    tables = {name: t if (k := keep[name]) is None else k(t) for name, t in visible(session, known).items()}
    if (text := for_duckdb(engine.settings, batch)) is not None:
        return _typed(engine.store.over(text, tables))
    check_query(engine, query)
    with located(query):
        return engine.compute.batch.select(batch.spark_sql, tables, batch.plan)


def answered_by(session: Session, query: ParsedQuery) -> str:
    """Which engine answers a one-shot query, for EXPLAIN."""
    try:
        batch = bind_batch(query, session.engine.catalog)
    except PenstockError as error:
        return f"SELECT: refused, because {error.detail}"
    known = [i for i in (session.engine.catalog.get(n) for n in batch.objects) if i is not None]
    if batch.files:
        return f"SELECT: answered by Spark, because it reads the files {', '.join(r.path for _, r in batch.files)}"
    if batch.plan is not None:
        return f"SELECT: answered by Spark with the operators of a view, because {batch.unequal}"
    if batch.duckdb_sql is None:
        point = _point(session, query, batch, known) if _is_stored(session, known) else None
        if point is not None and matched(point.info, point.alias, point.where, {}) is not None:
            return "SELECT: answered by key, from the view store"
        return f"SELECT: answered by Spark, because {batch.unequal}"
    if for_duckdb(session.engine.settings, batch) is None:
        return "SELECT: answered by Spark, because its settings may change the meaning"
    if not _is_stored(session, known):
        return "SELECT: answered by Spark, because the view store does not have the rows"
    return "SELECT: answered by DuckDB, from the view store"


def _point(session: Session, query: ParsedQuery, batch: BatchQuery, known: Sequence[ObjectInfo]) -> PointSelect | None:
    """The query as a read of one key, which needs no engine; None if it is more."""
    if len(known) != 1 or batch.files or batch.plan is not None or not spark_as_known(session.engine.settings):
        return None
    found = point_select(query, known[0])
    if found is None:
        return None
    # The rows of a named query are not those of the object that it reads.
    named = session.engine.catalog.get(query.ast.args["from_"].name)
    return found if named is not None and named.id == known[0].id else None


def _is_stored(session: Session, known: list[ObjectInfo]) -> bool:
    return all(i.has_contents and not i.on_demand for i in known) and not any(written(session, i) for i in known)


def select_prepared(session: Session, prepared: Prepared, bound: Bound) -> pa.Table:
    """The rows of a prepared SELECT. Raises NotPoint if its parameters must be written into its text."""
    kept = prepared.bindings
    if kept is not None and kept.point is not None and kept.hold(session.engine.catalog):
        rows = _select_point(session, kept.point, bound) if spark_as_known(session.engine.settings) else None
        if rows is not None:
            return rows
    if prepared.places:
        raise NotPoint
    assert isinstance(prepared.statement, st.Select)
    return select(session, prepared.statement.query, prepared)


def _select_point(session: Session, point: PointSelect, bound: Bound) -> pa.Table | None:
    """The result; None if the values are not those of one key, or the open transaction has written to the object."""
    match = matched(point.info, point.alias, point.where, bound)
    if match is None or written(session, point.info):
        return None
    check_readable(session.engine, [point.info])
    rows = rows_of_key(session, point.info, match)
    return pa.Table.from_arrays([rows.column(i) for i in point.columns], schema=point.schema)


def _stale(query: ParsedQuery) -> bool:
    text = query.options.get("stale", "false").lower()
    if text not in ("true", "false"):
        raise fail("PSK-1011", f"stale = '{text}' is neither true nor false.")
    return text == "true"


def _typed(table: pa.Table) -> pa.Table:
    """DuckDB widens some types (sums to HUGEINT); this restores the types that Spark would return."""
    fields = []
    for f in table.schema:
        kind = f.type
        if pa.types.is_decimal(kind) and kind.precision == 38 and kind.scale == 0:
            kind = pa.int64()
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", tz="UTC" if kind.tz else None)
        fields.append(pa.field(f.name, kind))
    return table.cast(pa.schema(fields))
