"""SELECT: on the view store where DuckDB and Spark mean the same, on Spark otherwise."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import fail
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.visible import visible, written
from penstock.sql.bind import bind_batch
from penstock.sql.located import located
from penstock.sql.query import ParsedQuery


def select(session: Session, query: ParsedQuery) -> pa.Table:
    """The rows of a one-shot query; each object as of one whole epoch, and with what an open transaction has written.

    `WITH (stale = true)` reads what is there, also of queries that have failed or are stopped.
    """
    engine = session.engine
    batch = bind_batch(query, engine.catalog)
    known = [i for i in (engine.catalog.get(n) for n in batch.objects) if i is not None]
    engine.check_readable(known, stale=_stale(query))
    stored = all(i.has_contents and not i.on_demand for i in known) and not any(written(session, i) for i in known)
    if batch.duckdb_sql is not None and stored:
        return _typed(engine.store.query(batch.duckdb_sql, {i.name: i.id for i in known}))
    with located(query):
        return engine.compute.batch.select(batch.spark_sql, visible(session, known))


def _stale(query: ParsedQuery) -> bool:
    text = query.options.get("stale", "false").lower()
    if text not in ("true", "false"):
        raise fail("PSK-1011", f"stale = '{text}' is neither true nor false.")
    return text == "true"


def _typed(table: pa.Table) -> pa.Table:
    """DuckDB widens some types (sums to HUGEINT); the result has the types that Spark would give where they differ."""
    fields = []
    for f in table.schema:
        kind = f.type
        if pa.types.is_decimal(kind) and kind.precision == 38 and kind.scale == 0:
            kind = pa.int64()
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", tz="UTC" if kind.tz else None)
        fields.append(pa.field(f.name, kind))
    return table.cast(pa.schema(fields))
