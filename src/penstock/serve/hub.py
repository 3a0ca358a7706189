"""Fan-out of each object's changes to any number of subscribers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import fail
from penstock.serve.change import Change
from penstock.serve.envelope import EmitKind, EnvelopeKind, Form
from penstock.serve.message import Message, coalesced
from penstock.serve.subscription import Limits, Policy, Snapshot, Subscription, Where
from penstock.serve.zset import assertions, consolidate, negated, weighted

History = Callable[[int], Iterable[tuple[int, int, pa.Table]] | None]

# Promised is a message a second; half of that leaves room for a busy machine.
_TICK_SECONDS = 0.5


@dataclass(frozen=True)
class ChannelStats:
    """What is known of one object: its position, its subscribers, and what waits for them."""

    name: str
    epoch: int
    lsn: int
    subscribers: int
    pending_messages: int
    pending_bytes: int
    dropped_messages: int


@dataclass
class _Channel:
    """`epoch`, `lsn`: what was handed out or is being handed out. `done`: what has reached every queue."""

    name: str
    epoch: int = 0
    lsn: int = 0
    done: tuple[int, int, int | None] = (0, 0, None)
    ended: bool = False
    subscribers: list[Subscription] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Hub:
    """An object's changes are published by one thread, in order, after they are in the log and in the view store."""

    def __init__(self, *, tick_seconds: float = _TICK_SECONDS) -> None:
        self._channels: dict[int, _Channel] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._tick_seconds = tick_seconds
        self._ticker: threading.Thread | None = None

    def open(self, object_id: int, name: str, *, epoch: int = 0, lsn: int = 0) -> None:
        """Makes an object known, with the position that it has in the log."""
        with self._lock:
            self._channels[object_id] = _Channel(name, epoch, lsn, (epoch, lsn, None))

    def publish(
        self, object_id: int, epoch: int, lsn: int, table: pa.Table | None, watermark: int | None = None
    ) -> None:
        """Hands one epoch to every subscriber, or, without a table, says that nothing changed up to `lsn`.

        An epoch that was published before is ignored. Subscribers with the policy `block` come last, and are waited for.
        """
        channel = self._channel(object_id)
        with channel.lock:
            if table is not None and epoch <= channel.epoch:
                return
            subscribers = list(channel.subscribers)
            message = None if table is None else Message(epoch, lsn, channel.lsn, table, watermark)
            channel.epoch = max(epoch, channel.epoch)
            channel.lsn = max(lsn, channel.lsn)
        if message is not None:
            merge = _shared_merge()
            subscribers.sort(key=lambda s: s.blocking)
            for s in subscribers:
                s.offer(message, merge)
        channel.done = (channel.epoch, channel.lsn, watermark)
        if message is None:
            for s in subscribers:
                s.offer_progress(*channel.done)

    def subscribe(
        self,
        object_id: int,
        *,
        schema: pa.Schema,
        snapshot: Snapshot | None = None,
        initial: bool = False,
        history: History | None = None,
        where: Where | None = None,
        envelope: EnvelopeKind = "diff",
        emit: EmitKind = "changes",
        keys: tuple[str, ...] = (),
        progress: bool = False,
        policy: Policy = "block",
        buffer_bytes: int = 64 << 20,
        buffer_messages: int = 4096,
        as_of: int | None = None,
        up_to: int | None = None,
        on_change: Callable[[Change], object] | None = None,
    ) -> Subscription:
        """Joins at one point of the object's timeline, under whatever is published meanwhile.

        `snapshot` reads the contents with their epoch and LSN; it is used at the start if `initial`, and for every resync.
        `as_of` starts at a past epoch, whose changes are in the first message: in the contents if `initial`, as changes otherwise.
        `history` gives the epochs after one, or None if they are no longer retained: then the first message is a resync, or,
        without `snapshot`, PSK-5011. `where` keeps rows of a Z-set; it runs in the reader's thread.
        """
        if initial and snapshot is None:
            raise fail("PSK-5012", "There are no contents to start from.")
        limits = Limits(policy, buffer_bytes, buffer_messages)
        form = Form(emit, envelope, keys)
        channel = self._channel(object_id)
        subscription = Subscription(
            channel.name,
            schema,
            form,
            limits,
            snapshot=snapshot,
            where=where,
            progress=progress,
            up_to=up_to,
            detach=lambda s: _detach(channel, s),
        )
        # 1. From here on everything that is published is queued. 2. The starting point is read, at or after this one.
        # 3. What the starting point holds already is taken out of the queue.
        with channel.lock:
            if self._closed.is_set():
                raise fail("PSK-0004", "The database is closed.")
            if channel.ended:
                raise fail("PSK-1002", f"{channel.name} was dropped.")
            channel.subscribers.append(subscription)
            epoch, lsn = channel.epoch, channel.lsn
        try:
            if as_of is not None:
                self._start_in_past(subscription, as_of, initial, snapshot, history, (epoch, lsn))
            elif initial and snapshot is not None:
                table, epoch, lsn = snapshot()
                subscription.start(epoch, lsn, ("snapshot", table), [])
            else:
                subscription.start(epoch, lsn, None, [])
        except BaseException:
            subscription.cancel()
            raise
        if progress:
            self._tick()
        if on_change is not None:
            subscription.call(on_change)
        return subscription

    def _start_in_past(
        self,
        subscription: Subscription,
        as_of: int,
        initial: bool,
        snapshot: Snapshot | None,
        history: History | None,
        now: tuple[int, int],
    ) -> None:
        if as_of > now[0] + 1:
            raise fail("PSK-5011", f"Epoch {as_of} is still to come; the newest is {now[0]}.", hint="Leave AS OF out.")
        # The contents come first: what is to be undone in them is then in the history, for the log is ahead of the store.
        contents = snapshot() if initial and snapshot is not None else None
        before = max(as_of - 1, 0)
        # One epoch more than is asked for tells the LSN at which the first one begins.
        past = history(max(before - 1, 0)) if history else None
        if past is None and before:
            past = history(before) if history else None
        if past is None:
            if as_of == now[0] + 1 and not initial:
                subscription.start(*now, None, [])
                return
            if contents is None and snapshot is not None:
                contents = snapshot()
            if contents is None:
                raise fail("PSK-5011", f"Epoch {as_of} of {subscription.name} is no longer retained.")
            table, epoch, lsn = contents
            subscription.start(epoch, lsn, ("resync", table), [])
            return
        epochs = list(past)
        start = next((lsn for epoch, lsn, _ in epochs if epoch == before), None)
        epochs = [e for e in epochs if e[0] > before]
        if start is None:
            start = (epochs[0][1] - 1 if before else 0) if epochs else now[1]
        replay: list[Message] = []
        prev = start
        for epoch, lsn, table in epochs:
            replay.append(Message(epoch, lsn, prev, table))
            prev = lsn
        if contents is None:
            subscription.start(before, start, None, replay)
            return
        table, epoch, lsn = contents
        undone = [m for m in replay if as_of < m.epoch <= epoch]
        if undone:
            table = assertions(consolidate(pa.concat_tables([weighted(table), *(negated(m.table) for m in undone)])))
        epoch, lsn = next(((m.epoch, m.lsn) for m in replay if m.epoch == as_of), (epoch, lsn))
        subscription.start(epoch, lsn, ("snapshot", table), [m for m in replay if m.epoch > epoch])

    def fail(self, object_id: int, error: BaseException) -> None:
        """Every subscriber of the object gets `error`, after what it has not read yet."""
        self._finish(object_id, error)

    def end(self, object_id: int) -> None:
        """The object is gone: its subscriptions end, after what they have not read yet."""
        self._finish(object_id, None)
        with self._lock:
            channel = self._channels.get(object_id)
            if channel is not None and channel.ended:
                del self._channels[object_id]

    def close(self) -> None:
        """Ends every subscription, and with it every `publish` that waits."""
        self._closed.set()
        with self._lock:
            ids = list(self._channels)
        for object_id in ids:
            self.end(object_id)
        if self._ticker is not None:
            self._ticker.join()

    def stats(self) -> dict[int, ChannelStats]:
        with self._lock:
            channels = dict(self._channels)
        out = {}
        for object_id, channel in channels.items():
            with channel.lock:
                subscribers = list(channel.subscribers)
            waiting = [s.pending for s in subscribers]
            out[object_id] = ChannelStats(
                channel.name,
                channel.epoch,
                channel.lsn,
                len(subscribers),
                sum(m for m, _ in waiting),
                sum(b for _, b in waiting),
                sum(s.dropped for s in subscribers),
            )
        return out

    def _channel(self, object_id: int) -> _Channel:
        channel = self._channels.get(object_id)
        if channel is None:
            raise fail("PSK-8001", f"Object {object_id} is not known to the hub.")
        return channel

    def _finish(self, object_id: int, error: BaseException | None) -> None:
        channel = self._channels.get(object_id)
        if channel is None:
            return
        with channel.lock:
            subscribers, channel.subscribers = channel.subscribers, []
            channel.ended = error is None
        for s in subscribers:
            s.finish(error)

    def _tick(self) -> None:
        with self._lock:
            if self._ticker is None:
                self._ticker = threading.Thread(target=self._run_ticker, name="penstock-progress", daemon=True)
                self._ticker.start()

    def _run_ticker(self) -> None:
        while not self._closed.wait(self._tick_seconds):
            with self._lock:
                channels = list(self._channels.values())
            for channel in channels:
                with channel.lock:
                    subscribers = list(channel.subscribers)
                    done = channel.done
                for s in subscribers:
                    s.offer_progress(*done, idle=self._tick_seconds)


def _detach(channel: _Channel, subscription: Subscription) -> None:
    with channel.lock:
        if subscription in channel.subscribers:
            channel.subscribers.remove(subscription)


def _shared_merge() -> Callable[[list[Message]], Message]:
    """Merges for one round of `publish`: subscribers that lag equally share one result."""
    made: dict[tuple[int, int, int], tuple[list[Message], Message]] = {}

    def merge(messages: list[Message]) -> Message:
        key = (id(messages[0]), messages[-1].epoch, len(messages))
        if key not in made:
            # The list is kept with the result so that no other message can take the first one's identity.
            made[key] = (messages, coalesced(messages))
        return made[key][1]

    return merge
