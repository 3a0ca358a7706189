"""What a statement sees: what is committed, and what its own open transaction has written before it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.runtime.engine import Engine
from penstock.runtime.statements.session import Session
from penstock.runtime.storage.contents import contents
from penstock.serve.zset import assertions, consolidate, weighted


def written(session: Session, info: ObjectInfo) -> bool:
    """True if the open transaction has written to the object."""
    return any(i.id == info.id for i, _, _ in session.pending or ())


def visible(session: Session, objects: Iterable[ObjectInfo]) -> dict[str, pa.Table]:
    """The rows of each object by its name. Views show what is committed, as their queries have seen nothing else."""
    known = list(objects)
    changes = (
        session.writer.preview(session.pending) if session.pending and any(written(session, i) for i in known) else {}
    )
    return {i.name: _with(rows_of(session.engine, i), changes.get(i.id)) for i in known}


def rows_of(engine: Engine, info: ObjectInfo) -> pa.Table:
    """The rows of an object; of an on-demand lookup table those that its source has now."""
    return engine.lookups[info.id].read_all() if info.on_demand else contents(engine.storage, info)


def _with(rows: pa.Table, change: pa.Table | None) -> pa.Table:
    if change is None or not change.num_rows:
        return rows
    have = weighted(rows)
    return assertions(consolidate(pa.concat_tables([have, change.cast(have.schema)]))).cast(rows.schema)
