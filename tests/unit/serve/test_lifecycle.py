"""The states of a subscription, what may run under a lock, and the end of objects and of the hub."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from collections.abc import Callable, Iterator

import psutil
import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.serve.timeline import SCHEMA, SOON_S, Timeline, delta, drain, plain, read

from penstock.errors import PenstockError, fail
from penstock.serve.change import Change
from penstock.serve.hub import Hub
from penstock.serve.lifecycle import SubscriptionLifecycle, SubscriptionState
from penstock.serve.options import Policy, SubscribeOptions
from penstock.serve.origin import Origin, Past
from penstock.serve.subscription import Subscription


def within(bound: float, call: Callable[[], object]) -> None:
    """The call ends within the bound, in a thread of its own."""
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as why:
            outcome.append(why)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(bound)
    assert not thread.is_alive(), "it waits for somebody"
    if outcome:
        raise outcome[0]


LEGAL = {
    SubscriptionState.ATTACHING: {
        SubscriptionState.OPEN,
        SubscriptionState.SUSPENDED,
        SubscriptionState.ENDED,
        SubscriptionState.FAILED,
        SubscriptionState.CLOSED,
    },
    SubscriptionState.OPEN: {
        SubscriptionState.SUSPENDED,
        SubscriptionState.ENDED,
        SubscriptionState.FAILED,
        SubscriptionState.CLOSED,
    },
    SubscriptionState.SUSPENDED: {
        SubscriptionState.OPEN,
        SubscriptionState.ENDED,
        SubscriptionState.FAILED,
        SubscriptionState.CLOSED,
    },
    SubscriptionState.ENDED: {SubscriptionState.CLOSED},
    SubscriptionState.FAILED: {SubscriptionState.CLOSED},
    SubscriptionState.CLOSED: set(),
}


@pytest.mark.parametrize(("before", "after"), [*itertools.product(SubscriptionState, SubscriptionState)])
def test_steps_between_states(before: SubscriptionState, after: SubscriptionState) -> None:
    lifecycle = SubscriptionLifecycle()
    if before is not SubscriptionState.ATTACHING:
        lifecycle.to(before)
    if after in LEGAL[before]:
        lifecycle.to(after)
        assert lifecycle.state is after
    else:
        with pytest.raises(PenstockError, match=f"PSK-0006.* {before.value} .* {after.value}"):
            lifecycle.to(after)
        assert lifecycle.state is before


class Battery:
    """All that others may do at any moment, done while something of ours is being called."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.timeline = hub, Timeline(hub)
        self.done: list[str] = []
        self.other = self.timeline.join()
        self.mine: Subscription | None = None

    def run(self, where: str) -> None:
        if where not in self.done:
            self.done.append(where)
            within(SOON_S, self._all)

    def _all(self) -> None:
        self.timeline.step((1, 1))
        self.hub.publish(1, self.timeline.epoch, self.timeline.epoch * 3, None)
        self.hub.suspend(1, fail("PSK-7001", "for a moment"))
        self.hub.resume(1)
        with self.timeline.join(snapshot=True) as sub:
            until_error(self.other)
            assert read(sub, 1)[0].kind == "snapshot"
        drain(self.other)
        self.hub.stats()
        self.hub._tick()
        self.hub.open(2, "w")
        self.hub.end(2)
        if self.mine is not None:
            assert self.mine.pending is not None
            assert self.mine.behind in (True, False)
            assert self.mine.state in SubscriptionState


def test_nothing_of_others_is_called_under_a_lock(hub: Hub) -> None:
    """While any function that we were given runs, everybody else can do everything."""
    battery = Battery(hub)
    timeline = battery.timeline

    def snapshot() -> tuple[pa.Table, int, int]:
        battery.run("snapshot")
        return timeline.snapshot()

    def history(after: int) -> Iterator[Past] | None:
        battery.run("history")
        found = timeline.history(after)
        return None if found is None else epochs(found)

    def epochs(found: Iterator[Past]) -> Iterator[Past]:
        for past in found:
            battery.run("epoch")
            yield past

    def keep(table: pa.Table) -> pa.Table:
        battery.run("where")
        return table

    origin = Origin(SCHEMA, snapshot=snapshot, history=history, where=keep)
    options = SubscribeOptions(as_of=1, snapshot=True, where="true", policy="block", buffer_messages=1)
    timeline.step((5, 1))
    timeline.step((6, 1))
    battery.mine = hub.subscribe(1, origin, options)
    assert read(battery.mine, 1)[0].kind == "snapshot"
    for k in range(5):
        timeline.step((k, 1))
    until_error(battery.mine)
    drain(battery.mine)
    timeline.trim()
    battery.done.remove("snapshot")
    battery.mine.cancel()
    battery.mine = hub.subscribe(1, origin, SubscribeOptions(as_of=1, where="true"))
    until_error(battery.mine)
    closing = hub.subscribe(1, plain())
    closing.on_close(lambda: battery.run("on_close"))
    closing.cancel()
    told = threading.Event()

    def on_change(change: Change) -> None:
        battery.run("on_change")

    def on_error(error: BaseException) -> None:
        battery.run("on_error")
        told.set()

    calling = hub.subscribe(1, plain(), on_change=on_change, on_error=on_error)
    timeline.step((7, 1))
    assert told.wait(SOON_S)
    calling.cancel()
    assert calling.join(SOON_S)
    assert sorted(battery.done) == ["epoch", "history", "on_change", "on_close", "on_error", "snapshot", "where"]


def until_error(sub: Subscription) -> None:
    with pytest.raises(PenstockError, match="for a moment"):
        list(sub)


def test_a_callback_that_never_returns_holds_up_nobody(hub: Hub) -> None:
    stuck, go = threading.Event(), threading.Event()

    def block(change: Change) -> None:
        stuck.set()
        go.wait(SOON_S)

    sub = hub.subscribe(1, plain(), on_change=block)
    hub.publish(1, 1, 1, delta((1, 1)))
    assert stuck.wait(SOON_S)
    for epoch in range(2, 50):
        within(SOON_S, lambda epoch=epoch: hub.publish(1, epoch, epoch, delta((1, 1))))  # type: ignore[misc]
    within(SOON_S, lambda: hub.end(1))
    within(SOON_S, hub.close)
    assert not sub.join(0)
    go.set()
    assert sub.join(SOON_S)


def test_what_was_dropped_is_refused_or_ignored(hub: Hub) -> None:
    sub = hub.subscribe(1, plain())
    hub.end(1)
    hub.publish(1, 1, 1, delta((1, 1)))
    hub.publish(77, 1, 1, delta((1, 1)))
    for call in (lambda: hub.end(1), lambda: hub.fail(1, ValueError()), lambda: hub.resume(1)):
        call()
    for object_id in (1, 77):
        with pytest.raises(PenstockError, match=r"PSK-1002.*was dropped"):
            hub.subscribe(object_id, plain())
    assert list(sub) == []


def test_a_subscription_made_while_the_object_is_dropped(hub: Hub) -> None:
    """It ends, after what it could be given."""

    def contents() -> tuple[pa.Table, int, int]:
        hub.end(1)
        return pa.table({"k": [1]}), 0, 0

    sub = hub.subscribe(1, plain(snapshot=contents), SubscribeOptions(snapshot=True))
    assert [c.kind for c in sub] == ["snapshot"]
    assert sub.closed


def test_nothing_can_be_opened_after_close(hub: Hub) -> None:
    sub = hub.subscribe(1, plain(), SubscribeOptions(progress=True))
    hub.close()
    hub.close()
    for call in (lambda: hub.open(2, "w"), lambda: hub.subscribe(1, plain())):
        with pytest.raises(PenstockError, match="PSK-0004"):
            call()
    hub.publish(1, 1, 1, delta((1, 1)))
    assert list(sub) == []
    assert hub.stats() == {}
    assert "penstock-progress" not in [t.name for t in threading.enumerate()]


def test_opening_again_keeps_subscribers_and_position(hub: Hub) -> None:
    sub = hub.subscribe(1, plain())
    hub.publish(1, 1, 10, delta((1, 1)))
    hub.open(1, "v")
    hub.publish(1, 2, 20, delta((2, 1)))
    assert [(c.epoch, c.prev_lsn) for c in drain(sub)] == [(1, 0), (2, 10)]


def test_eight_threads_while_objects_come_and_go_and_the_hub_closes() -> None:
    """Whatever the moment, a call works, is ignored, or is refused with a code that says why."""
    for seed in range(times(1)):
        hub = Hub(tick_seconds=0.001)
        wrong: list[BaseException] = []
        stop, busy = threading.Event(), threading.Barrier(9)

        def work(
            seed: int,
            hub: Hub = hub,
            stop: threading.Event = stop,
            wrong: list[BaseException] = wrong,
            busy: threading.Barrier = busy,
        ) -> None:
            rng = random.Random(seed)
            calls = 0
            policies: list[Policy] = ["block", "coalesce", "latest", "resync", "disconnect"]
            while not stop.is_set():
                calls += 1
                if calls == 100:
                    busy.wait(SOON_S)
                object_id = rng.randrange(3)
                try:
                    match rng.randrange(8):
                        case 0:
                            hub.open(object_id, f"o{object_id}")
                        case 1:
                            hub.end(object_id)
                        case 2:
                            hub.fail(object_id, fail("PSK-7001", "failed"))
                        case 3:
                            hub.suspend(object_id, fail("PSK-7001", "failed"))
                        case 4:
                            hub.resume(object_id)
                        case 5:
                            hub.stats()
                        case 6:
                            options = SubscribeOptions(
                                policy=rng.choice(policies),
                                snapshot=rng.random() < 0.5,
                                progress=rng.random() < 0.5,
                                buffer_messages=rng.randrange(1, 3),
                            )
                            contents = (pa.table({"k": [1]}), 10**6, 10**6)
                            sub = hub.subscribe(object_id, plain(snapshot=lambda c=contents: c), options)
                            for _ in range(rng.randrange(3)):
                                sub.next(timeout=0.001)
                        case 7:
                            for epoch in range(rng.randrange(1, 5)):
                                hub.publish(object_id, epoch, epoch, delta((1, 1)))
                except PenstockError as error:
                    if error.code not in ("PSK-1002", "PSK-0004", "PSK-7001", "PSK-5010"):
                        wrong.append(error)
                except BaseException as error:
                    wrong.append(error)

        threads = [threading.Thread(target=work, args=(seed * 8 + i,)) for i in range(8)]
        for t in threads:
            t.start()
        busy.wait(SOON_S)
        within(SOON_S, hub.close)
        stop.set()
        for t in threads:
            t.join(SOON_S)
        assert wrong == []
        assert hub.stats() == {}


def test_a_subscription_that_nobody_holds_is_released(hub: Hub) -> None:
    timeline = Timeline(hub)
    timeline.step((1, 1))
    # Of other tests, for as long as they are in the list.
    others = [o for o in gc.get_objects() if type(o) is Subscription]

    def cycle(i: int) -> None:
        options = SubscribeOptions(snapshot=i % 2 == 0, as_of=1 if i % 50 == 0 else None, progress=i % 5 == 0)
        sub = hub.subscribe(1, timeline.origin(), options)
        if i % 100 == 0:
            timeline.step((i, 1))
        if i % 2:
            sub.next(timeout=0)

    for i in range(300):
        cycle(i)
    gc.collect()
    threads, memory = threading.active_count(), psutil.Process().memory_info().rss
    for i in range(times(1_500, quick=500)):
        cycle(i)
    gc.collect()
    assert hub.stats()[1].subscribers == 0
    assert hub._channels[1].subscribers == {}
    assert threading.active_count() == threads
    assert not [o for o in gc.get_objects() if type(o) is Subscription and o not in others]
    assert psutil.Process().memory_info().rss - memory < 20 << 20


def test_with_a_callback_it_lives_until_it_is_cancelled(hub: Hub) -> None:
    seen: list[int] = []
    news = threading.Semaphore(0)
    hub.subscribe(1, plain(), on_change=lambda c: (seen.append(c.epoch), news.release()))
    gc.collect()
    hub.publish(1, 1, 1, delta((1, 1)))
    assert news.acquire(timeout=SOON_S)
    (sub,) = hub._channels[1].alive()
    sub.cancel()
    assert sub.join(SOON_S)
    hub.publish(1, 2, 2, delta((2, 1)))
    assert seen == [1]
    del sub
    gc.collect()
    assert hub._channels[1].subscribers == {}


def test_what_was_to_be_done_at_the_end_is_done_for_garbage_too(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    names: list[str] = []
    sub = hub.subscribe(1, plain())
    sub.on_close(lambda: 1 // 0)
    sub.on_close(lambda: (names.append(threading.current_thread().name), done.set()))
    del sub
    gc.collect()
    assert done.wait(SOON_S)
    assert names == ["penstock-released"]
    cancelled = hub.subscribe(1, plain())
    cancelled.on_close(lambda: names.append("cancelled"))
    cancelled.cancel()
    del cancelled
    gc.collect()
    hub._released.run(lambda: None)
    assert names == ["penstock-released", "cancelled"]
    assert "ZeroDivisionError" in caplog.text


def test_garbage_is_released_under_any_lock(hub: Hub) -> None:
    """The collector may run while the same thread holds a lock of ours."""
    channel, worker = hub._channels[1], hub._released

    def drop_under(lock: threading.Lock) -> None:
        subs = [hub.subscribe(1, plain())]
        subs[0].on_close(lambda: None)
        with lock:
            subs.clear()
            gc.collect()

    for lock in (channel.lock, hub._lock, worker._lock):
        within(SOON_S, lambda lock=lock: drop_under(lock))  # type: ignore[misc]
    assert channel.subscribers == {}


def test_a_publisher_that_reaches_garbage_does_not_care(hub: Hub) -> None:
    """Subscriptions are dropped and collected while they are being offered changes."""
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            subs = [hub.subscribe(1, plain()) for _ in range(5)]
            subs.append(subs)  # type: ignore[arg-type]
            del subs

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for t in threads:
        t.start()
    for epoch in range(1, times(60)):
        hub.publish(1, epoch, epoch, delta((1, 1)))
        if epoch % 20 == 0:
            gc.collect()
    stop.set()
    for t in threads:
        t.join(SOON_S)
    gc.collect()
    assert hub._channels[1].subscribers == {}
