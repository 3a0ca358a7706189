"""Measures, for every row, the time from its push to its arrival at a subscriber.

The subscriber sees a running count per symbol. The feeder records the count at each push, so a count of n means that all rows
up to the n-th have arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping


def percentile(samples: Iterable[tuple[float, int]], share: float) -> float | None:
    """The smallest value that at least `share` of the samples do not exceed; a sample is (value, count)."""
    ordered = sorted(samples)
    total = sum(n for _, n in ordered)
    if not total:
        return None
    reached = 0
    for value, n in ordered:
        reached += n
        if reached >= share * total:
            return value
    return ordered[-1][0]


class Latencies:
    """Not thread-safe: the caller must hold a lock."""

    def __init__(self, recent_s: float = 5.0) -> None:
        self._recent_s = recent_s
        self._waiting: dict[str, deque[tuple[int, float]]] = {}
        self._pushed: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._all: list[tuple[float, int]] = []
        self._recent: deque[tuple[float, float, int]] = deque()

    def pushed(self, counts: Mapping[str, int], at: float) -> None:
        """Record that a push with these row counts per symbol began at `at`. Call it before the push."""
        for symbol, n in counts.items():
            total = self._pushed.get(symbol, 0) + n
            self._pushed[symbol] = total
            self._waiting.setdefault(symbol, deque()).append((total, at))

    def arrived(self, symbol: str, total: int, at: float) -> None:
        """Record that the subscriber received a count of `total` rows for the symbol."""
        waiting = self._waiting.get(symbol, deque())
        while waiting and waiting[0][0] <= total:
            through, began = waiting.popleft()
            n = through - self._arrived.get(symbol, 0)
            self._arrived[symbol] = through
            self._all.append((at - began, n))
            self._recent.append((at, at - began, n))

    def forget(self) -> None:
        """Discard all samples. Rows in flight are still measured when they arrive."""
        self._all.clear()
        self._recent.clear()

    @property
    def rows_arrived(self) -> int:
        return sum(self._arrived.values())

    def overall(self, share: float) -> float | None:
        """A percentile over all rows, in seconds."""
        return percentile(self._all, share)

    def recent(self, share: float, now: float) -> float | None:
        """A percentile over the rows of the last seconds."""
        while self._recent and self._recent[0][0] < now - self._recent_s:
            self._recent.popleft()
        return percentile(((value, n) for _, value, n in self._recent), share)
