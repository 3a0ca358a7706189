from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.effort import times
from tests.unit.ducks import reuse
from tests.unit.serve.timeline import SCHEMA, SOON_S, Timeline, delta, drain, plain, read

from penstock.errors import PenstockError, fail
from penstock.serve.hub import Hub
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin
from penstock.serve.store import ViewStore


@pytest.fixture
def timeline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Timeline]:
    reuse(monkeypatch)
    store = ViewStore(min_delta_rows=50)
    yield Timeline(hub, store)
    store.close()


def test_every_subscriber_gets_every_change_once_and_in_order(hub: Hub) -> None:
    subs = [hub.subscribe(1, plain()) for _ in range(3)]
    for epoch in range(1, 6):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    for sub in subs:
        got = read(sub, 5)
        assert [(c.epoch, c.prev_lsn, c.lsn, c.seq) for c in got] == [(e, (e - 1) * 10, e * 10, e) for e in range(1, 6)]
        assert [c.rows() for c in got] == [[{"k": e, "__weight": 1}] for e in range(1, 6)]
        assert sub.next(timeout=0) is None


def test_a_change_names_the_commit_that_caused_it(hub: Hub) -> None:
    sub = hub.subscribe(1, plain())
    hub.publish(1, 1, 10, delta((1, 1)))
    hub.publish(1, 2, 20, delta((2, 1)), input_lsn=17)
    assert [(c.lsn, c.input_lsn) for c in read(sub, 2)] == [(10, 10), (20, 17)]


def test_contents_claim_no_more_input_than_is_known(hub: Hub) -> None:
    """Contents may be ahead of the hub; what they are known to have taken in is then what was published last."""
    hub.publish(1, 1, 20, delta((1, 1)), input_lsn=17)
    ahead = plain(snapshot=lambda: (pa.table({"k": [1, 2]}), 2, 30))
    first = read(hub.subscribe(1, ahead, SubscribeOptions(snapshot=True)), 1)[0]
    assert (first.kind, first.lsn, first.input_lsn) == ("snapshot", 30, 17)
    hub.open(2, "t", epoch=4, lsn=40)
    table = plain(snapshot=lambda: (pa.table({"k": [1]}), 5, 50))
    first = read(hub.subscribe(2, table, SubscribeOptions(snapshot=True)), 1)[0]
    assert (first.lsn, first.input_lsn) == (50, 50)


def test_one_table_is_shared_by_all(hub: Hub) -> None:
    subs = [hub.subscribe(1, plain()) for _ in range(3)]
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
    assert timeline.store is not None
    try:
        for _ in range(times(25, quick=15)):
            now = timeline.store.position(1)[0]
            as_of = rng.choice([None, None, max(1, now - rng.randrange(4))]) if now else None
            limits = rng.choice([{}, {"buffer_messages": 1}])
            with timeline.join(snapshot=True, as_of=as_of, **limits) as sub:
                got = read(sub, rng.randrange(1, 5))
            assert got[0].kind == "snapshot"
            if as_of is not None:
                assert got[0].epoch == as_of
            assert [c.epoch for c in got] == list(range(got[0].epoch, got[0].epoch + len(got)))
            timeline.check(got)
    finally:
        done.set()
        writer.join()


def test_contents_ahead_of_the_hub_are_not_sent_twice(hub: Hub) -> None:
    origin = plain(snapshot=lambda: (pa.table({"k": [1]}), 1, 10))
    sub = hub.subscribe(1, origin, SubscribeOptions(snapshot=True))
    hub.publish(1, 1, 10, delta((1, 1)))
    hub.publish(1, 2, 20, delta((2, 1)))
    assert [(c.kind, c.epoch) for c in read(sub, 2)] == [("snapshot", 1), ("changes", 2)]


@pytest.mark.parametrize("policy", ["block", "coalesce", "latest", "resync", "disconnect"])
def test_what_is_published_while_contents_are_read_comes_after_them(hub: Hub, policy: str) -> None:
    timeline = Timeline(hub)

    def slow() -> tuple[pa.Table, int, int]:
        contents = timeline.snapshot()
        for k in range(4):
            timeline.step((k, 1))
        return contents

    origin = Origin(SCHEMA, snapshot=slow, history=timeline.history)
    options: Any = {"policy": policy, "buffer_messages": 2, "snapshot": True}
    sub = hub.subscribe(1, origin, SubscribeOptions(**options))
    got = drain(sub)
    if policy == "latest":
        assert [(c.kind, c.epoch) for c in got] == [("snapshot", 0), ("changes", 4)]
    else:
        timeline.check(got)
        assert [c.kind for c in got[:2]] == ["snapshot", "changes"]
        assert (got[0].epoch, got[-1].epoch) == (0, 4)


def test_release_and_resubscribe_loses_and_repeats_nothing(timeline: Timeline) -> None:
    sub = timeline.join(snapshot=True)
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
    assert [c.epoch for c in timeline.join(as_of=0, up_to=5)] == [1, 2, 3, 4, 5]
    contents = list(timeline.join(as_of=2, up_to=3, snapshot=True))
    assert [(c.kind, c.epoch, len(c)) for c in contents] == [("snapshot", 2, 2), ("changes", 3, 1)]
    timeline.check(contents)
    timeline.check(drain(timeline.join(as_of=0, snapshot=True)))
    assert [(c.kind, c.epoch) for c in drain(timeline.join(as_of=6, snapshot=True))] == [("snapshot", 5)]
    assert list(timeline.join(up_to=5)) == []
    later = timeline.join(up_to=7)
    from_next = timeline.join(as_of=6)
    for k in range(6, 10):
        timeline.step((k, 1))
    assert [c.epoch for c in later] == [6, 7]
    assert later.closed
    assert [c.epoch for c in drain(from_next)] == [6, 7, 8, 9]
    with pytest.raises(PenstockError, match="PSK-5011"):
        timeline.join(as_of=100)


def test_the_past_is_read_as_it_is_asked_for(timeline: Timeline) -> None:
    """A long history is never in memory as a whole."""
    for k in range(60):
        timeline.step((k, 1))
    timeline.reads = 0
    sub = timeline.join(as_of=1)
    assert timeline.reads <= 2
    assert [c.epoch for c in read(sub, 3)] == [1, 2, 3]
    assert timeline.reads <= 6
    assert sub.pending == (0, 0)


def test_outside_the_history_the_answer_is_resync(timeline: Timeline) -> None:
    for k in range(1, 4):
        timeline.step((k, 1))
    timeline.trim()
    for snapshot in (False, True):
        sub = timeline.join(as_of=2, snapshot=snapshot)
        first = read(sub, 1)[0]
        assert (first.kind, first.epoch, len(first)) == ("resync", 3, 3)
        assert first.reason == "epoch 2 is no longer retained"
        sub.cancel()
    with pytest.raises(PenstockError, match="PSK-5011"):
        timeline.hub.subscribe(1, plain(history=timeline.history), SubscribeOptions(as_of=2))
    assert timeline.hub.stats()[1].subscribers == 0


def test_filters_leave_no_empty_messages_and_no_gaps(hub: Hub) -> None:
    def even(t: pa.Table) -> pa.Table:
        return t.filter(pc.equal(pc.bit_wise_and(t["k"], 1), 0))

    sub = hub.subscribe(1, plain(where=even), SubscribeOptions(where="k % 2 = 0"))
    for epoch in range(1, 7):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    assert [(c.epoch, c.prev_lsn, c.lsn, c.seq) for c in drain(sub)] == [(2, 0, 20, 1), (4, 20, 40, 2), (6, 40, 60, 3)]


def test_no_net_change_no_message(hub: Hub) -> None:
    sub = hub.subscribe(1, plain())
    hub.publish(1, 1, 1, delta((1, 1), (1, -1)))
    hub.publish(1, 2, 2, delta((2, 1), (2, 1), (3, -1)))
    got = read(sub, 1)[0]
    assert (got.epoch, got.prev_lsn) == (2, 0)
    assert got.rows() == [{"k": 3, "__weight": -1}, {"k": 2, "__weight": 2}]


def test_an_error_while_reading_loses_nothing(hub: Hub) -> None:
    """A filter that fails, or is interrupted, is asked again for the same change."""
    failures = iter([ValueError("not now"), KeyboardInterrupt()])

    def keep(table: pa.Table) -> pa.Table:
        for failure in failures:
            raise failure
        return table

    sub = hub.subscribe(1, plain(where=keep), SubscribeOptions(where="true"))
    for epoch in (1, 2):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    with pytest.raises(ValueError, match="not now"):
        sub.next()
    with pytest.raises(KeyboardInterrupt):
        sub.next()
    assert [(c.epoch, c.seq, c.prev_lsn) for c in read(sub, 2)] == [(1, 1, 0), (2, 2, 1)]


def test_an_idle_object_sends_progress(hub: Hub) -> None:
    sub = hub.subscribe(1, plain(), SubscribeOptions(progress=True))
    silent = hub.subscribe(1, plain())
    hub.publish(1, 1, 10, delta((1, 1)), 99, input_lsn=9)
    got = read(sub, 3)
    assert [(c.kind, c.lsn, c.prev_lsn, c.input_lsn) for c in got] == [
        ("changes", 10, 0, 9),
        ("progress", 10, 10, 9),
        ("progress", 10, 10, 9),
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
    sub, other = hub.subscribe(1, plain()), hub.subscribe(2, plain())
    hub.publish(1, 1, 1, delta((1, 1)))
    hub.fail(1, fail("PSK-7001", "broken"))
    assert read(sub, 1)[0].epoch == 1
    with pytest.raises(PenstockError, match="PSK-7001"):
        sub.next()
    assert sub.closed and sub.next() is None
    hub.publish(2, 1, 2, delta((1, 1)))
    assert read(other, 1)[0].name == "w"
    hub.publish(1, 2, 3, delta((2, 1)))
    origin = plain(snapshot=lambda: (pa.table({"k": [2]}), 2, 3))
    assert read(hub.subscribe(1, origin, SubscribeOptions(snapshot=True)), 1)[0].epoch == 2


def test_iteration_ends_with_the_object_and_with_the_hub(hub: Hub) -> None:
    hub.open(2, "w")
    one, two = hub.subscribe(1, plain()), hub.subscribe(2, plain())
    hub.publish(1, 1, 1, delta((1, 1)))
    hub.end(1)
    assert len(list(one)) == 1
    waiting = threading.Thread(target=lambda: list(two))
    waiting.start()
    hub.close()
    waiting.join(SOON_S)
    assert not waiting.is_alive()
    assert one.closed
    assert two.closed


def test_an_empty_last_epoch_ends_the_subscription(hub: Hub) -> None:
    sub = hub.subscribe(1, plain(), SubscribeOptions(up_to=2))
    hub.publish(1, 1, 1, delta((1, 1)))
    hub.publish(1, 2, 2, None)
    assert [c.epoch for c in sub] == [1]


def test_closing_is_told_once(hub: Hub) -> None:
    told: list[str] = []
    sub = hub.subscribe(1, plain())
    sub.on_close(lambda: told.append("first"))
    sub.cancel()
    sub.cancel()
    sub.on_close(lambda: told.append("late"))
    assert told == ["first", "late"]


def test_a_wait_can_be_interrupted(hub: Hub) -> None:
    sub = hub.subscribe(1, plain())
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sub.next(timeout=10)
    hub.publish(1, 1, 1, delta((1, 1)))
    assert read(sub, 1)[0].epoch == 1


def test_the_schema_of_changes_is_known_before_the_first(hub: Hub) -> None:
    contents = {"snapshot": lambda: (pa.table({"k": [1]}), 0, 0)}
    for envelope, facts in (
        ("diff", {}),
        ("diff", {"emit": "append"}),
        ("upsert", {"keys": ("k",)}),
        ("debezium", {}),
    ):
        options: Any = {"envelope": envelope, "snapshot": True}
        sub = hub.subscribe(1, plain(**contents, **facts), SubscribeOptions(**options))
        assert read(sub, 1)[0].table.schema.names == sub.schema.names
        sub.cancel()


def test_fetch_gives_what_is_there(hub: Hub) -> None:
    sub = hub.subscribe(1, plain())
    for epoch in range(1, 6):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    assert sub.fetch(0) == []
    assert [c.epoch for c in sub.fetch(2)] == [1, 2]
    hub.suspend(1, fail("PSK-7001", "broken"))
    hub.publish(1, 6, 6, delta((6, 1)))
    assert [c.epoch for c in sub.fetch(timeout=SOON_S)] == [3, 4, 5]
    with pytest.raises(PenstockError, match="broken"):
        sub.fetch(timeout=0)
    assert sub.fetch(timeout=0) == []
    hub.resume(1)
    hub.end(1)
    assert [c.epoch for c in sub.fetch(10, timeout=SOON_S)] == [6]
    assert sub.fetch(timeout=SOON_S) == []
    assert sub.closed


def test_fetch_of_everything_ends_under_a_writer_that_never_stops(hub: Hub) -> None:
    def more(table: pa.Table) -> pa.Table:
        epoch = hub.stats()[1].epoch + 1
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
        return table

    sub = hub.subscribe(1, plain(where=more), SubscribeOptions(where="true"))
    for epoch in (1, 2):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    assert [c.epoch for c in sub.fetch(timeout=SOON_S)] == [1, 2]


def test_callbacks_run_in_their_own_thread_and_keep_their_error(hub: Hub) -> None:
    seen: list[int] = []
    sub = hub.subscribe(1, plain(), on_change=lambda c: seen.append(c.epoch))
    bad = hub.subscribe(1, plain(), on_change=lambda c: 1 // 0)
    for epoch in (1, 2):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    assert bad.join(SOON_S)
    assert isinstance(bad.error, ZeroDivisionError)
    assert bad.closed
    hub.end(1)
    assert sub.join(SOON_S)
    assert seen == [1, 2]


def test_readers_of_one_subscription_take_turns(hub: Hub) -> None:
    sub = hub.subscribe(1, plain())
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.extend(c.epoch for c in sub)) for _ in range(3)]
    for t in threads:
        t.start()
    for epoch in range(1, 200):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    hub.end(1)
    for t in threads:
        t.join(SOON_S)
    assert sorted(seen) == list(range(1, 200))


def test_a_thousand_subscribers_are_quick_to_reach(hub: Hub) -> None:
    timeline = Timeline(hub)
    subs = [timeline.join(policy="coalesce", buffer_messages=2) for _ in range(1000)]
    start = time.perf_counter()
    for epoch in range(1, 11):
        timeline.step((epoch, 1))
    assert time.perf_counter() - start < 2
    assert [len(c) for c in drain(subs[-1])] == [10]


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "hope"},
        {"envelope": "letter"},
        {"buffer_bytes": 0},
        {"buffer_messages": True},
        {"as_of": -1},
        {"up_to": "9"},
        {"as_of": 5, "up_to": 4},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="PSK-1011"):
        SubscribeOptions(**options)


@pytest.mark.parametrize(
    ("options", "code"),
    [({"envelope": "upsert"}, "PSK-5012"), ({"snapshot": True}, "PSK-5012"), ({"where": "k = 1"}, "PSK-8001")],
)
def test_options_that_the_object_cannot_fulfil_are_refused(hub: Hub, options: dict[str, Any], code: str) -> None:
    with pytest.raises(PenstockError, match=code):
        hub.subscribe(1, plain(), SubscribeOptions(**options))
    with pytest.raises(PenstockError, match="PSK-0009"):
        hub.subscribe(1, plain(), on_error=print)
    assert hub.stats()[1].subscribers == 0
