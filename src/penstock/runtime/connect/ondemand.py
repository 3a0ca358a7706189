"""An on-demand lookup table: rows are fetched when other rows ask for them, and a bounded number is kept."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.objects import ObjectInfo
from penstock.catalog.types import schema_of
from penstock.connect import Access
from penstock.errors import PenstockError, fail
from penstock.runtime.connect.lookups import FedLookup, unique
from penstock.runtime.storage.storage import Storage
from penstock.serve.zset import consolidate, negated, weighted

_POLL_S = 0.05
"""How soon a query that waits for a source notices that it is to stop."""
_ENTRY_BYTES = 128
"""What an entry costs beside its row."""

Key = tuple[Any, ...]


@dataclass
class _Entry:
    """Cache entry of one key: expiry, whether the source has a row, size."""

    until: float
    present: bool
    size: int


def key_columns(lookup: ObjectInfo) -> list[str]:
    """The columns of a probe that hold the key that it asks for."""
    return [f"k{i}" for i in range(len(lookup.key))]


class _Unanswered(Exception):
    """The source has failed, and may answer later."""


class OnDemand(FedLookup):
    """The contents of the table in the log and in the view store are the cache: the rows of the keys that were asked for.

    `answer` brings it up to date for the keys of one epoch and has that epoch recorded in the same commit. So what a row was
    answered with is decided once and is durable with the row: a replay reads it from the log and asks nobody.
    """

    def __init__(self, storage: Storage, info: ObjectInfo, access: Callable[[], Access]) -> None:
        super().__init__(storage, info, access)
        self._lock = threading.Lock()
        self._schema = schema_of(info.columns)
        self._entries: OrderedDict[Key, _Entry] | None = None
        self._bytes = 0

    def read_all(self) -> pa.Table:
        """All rows as they are at the source now; by a connection of its own, so that no query waits for it."""
        source = self.new_source()
        try:
            return unique(self.info, source.scan())
        finally:
            source.close()

    def interrupt(self) -> None:
        """Ends a request that is under way. Whoever made it tries again, unless it is to stop."""
        if self._source is not None:
            self._source.cancel()

    stop = interrupt

    def asked(self, rows: pa.Table) -> pa.Table:
        """The keys that rows of a probe ask for; one that is retracted asks nothing."""
        if "__weight" in rows.column_names:
            rows = rows.filter(pc.greater(rows.column("__weight"), 0))
        return rows.select(key_columns(self.info)).rename_columns(list(self.info.key))

    def answer(self, keys: pa.Table, stopping: Callable[[], bool], commit: Callable[[pa.Table | None], None]) -> None:
        """Calls `commit` once with the changes of the table after which it holds what is to be known of these keys.

        A source that fails is asked again until it answers, with growing waits; PSK-7002 when `stopping`.
        """
        wanted = self._distinct(keys)
        counted = False
        while True:
            if stopping():
                raise fail("PSK-7002", f"{self.info.name}: the query was stopped.")
            try:
                with self._lock:
                    self._answer(wanted, stopping, commit, count=not counted)
                return
            except _Unanswered:
                counted = True
            until = time.monotonic() + self._wait_s()
            while time.monotonic() < until and not stopping():
                time.sleep(_POLL_S)

    def _answer(
        self,
        wanted: dict[Key, None],
        stopping: Callable[[], bool],
        commit: Callable[[pa.Table | None], None],
        *,
        count: bool,
    ) -> None:
        entries = self._cached()
        now = time.monotonic()
        missing = [k for k in wanted if (e := entries.get(k)) is None or e.until <= now]
        if count:
            self.figures.hits += len(wanted) - len(missing)
            self.figures.misses += len(missing)
        changes, fresh = self._fetched(missing) if missing else ([], {})
        for k in wanted:
            if k in entries:
                entries.move_to_end(k)
        gone = self._overflow(entries, fresh, wanted)
        if gone:
            lost = self._stored(k for k in gone if entries[k].present)
            changes.append(negated(lost))
        delta = consolidate(pa.concat_tables(changes)) if changes else None
        if stopping():
            raise fail("PSK-7002", f"{self.info.name}: the query was stopped.")
        commit(delta if delta is not None and delta.num_rows else None)
        for k in gone:
            self._bytes -= entries.pop(k).size
        for k, e in fresh.items():
            if (old := entries.pop(k, None)) is not None:
                self._bytes -= old.size
            entries[k] = e
            self._bytes += e.size
        self.figures.entries, self.figures.bytes = len(entries), self._bytes

    def _fetched(self, missing: list[Key]) -> tuple[list[pa.Table], dict[Key, _Entry]]:
        """Asks the source for keys: what changes in the table, and the entries that they get."""
        asked = self._table(missing)
        self.figures.keys_asked += len(missing)
        try:
            rows = self._asked(lambda s: unique(self.info, self._of(s.fetch(asked), missing)))
        except PenstockError as error:
            raise _Unanswered from error
        now = time.monotonic()
        size = _ENTRY_BYTES + rows.nbytes // max(1, rows.num_rows)
        absent = now + self.options.negative_ttl_ms / 1000
        fresh = {k: _Entry(absent, False, _ENTRY_BYTES) for k in missing}
        for k in self._keys(rows):
            fresh[k] = _Entry(now + self.options.ttl_ms / 1000, True, size)
        return [negated(self._stored(missing)), weighted(rows)], fresh

    def _overflow(
        self, entries: OrderedDict[Key, _Entry], fresh: dict[Key, _Entry], wanted: dict[Key, None]
    ) -> list[Key]:
        """Which keys have to go, the least recently asked first; never one that this epoch asks for."""
        count = len(entries) + sum(k not in entries for k in fresh)
        size = self._bytes + sum(e.size - (entries[k].size if k in entries else 0) for k, e in fresh.items())
        gone = []
        for k, e in entries.items():
            if count <= self.options.max_entries and size <= self.options.max_bytes:
                break
            if k not in wanted:
                gone.append(k)
                count -= 1
                size -= e.size
        return gone

    def _cached(self) -> OrderedDict[Key, _Entry]:
        """The entries. What was kept by an earlier process is there, and too old to count: nobody knows how old it is."""
        if self._entries is None:
            rows = self._storage.store.snapshot(self.info.id)[0]
            size = _ENTRY_BYTES + rows.nbytes // max(1, rows.num_rows)
            self._entries = OrderedDict((k, _Entry(0.0, True, size)) for k in self._keys(rows))
            self._bytes = size * len(self._entries)
        return self._entries

    def _stored(self, keys: Iterable[Key]) -> pa.Table:
        wanted = self._table(list(keys))
        if not wanted.num_rows:
            return self._schema.empty_table()
        return self._storage.store.lookup(self.info.id, wanted).cast(self._schema)

    def _table(self, keys: list[Key]) -> pa.Table:
        fields = [self._schema.field(n) for n in self.info.key]
        arrays = [pa.array([k[i] for k in keys], f.type) for i, f in enumerate(fields)]
        return pa.Table.from_arrays(arrays, names=list(self.info.key))

    def _keys(self, rows: pa.Table) -> list[Key]:
        return list(zip(*(rows.column(n).to_pylist() for n in self.info.key), strict=True))

    def _of(self, rows: pa.Table, keys: list[Key]) -> pa.Table:
        """The rows whose key was asked for: what a server takes for equal need not be."""
        wanted = set(keys)
        keep = [k in wanted for k in self._keys(rows)]
        return rows if all(keep) else rows.filter(pa.array(keep, pa.bool_()))

    def _distinct(self, keys: pa.Table) -> dict[Key, None]:
        """The keys, each once; one with a NULL matches nothing and is not asked for."""
        valid = keys
        for name in keys.column_names:
            valid = valid.filter(pc.is_valid(valid.column(name)))
        groups = valid.group_by(valid.column_names, use_threads=False).aggregate([])
        return dict.fromkeys(zip(*(groups.column(n).to_pylist() for n in keys.column_names), strict=True))
