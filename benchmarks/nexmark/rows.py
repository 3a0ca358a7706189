"""The rows that the queries are measured with: how many, and in which order they are pushed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import pyarrow as pa

from benchmarks.nexmark.generator import ROUND, Nexmark
from benchmarks.nexmark.queries import Query

SIDE_ROWS = 10_000
EVENTS = 3_000_000
BATCHES = 10
# So many that a round takes seconds, of which the start of a query is a small part; a query that takes longer for each row needs fewer.
OTHERS = {
    **dict.fromkeys(("q5", "q11", "q17", "q18", "q20"), 1_000_000),
    **dict.fromkeys(("q15", "q19"), 500_000),
    **dict.fromkeys(("q4", "q6", "q9", "q16"), 300_000),
}


@dataclass(frozen=True)
class Input:
    """Batches by source, in the order of their arrival."""

    batches: list[tuple[str, pa.RecordBatch]]

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for _, batch in self.batches)


def events_of(name: str) -> int:
    return OTHERS.get(name, EVENTS)


def input_of(query: Query, quick: bool) -> Input:
    """What `query` reads, and one round of events so late that every window before it closes."""
    events = events_of(query.name) // (10 if quick else 1)
    sources = tuple(name for name in query.reads if name != "side_input")
    return Input(_batches(sources, events))


@lru_cache(maxsize=1)
def _batches(sources: tuple[str, ...], events: int) -> list[tuple[str, pa.RecordBatch]]:
    auction = Nexmark()
    after = events + 100 * auction.per_second
    stretches = chain(auction.batches(events, events // BATCHES), [auction.events(after, after + ROUND)])
    wanted = {name.removesuffix("_now"): name for name in sources}
    return [(wanted[source], rows) for part in stretches for source, rows in part.items() if source in wanted]


def side_input() -> pa.RecordBatch:
    """The bounded side of q13."""
    keys = list(range(SIDE_ROWS))
    return pa.record_batch({"key": pa.array(keys, pa.int64()), "value": [f"value {key}" for key in keys]})
