"""Windows by their definition, in plain Python: which rows are late, when a window closes, what it holds then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.spark.following import Row

Span = tuple[int, int]
Group = tuple[object, int, int]


@dataclass(frozen=True)
class Windows:
    """TUMBLE, HOP or CUMULATE; lengths in milliseconds. `step` is the slide of HOP, the step of CUMULATE."""

    kind: str
    size: int
    step: int = 0
    offset: int = 0

    def sql(self, time: str) -> str:
        lengths = [self.size] if self.kind == "TUMBLE" else [self.step, self.size]
        if self.offset:
            lengths.append(self.offset)
        arguments = [time, *(f"INTERVAL '{n}' MILLISECOND" for n in lengths)]
        return f"{self.kind}({', '.join(arguments)})"

    def of(self, ts: int) -> list[Span]:
        """Every window that covers a time."""
        if self.kind == "CUMULATE":
            start = ts - (ts - self.offset) % self.size
            return [(start, start + n) for n in range(self.step, self.size + 1, self.step) if start + n > ts]
        slide = self.step or self.size
        last = ts - (ts - self.offset) % slide
        return [(s, s + self.size) for s in range(last, ts - self.size, -slide)]


@dataclass(frozen=True)
class Sessions:
    gap: int

    def sql(self, time: str) -> str:
        return f"SESSION({time}, INTERVAL '{self.gap}' MILLISECOND)"


@dataclass
class Taken:
    """What one epoch did: the groups that it changed, those that closed in it, and the rows that came too late."""

    changed: set[Group] = field(default_factory=set)
    closed: list[Group] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)


class WindowModel:
    """Rows are tuples with the group key first and the event time (or None) last; `groups` holds every window's rows in order of arrival.

    A row is late if all its windows have closed at the watermark before the epoch. A window closes when end + lateness
    ≤ the watermark after the epoch.
    """

    def __init__(self, windows: Windows | Sessions, lateness: int = 0) -> None:
        self.windows = windows
        self.lateness = lateness
        self.watermark: int | None = None
        self.groups: dict[Group, list[Row]] = {}
        self.done: set[Group] = set()

    def take(self, rows: Iterable[Row], watermark: int | None) -> Taken:
        """One epoch: its rows, and the watermark after it."""
        timed = [r for r in rows if r[-1] is not None]
        taken = self._sessions(timed) if isinstance(self.windows, Sessions) else self._windows(self.windows, timed)
        self.watermark = watermark
        for group in sorted(self.groups.keys() - self.done, key=lambda g: (g[1], g[2])):
            if self._closed(group[2]):
                self.done.add(group)
                taken.closed.append(group)
        return taken

    def _closed(self, end: int) -> bool:
        return self.watermark is not None and end + self.lateness <= self.watermark

    def _windows(self, windows: Windows, rows: list[Row]) -> Taken:
        taken = Taken()
        for row in rows:
            open_ones = [(row[0], s, e) for s, e in windows.of(row[-1]) if not self._closed(e)]
            for group in open_ones:
                self.groups.setdefault(group, []).append(row)
                taken.changed.add(group)
            if not open_ones:
                taken.late.append(row)
        return taken

    def _sessions(self, rows: list[Row]) -> Taken:
        taken = Taken()
        assert isinstance(self.windows, Sessions)
        gap = self.windows.gap
        for key in {r[0] for r in rows}:
            mine = [g for g in self.groups if g[0] == key and g not in self.done]
            new = [r for r in rows if r[0] == key]
            old = [r for g in sorted(mine, key=lambda g: g[1]) for r in self.groups[g]]
            merged: list[list[Row]] = []
            for row in sorted([*old, *new], key=lambda r: r[-1]):
                if merged and row[-1] - max(r[-1] for r in merged[-1]) <= gap:
                    merged[-1].append(row)
                else:
                    merged.append([row])
            for g in mine:
                del self.groups[g]
            for session in merged:
                group = (key, session[0][-1], session[-1][-1] + gap)
                if self._closed(group[2]):
                    taken.late.extend(session)
                    continue
                self.groups[group] = session
                if any(r in new for r in session):
                    taken.changed.add(group)
        return taken
