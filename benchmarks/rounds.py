"""Rounds of one throughput work in one process: the first ones warm up, the others are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pyarrow as pa

from benchmarks.engines.query import Query, stream

# The JVM's compiler is still at it in the third round.
WARM_UP = 4
ROUNDS = 3

Check = Callable[[pa.Table], bool]


def rounds(
    start: Callable[[int], Query],
    batches: Sequence[pa.RecordBatch],
    rows: int,
    check: Callable[[], Check],
) -> list[float]:
    """Rows per second of each round. `start` makes a new query, `check` something that knows when its results are all there."""
    rates = []
    for number in range(WARM_UP + ROUNDS):
        with closing(start(number)) as query:
            seconds = stream(query, batches, check())
        if number >= WARM_UP:
            rates.append(rows / seconds)
    return rates
