"""The pipeline of the demo: its SQL, and the threads that push rows and subscribe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.board import Board, Mover
from penstock.cli.demo.feed import Market
from penstock.cli.demo.ledger import DELAY_MS, WINDOW_MS

if TYPE_CHECKING:
    from penstock.api import Database, Subscription

SQL = f"""
CREATE SOURCE trades (
  symbol STRING, price DOUBLE, volume BIGINT, quantity BIGINT, ts TIMESTAMP,
  WATERMARK FOR ts AS ts - INTERVAL '{DELAY_MS}' MILLISECOND
);

CREATE STREAM bars AS
  SELECT symbol, window_start,
         first_value(price) AS opening, max(price) AS high, min(price) AS low, last_value(price) AS closing,
         sum(price * volume) / sum(volume) AS vwap, sum(volume) AS volume, count(*) AS trades
  FROM trades
  GROUP BY symbol, TUMBLE(ts, INTERVAL '{WINDOW_MS}' MILLISECOND)
  EMIT ON WINDOW CLOSE
  LATE DATA TO late_trades;

CREATE STREAM positions AS
  SELECT symbol, sum(quantity) AS position, count(*) AS trades
  FROM trades
  GROUP BY symbol
  EMIT CHANGES;

CREATE MATERIALIZED VIEW movers AS
  SELECT symbol, first_value(price) AS first_price, last_value(price) AS last_price, sum(volume) AS volume
  FROM trades
  GROUP BY symbol;
"""

RANKING = """
SELECT symbol, last_price, 100 * (last_price - first_price) / first_price AS change, volume
FROM movers
ORDER BY change DESC
"""

# each durable insert costs a sync: twenty a second look smooth and are easy on the disk
TICK_S = 0.05
# after the process was suspended, do not push the rows it missed
MAX_TICK_S = 0.5
SELECT_S = 0.5
# by then, windows have been closing for some seconds, so a straggler is certainly late
FIRST_STRAGGLER_S = 11.0
STRAGGLER_S = 2.5
# the last epochs take well under a second; if this is exceeded, something was lost
SETTLE_S = 10.0
# the first epochs of a cold JVM on a busy machine
FLUSH_S = 120.0
WARM_UP_ROWS = 100
JOIN_S = 5.0


class Pipeline:
    """Runs the feed and the subscribers. The first error in any of them is stored in `error` and ends the demo."""

    def __init__(self, db: Database, board: Board, *, rate: int, seed: int) -> None:
        self._db = db
        self._board = board
        self._rate = rate
        self._market = Market(seed)
        self._no_more_rows = threading.Event()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._subscriptions: list[Subscription] = []
        self._feeder: threading.Thread | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Create the objects, subscribe, warm up the JVM with a few rows, and start pushing."""
        self._db.execute(SQL)
        board = self._board
        self._listen("bars", lambda rows, at: board.bars(rows))
        self._listen("positions", board.positions)
        self._listen("late_trades", lambda rows, at: board.late(rows))
        self._push(WARM_UP_ROWS)
        self._db.flush(timeout=FLUSH_S)
        board.begin()
        self._thread(self._rank, "movers")
        self._feeder = self._thread(self._feed, "feed")

    def stop_feed(self) -> None:
        """Stop pushing, and wait until the engine has emitted all results for the pushed rows."""
        self._no_more_rows.set()
        if self._feeder is not None:
            self._feeder.join()
        if self.error is None:
            self._db.flush(timeout=FLUSH_S)
            self._settle()

    def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not self._board.settled() and self.error is None and time.monotonic() < deadline:
            self._closing.wait(0.02)

    def close(self) -> None:
        """End all threads."""
        self._no_more_rows.set()
        self._closing.set()
        for subscription in self._subscriptions:
            subscription.cancel()
        for thread in self._threads:
            thread.join(JOIN_S)

    def _thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                if not self._closing.is_set() and self.error is None:
                    self.error = error

        thread = threading.Thread(target=guarded, name=f"demo-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _listen(self, name: str, report: Callable[[list[dict[str, Any]], float], None]) -> None:
        subscription = self._db.subscribe(name)
        self._subscriptions.append(subscription)

        def work() -> None:
            for change in subscription:
                report(change.rows(), time.monotonic())

        self._thread(work, name)

    def _feed(self) -> None:
        last = time.monotonic()
        owed = 0.0
        straggler_at = last + FIRST_STRAGGLER_S
        while not self._no_more_rows.wait(TICK_S):
            now = time.monotonic()
            owed += self._rate * min(now - last, MAX_TICK_S)
            last = now
            count = int(owed)
            owed -= count
            if count:
                self._push(count)
            if now >= straggler_at:
                straggler_at += STRAGGLER_S
                self._push(0)

    def _push(self, count: int) -> None:
        """Insert `count` trades, or one straggler for 0."""
        now_ms = time.time_ns() // 1_000_000
        batch = self._market.trades(count, now_ms) if count else self._market.straggler(now_ms)
        self._board.push_begins(batch)
        self._db.insert("trades", batch.arrow())
        self._board.push_done(batch, straggler=not count)

    def _rank(self) -> None:
        while not self._closing.wait(SELECT_S):
            rows = self._db.sql(RANKING).fetchall()
            self._board.ranking([Mover(symbol, price, change, volume) for symbol, price, change, volume in rows])
