"""One epoch's output on its way to every subscriber: converted once for each form, however many there are."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pyarrow as pa

from penstock.serve.envelope import Form
from penstock.serve.origin import Where


class Point(NamedTuple):
    """A point in the timeline of an object. `input_lsn`: everything that was written up to that LSN is included."""

    epoch: int
    lsn: int
    input_lsn: int
    watermark: int | None = None


class Message:
    """The changes up to a point, since `prev_lsn`. Shared between threads, never changed."""

    def __init__(self, point: Point, prev_lsn: int, table: pa.Table) -> None:
        self.point = point
        self.epoch = point.epoch
        self.prev_lsn = prev_lsn
        self.table = table
        self.size: int = table.nbytes
        self._lock = threading.Lock()
        self._forms: dict[tuple[Form, str | None], pa.Table] = {}
        self._kept: dict[str, pa.Table] = {}

    def rendered(self, rendering: tuple[Form, str | None], where: Where | None = None) -> pa.Table:
        """The changes that satisfy a condition, in a form. The text in `rendering` identifies the condition."""
        with self._lock:
            found = self._forms.get(rendering)
            if found is None:
                form, key = rendering
                kept = self.table
                if where is not None and key is not None:
                    kept = self._kept.get(key)
                    if kept is None:
                        kept = self._kept[key] = where(self.table)
                found = self._forms[rendering] = form.render(kept)
            return found
