"""The rows that the queries are measured with: how many, and in which order they are pushed."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from benchmarks.nexmark.generator import ROUND, Nexmark
from benchmarks.nexmark.queries import Query

BATCH = 100_000
SIDE_ROWS = 10_000
EVENTS = 1_000_000
# These take longer for each row; a smaller number gives as good a rate.
FEWER = {"q4": 300_000, "q5": 500_000, "q6": 300_000, "q9": 300_000, "q15": 500_000, "q16": 300_000, "q19": 500_000}


@dataclass(frozen=True)
class Input:
    """Batches by source, in the order of their arrival."""

    batches: list[tuple[str, pa.RecordBatch]]

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for _, batch in self.batches)


def input_of(query: Query, quick: bool) -> Input:
    """What `query` reads, and one round of events so late that every window before it closes."""
    events = FEWER.get(query.name, EVENTS) // (10 if quick else 1)
    auction = Nexmark()
    stretches = list(auction.batches(events, BATCH))
    after = events + 100 * auction.per_second
    stretches.append(auction.events(after, after + ROUND))
    wanted = {name.removesuffix("_now"): name for name in query.reads}
    batches = [(wanted[source], rows) for part in stretches for source, rows in part.items() if source in wanted]
    return Input(batches)


def side_input() -> pa.RecordBatch:
    """The bounded side of q13."""
    keys = list(range(SIDE_ROWS))
    return pa.record_batch({"key": pa.array(keys, pa.int64()), "value": [f"value {key}" for key in keys]})
