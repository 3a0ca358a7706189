"""The rows of one object by key, in Arrow memory. DuckDB needs a millisecond to find one row, even with an index."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.serve.layout import WEIGHT

Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[Any, ...]

MISSING: Final = object()
_AGE = "__age"
# A run is merged with the previous one unless that is this many times as large, so there are few runs and each row is merged a few times.
_TIER = 4
# Merging changes is cheaper than rereading the object, up to this many rows or this share of the object.
_LEAST_CHANGED = 20_000
_CHANGED_SHARE = 2


class Unindexable(Exception):
    """A change that is not simply one row per key."""


class Run:
    """Rows sorted by key, at most one per key. A negative weight means that the key has lost its row."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        rows = rows.combine_chunks()
        self.table = rows
        self.count = int(rows.num_rows)
        names = [n for n in rows.column_names if n != WEIGHT]
        self._columns = [_whole(rows.column(n)) for n in names]
        self._alive = _whole(rows.column(WEIGHT)).to_numpy() > 0 if WEIGHT in rows.column_names else None
        self._keys = [_whole(rows.column(k)) for k in keys]
        one = len(keys) == 1 and pa.types.is_integer(rows.schema.field(keys[0]).type)
        self._numbers = self._keys[0].to_numpy() if one else None

    @property
    def size(self) -> int:
        return int(self.table.nbytes)

    def get(self, key: Key) -> Any:
        """The row of a key, None if it has none, MISSING if the key is not here."""
        at = self._find(key)
        if at < 0:
            return MISSING
        if self._alive is not None and not self._alive[at]:
            return None
        return tuple(c[at].as_py() for c in self._columns)

    def _find(self, key: Key) -> int:
        numbers = self._numbers
        if numbers is not None:
            # With a Python integer, NumPy would convert the whole array.
            wanted = numbers.dtype.type(key[0])
            at = int(numbers.searchsorted(wanted))
            return at if at < self.count and numbers[at] == wanted else -1
        at = bisect.bisect_left(range(self.count), key, key=self._key_at)
        return at if at < self.count and self._key_at(at) == key else -1

    def _key_at(self, at: int) -> Key:
        return tuple(c[at].as_py() for c in self._keys)


def contents_run(rows: pa.Table, keys: Sequence[str]) -> Run:
    """The run of an object's contents."""
    return Run(_first_of_keys(rows, keys, []), keys)


def _change_run(change: pa.Table, keys: Sequence[str]) -> Run:
    """The run of one epoch's change: for a replaced key the new row, for a deleted one the old row."""
    change = _known(change, keys)
    rows = _first_of_keys(change, keys, [(WEIGHT, "descending")])
    weights = change.column(WEIGHT)
    if change.num_rows and pc.max(pc.abs(weights)).as_py() != 1:
        raise Unindexable
    if _positive(change) != _positive(rows):
        raise Unindexable
    return Run(rows, keys)


def _positive(rows: pa.Table) -> int:
    return int(pc.sum(pc.greater(rows.column(WEIGHT), 0)).as_py() or 0)


def _merged(older: Run, newer: Run, keys: Sequence[str]) -> Run:
    tables = [
        r.table.append_column(_AGE, pa.array(np.full(r.count, age, np.int8))) for age, r in enumerate((newer, older))
    ]
    rows = _first_of_keys(pa.concat_tables(tables), keys, [(_AGE, "ascending")])
    return Run(rows.drop_columns([_AGE]), keys)


def _known(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows without NULL in their key; no key finds the others."""
    for k in keys:
        if rows.column(k).null_count:
            rows = rows.filter(pc.is_valid(rows.column(k)))
    return rows


def _first_of_keys(rows: pa.Table, keys: Sequence[str], order: list[tuple[str, str]]) -> pa.Table:
    """One row per key, in key order: the first by `order`."""
    rows = _known(rows, keys)
    rows = rows.take(pc.sort_indices(rows, sort_keys=[*((k, "ascending") for k in keys), *order]))
    if rows.num_rows < 2:
        return rows
    again = np.ones(rows.num_rows - 1, np.bool_)
    for k in keys:
        column = _whole(rows.column(k))
        again &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    if not again.any():
        return rows
    return rows.filter(pa.array(np.concatenate([[True], ~again])))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


class KeyIndex:
    """Runs, the oldest first: the contents when the index was built, then changes. The newest run that has a key decides.

    Changes are merged on the next read; an unread index costs nothing but references to them. Readers need no lock.
    """

    def __init__(self, contents: Run, keys: Sequence[str], changes: Sequence[pa.Table]) -> None:
        self.outgrown = False
        """Whether rebuilding it is cheaper."""
        self._keys = keys
        self._contents = contents
        self._most = max(_LEAST_CHANGED, contents.count // _CHANGED_SHARE)
        # Replaced, never modified, under the lock: `_runs` before `_pending`.
        self._runs: tuple[Run, ...] = ()
        self._pending = tuple(changes)
        self._lock = threading.Lock()

    @property
    def unread(self) -> bool:
        """Whether changes pile up because no key is read."""
        return bool(sum(c.num_rows for c in self._pending) > self._most)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._contents.size + sum(r.size for r in self._runs) + sum(int(c.nbytes) for c in self._pending)

    def add(self, change: pa.Table) -> None:
        """Adds the change of one epoch, with weights."""
        with self._lock:
            self._pending = (*self._pending, change)

    def get(self, key: Key) -> Any:
        """The row of a key, or None. Raises Unindexable if a change is not one row for each key."""
        if self._pending:
            with self._lock:
                self._sort_in()
        for run in reversed(self._runs):
            row = run.get(key)
            if row is not MISSING:
                return row
        row = self._contents.get(key)
        return None if row is MISSING else row

    def _sort_in(self) -> None:
        merged: list[Run] = []
        for run in [*self._runs, *(_change_run(c, self._keys) for c in self._pending)]:
            merged.append(run)
            while len(merged) > 1 and merged[-2].count < _TIER * merged[-1].count:
                newer, older = merged.pop(), merged.pop()
                merged.append(_merged(older, newer, self._keys))
        self._runs = tuple(merged)
        self._pending = ()
        self.outgrown = sum(r.count for r in merged) > self._most
