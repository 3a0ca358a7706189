"""Many readers of one chain of messages: what each costs, what it keeps alive, and who wakes it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.serve.timeline import SOON_S, Timeline, delta, drain, plain, read

from penstock.api.awaiting import AsyncSubscription
from penstock.errors import PenstockError, fail
from penstock.serve.chain import Chain
from penstock.serve.hub import Hub
from penstock.serve.options import SubscribeOptions


def messages(hub: Hub) -> list[Any]:
    """Weak references to the tables that are published from now on."""
    seen: list[Any] = []

    def publish(epoch: int) -> None:
        table = delta((epoch, 1))
        seen.append(weakref.ref(table))
        hub.publish(1, epoch, epoch * 3, table)

    for epoch in range(1, 9):
        publish(epoch)
    return seen


@pytest.mark.parametrize("policy", ["block", "coalesce", "latest", "resync", "disconnect"])
def test_a_reader_that_does_not_read_keeps_no_more_than_its_limits(hub: Hub, policy: str) -> None:
    options: Any = {"policy": policy, "buffer_messages": 3}
    stalled = hub.subscribe(1, plain(), SubscribeOptions(**options))
    reader = hub.subscribe(1, plain(), SubscribeOptions(buffer_messages=4))
    seen = messages(hub)
    drain(reader)
    gc.collect()
    assert sum(ref() is not None for ref in seen) <= 4
    reader.cancel()
    stalled.cancel()
    gc.collect()
    assert [ref() for ref in seen] == [None] * 8


def test_what_everybody_has_read_is_freed(hub: Hub) -> None:
    readers = [hub.subscribe(1, plain()) for _ in range(3)]
    seen = messages(hub)
    for reader in readers:
        assert len(drain(reader)) == 8
    gc.collect()
    assert [ref() for ref in seen] == [None] * 8


def test_readers_of_a_failed_object_do_not_see_what_comes_for_others(hub: Hub) -> None:
    old = hub.subscribe(1, plain())
    hub.publish(1, 1, 3, delta((1, 1)))
    hub.fail(1, fail("PSK-7001", "broken"))
    new = hub.subscribe(1, plain())
    hub.publish(1, 2, 6, delta((2, 1)))
    assert [c.epoch for c in drain(new)] == [2]
    assert read(old, 1)[0].epoch == 1
    with pytest.raises(PenstockError, match="PSK-7001"):
        old.next(0)


def test_a_message_between_looking_and_sleeping_is_found(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader has seen nothing and is not among those who wait yet; then the publisher finds nobody to wake."""
    sub = hub.subscribe(1, plain())
    look, published = type(sub)._look, []

    def late(self: Any, passed: bool) -> Any:
        step = look(self, passed)
        if not published:
            published.append(True)
            # Another thread, because the reader holds its lock here. It does not need that lock: nobody waits.
            other = threading.Thread(target=hub.publish, args=(1, 1, 3, delta((1, 1))))
            other.start()
            other.join(SOON_S)
            assert not other.is_alive()
        return step

    monkeypatch.setattr(type(sub), "_look", late)
    change = sub.next(SOON_S)
    assert change is not None and change.epoch == 1


def test_a_reader_attaches_between_the_two_steps_of_a_publisher(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new epoch is known and its message is not in the chain yet: it comes once, from the log or from the chain."""
    append: Callable[..., None] = Chain._append
    behind = timeline.join(buffer_messages=1, policy="coalesce")
    for k in range(4):
        timeline.step((k, 1))
    got = []

    def slow(self: Chain, message: Any, until: int = 0) -> None:
        got.extend(drain(behind))
        append(self, message, until)

    monkeypatch.setattr(Chain, "_append", slow)
    timeline.step((9, 1))
    monkeypatch.undo()
    timeline.step((10, 1))
    got += drain(behind)
    timeline.check(got)
    assert got[-1].epoch == 6


def test_asyncio_readers_share_one_thread_and_survive_timeouts(hub: Hub) -> None:
    count, epochs = 200, 5

    async def follow(sub: AsyncSubscription, seen: list[int]) -> None:
        async for change in sub:
            seen.append(change.epoch)

    async def run() -> list[list[int]]:
        subs = [AsyncSubscription(hub.subscribe(1, plain())) for _ in range(count)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(subs[0]), 0.01)
        seen: list[list[int]] = [[] for _ in subs]
        tasks = [asyncio.create_task(follow(s, n)) for s, n in zip(subs, seen, strict=True)]
        await asyncio.sleep(0)
        before = threading.active_count()
        for epoch in range(1, epochs + 1):
            hub.publish(1, epoch, epoch * 3, delta((epoch, 1)))
            await asyncio.sleep(0)
        assert threading.active_count() == before
        hub.end(1)
        await asyncio.wait_for(asyncio.gather(*tasks), SOON_S)
        return seen

    assert asyncio.run(run()) == [list(range(1, epochs + 1))] * count


def test_a_callback_that_raises_ends_its_own_subscription(hub: Hub) -> None:
    def broken(_: object) -> None:
        raise ValueError("no")

    seen: list[int] = []
    done = threading.Event()

    def fine(change: Any) -> None:
        seen.append(change.epoch)
        if change.epoch == 2:
            done.set()

    bad = hub.subscribe(1, plain(), on_change=broken)
    good = hub.subscribe(1, plain(), on_change=fine)
    hub.publish(1, 1, 3, delta((1, 1)))
    assert bad.join(SOON_S) and isinstance(bad.error, ValueError) and bad.closed
    hub.publish(1, 2, 6, delta((2, 1)))
    assert done.wait(SOON_S) and seen == [1, 2]
    good.cancel()
    assert good.join(SOON_S)


def test_a_blocked_reader_ends_when_another_thread_cancels(hub: Hub) -> None:
    subs = [hub.subscribe(1, plain()) for _ in range(50)]
    threads = [threading.Thread(target=list, args=(s,)) for s in subs]
    for t in threads:
        t.start()
    for s in subs:
        s.cancel()
    for t in threads:
        t.join(SOON_S)
    assert not any(t.is_alive() for t in threads)
    assert hub.stats()[1].subscribers == 0
