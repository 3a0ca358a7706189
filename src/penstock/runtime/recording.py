"""How an epoch becomes part of the database: into the log, the view store and the hub, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import schema_of
from penstock.log import Part
from penstock.runtime.ondemand import OnDemand
from penstock.runtime.probes import key_columns
from penstock.runtime.writes import publish_changes
from penstock.serve.zset import canonical, consolidate
from penstock.spark.bridge import Epoch
from penstock.spark.compile import Output

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine


class Recorder:
    """Makes the function that records a job's epochs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(
        self,
        objects: Sequence[ObjectInfo],
        outputs: Sequence[Output],
        base: int = 0,
        asks: OnDemand | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Callable[[Epoch], None]:
        """Records epochs into `objects`, one per output. `base` is added to Spark's number of an epoch, so that the
        numbers of an object go on rising when its rows come from another job than before. The rows that the epoch `asks` an
        on-demand lookup table for are recorded with it.
        """
        schemas = [_stored(o) for o in objects]

        def record(epoch: Epoch) -> None:
            log = self._engine.log
            number = base + epoch.number
            if number <= max(log.job_epoch(o.id) for o in objects):
                return  # A replay of an epoch that was recorded before a crash.
            tables = [
                _ordered(pa.Table.from_batches(b, s), o)
                for b, s, o in zip(epoch.batches, schemas, outputs, strict=True)
            ]
            parts = [
                Part(
                    object_id=info.id,
                    batches=tuple(t.to_batches()) if t.num_rows else (),
                    watermark=epoch.watermark,
                    job_epoch=number,
                    schema_version=len(t.schema),
                )
                for info, t in zip(objects, tables, strict=True)
                if t.num_rows or epoch.watermark is not None
            ]
            if not parts:
                return

            def commit(found: pa.Table | None = None) -> None:
                if asks is None or found is None:
                    lsn = log.append(parts).lsn
                else:
                    lsn = log.append([_part(asks.info, found), *parts]).lsn
                    publish_changes(self._engine, {asks.info.id: found}, lsn)
                self._publish(objects, tables, lsn, epoch.watermark)

            if asks is None or not tables[0].num_rows:
                commit()
            else:
                asks.answer(_asking(tables[0], asks.info), stopping, commit)

        return record

    def _publish(
        self, objects: Sequence[ObjectInfo], tables: Sequence[pa.Table], lsn: int, watermark: int | None
    ) -> None:
        engine = self._engine
        for info, table in zip(objects, tables, strict=True):
            if not table.num_rows and watermark is None:
                continue
            entry = engine.log.last_entry(info.id)
            assert entry is not None
            if info.kind is Kind.VIEW:
                engine.store.apply(info.id, table, epoch=entry.epoch, lsn=lsn)
            engine.hub.publish(info.id, entry.epoch, lsn, table if table.num_rows else None, watermark)


def _part(info: ObjectInfo, delta: pa.Table) -> Part:
    return Part(object_id=info.id, batches=tuple(delta.to_batches()), schema_version=len(delta.schema))


def _asking(rows: pa.Table, lookup: ObjectInfo) -> pa.Table:
    """The keys that rows of a probe ask for; one that is retracted asks nothing."""
    if "__weight" in rows.column_names:
        rows = rows.filter(pc.greater(rows.column("__weight"), 0))
    return rows.select(key_columns(lookup)).rename_columns(list(lookup.key))


def _stored(info: ObjectInfo) -> pa.Schema:
    schema = schema_of(info.columns)
    return schema.append(pa.field("__weight", pa.int64())) if info.changelog else schema


def _ordered(table: pa.Table, output: Output) -> pa.Table:
    """One epoch of a changelog: each row once, retractions before assertions."""
    if not output.changelog or not table.num_rows:
        return table
    if not output.consolidated:
        return consolidate(table)
    table = canonical(table)
    retracts = pc.less(table.column("__weight"), 0)
    if not pc.any(retracts).as_py():
        return table
    return pa.concat_tables([table.filter(retracts), table.filter(pc.invert(retracts))])
