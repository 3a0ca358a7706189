"""SELECT: on the view store where DuckDB and Spark mean the same, on Spark otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.objects import Kind
from penstock.runtime.visible import visible, written
from penstock.sql.bind import bind_batch
from penstock.sql.located import located

if TYPE_CHECKING:
    from penstock.runtime.execute import Session
    from penstock.sql.query import ParsedQuery

_STORED = (Kind.TABLE, Kind.LOOKUP, Kind.VIEW)


def select(session: Session, query: ParsedQuery) -> pa.Table:
    """The rows of a one-shot query; each object as of one whole epoch, and with what an open transaction has written."""
    engine = session.engine
    batch = bind_batch(query, engine.catalog)
    known = [i for i in (engine.catalog.get(n) for n in batch.objects) if i is not None]
    stored = all(i.kind in _STORED and not i.on_demand for i in known) and not any(written(session, i) for i in known)
    if batch.duckdb_sql is not None and stored:
        return _typed(engine.store.query(batch.duckdb_sql, {i.name: i.id for i in known}))
    with located(query):
        return engine.batch.select(batch.spark_sql, visible(session, known))


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
