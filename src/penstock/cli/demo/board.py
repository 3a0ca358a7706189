"""The state of the demo. Threads report to it; the screen and the summary read it."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.demo.feed import Batch
from penstock.cli.demo.latency import Latencies
from penstock.cli.demo.ledger import Balance, Ledger

Row = Mapping[str, Any]

# more than any terminal shows
_TAIL = 200
_CLOSES = 60


@dataclass(frozen=True)
class Mover:
    """A line of the ranking; `change` in percent since the start."""

    symbol: str
    price: float
    change: float
    volume: int


@dataclass(frozen=True)
class View:
    """A consistent copy of the board. Latencies are in seconds; None while nothing has arrived."""

    elapsed: float
    rows: int
    rate: float
    rate_history: tuple[float, ...]
    bars: int
    changes: int
    retractions: int
    late: int
    selects: int
    p50: float | None
    p99: float | None
    p50_history: tuple[float, ...]
    latest_bars: tuple[Row, ...]
    changelog: tuple[Row, ...]
    late_rows: tuple[Row, ...]
    movers: tuple[Mover, ...]
    closes: Mapping[str, tuple[float, ...]]


class Board:
    """Counts and the newest rows, behind one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._ledger = Ledger()
        self._latency = Latencies()
        self._bars = self._changes = self._retractions = self._late = self._selects = 0
        self._closed_volume = self._late_volume = 0
        self._latest_bars: dict[str, Row] = {}
        self._closes: dict[str, deque[float]] = {}
        self._changelog: deque[Row] = deque(maxlen=_TAIL)
        self._late_rows: deque[Row] = deque(maxlen=_TAIL)
        self._movers: tuple[Mover, ...] = ()
        self._samples: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=5)
        self._rates: deque[float] = deque(maxlen=_CLOSES)
        self._p50s: deque[float] = deque(maxlen=_CLOSES)

    def begin(self) -> None:
        """Start the clock. Earlier rows were warm-up: they count for everything except latency."""
        with self._lock:
            self._began = time.monotonic()
            self._samples.clear()
            self._samples.append((0.0, self._ledger.rows))
            self._latency.forget()

    def push_begins(self, batch: Batch) -> None:
        with self._lock:
            self._latency.pushed(Counter(batch.symbol), time.monotonic())

    def push_done(self, batch: Batch, *, straggler: bool) -> None:
        with self._lock:
            self._ledger.add(batch)
            self._ledger.stragglers += int(straggler)

    def bars(self, rows: Sequence[Row]) -> None:
        """Record closed windows."""
        with self._lock:
            self._bars += len(rows)
            for row in rows:
                self._closed_volume += row["volume"]
                self._latest_bars[row["symbol"]] = row
                self._closes.setdefault(row["symbol"], deque(maxlen=_CLOSES)).append(row["closing"])

    def positions(self, rows: Sequence[Row], at: float) -> None:
        """Record changes of positions, including retractions, that arrived at `at`."""
        with self._lock:
            self._changes += len(rows)
            # show a retraction next to its replacement
            self._changelog.extend(sorted(rows, key=lambda row: (row["symbol"], row["__weight"])))
            for row in rows:
                if row["__weight"] < 0:
                    self._retractions += 1
                else:
                    self._latency.arrived(row["symbol"], row["trades"], at)

    def late(self, rows: Sequence[Row]) -> None:
        """Record trades that arrived after their window had closed."""
        with self._lock:
            self._late += len(rows)
            self._late_volume += sum(row["volume"] for row in rows)
            self._late_rows.extend(rows)

    def ranking(self, movers: Sequence[Mover]) -> None:
        with self._lock:
            self._movers = tuple(movers)
            self._selects += 1

    def sample(self) -> None:
        """Sample rate and latency. Called twice a second, so that the histories have even steps."""
        now = time.monotonic()
        with self._lock:
            self._samples.append((now - self._began, self._ledger.rows))
            self._rates.append(self._rate())
            self._p50s.append(self._latency.recent(0.5, now) or 0.0)

    def balance(self) -> Balance:
        """The balance of shares."""
        with self._lock:
            return self._ledger.balance(closed=self._closed_volume, late=self._late_volume)

    def settled(self) -> bool:
        """True when the output for every pushed row has arrived."""
        with self._lock:
            balance = self._ledger.balance(closed=self._closed_volume, late=self._late_volume)
            return balance.holds and self._latency.rows_arrived == self._ledger.rows

    def rows_arrived(self) -> int:
        with self._lock:
            return self._latency.rows_arrived

    def overall_latency(self, share: float) -> float | None:
        with self._lock:
            return self._latency.overall(share)

    def view(self) -> View:
        """A copy to draw from."""
        now = time.monotonic()
        with self._lock:
            return View(
                elapsed=now - self._began,
                rows=self._ledger.rows,
                rate=self._rate(),
                rate_history=tuple(self._rates),
                bars=self._bars,
                changes=self._changes,
                retractions=self._retractions,
                late=self._late,
                selects=self._selects,
                p50=self._latency.recent(0.5, now),
                p99=self._latency.recent(0.99, now),
                p50_history=tuple(self._p50s),
                latest_bars=tuple(self._latest_bars[s] for s in sorted(self._latest_bars)),
                changelog=tuple(self._changelog),
                late_rows=tuple(self._late_rows),
                movers=self._movers,
                closes={s: tuple(c) for s, c in self._closes.items()},
            )

    def _rate(self) -> float:
        (t0, n0), (t1, n1) = self._samples[0], self._samples[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0
