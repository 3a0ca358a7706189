"""The current contents of views and tables."""

from __future__ import annotations

import logging
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import ServeSettings
from penstock.disk import write_durably
from penstock.errors import PenstockError, fail
from penstock.serve.compactor import Compactor
from penstock.serve.duck import Cursor, Duck, Explain, size_of
from penstock.serve.indexer import Indexer
from penstock.serve.keyindex import MISSING, Key, Row
from penstock.serve.layout import WEIGHT, TableLayout, is_broken, quote
from penstock.serve.ondisk import DiskContents, Form, Snapshot, Workers
from penstock.serve.physical import logical, physical
from penstock.serve.recent import Recent, RowCache
from penstock.serve.sealed import sealed, unsealed
from penstock.serve.spool import spooled
from penstock.serve.worker import Worker

T = TypeVar("T")

_logger = logging.getLogger(__name__)

# Below this many changed rows merging on read is cheaper than rewriting the object.
_MIN_DELTA_ROWS = 20_000
_DELTA_SHARE = 4
# So many rows and bytes wait for DuckDB at most: it takes those of an object in one statement, which costs little more than for one row.
_MOST_WAITING = 4_000
_MOST_BYTES = 1 << 25
_AT = "__at"
# The share of an object's memory that changes of an object on disk take before they are written.
_PARTS = 4
_PIECE_ROWS = 1 << 18
# Larger results are mapped files.
_SPOOLED_SHARE = 8
_OBJECT_BYTES = size_of(ServeSettings().object_memory)
_WITH = re.compile(r"\s*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE)
_EPOCH, _LSN = b"penstock.epoch", b"penstock.lsn"
# Interrupted work ends at the next block of rows.
_CLOSE_S = 10.0


@dataclass(frozen=True)
class Reading:
    """The rows of an object as of an epoch and an LSN, in pieces of some megabytes that are read when they are wanted."""

    schema: pa.Schema
    epoch: int
    lsn: int
    pieces: Iterator[pa.Table]


class ViewStore:
    """Bags of rows, each at an epoch and an LSN: in an in-memory DuckDB, or on disk if they are larger than `object_bytes`. Thread-safe.

    A reader sees the state after a complete `apply` or `apply_many`. The cost of applying is proportional to the change; a background thread
    folds changes into the base. Small changes wait (`Recent`) until somebody reads more than a row, or there are many.

    Writes run on a thread of the store, so an interrupt ends the caller's wait and never a write in the middle. Reads run on the caller's
    thread; one that is interrupted or fails leaves nothing behind.

    Every error has a code. PSK-7009: the work needs more than `memory_limit`, even with spilling to the folder `spill`. An object whose compaction
    fails is damaged: reading it raises the cause, `on_damage` is called with the cause, and other objects are not affected.

    An object goes to disk, into a folder of its own under `folder`, when it has more than `object_bytes`, or when all objects in memory together have more than half of `memory_limit` and it is the largest.
    It stays there. Without `folder` all objects stay in memory.
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
        # Held by a reader while it begins its transaction, and by a writer during its own.
        self._lock = threading.RLock()
        self._layouts: dict[int, TableLayout] = {}
        self._cache = RowCache()
        # Objects with changes that DuckDB does not have.
        self._waiting: dict[int, TableLayout] = {}
        self._min_delta_rows = min_delta_rows
        self._on_damage = on_damage
        self._folder = folder
        self._object_bytes = object_bytes
        self._part_bytes = max(1, self._object_bytes // _PARTS)
        self._disk = Workers()
        self._indexer = Indexer(self._duck, self._lock, self._layouts, self._fix)
        self._compactor = Compactor(self._duck, self._lock, lambda i: self._explain(i), self._damaged)

    # Objects

    def create(self, name_id: int, schema: pa.Schema, *, keys: tuple[str, ...] = (), append_only: bool) -> None:
        """Creates an empty object at epoch 0. With `keys`, there is at most one row per key at any time."""
        self._write(lambda: self._create(TableLayout(name_id, schema, keys, append_only)))

    def drop(self, name_id: int, *, keep_files: bool = False) -> None:
        """Removes an object, if it exists, and its files unless they are to be kept."""
        self._write(lambda: self._drop(name_id, keep_files))

    def ids(self) -> list[int]:
        with self._lock:
            return sorted(self._layouts)

    def position(self, name_id: int) -> tuple[int, int]:
        """The epoch and the LSN of the contents."""
        with self._lock:
            layout = self._layout(name_id)
            return layout.epoch, layout.lsn

    def count(self, name_id: int) -> int:
        with self._lock:
            return self._layout(name_id).count

    # Changes in

    def apply(self, name_id: int, changes: pa.Table, *, epoch: int, lsn: int) -> None:
        """Adds one epoch's changes; an epoch that was applied before is ignored."""
        self.apply_many([(name_id, changes, epoch)], lsn)

    def apply_many(self, changes: Sequence[tuple[int, pa.Table, int]], lsn: int) -> None:
        """Adds the changes of one commit to several objects, all or nothing.

        Objects that were dropped meanwhile or are damaged are skipped; the log has their changes.
        """
        self._write(lambda: self._apply(changes, lsn))
        for name_id, _, _ in changes:
            layout = self._layouts.get(name_id)
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
        self._write(lambda: self._load(name_id, table, epoch, lsn, path.name))
        return epoch, lsn

    def open_saved(self, name_id: int) -> tuple[int, int]:
        """Takes the contents that an object at epoch 0 has on disk; returns their epoch and LSN. Raises PSK-6001 if they are damaged. They are read when somebody wants them."""
        return self._write(lambda: self._open_saved(name_id))

    # Contents out

    def snapshot(self, name_id: int) -> tuple[pa.Table, int, int]:
        """All rows, with their epoch and LSN. Those that do not fit in memory are in a file that is mapped."""
        with self.reading(name_id) as reading:
            table = spooled(reading.pieces, reading.schema, self._duck.spill, self._duck.limit // _SPOOLED_SHARE)
        return table, reading.epoch, reading.lsn

    @contextmanager
    def reading(self, name_id: int) -> Iterator[Reading]:
        """All rows, for the time of a block, without having all of them in memory."""
        self._catch_up()
        with self._duck.cursor(self._explain(name_id)) as con:
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
        in_memory = [i for i in objects.values() if (o := self._layouts.get(i)) is not None and o.disk is None]
        try:
            return self._query(duckdb_sql, objects, mapped)
        except PenstockError:
            # One of them may have gone to disk before DuckDB looked for its tables.
            if not any((o := self._layouts.get(i)) is not None and o.disk is not None for i in in_memory):
                raise
            return self._query(duckdb_sql, objects, mapped)

    def _query(self, duckdb_sql: str, objects: Mapping[str, int], mapped: bool) -> pa.Table:
        with self._duck.cursor(self._explain(*objects.values())) as con:
            # Never committed, whatever the text does.
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
        """CTEs of some objects, all as they are now in the transaction of a cursor; and those that are scanned from disk."""
        views, scans = [], []
        with self._lock:
            layouts = {name: self._layout(i) for name, i in objects.items()}
            for layout in {o.id: o for o in layouts.values() if o.disk is not None}.values():
                assert layout.disk is not None
                scans.append((layout, layout.disk.snapshot()))
                con.register(layout.view, scans[-1][1])
            tables = [o.base for o in layouts.values() if o.disk is None]
            if scans and tables:
                # DuckDB takes the snapshot of a transaction at its first read, which must be now.
                con.execute(f"SELECT 1 FROM {tables[0]} LIMIT 0")
            for name, layout in layouts.items():
                views.append(f"{quote(name)} AS NOT MATERIALIZED (SELECT * FROM {layout.view})")
        return views, scans

    def matching(self, named: pa.Table, name: str, rest: str, table: pa.Table) -> pa.Table:
        """The rows of `table` that a DuckDB SELECT, less its `SELECT *`, returns of `named`: the same rows as a table of a name."""
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
        """The rows whose key columns, those of `keys`, equal one of the rows of `keys` (NULL equals NULL)."""
        if keys.num_rows == 1:
            found = self._one(name_id, keys)
            if found is not None:
                return found
        self._catch_up()
        layout = self._layout(name_id)
        if layout.disk is not None and set(keys.column_names) == set(layout.keys):
            with self._watched(layout):
                return layout.disk.snapshot().find(keys)
        names = keys.column_names
        params: list[object] | None = None
        # One plain key, as most writes have, is a filter on the scan; that is cheaper than a join.
        if keys.num_rows == 1 and all(_filters(f.type) and not keys[f.name].null_count for f in keys.schema):
            restrict = "WHERE " + " AND ".join(f"t.{quote(n)} = ${i}" for i, n in enumerate(names, 1))
            params = [keys[n][0].as_py() for n in names]
        else:
            # Plain equality lets DuckDB skip blocks by the range of the wanted keys.
            equals = {n: "IS NOT DISTINCT FROM" if keys[n].null_count else "=" for n in names}
            same = " AND ".join(f"k.{quote(n)} {op} t.{quote(n)}" for n, op in equals.items())
            restrict = f"WHERE EXISTS (SELECT 1 FROM wanted k WHERE {same})"
        with self._duck.cursor(self._explain(name_id)) as con:
            if params is None:
                con.register("wanted", physical(keys))
            with self._lock:
                layout, _, _, on_disk = self._fixed(con, name_id)
                if on_disk is None:
                    text = layout.reading(restrict)
                else:
                    con.register(layout.view, on_disk)
                    text = f"SELECT {layout.columns} FROM {layout.view} t {restrict}"
            with self._watched(layout, on_disk):
                return logical(con.sql(text, params=params).to_arrow_table(), layout.schema)

    def save(self, name_id: int, path: Path) -> tuple[int, int]:
        """Writes a snapshot to an Arrow IPC file, durable and whole, or what is missing on disk of an object there; returns its epoch and LSN."""
        self._catch_up()
        if (disk := self._write(lambda: self._save_on_disk(name_id))) is not None:
            position = disk.await_saved()
            path.unlink(missing_ok=True)
            return position
        with self._duck.cursor(self._explain(name_id)) as con:
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
        """The LSN up to which an object on disk no longer needs the log; 0 of one in memory."""
        layout = self._layouts.get(name_id)
        return layout.disk.saved[1] if layout is not None and layout.disk is not None else 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block no file of an object on disk is replaced or removed."""
        with self._disk.files:
            yield

    # Upkeep

    def on_disk(self) -> dict[int, DiskContents]:
        """The objects whose contents are on disk, and not known to be damaged."""
        with self._lock:
            return {i: o.disk for i, o in self._layouts.items() if o.disk is not None and o.damage is None}

    def found_damaged(self, name_id: int, why: PenstockError) -> None:
        """Refuses the contents of an object on disk from here on, in this process and the next."""
        with self._lock:
            layout = self._layouts.get(name_id)
            if layout is None or layout.damage is not None or layout.disk is None:
                return
            layout.damage = why
        if why.code == "PSK-6001":
            layout.disk.mark(why)
        self._damaged(layout, why)

    def settle(self) -> None:
        """Waits for the compactions, indexes and files that have been submitted."""
        self._compactor.settle()
        self._indexer.settle()
        self._disk.settle()
        while any(disk.is_merging for disk in self.on_disk().values()):
            self._disk.settle()

    def close(self) -> None:
        """Interrupts running work and releases everything. Idempotent, also after an interrupted call."""
        self._duck.interrupt()
        for worker in (self._disk, self._compactor, self._indexer, self._worker):
            if not worker.close(_CLOSE_S):
                _logger.warning("the view store closes while it is still being written")
        self._layouts.clear()
        self._waiting.clear()
        self._duck.close()

    def _one(self, name_id: int, keys: pa.Table) -> pa.Table | None:
        """The row with one key, if it is known or can be found without adding up changes; otherwise None."""
        # Without the lock: it is held while DuckDB writes.
        layout = self._layout(name_id)
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
            with self._lock:
                if recent.wants_index():
                    self._indexer.submit(layout, recent)
        if row is MISSING:
            row = self._unindexed(layout, recent, key, keys.schema)
        return None if row is MISSING else recent.table(row)

    def _unindexed(self, layout: TableLayout, recent: Recent, key: Key, kinds: pa.Schema) -> Any:
        """The row of a key from the cache or from DuckDB; MISSING if it takes more than that."""
        with self._lock:
            row = recent.waiting[key][1] if key in recent.waiting else recent.cached(key)
            epoch, base = layout.epoch, layout.base
            deltas = layout.deltas if layout.delta_rows else layout.deltas[:-1]
        if row is not MISSING or not all(_filters(f.type) for f in kinds):
            return row
        row = self._read(layout, key, base, deltas)
        with self._lock:
            if row is not MISSING and layout.epoch == epoch:
                recent.keep(key, row)
        return row

    def _read(self, layout: TableLayout, key: Key, base: str, deltas: list[str]) -> Any:
        """The row of a key whose changes do not wait. MISSING if its tables were replaced meanwhile, or it has values that only DuckDB can compare."""
        assert layout.recent is not None
        restrict = "WHERE " + " AND ".join(f"t.{quote(n)} = ${i}" for i, n in enumerate(layout.recent.keys, 1))
        with self._duck.cursor(self._explain(layout.id)) as con:
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
        if self._waiting:
            self._write(self._store_waiting)

    def _write(self, call: Callable[[], T]) -> T:
        self._duck.check_open()
        return self._worker.run(call)

    def _layout(self, name_id: int) -> TableLayout:
        self._duck.check_open()
        layout = self._layouts.get(name_id)
        if layout is None:
            raise _dropped(name_id)
        if layout.damage is not None:
            raise fail(layout.damage.code, layout.damage.detail) from layout.damage
        return layout

    def _fix(self, con: Cursor, name_id: int) -> tuple[TableLayout, int, int]:
        """Begins a transaction that sees the object as it is now in DuckDB; returns its layout and position."""
        with self._lock:
            layout = self._layout(name_id)
            con.execute("BEGIN")
            # DuckDB takes the snapshot of a transaction at its first read, which must be here, where the position is known.
            con.execute(f"SELECT 1 FROM {layout.base} LIMIT 0")
            return layout, *layout.stored

    def _fixed(self, con: Cursor, name_id: int) -> tuple[TableLayout, int, int, Snapshot | None]:
        """The same, wherever the object is; of one on disk, its snapshot."""
        with self._lock:
            layout = self._layout(name_id)
            if layout.disk is None:
                return *self._fix(con, name_id), None
            return layout, *layout.stored, layout.disk.snapshot()

    @contextmanager
    def _watched(self, layout: TableLayout, scan: Snapshot | None = None) -> Iterator[None]:
        """An object whose files are found damaged in the block, or contradict themselves, is damaged from here on."""
        try:
            yield
        except Exception as why:
            error = scan.error if scan is not None and scan.error is not None else why
            if isinstance(error, PenstockError) and error.code in ("PSK-6001", "PSK-8001"):
                self.found_damaged(layout.id, error)
            raise error from None if error is not why else why.__cause__

    def _explain(self, *ids: int) -> Explain:
        """Translates errors of statements on some objects."""

        def explain(why: Exception) -> PenstockError | None:
            if is_broken(str(why)):
                named = ", ".join(str(i) for i in ids)
                return fail(
                    "PSK-8001",
                    f"In object {named} the weights of a row sum to less than zero, or to more than one under a key.",
                )
            gone = [i for i in ids if i not in self._layouts]
            return _dropped(gone[0]) if gone else None

        return explain

    def _damaged(self, layout: TableLayout, why: PenstockError) -> None:
        if self._on_damage is not None:
            self._on_damage(layout.id, why)

    # On the store's thread

    def _create(self, layout: TableLayout) -> None:
        with self._lock:
            if layout.id in self._layouts:
                raise fail("PSK-8001", f"Object {layout.id} is already in the view store.")
            if not layout.append_only and Recent.suits(layout.schema, layout.keys):
                layout.recent = Recent(layout.schema, layout.keys, self._cache)
            with self._duck.transaction(_defect) as con:
                layout.base = layout.next_table()
                con.register("incoming", physical(layout.schema.empty_table()))
                con.execute(f"CREATE TABLE {layout.base} AS SELECT * FROM incoming")
                if not layout.append_only:
                    layout.deltas = [_new_delta(con, layout)]
                con.execute(f"CREATE OR REPLACE VIEW {layout.view} AS {layout.reading()}")
            self._layouts[layout.id] = layout

    def _drop(self, name_id: int, keep_files: bool) -> None:
        with self._lock:
            layout = self._layouts.pop(name_id, None)
            self._waiting.pop(name_id, None)
            if layout is None:
                return
            if layout.disk is not None:
                layout.disk.drop(keep_files=keep_files)
            else:
                self._drop_tables(layout)

    def _drop_tables(self, layout: TableLayout) -> None:
        try:
            with self._duck.transaction(_defect) as con:
                con.execute(f"DROP VIEW {layout.view}")
                for table in (layout.base, *layout.deltas):
                    con.execute(f"DROP TABLE {table}")
        except PenstockError as why:
            # Its tables are unreachable now and only take space.
            _logger.warning("tables of object %d could not be dropped: %s", layout.id, why.detail)

    def _apply(self, changes: Sequence[tuple[int, pa.Table, int]], lsn: int) -> None:
        with self._lock:
            todo: list[tuple[TableLayout, pa.Table, int, int]] = []
            for name_id, table, epoch in changes:
                layout = self._layouts.get(name_id)
                if layout is not None and layout.damage is None and epoch > layout.epoch:
                    todo.append((layout, table, epoch, _total(table)))
            changed = [(layout, table) for layout, table, _, _ in todo if table.num_rows]
            for layout, table in changed:
                # A change that would not fit in memory goes to disk at once.
                if table.nbytes > self._part_bytes and layout.size + table.nbytes > self._object_bytes:
                    self._try_move(layout)
            if not self._let_wait(changed) and changed:
                self._store_waiting()
                self._insert_all(changed)
                for layout, table in changed:
                    if layout.recent is not None:
                        layout.recent.passed(table)
            for layout, table in changed:
                layout.seen_rows += table.num_rows
                layout.seen_bytes += table.nbytes
            for layout, _, epoch, total in todo:
                layout.epoch, layout.lsn = epoch, lsn
                layout.count += total
                if layout.append_only:
                    layout.base_rows += total
            recent = [w.recent for w in self._waiting.values() if w.recent is not None]
            if (
                sum(r.waiting_rows for r in recent) > _MOST_WAITING
                or sum(r.waiting_bytes for r in recent) > _MOST_BYTES
            ):
                self._store_waiting()
            for layout, _, _, _ in todo:
                self._compact_if_due(layout)

    def _insert_all(self, changes: Sequence[tuple[TableLayout, pa.Table]]) -> None:
        """Adds changes to several objects, all or nothing."""
        on_disk = [(o.disk, o.disk.form.change(table)) for o, table in changes if o.disk is not None]
        in_memory = [(o, table) for o, table in changes if o.disk is None]
        if in_memory:
            with self._duck.transaction(_defect) as con:
                for layout, table in in_memory:
                    _insert(con, layout, table)
        for disk, change in on_disk:
            disk.add(change)
        for layout, table in in_memory:
            layout.delta_rows += 0 if layout.append_only else table.num_rows

    def _let_wait(self, changes: Sequence[tuple[TableLayout, pa.Table]]) -> bool:
        """Keeps the changes of one commit for later, if all of them are small."""
        news = [layout.recent.news(table) if layout.recent is not None else None for layout, table in changes]
        if any(n is None for n in news):
            return False
        for (layout, table), rows in zip(changes, news, strict=True):
            assert layout.recent is not None and rows is not None
            if not layout.recent.waiting:
                layout.recent.stored_epoch, layout.recent.stored_lsn = layout.epoch, layout.lsn
            layout.recent.take(rows, table.nbytes)
            self._waiting[layout.id] = layout
        return True

    def _store_waiting(self) -> None:
        """Writes the changes that wait to DuckDB, all in one transaction. If that fails, object by object: those at fault are damaged."""
        with self._lock:
            waiting = list(self._waiting.values())
            if not waiting:
                return
            try:
                self._store(waiting)
            except PenstockError:
                if self._duck.closed:
                    raise
                for layout in waiting:
                    try:
                        self._store([layout])
                    except PenstockError as why:
                        self._waiting.pop(layout.id, None)
                        layout.damage = why
                        self._damaged(layout, why)
            for layout in waiting:
                self._compact_if_due(layout)

    def _store(self, waiting: Sequence[TableLayout]) -> None:
        changes = {w.id: w.recent.change() for w in waiting if w.recent is not None}
        self._insert_all([(w, changes[w.id]) for w in waiting])
        for layout in waiting:
            assert layout.recent is not None
            layout.recent.stored(changes[layout.id], layout.epoch, layout.lsn)
            self._waiting.pop(layout.id, None)

    def _load(self, name_id: int, table: pa.Table, epoch: int, lsn: int, file: str) -> None:
        def explain(why: Exception) -> PenstockError:
            return fail("PSK-6001", f"The snapshot {file} does not match the object: {why}")

        with self._lock:
            layout = self._layout(name_id)
            if layout.epoch:
                raise fail("PSK-8001", f"Object {name_id} is already at epoch {layout.epoch}.")
            layout.seen_rows, layout.seen_bytes = table.num_rows, table.nbytes
            form = self._form_on_disk(layout) if table.nbytes > self._object_bytes else None
            if form is not None:
                pieces = (pa.Table.from_batches([b]) for b in table.to_batches(max_chunksize=_PIECE_ROWS))
                self._go_to_disk(layout, form, pieces, epoch, lsn, table.num_rows)
            else:
                with self._duck.transaction(explain) as con:
                    con.register("incoming", physical(table))
                    con.execute(f"INSERT INTO {layout.base} SELECT {layout.columns} FROM incoming")
                layout.base_rows = table.num_rows
            layout.epoch, layout.lsn = epoch, lsn
            layout.count = table.num_rows
            if layout.recent is not None:
                layout.recent.passed(table)

    # Objects on disk, on the store's thread

    def _form_on_disk(self, layout: TableLayout) -> Form | None:
        """How an object in memory would lie on disk; None if it cannot."""
        if self._folder is None or layout.disk is not None:
            return None
        return Form.of(layout.id, layout.schema, layout.keys, append_only=layout.append_only)

    def _place(self, layout: TableLayout) -> Path:
        assert self._folder is not None
        return self._folder / str(layout.id)

    def _move_if_large(self, layout: TableLayout) -> bool:
        """Moves an object to disk if there is too much in memory; True if this one is there."""
        if layout.disk is not None:
            return True
        size = layout.size
        if self._folder is None or size < layout.weighed + self._part_bytes // _PARTS:
            return False
        large = layout if size > self._object_bytes else None
        if large is None and sum(o.size for o in self._layouts.values()) > self._duck.limit // 2:
            large = max(self._layouts.values(), key=lambda o: o.size)
        # Its next change moves one that is being compacted.
        if large is None or not large.compacting:
            layout.weighed = size
        if large is not None:
            self._try_move(large)
        return layout.disk is not None

    def _try_move(self, layout: TableLayout) -> None:
        """Moves an object to disk, unless it is there, cannot lie there, or is being compacted."""
        form = self._form_on_disk(layout) if not layout.compacting and layout.damage is None else None
        if form is None:
            return
        try:
            self._move(layout, form)
        except Exception as why:
            # It stays in memory, where DuckDB spills; it is tried again when it has grown.
            _logger.warning("object %d could not be moved to disk: %s", layout.id, why)

    def _move(self, layout: TableLayout, form: Form) -> None:
        if layout.recent is not None and layout.recent.waiting:
            self._store([layout])
        with (
            self._duck.cursor(self._explain(layout.id)) as con,
            self._duck.batches(con, f"SELECT * FROM {layout.view}") as reader,
        ):
            pieces = (logical(pa.Table.from_batches([b]), layout.schema) for b in reader)
            self._go_to_disk(layout, form, pieces, layout.epoch, layout.lsn, layout.count)

    def _go_to_disk(
        self, layout: TableLayout, form: Form, pieces: Iterator[pa.Table], epoch: int, lsn: int, count: int
    ) -> None:
        place = self._place(layout)
        # Left behind by a crash.
        shutil.rmtree(place, ignore_errors=True)
        disk = DiskContents(place, form, self._disk, self._part_bytes, lambda why: self.found_damaged(layout.id, why))
        disk.fill(pieces, epoch, lsn, count)
        self._use_disk(layout, disk)

    def _open_saved(self, name_id: int) -> tuple[int, int]:
        with self._lock:
            layout = self._layout(name_id)
            form = self._form_on_disk(layout)
            if layout.epoch or form is None:
                raise fail("PSK-8001", f"Object {name_id} cannot take contents on disk.")
            place = self._place(layout)
            disk = DiskContents.open(
                place, form, self._disk, self._part_bytes, lambda why: self.found_damaged(name_id, why)
            )
            self._use_disk(layout, disk)
            layout.epoch, layout.lsn, layout.count = disk.saved
            return layout.epoch, layout.lsn

    def _use_disk(self, layout: TableLayout, disk: DiskContents) -> None:
        layout.disk = disk
        self._drop_tables(layout)
        layout.base, layout.deltas, layout.delta_rows, layout.base_rows = "", [], 0, 0
        if layout.recent is not None:
            layout.recent.refuse_index()
            layout.recent.reached(disk.highest)

    def _save_on_disk(self, name_id: int) -> DiskContents | None:
        """Freezes what an object on disk has in memory; None if the object is in memory."""
        with self._lock:
            layout = self._layout(name_id)
            if layout.disk is None:
                return None
            if layout.recent is not None and layout.recent.waiting:
                self._store([layout])
            layout.disk.save(layout.epoch, layout.lsn, layout.count)
            return layout.disk

    def _freeze_if_full(self, layout: TableLayout) -> None:
        assert layout.disk is not None
        if layout.disk.is_full:
            if layout.recent is not None and layout.recent.waiting:
                self._store([layout])
            layout.disk.freeze(layout.epoch, layout.lsn, layout.count)

    def _compact_if_due(self, layout: TableLayout) -> None:
        if self._move_if_large(layout):
            self._freeze_if_full(layout)
            return
        if layout.compacting or layout.delta_rows < max(self._min_delta_rows, layout.base_rows // _DELTA_SHARE):
            return
        try:
            with self._duck.transaction(_defect) as con:
                delta = _new_delta(con, layout)
                deltas = [*layout.deltas, delta]
                con.execute(f"CREATE OR REPLACE VIEW {layout.view} AS {layout.reading(deltas=deltas)}")
        except PenstockError as why:
            # The change itself is applied; the next one tries again.
            _logger.warning("object %d of the view store cannot be compacted: %s", layout.id, why.detail)
            return
        layout.deltas, layout.delta_rows, layout.compacting = deltas, 0, True
        self._compactor.submit(layout, lambda: self._layouts.get(layout.id) is layout)


def _insert(con: Cursor, layout: TableLayout, table: pa.Table) -> None:
    if not table.num_rows:
        return  # Rows that came and went while they waited.
    weighted = WEIGHT in table.column_names
    if layout.append_only and weighted and pc.min(table[WEIGHT]).as_py() < 0:
        raise fail("PSK-8001", f"A retraction reached the append-only object {layout.id}.")
    con.register("incoming", physical(table))
    if layout.append_only:
        times = f", unnest(range({WEIGHT}))" if weighted else ""
        con.execute(f"INSERT INTO {layout.base} SELECT {layout.columns} FROM incoming{times}")
    else:
        weight = WEIGHT if weighted else "1"
        con.execute(f"INSERT INTO {layout.deltas[-1]} SELECT {layout.columns}, {weight} FROM incoming")


def _new_delta(con: Cursor, layout: TableLayout) -> str:
    delta = layout.next_table()
    con.execute(f"CREATE TABLE {delta} AS SELECT *, 0::BIGINT AS {WEIGHT} FROM {layout.base} LIMIT 0")
    return delta


def _defect(why: Exception) -> PenstockError:
    return fail("PSK-8001", f"The view store failed: {why}")


def _dropped(name_id: int) -> PenstockError:
    return fail("PSK-1002", f"Object {name_id} was dropped.")


def _filters(kind: pa.DataType) -> bool:
    """True for types whose Python values DuckDB compares like values of the column."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


def _total(table: pa.Table) -> int:
    if WEIGHT not in table.column_names:
        return int(table.num_rows)
    return int(pc.sum(table[WEIGHT]).as_py() or 0)
