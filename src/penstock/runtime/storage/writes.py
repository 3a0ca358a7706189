"""Writes to sources and tables, for one or several objects at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.log import Part
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.record import change_part
from penstock.runtime.storage.storage import FED, Storage
from penstock.serve.zset import all_differ, canonical, consolidate, negated, weighted
from penstock.sql.names import suggestion

Action = Literal["insert", "delete", "place"]
"""`insert` replaces the row of its key; `place` requires that there is none; `delete` removes whole rows."""
Write = tuple[ObjectInfo, Action, Part]


# Arrow's join costs a millisecond, for any number of rows.
_FEW = 16


class TableWriter:
    """One thread at a time writes a table, because a change must know the row that it replaces."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._locks: dict[int, threading.RLock] = {}
        self._lock = threading.Lock()

    def insert(self, name: str, data: object) -> int:
        """Commits rows to one object and returns the LSN. Nothing is stored if any row is invalid."""
        info = self.target(name)
        part = self._storage.feed(info).part(data)
        if info.kind is not Kind.SOURCE:
            return self.commit([(info, "insert", part)])
        return self._storage.when_level(lambda: self._storage.commit([part]).lsn)

    def target(self, name: str) -> ObjectInfo:
        info = self._storage.catalog.get(name)
        if info is None:
            raise fail("PSK-1002", f"{name} is not found.", hint=suggestion(name, self._storage.catalog.names()))
        if info.kind not in FED:
            raise fail("PSK-5005", f"{info.name} is a {info.kind.value}; only sources and tables accept rows.")
        if info.kind is Kind.LOOKUP and info.connector is not None:
            raise fail(
                "PSK-5005",
                f"{info.name} is fed by {info.connector.name.upper()}.",
                hint=f"Change the rows there; REFRESH LOOKUP TABLE {info.name} reads them.",
            )
        return info

    @contextmanager
    def alone(self, infos: Iterable[ObjectInfo]) -> Iterator[None]:
        """Held while a statement reads tables and writes the result. Locks are taken in the order of the tables' ids."""
        yield from self._hold(sorted({i.id for i in infos if i.kind is not Kind.SOURCE}))

    def _hold(self, ids: list[int]) -> Iterator[None]:
        if not ids:
            yield
            return
        with self._lock:
            lock = self._locks.setdefault(ids[0], threading.RLock())
        # `with lock` acquires and registers the release in one step. With two steps, Ctrl-C in between would leave the lock held.
        with lock:
            yield from self._hold(ids[1:])

    def forget(self, object_id: int) -> None:
        """The object was dropped; nothing waits for its lock that would not be refused."""
        with self._lock:
            self._locks.pop(object_id, None)

    def commit(self, writes: Sequence[Write], *, fresh: bool = False) -> int:
        """Makes one atomic commit; later writes see earlier ones. `fresh`: the deleted rows were read under `alone`, so they still exist.

        Waits, without a lock, while a source that it writes is too far ahead of its group; the changes of tables are recomputed afterwards.
        """
        return self._storage.when_level(lambda: self._commit(writes, fresh))

    def _commit(self, writes: Sequence[Write], fresh: bool) -> int:
        with self.alone(info for info, _, _ in writes), uninterrupted():
            deltas, parts = self._changes(writes, fresh)
            parts += [change_part(self._storage.info(i), delta) for i, delta in deltas.items()]
            return self._storage.commit(_merged(parts)).lsn

    def preview(self, writes: Sequence[Write]) -> dict[int, pa.Table]:
        """The changes that a commit of these writes would make now, by object, with weights; raises the errors of the commit."""
        with self.alone(info for info, _, _ in writes), uninterrupted():
            deltas, parts = self._changes(writes, False)
        for part in _merged(parts):
            feed = self._storage.feed(self._storage.info(part.object_id))
            rows = pa.Table.from_batches(part.batches, feed.schema)
            deltas[part.object_id] = weighted(rows)
        return deltas

    def _changes(self, writes: Sequence[Write], fresh: bool) -> tuple[dict[int, pa.Table], list[Part]]:
        """The changes of tables, consolidated, and the rows for sources."""
        parts: list[Part] = []
        pending: dict[int, pa.Table] = {}
        for info, action, part in writes:
            if info.kind is Kind.SOURCE:
                parts.append(part)
                continue
            # Keys are compared here, so equal ones must have the same representation.
            rows = canonical(pa.Table.from_batches(part.batches, self._storage.feed(info).schema))
            before = pending.get(info.id)
            if action == "delete" and not fresh:
                self._check_there(info, rows, before)
            change = self._change(info, action, rows, before)
            pending[info.id] = change if before is None else pa.concat_tables([before, change])
        return {i: consolidate(t) for i, t in pending.items()}, parts

    def _change(self, info: ObjectInfo, action: Action, rows: pa.Table, pending: pa.Table | None) -> pa.Table:
        """The changelog of one write: the rows that it removes, and their replacements."""
        if action == "delete":
            return negated(rows)
        if not info.key:
            return weighted(rows)
        given, rows = rows.num_rows, _last_per_key(rows, info.key)
        keys = rows.select(list(info.key))
        for name in info.key:
            if keys.column(name).null_count:
                raise fail("PSK-5006", f"The key column {name} of {info.name} cannot be NULL.")
        current = self._stored(info, keys)
        if pending is not None:
            touched = _with_keys(pending, keys)
            current = consolidate(pa.concat_tables([current, touched.cast(current.schema)]))
        if action == "place" and (current.num_rows or rows.num_rows < given):
            raise fail("PSK-5006", f"Two rows of {info.name} would have the same key ({', '.join(info.key)}).")
        return pa.concat_tables([negated(current), weighted(rows)])

    def _check_there(self, info: ObjectInfo, rows: pa.Table, pending: pa.Table | None) -> None:
        """Checks that the deleted rows exist; another commit may have changed them since they were read."""
        if not rows.num_rows:
            return
        names = list(info.key) or rows.column_names
        old = self._stored(info, rows.select(names))
        have = [old] if pending is None else [old, pending.cast(old.schema)]
        if _debt(have) != _debt([*have, negated(rows).cast(old.schema)]):
            raise fail(
                "PSK-5008",
                f"A row of {info.name} that the transaction changes no longer exists.",
            )

    def _stored(self, info: ObjectInfo, keys: pa.Table) -> pa.Table:
        """The rows of a table that have these keys, each with weight 1."""
        self._storage.check_sound(info)
        try:
            return weighted(self._storage.store.lookup(info.id, keys))
        except PenstockError:
            self._storage.info(info.id)  # PSK-1002 if the table was dropped.
            raise


def _debt(parts: Sequence[pa.Table]) -> int:
    """The number of rows missing for all weights to be zero or more."""
    weights = consolidate(pa.concat_tables(parts)).column("__weight")
    return int(pc.sum(pc.min_element_wise(weights, 0)).as_py() or 0)


def _with_keys(table: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is in `keys`."""
    names = keys.column_names
    if table.num_rows <= _FEW and keys.num_rows <= _FEW and all(_plainly_equal(f.type) for f in keys.schema):
        wanted = {tuple(row.values()) for row in keys.to_pylist()}
        found = [tuple(row.values()) in wanted for row in table.select(names).to_pylist()]
        return table.filter(pa.array(found, pa.bool_()))
    return table.take(_numbered(table, names).join(_plain(keys), names, join_type="left semi").column("__n"))


def _plainly_equal(kind: pa.DataType) -> bool:
    """Whether equal values are equal Python values."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))


def _numbered(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The key of each row and its position."""
    return _plain(rows.select(key)).append_column("__n", pa.array(np.arange(rows.num_rows)))


def _plain(keys: pa.Table) -> pa.Table:
    """Nested keys as text: Arrow groups and joins by plain columns only."""
    for i, field in enumerate(keys.schema):
        if pa.types.is_nested(field.type):
            keys = keys.set_column(i, field.name, pa.array([repr(v) for v in keys.column(i).to_pylist()], pa.string()))
    return keys


def _last_per_key(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last row of each key."""
    if rows.num_rows < 2 or any(all_differ(rows[name]) for name in key):
        return rows
    last = _numbered(rows, key).group_by(list(key)).aggregate([("__n", "max")]).column("__n_max")
    return rows if len(last) == rows.num_rows else rows.take(last.take(pc.sort_indices(last)))


def _merged(parts: Sequence[Part]) -> list[Part]:
    """One part per object: merges several inserts into one source."""
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
            column_count=part.column_count,
        )
    return list(by_object.values())
