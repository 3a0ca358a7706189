"""Any sequence of what can happen: every subscriber's state is the model's, with no gap and no repetition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.effort import times
from tests.unit.serve.timeline import Timeline

from penstock.errors import PenstockError, fail
from penstock.serve.change import Change
from penstock.serve.hub import Hub
from penstock.serve.lifecycle import SubscriptionState
from penstock.serve.subscription import Subscription

_PAIRS = st.dictionaries(st.integers(0, 4), st.sampled_from([1, 1, 1, -1]), max_size=3)


@dataclass
class Reader:
    """One subscriber and what it must know by what it has read."""

    sub: Subscription
    timeline: Timeline
    policy: str
    up_to: int | None
    state: Counter[int]
    lsn: int
    epoch: int
    told: list[str] = field(default_factory=list)
    seq: int = 0
    waits_for_contents: bool = False
    """Asked for a snapshot that has not come."""

    def take(self, change: Change) -> None:
        assert change.seq == self.seq + 1
        self.seq = change.seq
        assert not self.waits_for_contents or change.kind in ("snapshot", "resync")
        self.waits_for_contents = False
        if self.policy == "latest" or (change.seq == 1 and change.kind in ("snapshot", "resync")):
            assert change.prev_lsn >= self.lsn
        else:
            assert change.prev_lsn == self.lsn
        if change.kind == "changes":
            assert change.lsn > change.prev_lsn
            assert change.input_lsn == change.lsn - 1
            assert change.epoch > self.epoch
        # Contents of a past epoch stand for any LSN until the next one.
        assert change.epoch * 3 <= change.lsn <= change.epoch * 3 + (2 if change.kind == "snapshot" else 0)
        assert change.lsn >= self.lsn
        assert (change.reason is not None) == (change.kind == "resync")
        if change.kind in ("snapshot", "resync"):
            self.state = Counter()
        if self.policy == "latest" and change.kind == "changes":
            self.state = self.timeline.model[change.epoch].copy()
        else:
            for k, w in zip(change.table["k"].to_pylist(), change.table["__weight"].to_pylist(), strict=True):
                self.state[k] += w
        self.lsn, self.epoch = change.lsn, change.epoch
        assert +self.state == self.timeline.model[change.epoch]
        if self.up_to is not None and change.kind == "changes":
            assert change.epoch <= self.up_to


class Timelines(RuleBasedStateMachine):
    """One object at a time; it may be dropped, and another one comes in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.hub = Hub()
        self.readers: list[Reader] = []
        self.ids = 0
        self.errors = 0
        self.suspended: tuple[str, int] | None = None
        self.unpublished: list[Any] = []

    def teardown(self) -> None:
        self.hub.close()

    @initialize()
    def create(self) -> None:
        self.ids += 1
        self.hub.open(self.ids, f"v{self.ids}")
        self.timeline = Timeline(self.hub, object_id=self.ids)
        self.suspended = None
        self.unpublished = []

    # What the engine does

    @rule(pairs=_PAIRS)
    def publish(self, pairs: dict[int, int]) -> None:
        self.timeline.step(*self._possible(pairs))

    @rule(count=st.integers(2, 8))
    def publish_many(self, count: int) -> None:
        for k in range(count):
            self.timeline.step((k, 1))

    @rule(pairs=_PAIRS)
    def record(self, pairs: dict[int, int]) -> None:
        """The log is ahead of the hub, for a while or for ever."""
        self.unpublished.append(self.timeline.record(*self._possible(pairs)))

    @rule()
    def publish_late(self) -> None:
        for past in self.unpublished:
            self.timeline.publish(past)
        self.unpublished = []

    @rule(keep=st.integers(0, 3))
    def trim(self, keep: int) -> None:
        self.timeline.trim(keep)

    @rule()
    def suspend(self) -> None:
        self.errors += 1
        at = self.hub.stats()[self.ids].epoch if self.suspended is None else self.suspended[1]
        self.suspended = (f"error {self.errors}", at)
        self.hub.suspend(self.ids, fail("PSK-7001", self.suspended[0]))

    @rule()
    def resume(self) -> None:
        self.suspended = None
        self.hub.resume(self.ids)

    @rule()
    def drop_object(self) -> None:
        self.hub.end(self.ids)
        self.create()

    @rule()
    def fail_object(self) -> None:
        self.hub.fail(self.ids, fail("PSK-7001", "for good"))

    def _possible(self, pairs: dict[int, int]) -> list[tuple[int, int]]:
        have = self.timeline.model[-1]
        return [(k, w) for k, w in pairs.items() if w > 0 or have[k] > 0]

    # What subscribers do

    @rule(
        policy=st.sampled_from(["block", "block", "coalesce", "latest", "resync", "disconnect"]),
        snapshot=st.booleans(),
        messages=st.integers(1, 3),
        back=st.none() | st.integers(0, 4),
        ahead=st.none() | st.none() | st.integers(0, 4),
    )
    def subscribe(self, policy: str, snapshot: bool, messages: int, back: int | None, ahead: int | None) -> None:
        now = self.hub.stats()[self.ids].epoch
        as_of = None if back is None else max(0, now + 1 - back)
        up_to = None if ahead is None else max(now + ahead, as_of or 0)
        sub = self.timeline.join(policy=policy, snapshot=snapshot, buffer_messages=messages, as_of=as_of, up_to=up_to)
        # What it is taken to know before its first message; contents replace it.
        start = now if as_of is None else max(as_of - 1, 0)
        model = self.timeline.model[start].copy()
        lsn = sub._lsn if not snapshot else 0
        self.readers.append(Reader(sub, self.timeline, policy, up_to, model, lsn, start, waits_for_contents=snapshot))

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 99), count=st.integers(1, 4))
    def read(self, which: int, count: int) -> None:
        reader = self.readers[which % len(self.readers)]
        for _ in range(count):
            self._next(reader)

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 99))
    def read_everything(self, which: int) -> None:
        reader = self.readers[which % len(self.readers)]
        while self._next(reader):
            pass
        sub, timeline = reader.sub, reader.timeline
        if sub.closed or timeline is not self.timeline or sub.state is SubscriptionState.SUSPENDED:
            return
        at = sub._backlog.newest.epoch
        assert at >= self.hub.stats()[self.ids].epoch
        assert not reader.waits_for_contents or self.suspended is not None
        if not reader.waits_for_contents:
            assert +reader.state == timeline.model[at]

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        reader = self.readers[which % len(self.readers)]
        reader.sub.cancel()
        assert reader.sub.next() is None
        self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 99))
    def forget(self, which: int) -> None:
        del self.readers[which % len(self.readers)]

    def _next(self, reader: Reader) -> bool:
        """Reads one change or error; False if there was none."""
        try:
            change = reader.sub.next(timeout=0)
        except PenstockError as error:
            self._raised(reader, error.code, error.detail)
            return True
        if change is None:
            return False
        reader.take(change)
        if self._holds_up(reader):
            # Beyond the error nothing is shown until it has healed.
            assert self.suspended is not None
            assert change.epoch <= self.suspended[1] or reader.sub.state is SubscriptionState.FAILED
        return True

    def _holds_up(self, reader: Reader) -> bool:
        """Whether the reader was told of the error that the object has now."""
        return reader.timeline is self.timeline and self.suspended is not None and self.suspended[0] in reader.told

    def _raised(self, reader: Reader, code: str, detail: str) -> None:
        if code != "PSK-7001" or detail == "for good":
            assert reader.sub.closed
            assert code in ("PSK-7001", "PSK-1002") or (code == "PSK-5010" and reader.policy == "disconnect")
            return
        assert detail not in reader.told
        reader.told.append(detail)
        lossless = reader.policy in ("block", "coalesce") and not reader.waits_for_contents
        if self._holds_up(reader) and lossless and reader.sub._backlog.lost is None:
            # What came before the error was read before it.
            assert self.suspended is not None
            assert +reader.state == reader.timeline.model[max(self.suspended[1], reader.epoch)]

    @invariant()
    def bounded(self) -> None:
        for reader in self.readers:
            messages, _ = reader.sub.pending
            assert messages <= reader.sub._options.limits.messages

    @invariant()
    def counted(self) -> None:
        live = [r for r in self.readers if r.timeline is self.timeline]
        assert self.hub.stats()[self.ids].subscribers <= len(live)


TestTimelines = Timelines.TestCase
TestTimelines.settings = hypothesis.settings(max_examples=times(30, quick=15), stateful_step_count=40, deadline=None)
