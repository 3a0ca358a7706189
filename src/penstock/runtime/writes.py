"""Commits: rows into sources, changes into tables, one or several objects at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import fail
from penstock.log import Part
from penstock.serve.zset import consolidate

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

Action = Literal["insert", "delete", "place"]
"""`insert` replaces the row of its key; `place` must not meet one; `delete` takes whole rows out."""
Write = tuple[ObjectInfo, Action, Part]


class Writer:
    """Writes for one engine. Tables are written by one thread at a time, because a change needs to know the row it replaces."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tables = threading.RLock()

    def insert(self, name: str, data: object) -> int:
        """One commit into one object; its LSN. Nothing is stored if anything is wrong with any row."""
        info = self.target(name)
        if info.kind is Kind.SOURCE:
            return self._engine.log.append([self._engine.feeds[info.id].part(data)]).lsn
        return self.commit([(info, "insert", self._engine.feeds[info.id].part(data))])

    def target(self, name: str) -> ObjectInfo:
        engine = self._engine
        engine.check_open()
        info = engine.catalog.get(name)
        if info is None:
            from penstock.sql.names import suggestion

            raise fail("PSK-1002", f"{name} is not found.", hint=suggestion(name, engine.catalog.names()))
        if info.kind not in (Kind.SOURCE, Kind.TABLE, Kind.LOOKUP):
            raise fail("PSK-5005", f"{info.name} is a {info.kind.value}; rows go into sources and tables.")
        if info.kind is Kind.LOOKUP and info.connector is not None:
            raise fail(
                "PSK-5005",
                f"{info.name} is fed by {info.connector.name.upper()}.",
                hint=f"Change the rows there; REFRESH LOOKUP TABLE {info.name} reads them.",
            )
        return info

    @property
    def alone(self) -> threading.RLock:
        """Held while a statement reads a table and writes what follows from it."""
        return self._tables

    def commit(self, writes: Sequence[Write], *, fresh: bool = False) -> int:
        """One atomic commit; later writes see earlier ones. `fresh`: what is deleted was read under `alone`, so it is still there."""
        engine = self._engine
        with self._tables:
            deltas, parts = self._changes(writes, fresh)
            for object_id, delta in deltas.items():
                batches = tuple(delta.to_batches()) if delta.num_rows else ()
                parts.append(Part(object_id=object_id, batches=batches, schema_version=len(delta.schema)))
            lsn = engine.log.append(_merged(parts)).lsn
            publish_changes(engine, deltas, lsn)
            return lsn

    def preview(self, writes: Sequence[Write]) -> dict[int, pa.Table]:
        """What a commit of these writes would change now, by object, with weights; refused as the commit would be."""
        with self._tables:
            deltas, parts = self._changes(writes, False)
        for part in _merged(parts):
            rows = pa.Table.from_batches(part.batches, self._engine.feeds[part.object_id].schema)
            deltas[part.object_id] = _weighted(rows, 1)
        return deltas

    def _changes(self, writes: Sequence[Write], fresh: bool) -> tuple[dict[int, pa.Table], list[Part]]:
        """The changes of tables, consolidated, and the rows for sources."""
        parts: list[Part] = []
        pending: dict[int, pa.Table] = {}
        for info, action, part in writes:
            if info.kind is Kind.SOURCE:
                parts.append(part)
                continue
            rows = pa.Table.from_batches(part.batches, self._engine.feeds[info.id].schema)
            before = pending.get(info.id)
            if action == "delete" and not fresh:
                self._check_there(info, rows, before)
            change = self._change(info, action, rows, before)
            pending[info.id] = change if before is None else pa.concat_tables([before, change])
        return {i: consolidate(t) for i, t in pending.items()}, parts

    def _change(self, info: ObjectInfo, action: Action, rows: pa.Table, pending: pa.Table | None) -> pa.Table:
        """The changelog of one write: what it takes away and what it puts in its place."""
        if action == "delete":
            return _weighted(rows, -1)
        if not info.key:
            return _weighted(rows, 1)
        given, rows = rows.num_rows, _last_per_key(rows, info.key)
        keys = rows.select(list(info.key))
        for name in info.key:
            if keys.column(name).null_count:
                raise fail("PSK-5006", f"The key column {name} of {info.name} cannot be NULL.")
        old = self._engine.store.lookup(info.id, keys)
        current = _weighted(old.select(rows.column_names), 1)
        if pending is not None:
            touched = _with_keys(pending, keys)
            current = consolidate(pa.concat_tables([current, touched.cast(current.schema)]))
        if action == "place" and (current.num_rows or rows.num_rows < given):
            raise fail("PSK-5006", f"Two rows of {info.name} would have the same key ({', '.join(info.key)}).")
        return pa.concat_tables([_negate(current), _weighted(rows, 1)])

    def _check_there(self, info: ObjectInfo, rows: pa.Table, pending: pa.Table | None) -> None:
        """Rows that are taken out must be there; another commit may have changed them since they were read."""
        if not rows.num_rows:
            return
        names = list(info.key) or rows.column_names
        old = _weighted(self._engine.store.lookup(info.id, rows.select(names)).select(rows.column_names), 1)
        have = [old] if pending is None else [old, pending.cast(old.schema)]
        if _debt(have) != _debt([*have, _weighted(rows, -1).cast(old.schema)]):
            raise fail(
                "PSK-5008",
                f"A row of {info.name} that the transaction changes is not there any more.",
            )


def _debt(parts: Sequence[pa.Table]) -> int:
    """How many rows are missing for every weight to be zero or more."""
    weights = consolidate(pa.concat_tables(parts)).column("__weight")
    return int(pc.sum(pc.min_element_wise(weights, 0)).as_py() or 0)


def _with_keys(table: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is in `keys`; Arrow's join takes plain columns only, so the others stay out of it."""
    names = keys.column_names
    numbered = table.select(names).append_column("__n", pa.array(range(table.num_rows), pa.int64()))
    return table.take(numbered.join(keys, names, join_type="left semi").column("__n"))


def publish_changes(engine: Engine, deltas: dict[int, pa.Table], lsn: int) -> None:
    """Makes the last commit into some tables seen by readers and subscribers."""
    changes = []
    for object_id, delta in deltas.items():
        entry = engine.log.last_entry(object_id)
        assert entry is not None
        changes.append((object_id, delta, entry.epoch))
    engine.store.apply_many(changes, lsn)
    for object_id, delta, epoch in changes:
        engine.hub.publish(object_id, epoch, lsn, delta if delta.num_rows else None, None)


def _weighted(table: pa.Table, weight: int) -> pa.Table:
    return table.append_column(pa.field("__weight", pa.int64()), pa.array([weight] * table.num_rows, pa.int64()))


def _negate(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("__weight")
    return table.set_column(index, table.schema.field(index), pc.negate(table.column(index)))


def _last_per_key(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Of several rows with one key the last."""
    if rows.num_rows < 2:
        return rows
    numbered = rows.select(list(key)).append_column("__n", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(key)).aggregate([("__n", "max")]).column("__n_max")
    return rows if len(last) == rows.num_rows else rows.take(last.take(pc.sort_indices(last)))


def _merged(parts: Sequence[Part]) -> list[Part]:
    """One part per object: several inserts into one source within a commit belong together."""
    by_object: dict[int, Part] = {}
    for part in parts:
        have = by_object.get(part.object_id)
        if have is None:
            by_object[part.object_id] = part
            continue
        marks = [w for w in (have.watermark, part.watermark) if w is not None]
        by_object[part.object_id] = Part(
            object_id=part.object_id,
            batches=have.batches + part.batches,
            watermark=max(marks) if marks else None,
            schema_version=part.schema_version,
        )
    return list(by_object.values())
