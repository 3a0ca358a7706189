"""The newest changes of an object whose contents are on disk."""

from __future__ import annotations

import threading
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.serve.layout import WEIGHT
from penstock.serve.ondisk.form import Form, Kind
from penstock.serve.ondisk.keys import Keys, firsts, order

Run: TypeAlias = tuple[pa.Table, Keys]
"""Rows with weights, by key, each key once."""

# A run is merged with the previous one unless that is this many times as large, so there are few runs and each row is merged a few times.
_TIER = 4


class Memory:
    """Changes by epoch. They are sorted on the next read, or when they are written to disk."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._pending: list[pa.Table] = []
        self._runs: list[Run] = []
        self._lock = threading.Lock()
        self.size = 0
        """In bytes."""
        self.rows = 0

    def add(self, change: pa.Table) -> None:
        """Adds the change of one epoch, as `Form.change` makes it."""
        with self._lock:
            self._pending.append(change)
            self.size += change.nbytes
            self.rows += change.num_rows

    def runs(self) -> tuple[Run, ...]:
        """Everything so far, the newest first; for an append-only object, the changes."""
        with self._lock:
            if self._form.kind is Kind.APPENDED:
                return tuple((t, None) for t in reversed(self._pending))
            if self._pending:
                for run in self._sorted():
                    self._runs.append(run)
                    while len(self._runs) > 1 and len(self._runs[-2][1]) < _TIER * len(run[1]):
                        run = self._merged([self._runs.pop(), self._runs.pop()])
                        self._runs.append(run)
                self._pending = []
            return tuple(reversed(self._runs))

    def whole(self) -> Run:
        """Everything so far as one run."""
        runs = self.runs()
        if self._form.kind is Kind.APPENDED:
            tables = [t for t, _ in reversed(runs)]
            return pa.concat_tables(tables) if tables else self._form.schema.empty_table(), None
        if not runs:
            empty = self._form.weighted.empty_table()
            return empty, self._form.keys_of(empty)
        return runs[0] if len(runs) == 1 else self._merged(list(runs))

    def _sorted(self) -> list[Run]:
        """The pending changes as runs, the oldest first."""
        inserted = [bool(pc.min(t[WEIGHT]).as_py() >= 1) if t.num_rows else True for t in self._pending]
        if len(self._pending) > 1 and all(inserted):
            # Most changes of a load only insert, so they can be sorted together; if a key occurs twice, fall through to the slow path.
            whole = pa.concat_tables(self._pending).cast(self._form.weighted)
            keys = self._form.keys_of(whole)
            at = pa.array(order(keys))
            keys = keys.take(at)
            if firsts(keys).all() and (whole[WEIGHT].to_numpy() == 1).all():
                return [(whole.take(at), keys)]
        return [self._form.sorted(t) for t in self._pending if t.num_rows]

    def _merged(self, newest_first: list[Run]) -> Run:
        rows = pa.concat_tables([t for t, _ in newest_first])
        keys = pa.concat_arrays([k for _, k in newest_first])
        at = pa.array(order(keys))
        keys = keys.take(at)
        return self._form.combined(rows.take(at), keys, firsts(keys))
