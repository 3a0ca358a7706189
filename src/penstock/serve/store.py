"""The current contents of views and tables."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from penstock.config import ServeSettings
from penstock.disk import write_durably
from penstock.errors import PenstockError, fail
from penstock.serve.duck import Cursor, Duck, size_of
from penstock.serve.keyindex import MISSING, Key, Row
from penstock.serve.layout import TableLayout, quote
from penstock.serve.objects import Objects
from penstock.serve.ondisk import DiskContents, Snapshot
from penstock.serve.physical import logical, physical
from penstock.serve.recent import Recent
from penstock.serve.sealed import sealed, unsealed
from penstock.serve.spool import spooled
from penstock.serve.worker import Worker

T = TypeVar("T")

_logger = logging.getLogger(__name__)

# With fewer changed rows, merging on read is cheaper than rewriting the object.
_MIN_DELTA_ROWS = 20_000
_AT = "__at"
# Larger results are mapped files.
_SPOOLED_SHARE = 8
_OBJECT_BYTES = size_of(ServeSettings().object_memory)
_WITH = re.compile(r"\s*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE)
_EPOCH, _LSN = b"penstock.epoch", b"penstock.lsn"
# Interrupted work ends at the next block of rows.
_CLOSE_S = 10.0


@dataclass(frozen=True)
class Reading:
    """The rows of an object as of an epoch and an LSN, in pieces of some megabytes that are read on demand."""

    schema: pa.Schema
    epoch: int
    lsn: int
    pieces: Iterator[pa.Table]


class ViewStore:
    """Bags of rows, each at an epoch and an LSN: in an in-memory DuckDB, or on disk if larger than `object_bytes`. Thread-safe.

    A reader sees the state after a complete `apply` or `apply_many`. The cost of applying is proportional to the change; a background thread
    folds changes into the base. Small changes are collected (`Recent`) until a read needs more than single rows, or there are many.

    Writes run on the store's thread, so an interrupt ends the caller's wait but never a write. Reads run on the caller's
    thread; an interrupted or failed read leaves nothing behind.

    Every error has a code. PSK-7009: the work needs more than `memory_limit`, even with spilling to the folder `spill`. An object whose compaction
    fails is damaged: reading it raises the cause, `on_damage` is called with the cause, and other objects are not affected.

    An object moves to disk for good, into its own folder under `folder`, when it has more than `object_bytes`, or when all objects in memory together have more than half of `memory_limit` and it is the largest.
    Without `folder` all objects stay in memory.
    """

    def __init__(
        self,
        *,
        min_delta_rows: int = _MIN_DELTA_ROWS,
        memory_limit: str = ServeSettings().memory_limit,
        spill: Path | None = None,
        folder: Path | None = None,
        object_bytes: int = _OBJECT_BYTES,
        on_damage: Callable[[int, PenstockError], None] | None = None,
    ) -> None:
        self._duck = Duck(memory_limit, spill)
        self._worker = Worker("penstock-store")
        self._objects = Objects(
            self._duck,
            folder=folder,
            object_bytes=object_bytes,
            min_delta_rows=min_delta_rows,
            on_damage=on_damage,
        )

    # Objects

    def create(self, name_id: int, schema: pa.Schema, *, keys: tuple[str, ...] = (), append_only: bool) -> None:
        """Creates an empty object at epoch 0. With `keys`, there is at most one row per key at any time."""
        self._write(lambda: self._objects.create(name_id, schema, keys, append_only))

    def drop(self, name_id: int, *, keep_files: bool = False) -> None:
        """Removes an object, if it exists, and its files unless `keep_files`."""
        self._write(lambda: self._objects.drop(name_id, keep_files))

    def ids(self) -> list[int]:
        with self._objects.lock:
            return sorted(self._objects.layouts)

    def position(self, name_id: int) -> tuple[int, int]:
        """The epoch and the LSN of the contents."""
        with self._objects.lock:
            layout = self._objects.layout(name_id)
            return layout.epoch, layout.lsn

    def count(self, name_id: int) -> int:
        with self._objects.lock:
            return self._objects.layout(name_id).count

    # Changes in

    def apply(self, name_id: int, changes: pa.Table, *, epoch: int, lsn: int) -> None:
        """Adds one epoch's changes; an epoch that was applied before is ignored."""
        self.apply_many([(name_id, changes, epoch)], lsn)

    def apply_many(self, changes: Sequence[tuple[int, pa.Table, int]], lsn: int) -> None:
        """Adds the changes of one commit to several objects, all or nothing.

        Objects that were dropped meanwhile or are damaged are skipped; the log has their changes.
        """
        self._write(lambda: self._objects.apply(changes, lsn))
        for name_id, _, _ in changes:
            layout = self._objects.layouts.get(name_id)
            if layout is not None and layout.disk is not None:
                layout.disk.await_room()

    def load(self, name_id: int, path: Path) -> tuple[int, int]:
        """Fills an object at epoch 0 from a file that `save` wrote; returns its epoch and LSN."""
        try:
            with pa.memory_map(str(path)) as file:
                table = pa.ipc.open_file(unsealed(file.read_buffer())).read_all()
            table.validate(full=True)
            epoch, lsn = int(table.schema.metadata[_EPOCH]), int(table.schema.metadata[_LSN])
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as why:
            raise fail("PSK-6001", f"The snapshot {path.name} cannot be read: {why}") from why
        self._write(lambda: self._objects.load(name_id, table, epoch, lsn, path.name))
        return epoch, lsn

    def open_saved(self, name_id: int) -> tuple[int, int]:
        """Opens the contents on disk of an object at epoch 0; returns their epoch and LSN. Rows are read on demand. Raises PSK-6001 if the contents are damaged."""
        return self._write(lambda: self._objects.open_saved(name_id))

    # Contents out

    def snapshot(self, name_id: int) -> tuple[pa.Table, int, int]:
        """All rows, with their epoch and LSN, in a mapped file if they do not fit in memory."""
        with self.reading(name_id) as reading:
            table = spooled(reading.pieces, reading.schema, self._duck.spill, self._duck.limit // _SPOOLED_SHARE)
        return table, reading.epoch, reading.lsn

    @contextmanager
    def reading(self, name_id: int) -> Iterator[Reading]:
        """All rows, within a `with` block, without loading all of them into memory."""
        self._catch_up()
        with self._duck.cursor(self._objects.explain(name_id)) as con:
            layout, epoch, lsn, on_disk = self._fixed(con, name_id)
            if on_disk is not None:
                with self._watched(layout):
                    yield Reading(layout.schema, epoch, lsn, on_disk.pieces())
                return
            with self._duck.batches(con, f"SELECT * FROM {layout.view}") as reader:
                pieces = (logical(pa.Table.from_batches([b]), layout.schema) for b in reader)
                yield Reading(layout.schema, epoch, lsn, pieces)

    def query(self, duckdb_sql: str, objects: Mapping[str, int], *, mapped: bool = False) -> pa.Table:
        """The result of a DuckDB SELECT on a consistent snapshot. `objects` maps the names in it to object ids. PSK-7009 if it exceeds the memory limit, unless it may be a `mapped` file."""
        self._duck.check_open()
        self._catch_up()
        in_memory = [i for i in objects.values() if (o := self._objects.layouts.get(i)) is not None and o.disk is None]
        try:
            return self._query(duckdb_sql, objects, mapped)
        except PenstockError:
            # One of them may have moved to disk before DuckDB looked up its tables.
            if not any((o := self._objects.layouts.get(i)) is not None and o.disk is not None for i in in_memory):
                raise
            return self._query(duckdb_sql, objects, mapped)

    def _query(self, duckdb_sql: str, objects: Mapping[str, int], mapped: bool) -> pa.Table:
        with self._duck.cursor(self._objects.explain(*objects.values())) as con:
            # Never committed, no matter what the text does.
            con.execute("BEGIN")
            views, scans = self._views(con, objects)
            text = duckdb_sql
            if views:
                own = _WITH.match(duckdb_sql)
                recursive = "RECURSIVE " if own and own[1] else ""
                rest = f", {duckdb_sql[own.end() :]}" if own else f" {duckdb_sql}"
                text = f"WITH {recursive}{', '.join(views)}{rest}"
            try:
                if not mapped:
                    return self._duck.table(con, text)
                with self._duck.batches(con, text) as reader:
                    pieces = (pa.Table.from_batches([b]) for b in reader)
                    return spooled(pieces, reader.schema, self._duck.spill, self._duck.limit // _SPOOLED_SHARE)
            except Exception:
                for layout, scan in scans:
                    if scan.error is not None:
                        with self._watched(layout):
                            raise scan.error from None
                raise

    def _views(self, con: Cursor, objects: Mapping[str, int]) -> tuple[list[str], list[tuple[TableLayout, Snapshot]]]:
        """CTEs of some objects, all as of now in the cursor's transaction, and those that are scanned from disk."""
        views, scans = [], []
        with self._objects.lock:
            layouts = {name: self._objects.layout(i) for name, i in objects.items()}
            for layout in {o.id: o for o in layouts.values() if o.disk is not None}.values():
                assert layout.disk is not None
                scans.append((layout, layout.disk.snapshot()))
                con.register(layout.view, scans[-1][1])
            tables = [o.base for o in layouts.values() if o.disk is None]
            if scans and tables:
                # DuckDB takes a transaction's snapshot at its first read, so read now.
                con.execute(f"SELECT 1 FROM {tables[0]} LIMIT 0")
            for name, layout in layouts.items():
                views.append(f"{quote(name)} AS NOT MATERIALIZED (SELECT * FROM {layout.view})")
        return views, scans

    def matching(self, named: pa.Table, name: str, rest: str, table: pa.Table) -> pa.Table:
        """The rows of `table` that a DuckDB SELECT, given without its `SELECT *`, returns from `named`: the same rows, as a table called `name`."""
        if not table.num_rows:
            return table
        numbered = named.append_column(_AT, pa.array(range(named.num_rows), pa.int64()))
        kept = self.over(f"SELECT {_AT}{rest}", {name: numbered})
        return table if kept.num_rows == table.num_rows else table.take(kept.column(0))

    def over(self, duckdb_sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of a DuckDB SELECT over tables that are not in the store, by name."""
        with self._duck.cursor() as con:
            for name, table in tables.items():
                con.register(name, physical(table))
            return self._duck.table(con, duckdb_sql)

    def lookup(self, name_id: int, keys: pa.Table) -> pa.Table:
        """The rows that equal one of the rows of `keys` in its columns (NULL equals NULL)."""
        if keys.num_rows == 1:
            found = self._one(name_id, keys)
            if found is not None:
                return found
        self._catch_up()
        layout = self._objects.layout(name_id)
        if layout.disk is not None and set(keys.column_names) == set(layout.keys):
            with self._watched(layout):
                return layout.disk.snapshot().find(keys)
        names = keys.column_names
        params: list[object] | None = None
        # A single plain key, as in most writes, is a filter on the scan, which is cheaper than a join.
        if keys.num_rows == 1 and all(_filters(f.type) and not keys[f.name].null_count for f in keys.schema):
            restrict = "WHERE " + " AND ".join(f"t.{quote(n)} = ${i}" for i, n in enumerate(names, 1))
            params = [keys[n][0].as_py() for n in names]
        else:
            # Plain equality lets DuckDB skip blocks by the range of the wanted keys.
            equals = {n: "IS NOT DISTINCT FROM" if keys[n].null_count else "=" for n in names}
            same = " AND ".join(f"k.{quote(n)} {op} t.{quote(n)}" for n, op in equals.items())
            restrict = f"WHERE EXISTS (SELECT 1 FROM wanted k WHERE {same})"
        with self._duck.cursor(self._objects.explain(name_id)) as con:
            if params is None:
                con.register("wanted", physical(keys))
            with self._objects.lock:
                layout, _, _, on_disk = self._fixed(con, name_id)
                if on_disk is None:
                    text = layout.reading(restrict)
                else:
                    con.register(layout.view, on_disk)
                    text = f"SELECT {layout.columns} FROM {layout.view} t {restrict}"
            with self._watched(layout, on_disk):
                return logical(con.sql(text, params=params).to_arrow_table(), layout.schema)

    def save(self, name_id: int, path: Path) -> tuple[int, int]:
        """Saves an object durably; returns its epoch and LSN. An object in memory becomes an Arrow IPC file, atomically; one on disk writes the changes that its files lack."""
        self._catch_up()
        if (disk := self._write(lambda: self._objects.save_on_disk(name_id))) is not None:
            position = disk.await_saved()
            path.unlink(missing_ok=True)
            return position
        with self._duck.cursor(self._objects.explain(name_id)) as con:
            layout, epoch, lsn, _ = self._fixed(con, name_id)
            noted = layout.schema.with_metadata({_EPOCH: str(epoch), _LSN: str(lsn)})

            def write(out: object) -> None:
                with (
                    pa.ipc.new_file(out, noted) as writer,
                    self._duck.batches(con, f"SELECT * FROM {layout.view}") as reader,
                ):
                    for batch in reader:
                        writer.write_table(logical(pa.Table.from_batches([batch]), noted))

            write_durably(path, sealed(write))
        return epoch, lsn

    def saved_lsn(self, name_id: int) -> int:
        """The LSN up to which an object on disk no longer needs the log; 0 for one in memory."""
        layout = self._objects.layouts.get(name_id)
        return layout.disk.saved[1] if layout is not None and layout.disk is not None else 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block, no file of an object on disk is replaced or removed."""
        with self._objects.workers.files:
            yield

    # Upkeep

    def on_disk(self) -> dict[int, DiskContents]:
        """The objects whose contents are on disk and not known to be damaged."""
        with self._objects.lock:
            return {i: o.disk for i, o in self._objects.layouts.items() if o.disk is not None and o.damage is None}

    def found_damaged(self, name_id: int, why: PenstockError) -> None:
        """Marks an object on disk as damaged, for this process and later ones."""
        self._objects.found_damaged(name_id, why)

    def settle(self) -> None:
        """Waits for the compactions, indexes and files that have been submitted."""
        self._objects.compactor.settle()
        self._objects.indexer.settle()
        self._objects.workers.settle()
        while any(disk.is_merging for disk in self.on_disk().values()):
            self._objects.workers.settle()

    def close(self) -> None:
        """Interrupts running work and releases everything. Idempotent, also after an interrupted call."""
        self._duck.interrupt()
        for worker in (self._objects.workers, self._objects.compactor, self._objects.indexer, self._worker):
            if not worker.close(_CLOSE_S):
                _logger.warning("the view store closes while it is still being written")
        self._objects.layouts.clear()
        self._objects.waiting.clear()
        self._duck.close()

    def _one(self, name_id: int, keys: pa.Table) -> pa.Table | None:
        """The row of a single key, if it can be found without consolidating changes; otherwise None."""
        # Without the lock: it is held while DuckDB writes.
        layout = self._objects.layout(name_id)
        recent = layout.recent
        key = recent.key_of(keys) if recent is not None else None
        if recent is None or key is None:
            return None
        row = recent.get(key)
        if row is MISSING and layout.disk is not None:
            with self._watched(layout):
                return layout.disk.snapshot().find(keys)
        index = recent.index
        if row is MISSING or (index is not None and index.outgrown):
            with self._objects.lock:
                if recent.wants_index():
                    self._objects.indexer.submit(layout, recent)
        if row is MISSING:
            row = self._unindexed(layout, recent, key, keys.schema)
        return None if row is MISSING else recent.table(row)

    def _unindexed(self, layout: TableLayout, recent: Recent, key: Key, kinds: pa.Schema) -> Any:
        """The row of a key from the cache or from DuckDB; MISSING if neither suffices."""
        with self._objects.lock:
            row = recent.waiting[key][1] if key in recent.waiting else recent.cached(key)
            epoch, base = layout.epoch, layout.base
            deltas = layout.deltas if layout.delta_rows else layout.deltas[:-1]
        if row is not MISSING or not all(_filters(f.type) for f in kinds):
            return row
        row = self._read(layout, key, base, deltas)
        with self._objects.lock:
            if row is not MISSING and layout.epoch == epoch:
                recent.keep(key, row)
        return row

    def _read(self, layout: TableLayout, key: Key, base: str, deltas: list[str]) -> Any:
        """The row of a key without pending changes. MISSING if its tables were replaced meanwhile, or it has values that only DuckDB can compare."""
        assert layout.recent is not None
        restrict = "WHERE " + " AND ".join(f"t.{quote(n)} = ${i}" for i, n in enumerate(layout.recent.keys, 1))
        with self._duck.cursor(self._objects.explain(layout.id)) as con:
            try:
                found = con.execute(layout.weighted(restrict, base, deltas), list(key)).fetchall()
            except (
                duckdb.CatalogException,
                duckdb.ConversionException,
                duckdb.InvalidInputException,
                ValueError,
                OverflowError,
            ):
                return MISSING
        total: dict[Row, int] = {}
        for *values, weight in found:
            row = tuple(values)
            if any(v != v for v in row):
                return MISSING
            total[row] = total.get(row, 0) + weight
        alive = [row for row, weight in total.items() if weight]
        if not alive:
            return None
        return alive[0] if len(alive) == 1 and total[alive[0]] == 1 else MISSING

    def _catch_up(self) -> None:
        """Returns when everything applied before the call is in DuckDB."""
        if self._objects.waiting:
            self._write(self._objects.store_waiting)

    def _write(self, call: Callable[[], T]) -> T:
        self._duck.check_open()
        return self._worker.run(call)

    def _fixed(self, con: Cursor, name_id: int) -> tuple[TableLayout, int, int, Snapshot | None]:
        """As `Objects.fix`, also for an object on disk, with its snapshot."""
        with self._objects.lock:
            layout = self._objects.layout(name_id)
            if layout.disk is None:
                return *self._objects.fix(con, name_id), None
            return layout, *layout.stored, layout.disk.snapshot()

    @contextmanager
    def _watched(self, layout: TableLayout, scan: Snapshot | None = None) -> Iterator[None]:
        """Marks the object as damaged if the block finds its files damaged or inconsistent."""
        try:
            yield
        except Exception as why:
            error = scan.error if scan is not None and scan.error is not None else why
            if isinstance(error, PenstockError) and error.code in ("PSK-6001", "PSK-8001"):
                self._objects.found_damaged(layout.id, error)
            raise error from None if error is not why else why.__cause__


def _filters(kind: pa.DataType) -> bool:
    """True for types whose Python values DuckDB compares like values of the column."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))
