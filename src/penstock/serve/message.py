"""One epoch's output on its way to all subscribers, converted once per form."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from penstock.serve.envelope import Form
from penstock.serve.origin import Where


class Point(NamedTuple):
    """A point in the timeline of an object, which includes all writes up to `input_lsn`."""

    epoch: int
    lsn: int
    input_lsn: int
    watermark: int | None = None


class Rendering:
    """A form, and the text of a condition if there is one. Compared by identity, so lookups are cheap."""

    __slots__ = ("form", "where_key")

    def __init__(self, form: Form, where_key: str | None) -> None:
        self.form = form
        self.where_key = where_key

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(form: Form, where_key: str | None) -> Rendering:
        return Rendering(form, where_key)


class Message:
    """The changes up to a point, since `prev_lsn`. Immutable, shared between threads."""

    def __init__(self, point: Point, prev_lsn: int, table: pa.Table) -> None:
        self.point = point
        self.epoch = point.epoch
        self.prev_lsn = prev_lsn
        self.table = table
        self.size: int = table.nbytes
        self.rendered: dict[Rendering, tuple[pa.Table, int]] = {}
        """Results of `render`, with the number of rows."""
        self._lock = threading.Lock()
        self._kept: dict[str, pa.Table] = {}

    def render(self, rendering: Rendering, where: Where | None = None) -> pa.Table:
        """The changes that satisfy a condition, in a form. The text in `rendering` identifies the condition."""
        with self._lock:
            found = self.rendered.get(rendering)
            if found is None:
                kept, key = self.table, rendering.where_key
                if where is not None and key is not None:
                    known = self._kept.get(key)
                    kept = where(self.table) if known is None else known
                    self._kept[key] = kept
                table = rendering.form.render(kept)
                found = self.rendered[rendering] = (table, table.num_rows)
            return found[0]
