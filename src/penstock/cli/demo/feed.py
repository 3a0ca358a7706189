"""Random trades: twelve symbols whose prices follow random walks. The same seed and clock give the same trades."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SYMBOLS: tuple[tuple[str, float], ...] = (
    ("ALDER", 41.20), ("ASPEN", 187.35), ("BEECH", 12.84), ("BIRCH", 96.10), ("CEDAR", 310.75), ("ELDER", 58.46),
    ("HAZEL", 24.91), ("LARCH", 143.02), ("MAPLE", 72.58), ("OLIVE", 8.67), ("ROWAN", 221.90), ("TULIP", 35.33),
)  # fmt: skip

# trades arrive up to this much out of order; the watermark delay of the pipeline is longer, so none of them is late
JITTER_MS = 300
# the age of a straggler when it arrives: its window closed long ago
LATE_MS = (6_000, 10_000)


@dataclass
class Batch:
    """Trades as columns. `quantity` is the signed volume: positive bought, negative sold. `ts` is Unix milliseconds."""

    symbol: list[str] = field(default_factory=list)
    price: list[float] = field(default_factory=list)
    volume: list[int] = field(default_factory=list)
    quantity: list[int] = field(default_factory=list)
    ts: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.symbol)

    def arrow(self) -> pa.Table:
        """The batch as an Arrow table to insert."""
        import pyarrow as pa

        stamp = pa.timestamp("us", tz="UTC")
        return pa.table(
            {
                "symbol": pa.array(self.symbol, pa.string()),
                "price": pa.array(self.price, pa.float64()),
                "volume": pa.array(self.volume, pa.int64()),
                "quantity": pa.array(self.quantity, pa.int64()),
                "ts": pa.array([t * 1000 for t in self.ts], pa.int64()).cast(stamp),
            }
        )


class Market:
    """Generates trades. Each symbol has its own volatility and a drift that changes now and then, so that the ranking changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = [name for name, _ in SYMBOLS]
        self._price = dict(SYMBOLS)
        self._swing = {name: self._random.uniform(0.00008, 0.00030) for name in self._names}
        self._drift = dict.fromkeys(self._names, 0.0)

    def trades(self, count: int, now_ms: int) -> Batch:
        """`count` trades around `now_ms`, at most `JITTER_MS` old."""
        batch = Batch()
        rng = self._random
        for _ in range(count):
            name = rng.choice(self._names)
            if rng.random() < 0.004:
                self._drift[name] = rng.gauss(0.0, 0.00004)
            self._price[name] *= math.exp(rng.gauss(self._drift[name], self._swing[name]))
            self._add(batch, name, self._price[name], now_ms - rng.randrange(JITTER_MS))
        return batch

    def straggler(self, now_ms: int) -> Batch:
        """One trade that is seconds old."""
        batch = Batch()
        name = self._random.choice(self._names)
        self._add(batch, name, self._price[name], now_ms - self._random.randint(*LATE_MS))
        return batch

    def _add(self, batch: Batch, name: str, price: float, ts: int) -> None:
        volume = self._random.randint(1, 20) * 10
        batch.symbol.append(name)
        batch.price.append(round(price, 4))
        batch.volume.append(volume)
        batch.quantity.append(volume if self._random.random() < 0.5 else -volume)
        batch.ts.append(ts)
