"""One epoch's output on its way to every subscriber: converted once for each form, however many there are."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from penstock.serve.envelope import Form
from penstock.serve.zset import consolidate, weighted


class Message:
    """The changes of `(prev_lsn, lsn]`; several epochs if it was coalesced. Shared between threads, never changed."""

    def __init__(self, epoch: int, lsn: int, prev_lsn: int, table: pa.Table, watermark: int | None = None) -> None:
        self.epoch = epoch
        self.lsn = lsn
        self.prev_lsn = prev_lsn
        self.table = table
        self.watermark = watermark
        self.size: int = table.nbytes
        self._lock = threading.Lock()
        self._forms: dict[Form, pa.Table] = {}

    def rendered(self, form: Form) -> pa.Table:
        with self._lock:
            found = self._forms.get(form)
            if found is None:
                found = self._forms[form] = form.render(self.table)
            return found


def coalesced(messages: Sequence[Message]) -> Message:
    """One message for several that follow each other."""
    first, last = messages[0], messages[-1]
    table = consolidate(pa.concat_tables([weighted(m.table) for m in messages]))
    return Message(last.epoch, last.lsn, first.prev_lsn, table, last.watermark)
