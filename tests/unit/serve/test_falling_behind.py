"""Readers that are slower than their object, under each policy. Nothing waits for them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.serve.timeline import POLICIES, SCHEMA, SOON_S, Timeline, delta, drain, plain, read

from penstock.errors import PenstockError, fail
from penstock.serve.change import Change
from penstock.serve.hub import Hub
from penstock.serve.options import Policy, SubscribeOptions
from penstock.serve.origin import Origin, Past
from penstock.serve.store import ViewStore

EPOCHS = times(60, quick=40)


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_waits_for_a_reader_that_does_not_read(timeline: Timeline, policy: Policy) -> None:
    stalled = [timeline.join(policy=policy, buffer_messages=2, snapshot=s) for s in (False, True)]
    other = timeline.join()
    for k in range(50):
        timeline.step((k, 1))
    assert [c.epoch for c in drain(other)] == list(range(1, 51))
    timeline.hub.suspend(1, fail("PSK-7001", "broken"))
    timeline.hub.resume(1)
    timeline.hub.end(1)
    assert max(s.pending[0] for s in stalled) <= 2


@pytest.mark.parametrize("policy", ["block", "coalesce", "resync"])
def test_a_slow_subscriber_still_ends_at_the_truth(hub: Hub, policy: Policy) -> None:
    store = ViewStore(min_delta_rows=50)
    timeline = Timeline(hub, store)
    sub = timeline.join(snapshot=True, policy=policy, buffer_messages=3)
    rng = random.Random(3)
    writer = threading.Thread(target=lambda: [timeline.random_step(rng) for _ in range(EPOCHS)])
    writer.start()
    got: list[Change] = []
    while not got or got[-1].epoch < EPOCHS:
        got += read(sub, 1)
    writer.join()
    timeline.check(got)
    if policy == "block":
        assert len(got) == EPOCHS + 1
    store.close()


def test_block_reads_what_it_missed_from_the_log_and_then_from_memory_again(timeline: Timeline) -> None:
    sub = timeline.join(buffer_messages=3)
    for k in range(10):
        timeline.step((k, 1))
    assert sub.behind
    assert sub.pending[0] == 3
    assert timeline.hub.stats()[1].behind == 1
    got = read(sub, 3)
    assert timeline.reads == 0
    got += read(sub, 5)
    timeline.step((10, 1))
    got += read(sub, 3)
    assert not sub.behind
    reads = timeline.reads
    for k in range(11, 14):
        timeline.step((k, 1))
    got += read(sub, 3)
    timeline.check(got)
    assert [c.epoch for c in got] == list(range(1, 15))
    assert [c.input_lsn for c in got] == [c.lsn - 1 for c in got]
    assert timeline.reads == reads
    assert sub.dropped == 0


def test_a_reader_meets_a_publisher_that_never_stops(timeline: Timeline) -> None:
    """Each message that is read from the log sees three more published; the reader must not chase them for ever."""
    sub = timeline.join(buffer_messages=200)
    for k in range(300):
        timeline.step((k, 1))
    got = []
    while len(got) < 400:
        got += read(sub, 1)
        if sub.behind and timeline.epoch < 900:
            for _ in range(3):
                timeline.step((timeline.epoch, 1))
    assert timeline.check(got) == timeline.model[400]


def test_a_reader_that_falls_behind_while_it_catches_up_loses_nothing(timeline: Timeline) -> None:
    sub = timeline.join(buffer_messages=2)
    for k in range(5):
        timeline.step((k, 1))
    got = read(sub, 3)
    for k in range(5, 20):
        timeline.step((k, 1))
    assert sub.pending[0] == 0
    got += drain(sub)
    timeline.check(got)
    assert [c.epoch for c in got] == list(range(1, 21))


@pytest.mark.parametrize("policy", ["block", "coalesce"])
def test_where_the_log_ends_the_answer_is_resync(timeline: Timeline, policy: Policy) -> None:
    sub = timeline.join(policy=policy, buffer_messages=2)
    for k in range(10):
        timeline.step((k, 1))
    timeline.trim(3)
    got = drain(sub)
    kept = ["changes", "changes", "resync"] if policy == "block" else ["resync"]
    assert [c.kind for c in got] == kept
    after = got[-1]
    assert (after.epoch, len(after)) == (10, 10)
    assert after.reason == f"the changes after epoch {2 if policy == 'block' else 0} are no longer retained"
    timeline.check(got)
    assert sub.dropped == (8 if policy == "block" else 10)
    timeline.step((10, 1))
    timeline.check(drain(sub), timeline.model[10])


def test_history_that_is_removed_while_it_is_read_is_a_resync_too(timeline: Timeline) -> None:
    for k in range(10):
        timeline.step((k, 1))
    sub = timeline.join(as_of=0)
    got = read(sub, 4)
    timeline.trim(2)
    got += drain(sub)
    assert [c.kind for c in got] == ["changes"] * 4 + ["resync"]
    timeline.check(got)


def test_without_a_log_a_slow_reader_gets_the_contents(hub: Hub) -> None:
    contents = (pa.table({"k": [7]}), 5, 50)
    sub = hub.subscribe(1, plain(snapshot=lambda: contents), SubscribeOptions(buffer_messages=1))
    for epoch in range(1, 6):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    assert [(c.kind, c.epoch) for c in drain(sub)] == [("changes", 1), ("resync", 5)]


def test_coalesced_changes_cancel_out(timeline: Timeline) -> None:
    sub = timeline.join(policy="coalesce", buffer_messages=1)
    timeline.step((1, 1))
    timeline.step((1, -1), (2, 1))
    timeline.step((2, -1), (3, 1))
    got = read(sub, 1)[0]
    assert (got.epoch, got.prev_lsn, got.lsn, got.input_lsn) == (3, 0, 9, 8)
    assert got.rows() == [{"k": 3, "__weight": 1}]
    timeline.step((4, 1))
    assert [(c.epoch, c.prev_lsn) for c in drain(sub)] == [(4, 9)]


def test_changes_that_cancel_out_altogether_make_no_message(timeline: Timeline) -> None:
    sub = timeline.join(policy="coalesce", buffer_messages=1)
    for weight in (1, -1, 1, -1):
        timeline.step((1, weight))
    assert drain(sub) == []
    timeline.step((2, 1))
    assert [(c.epoch, c.prev_lsn) for c in drain(sub)] == [(5, 0)]


def test_what_coalescing_cannot_shrink_comes_in_pieces(timeline: Timeline) -> None:
    sub = timeline.join(policy="coalesce", buffer_bytes=1000)
    for epoch in range(10):
        timeline.step(*[(epoch * 100 + i, 1) for i in range(20)])
    got = drain(sub)
    assert 1 < len(got) < 10
    assert max(c.table.nbytes for c in got) < 2000
    timeline.check(got)
    assert got[-1].epoch == 10


def test_latest_keeps_the_newest_and_shows_the_gap(hub: Hub) -> None:
    sub = hub.subscribe(1, plain(), SubscribeOptions(policy="latest"))
    for epoch in range(1, 4):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    got = read(sub, 1)[0]
    assert (got.epoch, got.prev_lsn, got.lsn) == (3, 20, 30)
    assert sub.dropped == 2
    hub.publish(1, 4, 40, delta((4, 1)))
    assert read(sub, 1)[0].prev_lsn == 30


def test_latest_after_the_past_shows_the_gap_there(timeline: Timeline) -> None:
    for k in range(3):
        timeline.step((k, 1))
    sub = timeline.join(as_of=2, policy="latest")
    for k in range(3, 6):
        timeline.step((k, 1))
    assert [(c.epoch, c.prev_lsn) for c in drain(sub)] == [(2, 3), (3, 6), (6, 15)]


def test_disconnect_raises_in_the_slow_one_only(hub: Hub) -> None:
    slow = hub.subscribe(1, plain(), SubscribeOptions(policy="disconnect", buffer_messages=2))
    other = hub.subscribe(1, plain())
    for epoch in range(1, 5):
        hub.publish(1, epoch, epoch, delta((epoch, 1)))
    assert hub.stats()[1].subscribers == 1
    with pytest.raises(PenstockError, match="PSK-5010"):
        slow.next()
    assert slow.closed
    assert [c.epoch for c in read(other, 4)] == [1, 2, 3, 4]


def test_one_message_always_fits(hub: Hub) -> None:
    for policy in POLICIES:
        with hub.subscribe(1, plain(), SubscribeOptions(policy=policy, buffer_bytes=1)) as sub:
            epoch = hub.stats()[1].epoch + 1
            hub.publish(1, epoch, epoch, delta((epoch, 1)))
            assert [(c.kind, c.epoch) for c in drain(sub)] == [("changes", epoch)]


def test_resync_drops_what_waits(timeline: Timeline) -> None:
    sub = timeline.join(policy="resync", buffer_messages=2)
    for k in range(5):
        timeline.step((k, 1))
    assert sub.pending == (0, 0)
    got = drain(sub)
    assert [(c.kind, c.epoch, c.reason) for c in got] == [("resync", 5, "the subscriber was too slow")]
    timeline.step((9, 1))
    timeline.check([*got, *drain(sub)])
    assert timeline.reads == 0


def test_resync_without_contents_says_where_it_goes_on(hub: Hub) -> None:
    sub = hub.subscribe(1, plain(), SubscribeOptions(policy="resync", buffer_messages=1))
    for epoch in range(1, 5):
        hub.publish(1, epoch, epoch * 10, delta((epoch, 1)))
    lost = read(sub, 1)[0]
    hub.publish(1, 5, 50, delta((5, 1)))
    after = read(sub, 1)[0]
    assert (lost.kind, lost.epoch, lost.lsn, len(lost)) == ("resync", 4, 40, 0)
    assert (after.kind, after.epoch, after.prev_lsn) == ("changes", 5, 40)


def test_a_resync_that_fails_is_tried_again(timeline: Timeline) -> None:
    failures = iter([fail("PSK-7009", "too large"), KeyboardInterrupt()])

    def contents() -> tuple[pa.Table, int, int]:
        for failure in failures:
            timeline.step((timeline.epoch, 1))
            raise failure
        return timeline.snapshot()

    origin = Origin(SCHEMA, snapshot=contents, history=timeline.history)
    sub = timeline.hub.subscribe(1, origin, SubscribeOptions(policy="resync", buffer_messages=1))
    for k in range(3):
        timeline.step((k, 1))
    with pytest.raises(PenstockError, match="PSK-7009"):
        sub.next()
    with pytest.raises(KeyboardInterrupt):
        sub.next()
    timeline.step((9, 1))
    got = drain(sub)
    assert [(c.kind, c.epoch) for c in got] == [("resync", 6)]
    timeline.check(got)


def test_what_is_published_during_a_resync_comes_after_it(timeline: Timeline) -> None:
    """More than the buffer takes is published while contents are read; it is read from the log."""

    def contents() -> tuple[pa.Table, int, int]:
        found = timeline.snapshot()
        for k in range(5):
            timeline.step((k, 1))
        return found

    origin = Origin(SCHEMA, snapshot=contents, history=timeline.history)
    sub = timeline.hub.subscribe(1, origin, SubscribeOptions(policy="resync", buffer_messages=2))
    for k in range(3):
        timeline.step((k, 1))
    got = drain(sub)
    assert [(c.kind, c.epoch) for c in got] == [("resync", 3), *[("changes", e) for e in range(4, 9)]]
    timeline.check(got)


def test_a_stream_whose_contents_are_gone_too_ends_with_the_reason(timeline: Timeline) -> None:
    def contents() -> tuple[pa.Table, int, int]:
        raise fail("PSK-5011", "The history of v is no longer complete.")

    origin = Origin(SCHEMA, snapshot=contents, history=timeline.history)
    sub = timeline.hub.subscribe(1, origin, SubscribeOptions(buffer_messages=1))
    for k in range(5):
        timeline.step((k, 1))
    timeline.trim()
    assert read(sub, 1)[0].epoch == 1
    with pytest.raises(PenstockError, match="PSK-5011"):
        sub.next()
    assert sub.closed
    assert timeline.hub.stats()[1].subscribers == 0


def test_an_epoch_that_was_not_published_is_read_from_the_log(timeline: Timeline) -> None:
    """A publisher that was interrupted between the log and the hub, or overtaken by another thread."""
    sub = timeline.join()
    timeline.step((1, 1))
    timeline.record((2, 1))
    timeline.step((3, 1))
    late, early = timeline.record((4, 1)), timeline.record((5, 1))
    timeline.publish(early)
    timeline.publish(late)
    got = drain(sub)
    assert [c.epoch for c in got] == [1, 2, 3, 4, 5]
    timeline.check(got)


def test_epochs_without_rows_are_no_gap(timeline: Timeline) -> None:
    sub = timeline.join(buffer_messages=2)
    for k in range(6):
        timeline.step(*([] if k % 2 else [(k, 1)]))
    assert timeline.reads == 0
    got = drain(sub)
    assert [c.epoch for c in got] == [1, 3, 5]
    timeline.check(got)


def test_an_object_that_ends_is_read_to_its_end(timeline: Timeline) -> None:
    sub = timeline.join(buffer_messages=2)
    for k in range(8):
        timeline.step((k, 1))
    timeline.hub.end(1)
    assert [c.epoch for c in sub] == list(range(1, 9))
    assert sub.closed


@pytest.mark.parametrize(("end", "code"), [("end", "PSK-1002"), ("close", "PSK-0004")])
@pytest.mark.parametrize("policy", ["block", "coalesce", "resync"])
def test_an_end_before_all_was_read_is_not_silent(timeline: Timeline, policy: Policy, end: str, code: str) -> None:
    sub = timeline.join(policy=policy, buffer_messages=2)
    for k in range(8):
        timeline.step((k, 1))
    timeline.trim()
    if end == "end":
        timeline.hub.end(1)
    else:
        timeline.hub.close()
    if policy == "block":
        assert [c.epoch for c in read(sub, 2)] == [1, 2]
    with pytest.raises(PenstockError, match=code):
        sub.next()
    assert sub.closed
    assert sub.next() is None


def test_a_failed_object_gives_the_rest_and_then_the_error(timeline: Timeline) -> None:
    sub = timeline.join(buffer_messages=2)
    for k in range(5):
        timeline.step((k, 1))
    timeline.hub.fail(1, fail("PSK-7001", "broken"))
    assert [c.epoch for c in read(sub, 5)] == [1, 2, 3, 4, 5]
    with pytest.raises(PenstockError, match="broken"):
        sub.next()


def test_a_filtered_history_does_not_outlast_the_timeout(timeline: Timeline) -> None:
    """A timeout ends a long search through the log; what was searched is not searched again. A poll searches all that is there."""
    asked: list[int] = []

    def none(table: pa.Table) -> pa.Table:
        asked.append(table["k"][0].as_py())
        time.sleep(0.01)  # A slow condition, which outlasts the timeout.
        return table.slice(0, 0)

    origin = Origin(SCHEMA, history=timeline.history, where=none)
    for k in range(50):
        timeline.step((k, 1))
    sub = timeline.hub.subscribe(1, origin, SubscribeOptions(as_of=1, where="false"))
    for _ in range(3):
        assert sub.next(timeout=0.001) is None
    assert asked == [0, 1, 2]
    assert sub.next(timeout=0) is None
    assert asked == list(range(50))


def test_the_log_may_fail_in_other_ways(timeline: Timeline) -> None:
    broken = iter([fail("PSK-6001", "damaged")])

    def history(after: int) -> Iterator[Past] | None:
        for error in broken:
            raise error
        return timeline.history(after)

    for k in range(3):
        timeline.step((k, 1))
    with pytest.raises(PenstockError, match="PSK-6001"):
        timeline.hub.subscribe(1, plain(history=history), SubscribeOptions(as_of=1))
    assert [c.epoch for c in drain(timeline.hub.subscribe(1, plain(history=history), SubscribeOptions(as_of=1)))] == [
        1,
        2,
        3,
    ]


def test_many_stalled_readers_hold_up_nobody(timeline: Timeline) -> None:
    subs = [timeline.join(policy=POLICIES[i % 5], buffer_messages=4) for i in range(50)]
    live = timeline.join()
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.extend(c.epoch for c in live))
    reader.start()
    for k in range(300):
        timeline.step((k, 1))
    timeline.hub.end(1)
    reader.join(SOON_S)
    assert seen == list(range(1, 301))
    assert sum(s.pending[0] for s in subs) <= 50 * 4
