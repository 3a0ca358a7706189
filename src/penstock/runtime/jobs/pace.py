"""How many rows an epoch may read, so that it takes no longer than it should."""

from __future__ import annotations

_FEWEST = 1000
"""An epoch of fewer rows takes hardly less time."""


class Pace:
    """Adapts the rows of an epoch: fewer after one that took longer than `most_ms`, in proportion; twice as many after one that took less than half of it."""

    def __init__(self, most_rows: int, most_ms: int) -> None:
        self.rows = most_rows
        """The limit now."""
        self.over = 0
        """The number of epochs that took longer."""
        self._most_rows = most_rows
        self._most_ms = most_ms

    def after(self, rows: int, ms: float) -> bool:
        """Counts an epoch that has read so many rows in so much time; True if the limit has changed."""
        was = self.rows
        if not self._most_ms:
            return False
        if ms > self._most_ms:
            self.over += 1
            fitting = int(min(rows, self.rows) * self._most_ms / ms)
            self.rows = min(self.rows, max(_FEWEST, fitting))
        elif ms < self._most_ms / 2 and self.rows < self._most_rows:
            self.rows = min(self._most_rows, self.rows * 2)
        return self.rows != was
