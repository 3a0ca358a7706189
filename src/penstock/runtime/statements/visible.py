"""The rows that a statement sees: committed ones, and earlier writes of its own open transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.objects import ObjectInfo
from penstock.catalog.types import schema_of, to_arrow
from penstock.runtime.engine import Engine
from penstock.runtime.statements.points import Match
from penstock.runtime.statements.session import Session
from penstock.runtime.storage.contents import contents
from penstock.serve.zset import assertions, consolidate, weighted


def written(session: Session, info: ObjectInfo) -> bool:
    """True if the open transaction has written to the object."""
    return any(i.id == info.id for i, _, _ in session.pending or ())


def visible(session: Session, objects: Iterable[ObjectInfo]) -> dict[str, pa.Table]:
    """The rows of each object by name. Views show committed rows only, because their queries see nothing else."""
    known = list(objects)
    changes = (
        session.writer.preview(session.pending) if session.pending and any(written(session, i) for i in known) else {}
    )
    return {i.name: _overlaid(rows_of(session.engine, i), changes.get(i.id)) for i in known}


def rows_of(engine: Engine, info: ObjectInfo) -> pa.Table:
    """The rows of an object; for an on-demand lookup table the current rows of its source."""
    return engine.lookups[info.id].read_all() if info.on_demand else contents(engine.storage, info)


def _overlaid(rows: pa.Table, change: pa.Table | None) -> pa.Table:
    """The rows after a change that is not committed yet."""
    if change is None or not change.num_rows:
        return rows
    have = weighted(rows)
    return assertions(consolidate(pa.concat_tables([have, change.cast(have.schema)]))).cast(rows.schema)


def rows_of_key(session: Session, info: ObjectInfo, match: Match) -> pa.Table:
    """The rows that match, as the statement sees them: with the writes of its own open transaction."""
    storage = session.engine.storage
    storage.check_sound(info)
    if match.never:
        return schema_of(info.columns).empty_table()
    fields = [pa.field(n, to_arrow(c.type)) for n in info.key if (c := info.column(n)) is not None]
    keys = pa.table([pa.array([match.key[f.name]], f.type) for f in fields], schema=pa.schema(fields))
    rows = storage.store.lookup(info.id, keys)
    if session.pending and written(session, info):
        change = session.writer.preview(session.pending)[info.id]
        rows = _overlaid(rows, _only(change, match.key))
    return _only(rows, match.others)


def _only(table: pa.Table, wanted: Mapping[str, Any]) -> pa.Table:
    for name, value in wanted.items():
        column = table.column(name)
        table = table.filter(pc.equal(column, pa.scalar(value, column.type)))
    return table
