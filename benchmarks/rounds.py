"""Rounds of one throughput work in one process: the first warms up, the others are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pyarrow as pa

from benchmarks.engines.query import Query, stream

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
    for number in range(1 + ROUNDS):
        with closing(start(number)) as query:
            seconds = stream(query, batches, check())
        if number:
            rates.append(rows / seconds)
    return rates
