"""The feeder's own books: pushed rows and shares per window. The engine's results are checked against them at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.cli.demo.feed import Batch

WINDOW_MS = 1_000
DELAY_MS = 500


@dataclass(frozen=True)
class Balance:
    """Shares pushed, compared with the shares in closed windows, late rows and open windows."""

    pushed: int
    closed: int
    late: int
    open: int

    @property
    def missing(self) -> int:
        """Zero if every share is counted exactly once; negative if some were counted twice."""
        return self.pushed - self.closed - self.late - self.open

    @property
    def holds(self) -> bool:
        return self.missing == 0


@dataclass
class Ledger:
    """Rows and shares pushed so far."""

    rows: int = 0
    volume: int = 0
    stragglers: int = 0
    latest_ms: int = 0
    by_window: dict[int, int] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        """Record a batch that the engine has accepted."""
        self.rows += len(batch)
        for ts, volume in zip(batch.ts, batch.volume, strict=True):
            start = ts - ts % WINDOW_MS
            self.by_window[start] = self.by_window.get(start, 0) + volume
            self.volume += volume
            self.latest_ms = max(self.latest_ms, ts)

    @property
    def watermark_ms(self) -> int:
        """The expected watermark of the source after all pushed rows."""
        return self.latest_ms - DELAY_MS

    @property
    def open_volume(self) -> int:
        """Shares in windows that the watermark has not closed. A row in an open window is never late."""
        return sum(v for start, v in self.by_window.items() if start + WINDOW_MS > self.watermark_ms)

    def balance(self, *, closed: int, late: int) -> Balance:
        """Compare the books with the engine's output."""
        return Balance(self.volume, closed, late, self.open_volume)
