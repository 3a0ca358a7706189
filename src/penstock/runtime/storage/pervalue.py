"""The watermark of a source with `watermark_per`: the smallest over the values of a column."""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.objects import ObjectInfo
from penstock.errors import fail
from penstock.log import Part
from penstock.runtime.durations import duration_ms

MOST_VALUES = 10_000
"""As many values are followed; with more, those that have been silent longest count as idle."""


def check(info: ObjectInfo) -> None:
    """Refuses `watermark_per` where it could not be carried out."""
    name = info.options["watermark_per"]
    column = next((c for c in info.columns if c.name.lower() == name.lower()), None)
    if column is None:
        known = ", ".join(c.name for c in info.columns)
        raise fail("PSK-1004", f"watermark_per names {name}, which is not a column.", hint=f"Columns: {known}.")
    if info.watermark is None or info.watermark.proctime:
        raise fail(
            "PSK-1012",
            "watermark_per needs an event time.",
            hint="Declare WATERMARK FOR a column that comes with the rows.",
        )
    if column.type.lower().split("<")[0] in ("array", "map", "struct", "float", "double", "binary"):
        raise fail("PSK-1012", f"watermark_per cannot follow the values of a column of type {column.type}.")


@dataclass
class _Value:
    """The largest time of a value, and when (monotonic clock) it was last seen."""

    time: int
    seen: float


class ValueWatermark:
    """Follows each value of a column: the watermark is the smallest of their largest times, less the delay.

    A value that has had no rows for the source's `idle_timeout` is idle and does not count. If all are, the largest time of all
    decides. Hold `lock` from `stamped` until the commit has its place in the log.
    """

    warning: str | None = None

    def __init__(self, info: ObjectInfo, watermark: int | None, history: Iterable[pa.Table]) -> None:
        assert info.watermark is not None
        self.lock = threading.Lock()
        name = info.options["watermark_per"].lower()
        self._column = next(c.name for c in info.columns if c.name.lower() == name)
        self._time = info.watermark.column
        self._delay_ms = info.watermark.delay_ms
        idle = info.options.get("idle_timeout")
        self._idle_s = duration_ms(idle) / 1000 if idle is not None else None
        self._watermark = watermark
        self._largest: int | None = None
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._smallest: list[tuple[int, int, Hashable]] = []
        self._pushed = 0
        for table in history:
            self._take(table, None)

    @property
    def idle(self) -> bool:
        """True if there were values, and all of them are idle."""
        return self._largest is not None and not self._values

    def due(self) -> bool:
        """True if time alone has moved the watermark, or has made the source idle."""
        with self.lock:
            was = self.idle
            return self._advanced() != self._watermark or self.idle != was

    def stamped(self, part: Part, limit: int | None = None) -> Part:
        """The part with the watermark after it; rows later than `limit` (epoch ms) do not count."""
        self._leave_idle()
        for batch in part.batches:
            self._take(pa.Table.from_batches([batch]), limit)
        moved = [w for w in (self._advanced(), part.watermark) if w is not None]
        self._watermark = max(moved) if moved else None
        return replace(part, watermark=self._watermark, idle=self.idle and not part.batches)

    def _take(self, rows: pa.Table, limit: int | None) -> None:
        times = rows.column(self._time)
        unit = 1 if pa.types.is_integer(times.type) else 1000
        found = pa.table({"value": rows.column(self._column), "time": times.cast(pa.int64())})
        if limit is not None:
            found = found.filter(pc.less(found.column("time"), (limit + 1) * unit))
        largest = found.group_by("value").aggregate([("time", "max")]).to_pydict()
        now = time.monotonic()
        for value, at in zip(largest["value"], largest["time_max"], strict=True):
            if at is not None:
                self._see(value, at // unit, now)

    def _see(self, value: Hashable, at: int, now: float) -> None:
        self._largest = at if self._largest is None else max(self._largest, at)
        known = self._values.get(value)
        if known is None:
            known = self._values[value] = _Value(at, now)
        elif at <= known.time:
            known.seen = now
            self._values.move_to_end(value)
            return
        known.time, known.seen = at, now
        self._values.move_to_end(value)
        self._pushed += 1
        heapq.heappush(self._smallest, (at, self._pushed, value))
        if len(self._values) > MOST_VALUES:
            self._values.popitem(last=False)
        if len(self._smallest) > 4 * len(self._values) + 64:
            self._smallest = [(v.time, i, k) for i, (k, v) in enumerate(self._values.items())]
            self._pushed = len(self._smallest)
            heapq.heapify(self._smallest)

    def _advanced(self) -> int | None:
        """The watermark now; it never goes back."""
        self._leave_idle()
        while self._smallest and self._stale(self._smallest[0]):
            heapq.heappop(self._smallest)
        at = self._smallest[0][0] if self._smallest else self._largest
        if at is None:
            return self._watermark
        return at - self._delay_ms if self._watermark is None else max(self._watermark, at - self._delay_ms)

    def _leave_idle(self) -> None:
        """Forgets the values that are idle; one that comes back begins again."""
        if self._idle_s is not None:
            since = time.monotonic() - self._idle_s
            while self._values and next(iter(self._values.values())).seen <= since:
                self._values.popitem(last=False)

    def _stale(self, entry: tuple[int, int, Hashable]) -> bool:
        known = self._values.get(entry[2])
        return known is None or known.time != entry[0]
