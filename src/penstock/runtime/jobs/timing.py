"""How long the epochs of a job take: counts in buckets, whose number does not grow."""

from __future__ import annotations

import math

_PER_DOUBLING = 8
"""Buckets for each factor of two, so that a percentile is at most a tenth off."""
_BUCKETS = 20 * _PER_DOUBLING
"""Up to twenty minutes; what takes longer is in the last one."""


class Timing:
    """The distribution of durations in milliseconds. One thread adds; others may read meanwhile."""

    __slots__ = ("_counts", "count", "last_ms", "total_ms")

    def __init__(self) -> None:
        self._counts = [0] * (_BUCKETS + 1)
        self.count = 0
        self.total_ms = self.last_ms = 0.0

    def add(self, ms: float) -> None:
        place = math.ceil(math.log2(ms) * _PER_DOUBLING) if ms > 1 else 0
        self._counts[min(place, _BUCKETS)] += 1
        self.count += 1
        self.total_ms += ms
        self.last_ms = ms

    def percentile(self, share: float) -> float | None:
        """The duration that this share of all, between 0 and 1, does not exceed; None if there was none."""
        counts = list(self._counts)
        left = math.ceil(sum(counts) * share)
        for place, count in enumerate(counts):
            left -= count
            if count and left <= 0:
                return float(2 ** (place / _PER_DOUBLING))
        return None
