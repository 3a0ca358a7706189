from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import PenstockError, fail
from penstock.serve.change import Change
from penstock.serve.hub import Hub
from penstock.serve.store import ViewStore
from penstock.serve.subscription import Policy, Subscription

SCHEMA = pa.schema([("k", pa.int64())])


def delta(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"k": pa.array([k for k, _ in pairs], pa.int64()), "__weight": pa.array([w for _, w in pairs], pa.int64())}
    )


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(tick_seconds=0.02)
    hub.open(1, "v")
    yield hub
    hub.close()


def read(sub: Subscription, n: int) -> list[Change]:
    out = [sub.next(timeout=5) for _ in range(n)]
    assert None not in out
    return [c for c in out if c is not None]


class Timeline:
    """Log, store and hub as the engine drives them: each epoch goes to the log, then to the store, then to the hub."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.store = hub, ViewStore(min_delta_rows=50)
        self.store.create(1, SCHEMA, append_only=False)
        self.log: list[tuple[int, int, pa.Table]] = []
        self.model: list[Counter[int]] = [Counter()]

    def step(self, *pairs: tuple[int, int]) -> None:
        epoch = len(self.log) + 1
        lsn = epoch * 3
        state = self.model[-1].copy()
        state.update(dict(pairs))
        self.model.append(+state)
        self.log.append((epoch, lsn, delta(*pairs)))
        self.store.apply(1, delta(*pairs), epoch=epoch, lsn=lsn)
        self.hub.publish(1, epoch, lsn, delta(*pairs))

    def random_step(self, rng: random.Random) -> None:
        live = list(self.model[-1])
        pairs = {rng.randrange(8): 1}
        if live:
            pairs.setdefault(rng.choice(live), -1)
        self.step(*pairs.items())

    def history(self, after: int) -> list[tuple[int, int, pa.Table]]:
        return [e for e in list(self.log) if e[0] > after]

    def join(self, **options: Any) -> Subscription:
        return self.hub.subscribe(
            1, schema=SCHEMA, snapshot=lambda: self.store.snapshot(1), history=self.history, **options
        )


def check(timeline: Timeline, changes: list[Change]) -> None:
    """Contents after every message equal the model at its epoch; numbers chain without gap, repeat or reordering."""
    state: Counter[int] = Counter()
    for i, c in enumerate(changes):
        assert c.seq == i + 1
        if i:
            assert c.prev_lsn == changes[i - 1].lsn
        if c.kind in ("snapshot", "resync"):
            state = Counter()
        else:
            assert c.lsn > c.prev_lsn
        weights = c.table["__weight"].to_pylist()
        assert weights == sorted(weights, key=lambda w: w > 0)
        for k, w in zip(c.table["k"].to_pylist(), weights, strict=True):
            state[k] += w
        assert +state == timeline.model[c.epoch]
        assert c.lsn == c.epoch * 3


@pytest.fixture
def timeline(hub: Hub) -> Iterator[Timeline]:
    timeline = Timeline(hub)
    yield timeline
    timeline.store.close()


def test_every_subscriber_gets_every_change_once_and_in_order(hub: Hub) -> None:
    subs = [hub.subscribe(1, schema=SCHEMA) for _ in range(3)]
    for epoch in range(1, 6):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    for sub in subs:
        got = read(sub, 5)
        assert [(c.epoch, c.prev_lsn, c.lsn, c.seq) for c in got] == [(e, (e - 1) * 10, e * 10, e) for e in range(1, 6)]
        assert [c.rows() for c in got] == [[{"k": e, "__weight": 1}] for e in range(1, 6)]
        assert sub.next(timeout=0) is None
    assert subs[0].next(timeout=0) is None


def test_one_table_is_shared_by_all(hub: Hub) -> None:
    subs = [hub.subscribe(1, schema=SCHEMA) for _ in range(3)]
    hub.publish(1, 1, 1, delta((1, 1), (2, -1)))
    tables = [read(s, 1)[0].arrow() for s in subs]
    assert all(t is tables[0] for t in tables)
    assert hub.stats()[1].subscribers == 3


def test_late_joiners_under_a_writer_that_never_stops(timeline: Timeline) -> None:
    done = threading.Event()

    def write() -> None:
        rng = random.Random(1)
        while not done.is_set():
            timeline.random_step(rng)

    writer = threading.Thread(target=write)
    writer.start()
    rng = random.Random(2)
    try:
        for _ in range(75):
            now = timeline.store.position(1)[0]
            as_of = rng.choice([None, None, max(1, now - rng.randrange(4))]) if now else None
            with timeline.join(initial=True, as_of=as_of) as sub:
                got = read(sub, rng.randrange(1, 5))
            assert got[0].kind == "snapshot"
            if as_of is not None:
                assert got[0].epoch == as_of
            assert [c.epoch for c in got] == list(range(got[0].epoch, got[0].epoch + len(got)))
            check(timeline, got)
    finally:
        done.set()
        writer.join()


def test_contents_ahead_of_the_hub_are_not_sent_twice(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA, snapshot=lambda: (pa.table({"k": [1]}), 1, 10), initial=True)
    hub.publish(1, 1, 10, delta((1, 1)))
    hub.publish(1, 2, 20, delta((2, 1)))
    assert [(c.kind, c.epoch) for c in read(sub, 2)] == [("snapshot", 1), ("changes", 2)]


def test_what_is_published_while_contents_are_read_comes_after_them(hub: Hub) -> None:
    def slow() -> tuple[pa.Table, int, int]:
        hub.publish(1, 1, 10, delta((1, 1)))
        hub.publish(1, 2, 20, delta((2, 1)))
        return pa.table({"k": [1]}), 1, 10

    sub = hub.subscribe(1, schema=SCHEMA, snapshot=slow, initial=True, policy="coalesce", buffer_messages=1)
    assert [(c.kind, c.epoch) for c in read(sub, 2)] == [("snapshot", 1), ("changes", 2)]


def test_release_and_resubscribe_loses_and_repeats_nothing(timeline: Timeline) -> None:
    sub = timeline.join(initial=True)
    assert read(sub, 1)[0].table.num_rows == 0
    got, last = [], 0
    for epoch in range(1, 40):
        timeline.step((epoch, 1))
        if epoch % 3 == 0:
            with timeline.join(as_of=last + 1) as again:
                got += read(again, 3)
            last = got[-1].epoch
    assert [c.epoch for c in got] == list(range(1, 40))
    for before, after in pairwise(got):
        assert after.prev_lsn == before.lsn
    assert len(timeline.hub.stats()) == 1
    sub.cancel()
    assert timeline.hub.stats()[1].subscribers == 0


def test_as_of_and_up_to(timeline: Timeline) -> None:
    for k in range(1, 6):
        timeline.step((k, 1))
    assert [c.epoch for c in timeline.join(as_of=2, up_to=4)] == [2, 3, 4]
    contents = list(timeline.join(as_of=2, up_to=3, initial=True))
    assert [(c.kind, c.epoch, len(c)) for c in contents] == [("snapshot", 2, 2), ("changes", 3, 1)]
    assert list(timeline.join(up_to=5)) == []
    later = timeline.join(up_to=7)
    for k in range(6, 10):
        timeline.step((k, 1))
    assert [c.epoch for c in later] == [6, 7]
    assert later.closed
    with pytest.raises(PenstockError, match="PSK-5011"):
        timeline.join(as_of=100)


def test_outside_the_history_the_answer_is_resync(timeline: Timeline) -> None:
    for k in range(1, 4):
        timeline.step((k, 1))
    options: dict[str, Any] = {"schema": SCHEMA, "history": lambda after: None, "as_of": 2}
    first = read(timeline.hub.subscribe(1, snapshot=lambda: timeline.store.snapshot(1), **options), 1)[0]
    assert (first.kind, first.epoch, len(first)) == ("resync", 3, 3)
    with pytest.raises(PenstockError, match="PSK-5011"):
        timeline.hub.subscribe(1, **options)
    assert timeline.hub.stats()[1].subscribers == 1


def test_filters_leave_no_empty_messages_and_no_gaps(hub: Hub) -> None:
    def even(t: pa.Table) -> pa.Table:
        return t.filter(pc.equal(pc.bit_wise_and(t["k"], 1), 0))

    sub = hub.subscribe(1, schema=SCHEMA, where=even)
    for epoch in range(1, 7):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    assert [(c.epoch, c.prev_lsn, c.lsn, c.seq) for c in read(sub, 3)] == [
        (2, 0, 20, 1),
        (4, 20, 40, 2),
        (6, 40, 60, 3),
    ]


def test_no_net_change_no_message(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA)
    hub.publish(1, 1, 1, delta((1, 1), (1, -1)))
    hub.publish(1, 2, 2, delta((2, 1), (2, 1), (3, -1)))
    got = read(sub, 1)[0]
    assert (got.epoch, got.prev_lsn) == (2, 0)
    assert got.rows() == [{"k": 3, "__weight": -1}, {"k": 2, "__weight": 2}]


@pytest.mark.parametrize("policy", ["block", "coalesce", "resync"])
def test_a_slow_subscriber_still_ends_at_the_truth(timeline: Timeline, policy: Policy) -> None:
    sub = timeline.join(initial=True, policy=policy, buffer_messages=3)
    writer = threading.Thread(
        target=lambda: [timeline.random_step(rng) for rng in [random.Random(3)] for _ in range(60)]
    )
    writer.start()
    got: list[Change] = []
    if policy != "block":
        writer.join()
    while not got or got[-1].epoch < 60:
        got += read(sub, 1)
    writer.join()
    check(timeline, got)
    if policy == "block":
        assert len(got) == 61
    if policy == "resync":
        assert "resync" in [c.kind for c in got]


def test_block_waits_and_lets_go_when_cancelled(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA, buffer_messages=1)
    other = hub.subscribe(1, schema=SCHEMA, policy="coalesce")
    writer = threading.Thread(target=lambda: [hub.publish(1, e, e, delta((e, 1))) for e in range(1, 4)])
    writer.start()
    assert [c.epoch for c in read(other, 2)] == [1, 2]
    assert writer.is_alive()
    sub.cancel()
    writer.join(5)
    assert not writer.is_alive()
    assert read(other, 1)[0].epoch == 3


def test_coalesced_changes_cancel_out(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA, policy="coalesce", buffer_messages=1)
    hub.publish(1, 1, 10, delta((1, 1)))
    hub.publish(1, 2, 20, delta((1, -1), (2, 1)))
    hub.publish(1, 3, 30, delta((2, -1), (3, 1)))
    got = read(sub, 1)[0]
    assert (got.epoch, got.prev_lsn, got.lsn) == (3, 0, 30)
    assert got.rows() == [{"k": 3, "__weight": 1}]


def test_what_coalescing_cannot_shrink_becomes_a_resync(hub: Hub) -> None:
    contents = (pa.table({"k": list(range(100))}), 3, 30)
    sub = hub.subscribe(1, schema=SCHEMA, snapshot=lambda: contents, policy="coalesce", buffer_bytes=100)
    for epoch in range(1, 4):
        hub.publish(1, epoch, epoch * 10, delta(*[(epoch * 100 + i, 1) for i in range(20)]))
    hub.publish(1, 4, 40, delta((7, 1)))
    got = read(sub, 1)[0]
    assert (got.kind, got.epoch, len(got)) == ("resync", 3, 100)
    hub.publish(1, 5, 50, delta((8, 1)))


def test_latest_keeps_the_newest_and_shows_the_gap(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA, policy="latest")
    for epoch in range(1, 4):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    got = read(sub, 1)[0]
    assert (got.epoch, got.prev_lsn, got.lsn) == (3, 20, 30)
    assert sub.dropped == 2
    hub.publish(1, 4, 40, delta((4, 1)))
    assert read(sub, 1)[0].prev_lsn == 30


def test_disconnect_raises_in_the_slow_one_only(hub: Hub) -> None:
    slow = hub.subscribe(1, schema=SCHEMA, policy="disconnect", buffer_messages=2)
    other = hub.subscribe(1, schema=SCHEMA)
    for epoch in range(1, 5):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    with pytest.raises(PenstockError, match="PSK-5010"):
        slow.next()
    assert slow.closed
    assert [c.epoch for c in read(other, 4)] == [1, 2, 3, 4]
    assert hub.stats()[1].subscribers == 1


def test_resync_without_contents_says_where_it_goes_on(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA, policy="resync", buffer_messages=1)
    for epoch in range(1, 5):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    lost = read(sub, 1)[0]
    hub.publish(1, 5, 50, delta((5, 1)))
    after = read(sub, 1)[0]
    assert (lost.kind, lost.epoch, lost.lsn, len(lost)) == ("resync", 4, 40, 0)
    assert (after.kind, after.epoch, after.prev_lsn) == ("changes", 5, 40)


def test_an_idle_object_sends_progress(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA, progress=True)
    silent = hub.subscribe(1, schema=SCHEMA)
    hub.publish(1, 1, 10, delta((1, 1)), 99)
    got = read(sub, 3)
    assert [(c.kind, c.lsn, c.prev_lsn) for c in got] == [
        ("changes", 10, 0),
        ("progress", 10, 10),
        ("progress", 10, 10),
    ]
    assert got[1].watermark == 99
    hub.publish(1, 1, 15, None, 120)
    later = next(c for c in sub if c.lsn == 15)
    assert (later.kind, later.prev_lsn, later.watermark, len(later)) == ("progress", 10, 120, 0)
    hub.publish(1, 2, 20, delta((2, 1)))
    assert next(c for c in sub if c.kind == "changes").prev_lsn == 15
    assert [c.lsn for c in read(silent, 2)] == [10, 20]


def test_a_failure_comes_after_what_was_queued_and_spares_others(hub: Hub) -> None:
    hub.open(2, "w")
    sub, other = hub.subscribe(1, schema=SCHEMA), hub.subscribe(2, schema=SCHEMA)
    hub.publish(1, 1, 1, delta((1, 1)))
    hub.fail(1, fail("PSK-7001", "broken"))
    assert read(sub, 1)[0].epoch == 1
    with pytest.raises(PenstockError, match="PSK-7001"):
        sub.next()
    hub.publish(2, 1, 2, delta((1, 1)))
    assert read(other, 1)[0].name == "w"
    hub.publish(1, 2, 3, delta((2, 1)))
    assert (
        read(hub.subscribe(1, schema=SCHEMA, snapshot=lambda: (pa.table({"k": [2]}), 2, 3), initial=True), 1)[0].epoch
        == 2
    )


def test_iteration_ends_with_the_object_and_with_the_hub(hub: Hub) -> None:
    hub.open(2, "w")
    one, two = hub.subscribe(1, schema=SCHEMA), hub.subscribe(2, schema=SCHEMA)
    hub.publish(1, 1, 1, delta((1, 1)))
    hub.end(1)
    assert len(list(one)) == 1
    waiting = threading.Thread(target=lambda: list(two))
    waiting.start()
    hub.close()
    waiting.join(5)
    assert not waiting.is_alive()
    assert one.closed
    assert two.closed
    with pytest.raises(PenstockError):
        hub.subscribe(2, schema=SCHEMA)


def test_an_empty_last_epoch_ends_the_subscription(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA, up_to=2)
    hub.publish(1, 1, 1, delta((1, 1)))
    hub.publish(1, 2, 2, None)
    assert [c.epoch for c in sub] == [1]


def test_closing_is_told_once(hub: Hub) -> None:
    told: list[str] = []
    sub = hub.subscribe(1, schema=SCHEMA)
    sub.on_close(lambda: told.append("first"))
    sub.cancel()
    sub.cancel()
    sub.on_close(lambda: told.append("late"))
    assert told == ["first", "late"]


def test_a_wait_can_be_interrupted(hub: Hub) -> None:
    sub = hub.subscribe(1, schema=SCHEMA)
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sub.next(timeout=10)
    hub.publish(1, 1, 1, delta((1, 1)))
    assert read(sub, 1)[0].epoch == 1


def test_the_schema_of_changes_is_known_before_the_first(hub: Hub) -> None:
    for options in ({}, {"emit": "append"}, {"envelope": "upsert", "keys": ("k",)}, {"envelope": "debezium"}):
        given: dict[str, Any] = {**options}
        sub = hub.subscribe(1, schema=SCHEMA, snapshot=lambda: (pa.table({"k": [1]}), 0, 0), initial=True, **given)
        assert read(sub, 1)[0].table.schema.names == sub.schema.names
        sub.cancel()


def test_callbacks_run_in_their_own_thread_and_keep_their_error(hub: Hub) -> None:
    seen: list[int] = []
    sub = hub.subscribe(1, schema=SCHEMA, on_change=lambda c: seen.append(c.epoch))
    bad = hub.subscribe(1, schema=SCHEMA, on_change=lambda c: 1 // 0)
    for epoch in (1, 2):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    assert bad.join(5)
    assert isinstance(bad.error, ZeroDivisionError)
    hub.end(1)
    assert sub.join(5)
    assert seen == [1, 2]


def test_a_thousand_subscribers_are_quick_to_reach(hub: Hub) -> None:
    subs = [hub.subscribe(1, schema=SCHEMA, policy="coalesce", buffer_messages=2) for _ in range(1000)]
    start = time.perf_counter()
    for epoch in range(1, 11):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    assert time.perf_counter() - start < 2
    assert sum(w for c in read(subs[-1], 1) for w in c.table["__weight"].to_pylist()) == 10 - subs[-1].pending[0]


@pytest.mark.parametrize(
    "options",
    [{"policy": "hope"}, {"envelope": "letter"}, {"buffer_bytes": 0}, {"envelope": "upsert"}, {"initial": True}],
)
def test_bad_options_are_refused(hub: Hub, options: dict[str, Any]) -> None:
    with pytest.raises(PenstockError):
        hub.subscribe(1, schema=SCHEMA, **options)
    assert hub.stats()[1].subscribers == 0
