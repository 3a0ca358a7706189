"""Transient errors: raised once, at their position, and the timeline continues."""

from __future__ import annotations

import gc
import threading

import pytest
from tests.unit.serve.timeline import POLICIES, SOON_S, Timeline, drain, plain, read

from penstock.errors import PenstockError, fail
from penstock.serve.change import Change
from penstock.serve.hub import Hub
from penstock.serve.lifecycle import SubscriptionState
from penstock.serve.options import Policy, SubscribeOptions
from penstock.serve.subscription import Subscription


def broken(text: str = "broken") -> PenstockError:
    return fail("PSK-7001", text)


def raises(sub: Subscription, text: str = "broken") -> None:
    with pytest.raises(PenstockError, match=text):
        sub.next(timeout=SOON_S)


def test_an_error_comes_after_what_was_published_and_before_the_rest(timeline: Timeline) -> None:
    sub, untouched = timeline.join(), timeline.join()
    timeline.step((1, 1))
    timeline.hub.suspend(1, broken())
    timeline.step((2, 1))
    got = read(sub, 1)
    raises(sub)
    for _ in range(3):
        assert sub.next(timeout=0) is None
    assert (sub.closed, sub.state) == (False, SubscriptionState.SUSPENDED)
    timeline.hub.resume(1)
    timeline.step((3, 1))
    got += drain(sub)
    timeline.check(got)
    assert [c.epoch for c in got] == [1, 2, 3]
    assert sub.state is SubscriptionState.OPEN
    # Whoever reads only now gets the same sequence.
    assert [c.epoch for c in read(untouched, 1)] == [1]
    raises(untouched)
    assert [c.epoch for c in drain(untouched)] == [2, 3]


def test_a_reader_that_waits_is_told_and_goes_on_by_itself(timeline: Timeline) -> None:
    sub = timeline.join()
    seen: list[object] = []
    told = threading.Event()

    def follow() -> None:
        while not sub.closed:
            try:
                for change in sub:
                    seen.append(change.epoch)
            except PenstockError as error:
                seen.append(error.detail)
                told.set()

    reader = threading.Thread(target=follow)
    reader.start()
    timeline.hub.suspend(1, broken())
    assert told.wait(SOON_S)
    timeline.hub.resume(1)
    timeline.step((1, 1))
    timeline.hub.end(1)
    reader.join(SOON_S)
    assert seen == ["broken", 1]


def test_contents_are_not_shown_while_the_object_is_in_error(timeline: Timeline) -> None:
    timeline.step((1, 1))
    timeline.hub.suspend(1, broken())
    sub, changes = timeline.join(snapshot=True), timeline.join()
    past, then = timeline.join(as_of=1), timeline.join(as_of=1, snapshot=True)
    raises(sub)
    raises(changes)
    raises(then)
    assert [c.epoch for c in read(past, 1)] == [1]
    raises(past)
    timeline.step((2, 1))
    assert [drain(s) for s in (sub, changes, past, then)] == [[], [], [], []]
    timeline.hub.resume(1)
    timeline.step((3, 1))
    got = drain(sub)
    assert [(c.kind, c.epoch) for c in got] == [("snapshot", 3)]
    timeline.check(got)
    assert [(c.kind, c.epoch) for c in drain(changes)] == [("changes", 2), ("changes", 3)]
    assert [(c.kind, c.epoch) for c in drain(past)] == [("changes", 2), ("changes", 3)]
    assert [(c.kind, c.epoch) for c in drain(then)] == [("snapshot", 1), ("changes", 2), ("changes", 3)]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_published_meanwhile_keeps_to_the_limits(timeline: Timeline, policy: Policy) -> None:
    sub = timeline.join(policy=policy, buffer_messages=2)
    timeline.step((0, 1))
    timeline.hub.suspend(1, broken())
    for k in range(1, 9):
        timeline.step((k, 1))
    assert sub.pending[0] <= 2
    if policy == "disconnect":
        raises(sub, "PSK-7001")
        raises(sub, "PSK-5010")
        return
    got = []
    if policy in ("block", "coalesce"):
        got = read(sub, 1)
        assert got[0].epoch == 1
    raises(sub)
    assert drain(sub) == []
    timeline.hub.resume(1)
    got += drain(sub)
    assert got[-1].epoch == 9
    if policy != "latest":
        timeline.check(got)


def test_an_error_that_healed_before_it_was_read_is_raised_all_the_same(timeline: Timeline) -> None:
    """What a reader sees does not depend on how fast it reads."""
    sub = timeline.join()
    timeline.step((1, 1))
    timeline.hub.suspend(1, broken())
    timeline.hub.resume(1)
    timeline.step((2, 1))
    assert [c.epoch for c in read(sub, 1)] == [1]
    raises(sub)
    assert [c.epoch for c in drain(sub)] == [2]


def test_several_errors_that_were_not_read_are_one(timeline: Timeline) -> None:
    sub = timeline.join()
    for i in range(5):
        timeline.hub.suspend(1, broken(f"error {i}"))
        timeline.hub.resume(1)
        timeline.step((i, 1))
    assert [c.epoch for c in read(sub, 4)] == [1, 2, 3, 4]
    raises(sub, "error 4")
    assert [c.epoch for c in drain(sub)] == [5]


def test_another_error_before_the_healing_is_raised_too(timeline: Timeline) -> None:
    sub = timeline.join()
    first = broken("one")
    timeline.hub.suspend(1, first)
    timeline.hub.suspend(1, first)
    raises(sub, "one")
    timeline.hub.suspend(1, first)
    assert sub.next(timeout=0) is None
    timeline.step((1, 1))
    timeline.hub.suspend(1, broken("two"))
    raises(sub, "two")
    assert sub.next(timeout=0) is None
    timeline.hub.resume(1)
    assert [c.epoch for c in drain(sub)] == [1]


def test_a_reader_that_is_behind_meets_the_error_in_its_place(timeline: Timeline) -> None:
    for policy in ("block", "coalesce"):
        options = SubscribeOptions(policy=policy, buffer_messages=1)  # type: ignore[arg-type]
        sub = timeline.hub.subscribe(1, timeline.origin(), options)
        start = timeline.epoch
        for k in range(5):
            timeline.step((k, 1))
        timeline.hub.suspend(1, broken())
        for k in range(5):
            timeline.step((k, -1))
        got = drain_until_error(sub)
        assert got[-1].epoch == start + 5
        assert sub.next(timeout=0) is None
        timeline.hub.resume(1)
        got += drain(sub)
        assert got[-1].epoch == start + 10
        timeline.check(got)


def drain_until_error(sub: Subscription) -> list[Change]:
    got: list[Change] = []
    with pytest.raises(PenstockError, match="broken"):
        got.extend(sub)
    return got


def test_up_to_ends_before_an_error_that_comes_later(timeline: Timeline) -> None:
    sub = timeline.join(up_to=2)
    for k in range(3):
        timeline.step((k, 1))
    timeline.hub.suspend(1, broken())
    assert [c.epoch for c in sub] == [1, 2]


def test_an_object_that_is_gone_does_not_heal(timeline: Timeline) -> None:
    ended, failed, snapshot = timeline.join(), timeline.join(), timeline.join()
    timeline.step((1, 1))
    timeline.hub.suspend(1, broken())
    snapshot.cancel()
    snapshot = timeline.join(snapshot=True)
    timeline.step((2, 1))
    timeline.hub.fail(1, broken("for good"))
    for sub in (ended, failed):
        assert [c.epoch for c in read(sub, 1)] == [1]
        raises(sub, "broken")
        assert [c.epoch for c in read(sub, 1)] == [2]
        raises(sub, "for good")
        assert sub.closed
    raises(snapshot, "broken")
    raises(snapshot, "for good")
    timeline.hub.resume(1)
    last = timeline.join()
    timeline.hub.suspend(1, broken())
    timeline.hub.end(1)
    raises(last)
    assert last.next() is None
    assert last.closed


def test_no_progress_is_claimed_meanwhile(timeline: Timeline) -> None:
    sub = timeline.join(progress=True)
    timeline.step((1, 1))
    read(sub, 2)
    timeline.hub.suspend(1, broken())
    with pytest.raises(PenstockError, match="broken"):
        read(sub, 1000)
    assert sub.next(timeout=0.1) is None
    timeline.hub.resume(1)
    assert read(sub, 1)[0].kind == "progress"


def test_callbacks_go_on_after_the_healing(timeline: Timeline, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []
    news = threading.Semaphore(0)

    def note(thing: object) -> None:
        seen.append(thing.epoch if isinstance(thing, Change) else str(thing).partition("\n")[0])
        news.release()

    quiet: list[int] = []
    sub = timeline.hub.subscribe(1, timeline.origin(), on_change=note, on_error=note)
    silent = timeline.hub.subscribe(1, timeline.origin(), on_change=lambda c: (quiet.append(c.epoch), news.release()))
    timeline.step((1, 1))
    for _ in range(2):
        assert news.acquire(timeout=SOON_S)
    timeline.hub.suspend(1, broken())
    assert news.acquire(timeout=SOON_S)
    timeline.step((2, 1))
    timeline.hub.resume(1)
    for _ in range(2):
        assert news.acquire(timeout=SOON_S)
    assert seen == [1, "PSK-7001: broken", 2]
    assert quiet == [1, 2]
    assert isinstance(silent.error, PenstockError)
    assert not silent.closed
    assert caplog.text.count("broken") == 1
    timeline.hub.fail(1, broken("for good"))
    assert sub.join(SOON_S) and silent.join(SOON_S)
    assert seen[-1] == "PSK-7001: for good"
    assert caplog.text.count("for good") == 1


def test_an_error_in_on_error_ends_the_subscription(timeline: Timeline) -> None:
    sub = timeline.hub.subscribe(1, timeline.origin(), on_change=print, on_error=lambda e: 1 // 0)
    timeline.hub.suspend(1, broken())
    assert sub.join(SOON_S)
    assert sub.closed
    assert isinstance(sub.error, ZeroDivisionError)


def test_a_shared_error_does_not_grow(timeline: Timeline) -> None:
    error = broken()
    subs = [timeline.join() for _ in range(50)]
    timeline.hub.suspend(1, error)
    for sub in subs:
        raises(sub)
    timeline.hub.fail(1, error)
    for sub in subs:
        raises(sub)
    assert error.__traceback__ is None


def test_an_error_does_not_keep_its_readers_alive(timeline: Timeline) -> None:
    sub = timeline.join()
    timeline.hub.suspend(1, broken())
    raises(sub)
    del sub
    gc.collect()
    assert timeline.hub._channels[1].subscribers == {}


class Odd(Exception):
    def __init__(self, *, what: str) -> None:
        super().__init__(f"odd {what}")
        self.what = what


class Odder(Exception):
    def __new__(cls, *, what: str) -> Odder:
        return super().__new__(cls, what)

    def __init__(self, *, what: str) -> None:
        super().__init__(what)


@pytest.mark.parametrize("error", [Odd(what="thing"), Odder(what="thing"), OSError(28, "no space"), KeyError("k")])
def test_any_error_arrives_as_it_is(timeline: Timeline, error: Exception) -> None:
    error.__cause__ = cause = ValueError("why")
    error.add_note("a note")
    sub = timeline.join()
    timeline.hub.suspend(1, error)
    with pytest.raises(type(error)) as raised:
        sub.next()
    assert str(raised.value) == str(error)
    assert vars(raised.value) == vars(error)
    assert raised.value.__cause__ is cause


def test_suspending_what_is_not_there_is_no_error(hub: Hub) -> None:
    for call in (lambda: hub.suspend(9, broken()), lambda: hub.resume(9), lambda: hub.resume(1)):
        call()
    sub = hub.subscribe(1, plain())
    assert sub.next(timeout=0) is None
