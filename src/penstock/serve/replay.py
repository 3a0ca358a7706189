"""Reads an object's history from the log, one epoch at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.serve.message import Message, Point
from penstock.serve.origin import History, Past
from penstock.serve.zset import consolidate, weighted


class Replay:
    """Reads the history for one reader, with at most one epoch in memory."""

    def __init__(self, history: History | None) -> None:
        self._history = history
        self._epochs: Iterator[Past] | None = None
        self._at = 0

    def after(self, epoch: int) -> Past | None:
        """The first epoch after `epoch`, which must exist; None if it is no longer retained."""
        # A failed or interrupted iterator is not reused.
        epochs, self._epochs = self._epochs, None
        try:
            past = next(epochs, None) if epochs is not None and self._at == epoch else None
            if past is None:
                epochs = self._history(epoch) if self._history is not None else None
                past = next(epochs, None) if epochs is not None else None
        except PenstockError as why:
            if why.code != "PSK-5011":
                raise
            past = None
        if past is not None:
            self._epochs, self._at = epochs, past.epoch
        return past

    def close(self) -> None:
        """Releases the iterator and its files."""
        self._epochs = None

    def message_after(self, epoch: int) -> Message | None:
        """The next epoch as a message; None if it is no longer retained."""
        past = self.after(epoch)
        return None if past is None else Message(point_of(past), 0, past.table)

    def merged_after(self, epoch: int, last: int, size: int) -> Message | None:
        """The net changes of the epochs after `epoch` up to `last`, or of fewer if they would exceed `size` bytes. None if they are no longer retained."""
        sums = Sums(size)
        at: Past | None = None
        while (at is None or at.epoch < last) and not sums.full:
            past = self.after(epoch if at is None else at.epoch)
            if past is None or (at is not None and past.epoch > last):
                break
            sums.add(past.table)
            at = past
        return None if at is None else Message(point_of(at), 0, sums.total())


class Sums:
    """Sums Z-sets in about `size` bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._parts: list[pa.Table] = []
        self._bytes = 0

    def add(self, table: pa.Table) -> None:
        self._parts.append(weighted(table))
        self._bytes += table.nbytes
        if self._bytes > self._size:
            self._parts = [self.total()]
            self._bytes = self._parts[0].nbytes

    @property
    def full(self) -> bool:
        """Whether even the net changes exceed the size."""
        return self._bytes > self._size

    def total(self) -> pa.Table:
        return consolidate(pa.concat_tables(self._parts))


def point_of(past: Past) -> Point:
    input_lsn = past.lsn if past.input_lsn is None else past.input_lsn
    return Point(past.epoch, past.lsn, input_lsn, past.watermark)
