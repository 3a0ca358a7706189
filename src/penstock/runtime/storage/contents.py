"""The current contents of an object, as an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import schema_of, stored_schema
from penstock.errors import fail
from penstock.log import Entry, Log
from penstock.serve.zset import assertions, consolidate

if TYPE_CHECKING:
    from penstock.runtime.storage.storage import Storage


def contents(storage: Storage, info: ObjectInfo, up_to: int | None = None) -> pa.Table:
    """Tables and views: their rows. Sources and streams: the rows that are retained, up to an LSN.

    The retained changes of a changelog add up to its contents only if none are missing; otherwise the read is refused.
    """
    if info.has_contents:
        storage.check_sound(info)
        return storage.store.snapshot(info.id)[0]
    if info.kind in (Kind.SINK, Kind.FUNCTION):
        raise fail("PSK-1008", f"{info.name} is a {info.kind.value} and cannot be read.")
    changes = history(storage.log, info, up_to)
    if not info.changelog:
        return changes
    if not complete(storage.log, info.id):
        raise fail(
            "PSK-5011",
            f"The history of {info.name} is no longer complete, so its contents are unknown.",
            hint=f"CREATE MATERIALIZED VIEW … AS SELECT * FROM {info.name}, and select from that.",
        )
    return assertions(consolidate(changes)).cast(schema_of(info.columns))


def complete(log: Log, object_id: int) -> bool:
    """True if the log still has every entry that the object ever had."""
    return log.reaches_back(object_id, 0)


def history(log: Log, info: ObjectInfo, up_to: int | None = None) -> pa.Table:
    """All retained rows, up to an LSN; columns that were added later are NULL in older rows."""
    schema = stored_schema(info)
    parts = [read_entry(log, e, schema) for e in log.iterate(info.id, up_to=up_to) if e.rows]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def read_entry(log: Log, entry: Entry, schema: pa.Schema) -> pa.Table:
    stored = pa.schema(list(schema)[: entry.column_count]) if entry.column_count else schema
    table = log.read(entry, stored)
    for field in list(schema)[len(stored) :]:
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table
