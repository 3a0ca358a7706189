"""The objects of the view store, and everything that changes them."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, fail
from penstock.serve.compactor import Compactor
from penstock.serve.duck import Cursor, Duck, Explain
from penstock.serve.gathered import Gathered
from penstock.serve.indexer import Indexer
from penstock.serve.layout import WEIGHT, TableLayout, is_broken
from penstock.serve.ondisk import DiskContents, Form, Workers
from penstock.serve.physical import declared, logical, physical
from penstock.serve.recent import Recent, RowCache

_logger = logging.getLogger(__name__)

# Limits of pending rows and bytes for DuckDB. It inserts those of an object in one statement, which costs little more than for one row.
_MOST_WAITING = 4_000
_MOST_BYTES = 1 << 25
_DELTA_SHARE = 4
# Changes of an object on disk are written when they take this share (1/n) of `object_bytes`.
_PARTS = 4
_PIECE_ROWS = 1 << 18


class Objects:
    """Objects by id, in DuckDB tables or on disk. All writes run on the store's thread. A reader holds `lock` while it begins its transaction, a writer during its own.

    `on_damage` is called with an object that is damaged, from any thread.
    """

    def __init__(
        self,
        duck: Duck,
        *,
        folder: Path | None,
        object_bytes: int,
        min_delta_rows: int,
        on_damage: Callable[[int, PenstockError], None] | None,
    ) -> None:
        self.duck = duck
        self.lock = threading.RLock()
        self.layouts: dict[int, TableLayout] = {}
        self.waiting: dict[int, TableLayout] = {}
        """Objects with changes that DuckDB does not have yet."""
        self.cache = RowCache()
        self.workers = Workers()
        self.indexer = Indexer(duck, self.lock, self.layouts, self.fix)
        self.compactor = Compactor(duck, self.lock, lambda i: self.explain(i), self.damaged)
        self._min_delta_rows = min_delta_rows
        self._on_damage = on_damage
        self._folder = folder
        self._object_bytes = object_bytes
        self._part_bytes = max(1, object_bytes // _PARTS)

    # On the store's thread

    def create(self, name_id: int, schema: pa.Schema, keys: tuple[str, ...], append_only: bool) -> None:
        """Adds an empty object."""
        with self.lock:
            if name_id in self.layouts:
                raise fail("PSK-8001", f"Object {name_id} is already in the view store.")
            has_rows_by_key = not append_only and Recent.suits(schema, keys)
            recent = Recent(schema, keys, self.cache) if has_rows_by_key else None
            waits = Gathered(schema, append_only=append_only) if recent is None else recent
            layout = TableLayout(name_id, schema, keys, append_only, waits, recent)
            with self.duck.transaction(_defect) as con:
                columns = declared(con, layout.schema)
                layout.base = layout.next_table()
                con.execute(f"CREATE TABLE {layout.base} ({columns})")
                if not layout.append_only:
                    layout.deltas = [layout.next_table()]
                    con.execute(f"CREATE TABLE {layout.deltas[0]} ({columns}, {WEIGHT} BIGINT)")
                con.execute(f"CREATE OR REPLACE VIEW {layout.view} AS {layout.reading()}")
            self.layouts[layout.id] = layout

    def drop(self, name_id: int, keep_files: bool) -> None:
        """Removes an object, if it exists, and its files unless `keep_files`."""
        with self.lock:
            layout = self.layouts.pop(name_id, None)
            self.waiting.pop(name_id, None)
            if layout is None:
                return
            if layout.disk is not None:
                layout.disk.drop(keep_files=keep_files)
            else:
                self._drop_tables(layout)

    def _drop_tables(self, layout: TableLayout) -> None:
        try:
            with self.duck.transaction(_defect) as con:
                con.execute(f"DROP VIEW {layout.view}")
                for table in (layout.base, *layout.deltas):
                    con.execute(f"DROP TABLE {table}")
        except PenstockError as why:
            # Its tables are now unreachable and only take space.
            _logger.warning("tables of object %d could not be dropped: %s", layout.id, why.detail)

    def apply(self, changes: Sequence[tuple[int, pa.Table, int]], lsn: int) -> None:
        """Adds the changes of one commit, each with its object and epoch, all or nothing."""
        with self.lock:
            todo: list[tuple[TableLayout, pa.Table, int, int]] = []
            for name_id, table, epoch in changes:
                layout = self.layouts.get(name_id)
                if layout is not None and layout.damage is None and epoch > layout.epoch:
                    todo.append((layout, table, epoch, _total(table)))
            changed = [(layout, table) for layout, table, _, _ in todo if table.num_rows]
            for layout, table in changed:
                # A change that would not fit in memory goes to disk at once.
                if table.nbytes > self._part_bytes and layout.size + table.nbytes > self._object_bytes:
                    self._try_move(layout)
            if not self._let_wait(changed) and changed:
                self.store_waiting()
                self._insert_all(changed)
                for layout, table in changed:
                    layout.waits.passed(table)
            for layout, table in changed:
                layout.seen_rows += table.num_rows
                layout.seen_bytes += table.nbytes
            for layout, _, epoch, total in todo:
                layout.epoch, layout.lsn = epoch, lsn
                layout.count += total
                if layout.append_only:
                    layout.base_rows += total
            waits = [w.waits for w in self.waiting.values()]
            if sum(w.waiting_rows for w in waits) > _MOST_WAITING or sum(w.waiting_bytes for w in waits) > _MOST_BYTES:
                self.store_waiting()
            for layout, _, _, _ in todo:
                self._compact_if_due(layout)

    def _insert_all(self, changes: Sequence[tuple[TableLayout, pa.Table]]) -> None:
        """Adds changes to several objects, all or nothing."""
        on_disk = [(o.disk, o.disk.form.change(table)) for o, table in changes if o.disk is not None]
        in_memory = [(o, table) for o, table in changes if o.disk is None]
        if in_memory:
            with self.duck.transaction(_defect) as con:
                for layout, table in in_memory:
                    _insert(con, layout, table)
        for disk, change in on_disk:
            disk.add(change)
        for layout, table in in_memory:
            layout.delta_rows += 0 if layout.append_only else table.num_rows

    def _let_wait(self, changes: Sequence[tuple[TableLayout, pa.Table]]) -> bool:
        """Makes the changes of one commit pending if all of them are small; otherwise returns False."""
        offers = [(layout, layout.waits.offer(table)) for layout, table in changes]
        if any(take is None for _, take in offers):
            return False
        for layout, take in offers:
            assert take is not None
            if not layout.waits.waiting:
                layout.waits.stored_epoch, layout.waits.stored_lsn = layout.epoch, layout.lsn
            take()
            self.waiting[layout.id] = layout
        return True

    def store_waiting(self) -> None:
        """Writes all pending changes to DuckDB in one transaction. If that fails, it retries object by object, and those that fail are damaged."""
        with self.lock:
            waiting = list(self.waiting.values())
            if not waiting:
                return
            try:
                self._store(waiting)
            except PenstockError:
                if self.duck.closed:
                    raise
                for layout in waiting:
                    try:
                        self._store([layout])
                    except PenstockError as why:
                        self.waiting.pop(layout.id, None)
                        layout.damage = why
                        self.damaged(layout, why)
            for layout in waiting:
                self._compact_if_due(layout)

    def _store(self, waiting: Sequence[TableLayout]) -> None:
        changes = {w.id: w.waits.change() for w in waiting}
        self._insert_all([(w, changes[w.id]) for w in waiting])
        for layout in waiting:
            layout.waits.stored(changes[layout.id], layout.epoch, layout.lsn)
            self.waiting.pop(layout.id, None)

    def load(self, name_id: int, table: pa.Table, epoch: int, lsn: int, file: str) -> None:
        """Fills an object at epoch 0. Raises PSK-6001, naming the file, if the rows do not match it."""

        def explain(why: Exception) -> PenstockError:
            return fail("PSK-6001", f"The snapshot {file} does not match the object: {why}")

        with self.lock:
            layout = self.layout(name_id)
            if layout.epoch:
                raise fail("PSK-8001", f"Object {name_id} is already at epoch {layout.epoch}.")
            layout.seen_rows, layout.seen_bytes = table.num_rows, table.nbytes
            form = self._form_on_disk(layout) if table.nbytes > self._object_bytes else None
            if form is not None:
                pieces = (pa.Table.from_batches([b]) for b in table.to_batches(max_chunksize=_PIECE_ROWS))
                self._go_to_disk(layout, form, pieces, epoch, lsn, table.num_rows)
            else:
                with self.duck.transaction(explain) as con:
                    con.register("incoming", physical(table))
                    con.execute(f"INSERT INTO {layout.base} SELECT {layout.columns} FROM incoming")
                layout.base_rows = table.num_rows
            layout.epoch, layout.lsn = epoch, lsn
            layout.count = table.num_rows
            layout.waits.passed(table)

    # Objects on disk, on the store's thread

    def _form_on_disk(self, layout: TableLayout) -> Form | None:
        """The form of an object in memory if it moved to disk; None if it cannot."""
        if self._folder is None or layout.disk is not None:
            return None
        return Form.of(layout.id, layout.schema, layout.keys, append_only=layout.append_only)

    def _place(self, layout: TableLayout) -> Path:
        assert self._folder is not None
        return self._folder / str(layout.id)

    def _move_if_large(self, layout: TableLayout) -> bool:
        """Moves an object to disk if memory holds too much; True if this one is on disk."""
        if layout.disk is not None:
            return True
        size = layout.size
        if self._folder is None or size < layout.weighed + self._part_bytes // _PARTS:
            return False
        large = layout if size > self._object_bytes else None
        if large is None and sum(o.size for o in self.layouts.values()) > self.duck.limit // 2:
            large = max(self.layouts.values(), key=lambda o: o.size)
        # An object that is being compacted is moved with its next change.
        if large is None or not large.compacting:
            layout.weighed = size
        if large is not None:
            self._try_move(large)
        return layout.disk is not None

    def _try_move(self, layout: TableLayout) -> None:
        """Moves an object to disk, unless it is there, cannot be stored there, or is being compacted."""
        form = self._form_on_disk(layout) if not layout.compacting and layout.damage is None else None
        if form is None:
            return
        try:
            self._move(layout, form)
        except Exception as why:
            # It remains in memory, where DuckDB spills; the next attempt is when it has grown.
            _logger.warning("object %d could not be moved to disk: %s", layout.id, why)

    def _move(self, layout: TableLayout, form: Form) -> None:
        if layout.waits.waiting:
            self._store([layout])
        with (
            self.duck.cursor(self.explain(layout.id)) as con,
            self.duck.batches(con, f"SELECT * FROM {layout.view}") as reader,
        ):
            pieces = (logical(pa.Table.from_batches([b]), layout.schema) for b in reader)
            self._go_to_disk(layout, form, pieces, layout.epoch, layout.lsn, layout.count)

    def _go_to_disk(
        self, layout: TableLayout, form: Form, pieces: Iterator[pa.Table], epoch: int, lsn: int, count: int
    ) -> None:
        place = self._place(layout)
        # Left behind by a crash.
        shutil.rmtree(place, ignore_errors=True)
        disk = DiskContents(place, form, self.workers, self._part_bytes, lambda why: self.found_damaged(layout.id, why))
        disk.fill(pieces, epoch, lsn, count)
        self._use_disk(layout, disk)

    def open_saved(self, name_id: int) -> tuple[int, int]:
        """Opens the contents on disk of an object at epoch 0; returns their epoch and LSN. Raises PSK-6001."""
        with self.lock:
            layout = self.layout(name_id)
            form = self._form_on_disk(layout)
            if layout.epoch or form is None:
                raise fail("PSK-8001", f"Object {name_id} cannot take contents on disk.")
            place = self._place(layout)
            disk = DiskContents.open(
                place, form, self.workers, self._part_bytes, lambda why: self.found_damaged(name_id, why)
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

    def save_on_disk(self, name_id: int) -> DiskContents | None:
        """Freezes the changes in memory of an object on disk; None if the object is in memory."""
        with self.lock:
            layout = self.layout(name_id)
            if layout.disk is None:
                return None
            if layout.waits.waiting:
                self._store([layout])
            layout.disk.save(layout.epoch, layout.lsn, layout.count)
            return layout.disk

    def _freeze_if_full(self, layout: TableLayout) -> None:
        assert layout.disk is not None
        if layout.disk.is_full:
            if layout.waits.waiting:
                self._store([layout])
            layout.disk.freeze(layout.epoch, layout.lsn, layout.count)

    def _compact_if_due(self, layout: TableLayout) -> None:
        if self._move_if_large(layout):
            self._freeze_if_full(layout)
            return
        if layout.compacting or layout.delta_rows < max(self._min_delta_rows, layout.base_rows // _DELTA_SHARE):
            return
        try:
            with self.duck.transaction(_defect) as con:
                delta = _new_delta(con, layout)
                deltas = [*layout.deltas, delta]
                con.execute(f"CREATE OR REPLACE VIEW {layout.view} AS {layout.reading(deltas=deltas)}")
        except PenstockError as why:
            # The change itself is applied; the next one retries the compaction.
            _logger.warning("object %d of the view store cannot be compacted: %s", layout.id, why.detail)
            return
        layout.deltas, layout.delta_rows, layout.compacting = deltas, 0, True
        self.compactor.submit(layout, lambda: self.layouts.get(layout.id) is layout)

    # On any thread

    def layout(self, name_id: int) -> TableLayout:
        """Raises PSK-1002 for a dropped object, and the cause for a damaged one."""
        self.duck.check_open()
        layout = self.layouts.get(name_id)
        if layout is None:
            raise dropped(name_id)
        if layout.damage is not None:
            raise fail(layout.damage.code, layout.damage.detail) from layout.damage
        return layout

    def explain(self, *ids: int) -> Explain:
        """Translates errors of statements on some objects."""

        def explain(why: Exception) -> PenstockError | None:
            if is_broken(str(why)):
                named = ", ".join(str(i) for i in ids)
                return fail(
                    "PSK-8001",
                    f"In object {named} the weights of a row sum to less than zero, or to more than one under a key.",
                )
            gone = [i for i in ids if i not in self.layouts]
            return dropped(gone[0]) if gone else None

        return explain

    def damaged(self, layout: TableLayout, why: PenstockError) -> None:
        """Reports that an object is damaged."""
        if self._on_damage is not None:
            self._on_damage(layout.id, why)

    def found_damaged(self, name_id: int, why: PenstockError) -> None:
        """Marks an object on disk as damaged, for this process and later ones."""
        with self.lock:
            layout = self.layouts.get(name_id)
            if layout is None or layout.damage is not None or layout.disk is None:
                return
            layout.damage = why
        if why.code == "PSK-6001":
            layout.disk.mark(why)
        self.damaged(layout, why)

    def fix(self, con: Cursor, name_id: int) -> tuple[TableLayout, int, int]:
        """Begins a transaction that sees the object as it is now in DuckDB; returns its layout and position."""
        with self.lock:
            layout = self.layout(name_id)
            con.execute("BEGIN")
            # DuckDB takes a transaction's snapshot at its first read, so read now, while the position is known.
            con.execute(f"SELECT 1 FROM {layout.base} LIMIT 0")
            return layout, *layout.stored


def _insert(con: Cursor, layout: TableLayout, table: pa.Table) -> None:
    if not table.num_rows:
        return  # The pending changes cancelled out.
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


def dropped(name_id: int) -> PenstockError:
    return fail("PSK-1002", f"Object {name_id} was dropped.")


def _total(table: pa.Table) -> int:
    if WEIGHT not in table.column_names:
        return int(table.num_rows)
    return int(pc.sum(table[WEIGHT]).as_py() or 0)


__all__ = ["Objects", "dropped"]
