"""The current contents of views and tables."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, fail
from penstock.serve.compactor import Compactor
from penstock.serve.durable import write_durably
from penstock.serve.layout import WEIGHT, Layout, is_broken, quote

# Below this many changed rows merging on read is cheaper than rewriting the object.
_MIN_DELTA_ROWS = 20_000
_DELTA_SHARE = 4
_WITH = re.compile(r"\s*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE)
_EPOCH, _LSN = b"penstock.epoch", b"penstock.lsn"


class ViewStore:
    """Bags of rows in an in-memory DuckDB, each at an epoch and an LSN.

    Any number of threads may read while one writes: a reader sees the state after some whole `apply` or `apply_many`.
    Applying costs what the change costs; what piles up is folded in by a background thread.
    """

    def __init__(self, *, min_delta_rows: int = _MIN_DELTA_ROWS) -> None:
        self._db = duckdb.connect(":memory:")
        self._db.execute("SET TimeZone = 'UTC'")
        self._db.execute("SET python_enable_replacements = false")
        self._writer = self._db.cursor()
        self._lock = threading.RLock()
        self._layouts: dict[int, Layout] = {}
        self._local = threading.local()
        self._min_delta_rows = min_delta_rows
        self._compactor = Compactor(self._db.cursor(), self._lock, self._transaction, self._failure)
        self._closed = False

    def create(self, name_id: int, schema: pa.Schema, *, keys: tuple[str, ...] = (), append_only: bool) -> None:
        """An empty object at epoch 0. With `keys` at most one row per key is alive at a time."""
        layout = Layout(name_id, schema, keys, append_only)
        with self._lock:
            if name_id in self._layouts:
                raise fail("PSK-8001", f"Object {name_id} is already in the view store.")
            with self._transaction() as con:
                layout.base = layout.next_table()
                empty = schema.empty_table()
                with _registered(con, "incoming", empty):
                    con.execute(f"CREATE TABLE {layout.base} AS SELECT * FROM incoming")
                if not append_only:
                    self._add_delta(con, layout)
                con.execute(f"CREATE VIEW {layout.view} AS {layout.reading()}")
            self._layouts[name_id] = layout

    def drop(self, name_id: int) -> None:
        """Forgets the object; one that is not there is no error."""
        with self._lock:
            layout = self._layouts.pop(name_id, None)
            if layout is None:
                return
            with self._transaction() as con:
                con.execute(f"DROP VIEW {layout.view}")
                for table in (layout.base, *layout.deltas):
                    con.execute(f"DROP TABLE {table}")

    def ids(self) -> list[int]:
        with self._lock:
            return sorted(self._layouts)

    def apply(self, name_id: int, changes: pa.Table, *, epoch: int, lsn: int) -> None:
        """Adds one epoch's changes; an epoch that was applied before is ignored."""
        self.apply_many([(name_id, changes, epoch)], lsn)

    def apply_many(self, changes: Sequence[tuple[int, pa.Table, int]], lsn: int) -> None:
        """Adds the changes of one commit to several objects: readers see all of them or none."""
        with self._lock:
            todo: list[tuple[Layout, pa.Table, int, int]] = []
            for name_id, table, epoch in changes:
                layout = self._layout(name_id)
                if epoch > layout.epoch:
                    todo.append((layout, table, epoch, _total(table)))
            with self._transaction() as con:
                for layout, table, _, _ in todo:
                    if table.num_rows:
                        self._insert(con, layout, table)
            for layout, table, epoch, total in todo:
                layout.epoch, layout.lsn = epoch, lsn
                layout.count += total
                if layout.append_only:
                    layout.base_rows += total
                else:
                    layout.delta_rows += table.num_rows
                    self._compact_if_due(layout)

    def position(self, name_id: int) -> tuple[int, int]:
        """The epoch and the LSN that the contents stand for."""
        with self._lock:
            layout = self._layout(name_id)
            return layout.epoch, layout.lsn

    def count(self, name_id: int) -> int:
        with self._lock:
            return self._layout(name_id).count

    def snapshot(self, name_id: int) -> tuple[pa.Table, int, int]:
        """All rows, and the epoch and the LSN that they stand for."""
        cursor = self._reader()
        with self._failure(name_id):
            with self._lock:
                layout = self._layout(name_id)
                cursor.execute("BEGIN")
                # DuckDB fixes what a transaction sees at its first read, which must be here, where the position is known.
                cursor.execute(f"SELECT 1 FROM {layout.base} LIMIT 0")
                epoch, lsn = layout.epoch, layout.lsn
            try:
                table = cursor.sql(f"SELECT * FROM {layout.view}").to_arrow_table()
            finally:
                cursor.execute("ROLLBACK")
        return table.cast(layout.schema), epoch, lsn

    def query(self, duckdb_sql: str, objects: Mapping[str, int]) -> pa.Table:
        """The result of a DuckDB SELECT in which `objects` gives the names their meaning; all of them as of one moment."""
        views = []
        for name, name_id in objects.items():
            views.append(f"{quote(name)} AS NOT MATERIALIZED (SELECT * FROM {self._layout(name_id).view})")
        text = duckdb_sql
        if views:
            own = _WITH.match(duckdb_sql)
            recursive = "RECURSIVE " if own and own[1] else ""
            rest = f", {duckdb_sql[own.end() :]}" if own else f" {duckdb_sql}"
            text = f"WITH {recursive}{', '.join(views)}{rest}"
        cursor = self._reader()
        with self._failure(*objects.values()):
            cursor.execute("BEGIN")
            try:
                return cursor.sql(text).to_arrow_table()
            finally:
                cursor.execute("ROLLBACK")

    def lookup(self, name_id: int, keys: pa.Table) -> pa.Table:
        """The rows whose key columns, those of `keys`, equal one of the rows of `keys` (NULL equals NULL)."""
        cursor = self._reader()
        # One plain key, as most writes have, is a filter on the scan; that is cheaper than a join.
        if keys.num_rows == 1 and all(_filters(f.type) and not keys[f.name].null_count for f in keys.schema):
            same = " AND ".join(f"t.{quote(n)} = ${i}" for i, n in enumerate(keys.column_names, 1))
            return self._matching(cursor, name_id, f"WHERE {same}", [keys[n][0].as_py() for n in keys.column_names])
        # Plain equality lets DuckDB skip blocks by the range of the wanted keys.
        equals = {n: "IS NOT DISTINCT FROM" if keys[n].null_count else "=" for n in keys.column_names}
        same = " AND ".join(f"k.{quote(n)} {op} t.{quote(n)}" for n, op in equals.items())
        with _registered(cursor, "wanted", keys):
            return self._matching(cursor, name_id, f"WHERE EXISTS (SELECT 1 FROM wanted k WHERE {same})", [])

    def _matching(
        self, cursor: duckdb.DuckDBPyConnection, name_id: int, restrict: str, params: list[object]
    ) -> pa.Table:
        with self._failure(name_id):
            with self._lock:
                layout = self._layout(name_id)
                cursor.execute("BEGIN")
                cursor.execute(f"SELECT 1 FROM {layout.base} LIMIT 0")
                text = layout.reading(restrict)
            try:
                return cursor.sql(text, params=params or None).to_arrow_table().cast(layout.schema)
            finally:
                cursor.execute("ROLLBACK")

    def save(self, name_id: int, path: Path) -> tuple[int, int]:
        """Writes a snapshot to an Arrow IPC file, durable and whole; returns its epoch and LSN."""
        table, epoch, lsn = self.snapshot(name_id)
        noted = table.replace_schema_metadata({_EPOCH: str(epoch), _LSN: str(lsn)})

        def write(out: object) -> None:
            with pa.ipc.new_file(out, noted.schema) as writer:
                writer.write_table(noted)

        write_durably(path, write)
        return epoch, lsn

    def load(self, name_id: int, path: Path) -> tuple[int, int]:
        """Fills an object at epoch 0 from a file that `save` wrote; returns its epoch and LSN."""
        try:
            with pa.memory_map(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
            epoch, lsn = int(table.schema.metadata[_EPOCH]), int(table.schema.metadata[_LSN])
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as why:
            raise fail("PSK-6001", f"The snapshot {path.name} cannot be read: {why}") from why
        with self._lock:
            layout = self._layout(name_id)
            if layout.epoch:
                raise fail("PSK-8001", f"Object {name_id} is already at epoch {layout.epoch}.")
            with self._transaction() as con, _registered(con, "incoming", table):
                con.execute(f"INSERT INTO {layout.base} SELECT {layout.columns} FROM incoming")
            layout.epoch, layout.lsn = epoch, lsn
            layout.count = layout.base_rows = table.num_rows
        return epoch, lsn

    def settle(self) -> None:
        """Waits until no change waits to be folded in."""
        self._compactor.settle()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._compactor.close()
        with self._lock:
            self._layouts.clear()
            self._writer.close()
            self._db.close()

    def _layout(self, name_id: int) -> Layout:
        if self._closed:
            raise fail("PSK-0004", "The view store is closed.")
        layout = self._layouts.get(name_id)
        if layout is None:
            raise fail("PSK-8001", f"Object {name_id} is not in the view store.")
        if layout.damage:
            raise fail("PSK-8001", layout.damage)
        return layout

    def _reader(self) -> duckdb.DuckDBPyConnection:
        if self._closed:
            raise fail("PSK-0004", "The view store is closed.")
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            with self._lock:
                cursor = self._local.cursor = self._db.cursor()
        return cursor

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self._writer.execute("BEGIN")
        try:
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            self._writer.execute("ROLLBACK")
            raise

    @contextmanager
    def _failure(self, *ids: int) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as why:
            raise self._translated(why, ids) from why

    def _translated(self, why: duckdb.Error, ids: tuple[int, ...]) -> PenstockError:
        named = ", ".join(str(i) for i in ids)
        if is_broken(str(why)):
            return fail(
                "PSK-8001",
                f"In object {named} the weights of a row sum to less than zero, or to more than one under a key.",
            )
        return fail("PSK-7001", f"The query failed: {why}")

    def _insert(self, con: duckdb.DuckDBPyConnection, layout: Layout, table: pa.Table) -> None:
        weighted = WEIGHT in table.column_names
        if layout.append_only and weighted and pc.min(table[WEIGHT]).as_py() < 0:
            raise fail("PSK-8001", f"A retraction reached the append-only object {layout.id}.")
        with _registered(con, "incoming", table):
            if layout.append_only:
                times = f", unnest(range({WEIGHT}))" if weighted else ""
                con.execute(f"INSERT INTO {layout.base} SELECT {layout.columns} FROM incoming{times}")
            else:
                weight = WEIGHT if weighted else "1"
                con.execute(f"INSERT INTO {layout.deltas[-1]} SELECT {layout.columns}, {weight} FROM incoming")

    def _add_delta(self, con: duckdb.DuckDBPyConnection, layout: Layout) -> str:
        delta = layout.next_table()
        con.execute(f"CREATE TABLE {delta} AS SELECT *, 0::BIGINT AS {WEIGHT} FROM {layout.base} LIMIT 0")
        layout.deltas.append(delta)
        return delta

    def _compact_if_due(self, layout: Layout) -> None:
        if layout.compacting or layout.delta_rows < max(self._min_delta_rows, layout.base_rows // _DELTA_SHARE):
            return
        with self._transaction() as con:
            self._add_delta(con, layout)
            con.execute(f"CREATE OR REPLACE VIEW {layout.view} AS {layout.reading()}")
        layout.compacting = True
        layout.delta_rows = 0
        self._compactor.submit(layout, lambda: self._layouts.get(layout.id) is layout)


@contextmanager
def _registered(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    con.register(name, table)
    try:
        yield
    finally:
        con.unregister(name)


def _filters(kind: pa.DataType) -> bool:
    """True for types whose Python values DuckDB compares as the column's own."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


def _total(table: pa.Table) -> int:
    if WEIGHT not in table.column_names:
        return int(table.num_rows)
    return int(pc.sum(table[WEIGHT]).as_py() or 0)
