"""Log, store and hub as the engine drives them: each epoch goes to the log, then to the store, then to the hub."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.errors import fail
from penstock.serve.change import Change
from penstock.serve.hub import Hub
from penstock.serve.options import Policy, SubscribeOptions
from penstock.serve.origin import Origin, Past
from penstock.serve.store import ViewStore
from penstock.serve.subscription import Subscription

SCHEMA = pa.schema([("k", pa.int64())])
SOON_S = 20.0
POLICIES: tuple[Policy, ...] = ("block", "coalesce", "latest", "resync", "disconnect")


def delta(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"k": pa.array([k for k, _ in pairs], pa.int64()), "__weight": pa.array([w for _, w in pairs], pa.int64())}
    )


def rows(contents: Counter[int]) -> pa.Table:
    return pa.table({"k": pa.array(contents.elements(), pa.int64())})


def plain(**facts: Any) -> Origin:
    """An object of which nothing but its schema is known, unless it is given."""
    return Origin(SCHEMA, **facts)


def read(sub: Subscription, n: int) -> list[Change]:
    out = [sub.next(timeout=SOON_S) for _ in range(n)]
    assert None not in out
    return [c for c in out if c is not None]


def drain(sub: Subscription) -> list[Change]:
    """All that can be read without waiting."""
    out = []
    while (change := sub.next(timeout=0)) is not None:
        out.append(change)
    return out


class Timeline:
    """One object. LSNs are three times the epoch, the input LSN is one less. `retained`: the first epoch that the log still has."""

    def __init__(self, hub: Hub, store: ViewStore | None = None, object_id: int = 1) -> None:
        self.hub, self.store, self.id = hub, store, object_id
        if store is not None:
            store.create(object_id, SCHEMA, append_only=False)
        self.log: list[Past] = []
        self.model: list[Counter[int]] = [Counter()]
        self.retained = 1
        self.reads = 0

    @property
    def epoch(self) -> int:
        return len(self.log)

    def record(self, *pairs: tuple[int, int]) -> Past:
        """Into the log and the store, without telling the hub."""
        epoch = len(self.log) + 1
        state = self.model[-1].copy()
        state.update(dict(pairs))
        self.model.append(+state)
        past = Past(epoch, epoch * 3, delta(*pairs), None, epoch * 3 - 1)
        self.log.append(past)
        if self.store is not None:
            self.store.apply(self.id, past.table, epoch=epoch, lsn=past.lsn)
        return past

    def publish(self, past: Past) -> None:
        table = past.table if past.table.num_rows else None
        self.hub.publish(self.id, past.epoch, past.lsn, table, input_lsn=past.input_lsn)

    def step(self, *pairs: tuple[int, int]) -> None:
        self.publish(self.record(*pairs))

    def random_step(self, rng: random.Random) -> None:
        live = list(self.model[-1])
        pairs = {rng.randrange(8): 1}
        if live:
            pairs.setdefault(rng.choice(live), -1)
        self.step(*pairs.items())

    def trim(self, keep: int = 0) -> None:
        """The log keeps only its last epochs."""
        self.retained = max(self.retained, len(self.log) - keep + 1)

    def history(self, after: int) -> Iterator[Past] | None:
        if after + 1 < self.retained:
            return None
        return self._epochs(after)

    def _epochs(self, after: int) -> Iterator[Past]:
        while after < len(self.log):
            if after + 1 < self.retained:
                raise fail("PSK-5011", f"Epoch {after + 1} was removed.")
            # Of consecutive epochs without rows the log keeps only the newest.
            while not self.log[after].table.num_rows and not self._has_rows(after + 1):
                after += 1
            self.reads += 1
            yield self.log[after]
            after += 1

    def _has_rows(self, index: int) -> bool:
        """True also where the log ends."""
        return index >= len(self.log) or self.log[index].table.num_rows > 0

    def snapshot(self) -> tuple[pa.Table, int, int]:
        if self.store is not None:
            return self.store.snapshot(self.id)
        return rows(self.model[-1]), self.epoch, self.epoch * 3

    def origin(self, where: Callable[[pa.Table], pa.Table] | None = None) -> Origin:
        return Origin(SCHEMA, snapshot=self.snapshot, history=self.history, where=where)

    def join(self, **options: Any) -> Subscription:
        return self.hub.subscribe(self.id, self.origin(), SubscribeOptions(**options))

    def check(self, changes: list[Change], state: Counter[int] | None = None) -> Counter[int]:
        """Contents after every message equal the model at its epoch; numbers chain without gap, repetition or reordering."""
        state = Counter() if state is None else state
        for i, c in enumerate(changes):
            if i:
                assert c.seq == changes[i - 1].seq + 1
                assert c.prev_lsn == changes[i - 1].lsn
            if c.kind in ("snapshot", "resync"):
                state = Counter()
            elif c.kind == "changes":
                assert c.lsn > c.prev_lsn
            if c.kind != "progress":
                weights = c.table["__weight"].to_pylist()
                assert weights == sorted(weights, key=lambda w: w > 0)
                for k, w in zip(c.table["k"].to_pylist(), weights, strict=True):
                    state[k] += w
            assert +state == self.model[c.epoch]
            assert c.lsn == c.epoch * 3
            assert (c.reason is not None) == (c.kind == "resync")
        return +state
