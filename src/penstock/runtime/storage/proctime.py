"""Processing time: the time of the commit, in the order of the commits."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.objects import ObjectInfo
from penstock.log import Part

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_logger = logging.getLogger(__name__)

_TOLERATED_MS = 1000
"""Routine clock corrections are smaller than this."""


def wall_ms() -> int:
    """The wall clock, in Unix milliseconds."""
    return time.time_ns() // 1_000_000


class ProcessingClock:
    """The clock of one source: the wall clock, except that it never goes back, not even across a restart.

    While the wall clock is behind, the clock does not advance. Hold `lock` from `now` until the commit is in the log.
    """

    def __init__(self, info: ObjectInfo, last: int | None) -> None:
        assert info.watermark is not None
        self.lock = threading.Lock()
        self._name = info.name
        self._column = info.watermark.column
        self._last = last
        self._behind_ms = 0

    @property
    def warning(self) -> str | None:
        """How far the wall clock is behind, if it is."""
        if self._behind_ms <= _TOLERATED_MS:
            return None
        return (
            f"The wall clock is {self._behind_ms // 1000} s behind the last row of {self._name}: "
            "its processing time stands still until the clock has caught up."
        )

    def now(self) -> int:
        """Unix milliseconds, never less than at the last call."""
        wall = wall_ms()
        warned = self.warning is not None
        self._behind_ms = 0 if self._last is None else max(0, self._last - wall)
        if self.warning is not None and not warned:
            _logger.warning("%s", self.warning)
        self._last = wall + self._behind_ms
        return self._last

    def stamped(self, part: Part) -> Part:
        """The part with the current time in all its rows and as its watermark. A watermark that was set manually advances the clock."""
        now = self._last = max(self.now(), part.watermark or 0)
        return replace(part, batches=tuple(self._stamp(b, now) for b in part.batches), watermark=now)

    def shown(self, rows: Rows) -> Rows:
        """Rows with the time that they would have if they were committed now."""
        with self.lock:
            return self._stamp(rows, self.now())

    def _stamp(self, rows: Rows, now: int) -> Rows:
        at = rows.schema.get_field_index(self._column)
        field = rows.schema.field(at)
        one = pa.scalar(now, pa.int64())
        if not pa.types.is_integer(field.type):
            one = pc.multiply(one, 1000).cast(field.type)
        times = pa.repeat(one, rows.num_rows)
        stamped: Rows = rows.set_column(at, field, times)
        return stamped
