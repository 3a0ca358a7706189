"""A cache of single rows in front of DuckDB, where every statement takes milliseconds.

Small changes of an object with a key are collected here and go to DuckDB together; of a key that changes repeatedly, only the first and the last row. Reads by key use these pending changes, then the
object's index once it has one, otherwise a cache of rows.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.serve.keyindex import MISSING, Key, KeyIndex, Row, Run, Unindexable
from penstock.serve.layout import WEIGHT
from penstock.serve.zset import weighted

News: TypeAlias = dict[Key, tuple[Row | None, Row | None]]
"""By key, the row before and the row after a change."""

_MOST_ROWS = 50_000
_LARGEST_ROW = 1_024
"""In characters or bytes of its strings: with `_MOST_ROWS` it bounds the memory of the cache."""
_SMALL_CHANGE = 16
_SMALL_BYTES = 65_536
_BELOW_ALL = -(1 << 63) - 1
_generations = itertools.count()
_reads = itertools.count()
# After this many single rows read from DuckDB, an index is worth its memory.
_UNINDEXED_READS = 3


class RowCache:
    """Rows of all objects, with LRU eviction. Not thread-safe: the view store has a lock."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[int, Key], Row | None] = OrderedDict()

    def get(self, at: tuple[int, Key]) -> Any:
        row = self._rows.get(at, MISSING)
        if row is not MISSING:
            self._rows.move_to_end(at)
        return row

    def put(self, at: tuple[int, Key], row: Row | None) -> None:
        if row is not None and sum(len(v) for v in row if isinstance(v, (str, bytes))) > _LARGEST_ROW:
            self._rows.pop(at, None)
            return
        self._rows[at] = row
        self._rows.move_to_end(at)
        while len(self._rows) > _MOST_ROWS:
            self._rows.popitem(last=False)


class Recent:
    """The recent rows of one object. `stored_epoch` and `stored_lsn` are the position of DuckDB, without the pending changes."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], cache: RowCache) -> None:
        self.keys = keys
        self.waiting: News = {}
        self.waiting_bytes = 0
        self.stored_epoch = 0
        self.stored_lsn = 0
        self.last_read = 0
        """The sequence number, over all objects, of the last read of its index."""
        self.index: KeyIndex | None = None
        self._missed = 0
        self._building = False
        # Changes since the snapshot from which an index is being built.
        self._collected: list[pa.Table] | None = None
        self._indexable = True
        self._schema = schema
        self._cache = cache
        # Old entries of the cache become unreachable when this changes.
        self._generation = next(_generations)
        # Keys above this never had a row: most inserts are of new keys in ascending order.
        self._highest: int | None = None
        if len(keys) == 1 and pa.types.is_integer(schema.field(keys[0]).type):
            self._highest = _BELOW_ALL

    @staticmethod
    def suits(schema: pa.Schema, keys: Sequence[str]) -> bool:
        """Whether Python can represent all columns, and equal keys are equal Python values."""
        t = pa.types
        inexact = any(t.is_floating(schema.field(k).type) for k in keys)
        return bool(keys) and not inexact and not any(t.is_nested(f.type) or t.is_duration(f.type) for f in schema)

    def key_of(self, keys: pa.Table) -> Key | None:
        """The key in a table of one row; None if its columns are not the key, or one is NULL."""
        if tuple(keys.column_names) != self.keys:
            return None
        key = tuple(keys.column(i)[0].as_py() for i in range(keys.num_columns))
        return None if None in key else key

    def get(self, key: Key) -> Any:
        """The row of a key, None if there is none, MISSING if only the cache or DuckDB may have it. Needs no lock."""
        waits = self.waiting.get(key)
        if waits is not None:
            return waits[1]
        if self._highest is not None and key[0] > self._highest:
            return None
        index = self.index
        if index is None:
            return MISSING
        self.last_read = next(_reads)
        try:
            return index.get(key)
        except Unindexable:
            self.refuse_index()
        except (ValueError, OverflowError):
            pass  # Python cannot represent the time.
        return MISSING

    def cached(self, key: Key) -> Any:
        """The row of a key from the cache, None if there is none, MISSING if the cache does not know."""
        return self._cache.get((self._generation, key))

    def keep(self, key: Key, row: Row | None) -> None:
        self._cache.put((self._generation, key), row)

    def table(self, row: Row | None) -> pa.Table:
        if row is None:
            return self._schema.empty_table()
        arrays = [pa.array([v], f.type) for v, f in zip(row, self._schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def news(self, change: pa.Table) -> News | None:
        """The old and new row of each key in a change; None if the change is too large, or not simply one row per key."""
        if change.num_rows > _SMALL_CHANGE or change.nbytes > _SMALL_BYTES:
            return None
        weights = change.column(WEIGHT).to_pylist() if WEIGHT in change.column_names else [1] * change.num_rows
        try:
            rows = list(zip(*(change.column(n).to_pylist() for n in self._schema.names), strict=True))
        except (ValueError, OverflowError):
            return None  # Python cannot represent the time.
        at = [self._schema.get_field_index(k) for k in self.keys]
        found: News = {}
        for row, weight in zip(rows, weights, strict=True):
            key = tuple(row[i] for i in at)
            before, after = found.get(key, (None, None))
            if None in key or weight not in (1, -1) or (after if weight == 1 else before) is not None:
                return None
            if weight == -1 and after == row:
                return None  # Inserted and deleted: the row before is unknown here.
            found[key] = (before, row) if weight == 1 else (row, after)
        # A change of a pending key must retract its pending row.
        known = self.waiting
        return found if all(known[key][1] == before for key, (before, _) in found.items() if key in known) else None

    def offer(self, change: pa.Table) -> Callable[[], None] | None:
        """A call that makes a change pending; None if it cannot be."""
        news = self.news(change)
        return None if news is None else partial(self._take, news, change.nbytes)

    def _take(self, news: News, size: int) -> None:
        for key, (before, after) in news.items():
            self.waiting[key] = (self.waiting[key][0] if key in self.waiting else before, after)
        self.waiting_bytes += size
        if self._highest is not None:
            self._highest = max([self._highest, *(k[0] for k in news)])

    @property
    def waiting_rows(self) -> int:
        """The maximum number of rows in `change`."""
        return 2 * len(self.waiting)

    def change(self) -> pa.Table:
        """All pending changes."""
        rows = [(r, w) for pair in self.waiting.values() for r, w in zip(pair, (-1, 1), strict=True) if r is not None]
        arrays = [pa.array([r[i] for r, _ in rows], f.type) for i, f in enumerate(self._schema)]
        arrays.append(pa.array([w for _, w in rows], pa.int64()))
        return pa.Table.from_arrays(arrays, schema=self._schema.append(pa.field(WEIGHT, pa.int64())))

    def stored(self, change: pa.Table, epoch: int, lsn: int) -> None:
        """Notes that all pending changes are in DuckDB, as one."""
        if self.index is None:
            for key, (_, row) in self.waiting.items():
                self.keep(key, row)
        # Before `waiting` is cleared, because readers check it first, then the index.
        self._add(change)
        self.waiting, self.waiting_bytes = {}, 0
        self.stored_epoch, self.stored_lsn = epoch, lsn

    def passed(self, change: pa.Table) -> None:
        """Notes that a change went straight to DuckDB; this invalidates the cached rows."""
        self._generation = next(_generations)
        self._add(change)
        if self._highest is not None and change.num_rows:
            highest = pc.max(change.column(self.keys[0])).as_py()
            self._highest = self._highest if highest is None else max(self._highest, highest)

    def reached(self, highest: int | None) -> None:
        """Notes that the object has keys up to `highest` that did not pass through here."""
        if self._highest is not None and highest is not None:
            self._highest = max(self._highest, highest)

    # The index

    def wants_index(self) -> bool:
        """Counts a read that needs DuckDB or found the index outgrown. Returns True, once, when an index should be built."""
        self._missed += 1
        wants = self._indexable and not self._building and self._missed >= _UNINDEXED_READS
        self._building = self._building or wants
        return wants

    def collect(self) -> None:
        """Starts to collect changes for `install`: the index will be built from DuckDB's current contents."""
        self._collected = []

    def install(self, contents: Run) -> None:
        self.index = KeyIndex(contents, self.keys, self._collected or ())
        self.last_read = next(_reads)
        self.end_build()

    def end_build(self) -> None:
        self._collected, self._missed, self._building = None, 0, False

    def drop_index(self) -> None:
        """Drops the index until keys are read again."""
        self.index = None
        # The cache has missed the changes that only the index got.
        self._generation = next(_generations)

    def refuse_index(self) -> None:
        self._indexable = False
        self.drop_index()

    def _add(self, change: pa.Table) -> None:
        """Adds a change to the index in use and to the one being built."""
        index = self.index
        if not change.num_rows or (index is None and self._collected is None):
            return
        change = weighted(change)
        names = [*self._schema.names, WEIGHT]
        change = pa.Table.from_arrays([change.column(n) for n in names], names=names)
        if self._collected is not None:
            self._collected.append(change)
        if index is not None:
            index.add(change)
            if index.unread:
                self.drop_index()
