"""Converts rows for an object into a part of a commit: validated and timestamped."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.coerce import coerce
from penstock.catalog.objects import ObjectInfo
from penstock.catalog.row import RowEncoder
from penstock.catalog.types import schema_of
from penstock.log import Part
from penstock.runtime.durations import duration_ms
from penstock.runtime.storage.pervalue import ValueWatermark
from penstock.runtime.storage.proctime import ProcessingClock
from penstock.runtime.storage.totals import Counts


@dataclass(frozen=True)
class PerInsert:
    """A default that depends on the time of an insert, which is the same for all its rows and columns."""

    value: Callable[[dt.datetime], object]


def computed(defaults: Mapping[str, object]) -> dict[str, object]:
    """The defaults of one insert."""
    now = dt.datetime.now(dt.UTC)
    return {n: v.value(now) if isinstance(v, PerInsert) else v for n, v in defaults.items()}


class Feed:
    """The feed of one source or table. Thread-safe; it keeps no rows."""

    def __init__(
        self,
        info: ObjectInfo,
        defaults: dict[str, object],
        max_future_skew_ms: int,
        watermark: int | None = None,
        history: Iterable[pa.Table] = (),
        counts: Counts | None = None,
    ) -> None:
        """`watermark` and `history` are the object's in the log. The history is read only if the watermark depends on it."""
        self.info = info
        self.clock: ProcessingClock | ValueWatermark | None = None
        """Assigns the times of commits, in commit order."""
        if info.watermark is not None and info.watermark.proctime:
            self.clock = ProcessingClock(info, watermark)
        elif "watermark_per" in info.options:
            self.clock = ValueWatermark(info, watermark, history)
        self.schema = schema_of(info.columns)
        self.counts = Counts() if counts is None else counts
        self._defaults = defaults
        self._rows = RowEncoder(self.schema)
        self._lock = threading.Lock()
        given = info.options.get("max_future_skew")
        self._skew_ms: int | None = max_future_skew_ms
        if given is not None:
            self._skew_ms = None if given.lower() in ("off", "none", "false") else duration_ms(given)

    def part(self, data: object) -> Part:
        """The commit part for rows in any form that `coerce` accepts. An error has no effect."""
        table = self._coerced(data)
        watermark = None
        if self.info.watermark is not None:
            table, watermark = self._timed(table)
        return Part(
            object_id=self.info.id,
            batches=_batches(table),
            watermark=watermark,
            column_count=len(self.schema),
        )

    @property
    def defaults(self) -> dict[str, object]:
        """What columns that a row lacks are filled with, in one insert."""
        return self._now_default() | computed(self._defaults)

    def _coerced(self, data: object) -> pa.Table | pa.RecordBatch:
        defaults = self.defaults
        if isinstance(data, Mapping):
            batch = self._rows.encode(data, defaults)
            if batch is not None:
                return batch
        return coerce(data, self.schema, defaults)

    def _now_default(self) -> dict[str, object]:
        wm = self.info.watermark
        if wm is None or not wm.proctime:
            return {}
        now = time.time_ns() // 1000
        field = self.schema.field(wm.column)
        return {
            wm.column: now // 1000
            if pa.types.is_integer(field.type)
            else pa.scalar(now, pa.timestamp("us")).cast(field.type).as_py()
        }

    def _timed(self, table: pa.Table | pa.RecordBatch) -> tuple[pa.Table | pa.RecordBatch, int | None]:
        wm = self.info.watermark
        assert wm is not None
        index = self.schema.get_field_index(wm.column)
        if isinstance(self.clock, ProcessingClock):
            return self.clock.shown(table), None
        times = table.column(index)
        if times.null_count:
            keep = pc.is_valid(times)
            with self._lock:
                self.counts.null_time += times.null_count
            table = table.filter(keep)
            times = table.column(index)
        if not len(times):
            return table, None
        latest = self._latest(times)
        if self.clock is not None or latest is None:
            return table, None
        return table, latest - wm.delay_ms

    def stamped(self, part: Part) -> Part:
        """The part as committed now. Commits of an object with a clock must enter the log in the order of these calls."""
        if isinstance(self.clock, ProcessingClock):
            return self.clock.stamped(part)
        return part if self.clock is None else self.clock.stamped(part, self._limit())

    def foreseen(self, part: Part) -> int | None:
        """The watermark of `stamped(part)`, which is not committed yet."""
        return self.clock.foreseen(part, self._limit()) if isinstance(self.clock, ValueWatermark) else part.watermark

    def _limit(self) -> int | None:
        """The latest time (Unix ms) that advances the watermark."""
        return None if self._skew_ms is None else int(time.time() * 1000) + self._skew_ms

    def _latest(self, times: pa.Array | pa.ChunkedArray) -> int | None:
        latest = _millis(times[0] if len(times) == 1 else pc.max(times))
        if latest is None:
            return None
        limit = self._limit()
        if limit is None or latest <= limit:
            return latest
        millis = times.cast(pa.int64()) if pa.types.is_integer(times.type) else pc.divide(times.cast(pa.int64()), 1000)
        sane = pc.filter(millis, pc.less_equal(millis, limit))
        with self._lock:
            self.counts.future += len(times) - len(sane)
        return pc.max(sane).as_py() if len(sane) else None


def _millis(scalar: pa.Scalar) -> int | None:
    if not scalar.is_valid:
        return None
    if pa.types.is_integer(scalar.type):
        return int(scalar.as_py())
    return int(scalar.value) // 1000


def _batches(table: pa.Table | pa.RecordBatch) -> tuple[pa.RecordBatch, ...]:
    if not table.num_rows:
        return ()
    return (table,) if isinstance(table, pa.RecordBatch) else tuple(table.combine_chunks().to_batches())
