"""Fan-out of each object's changes to any number of subscribers.

All subscribers of an object share one chain of messages, in which each keeps its position. So publishing appends one link, for any number of subscribers; a
subscriber costs something only when it reads, when it must be woken, or when it has reached its limits.

Lock order. There are four kinds of lock: the hub's (the set of objects), a channel's (position and subscribers of one object), a subscription's
(backlog and state) and a chain's (when limits are reached). Only the last may be taken while another is held. A thread that holds one never
waits, reads contents or history, or calls a user's function. So a stalled reader, a callback or a slow disk cannot block a publisher.

Weak references. A channel refers to its subscriptions weakly. The garbage collector may run a weakref callback in any thread, even one that
holds one of these locks, so callbacks take no locks: they remove an entry from a dict and leave the rest to a worker thread.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import PenstockError, fail
from penstock.serve.chain import Chain
from penstock.serve.change import Change
from penstock.serve.closing import Closing
from penstock.serve.envelope import Form
from penstock.serve.message import Message, Point
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin
from penstock.serve.subscription import Subscription
from penstock.serve.suspension import Suspension
from penstock.serve.worker import Worker

# One progress message a second is promised; half of that leaves room for a busy machine.
_TICK_SECONDS = 0.5
# The ticker never blocks for long; only a stalled machine makes it late.
_CLOSE_S = 5.0


@dataclass(frozen=True)
class ChannelStats:
    """Position and subscribers of one object, and what is queued for them. `behind`: subscribers that read from the log or wait for a resync."""

    name: str
    epoch: int
    lsn: int
    subscribers: int
    behind: int
    pending_messages: int
    pending_bytes: int
    dropped_messages: int


@dataclass
class _Channel:
    """One object. `progressing`: the subscribers that want progress for epochs without changes."""

    name: str
    chain: Chain
    suspension: Suspension | None = None
    ended: bool = False
    subscribers: dict[int, weakref.ref[Subscription]] = field(default_factory=dict)
    progressing: dict[int, weakref.ref[Subscription]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def alive(self) -> list[Subscription]:
        return _alive(self.subscribers)

    def wake(self) -> None:
        """Wakes the readers that wait for something new."""
        waiting = self.chain.waiting
        for key in list(waiting):
            waiting.pop(key, None)
            ref = self.subscribers.get(key)
            subscription = None if ref is None else ref()
            if subscription is not None:
                subscription.notify()


def _alive(references: dict[int, weakref.ref[Subscription]]) -> list[Subscription]:
    # list() copies atomically; weakref callbacks may remove entries at any moment.
    return [s for ref in list(references.values()) if (s := ref()) is not None]


class Hub:
    """Every epoch of an object is published, in order, after it is in the log and in the view store.

    If an epoch is skipped or published out of order, subscribers read it from the log.
    """

    def __init__(self, *, tick_seconds: float = _TICK_SECONDS) -> None:
        self._channels: dict[int, _Channel] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._keys = itertools.count(1)
        self._tick_seconds = tick_seconds
        self._ticker: threading.Thread | None = None
        self._released = Worker("penstock-released")

    def open(self, object_id: int, name: str, *, epoch: int = 0, lsn: int = 0, input_lsn: int | None = None) -> None:
        """Registers an object at its position in the log. An object that is already open keeps its position and subscribers."""
        point = Point(epoch, lsn, lsn if input_lsn is None else input_lsn)
        with self._lock:
            if self._closed.is_set():
                raise fail("PSK-0004", "The database is closed.")
            self._channels.setdefault(object_id, _Channel(name, Chain(point)))

    def rename(self, object_id: int, name: str) -> None:
        channel = self._channels.get(object_id)
        if channel is not None:
            channel.name = name

    def publish(
        self,
        object_id: int,
        epoch: int,
        lsn: int,
        table: pa.Table | None,
        watermark: int | None = None,
        *,
        input_lsn: int | None = None,
    ) -> None:
        """Offers one epoch to every subscriber; without a table, reports that nothing changed up to `lsn`. Never blocks.

        `input_lsn` is the commit that caused the epoch; default: `lsn`. Epochs that were published before, and objects that were dropped, are
        ignored.
        """
        channel = self._channels.get(object_id)
        if channel is None:
            return
        with channel.lock:
            chain = channel.chain
            before = chain.newest
            if channel.ended or (table is not None and epoch <= before.epoch):
                return
            cause = lsn if input_lsn is None else input_lsn
            point = Point(max(epoch, before.epoch), max(lsn, before.lsn), cause, watermark)
            chain.append(point, None if table is None else Message(point, before.lsn, table))
        if table is None and channel.progressing:
            for s in _alive(channel.progressing):
                s.offer_progress(point)
        channel.wake()
        if chain.due():
            for s in channel.alive():
                s.trim()

    def subscribe(
        self,
        object_id: int,
        origin: Origin,
        options: SubscribeOptions | None = None,
        *,
        on_change: Callable[[Change], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> Subscription:
        """Joins the object's timeline at one point, even while epochs are being published.

        With `as_of` it starts at a past epoch: the first message has the contents at that epoch (`snapshot`) or its changes. If the epoch is no
        longer retained, the first message is a resync; if the object offers no snapshot, the call raises PSK-5011.
        """
        options = options or SubscribeOptions()
        if options.snapshot and origin.snapshot is None:
            raise fail("PSK-5012", "There are no contents to start from.")
        if options.where is not None and origin.where is None:
            raise fail("PSK-8001", "A condition was given to a subscription that has no way to evaluate it.")
        if on_error is not None and on_change is None:
            raise fail("PSK-0009", "on_error goes with on_change; without a callback errors are raised by next().")
        form = Form.of(origin.emit, options.envelope, origin.keys, origin.names)
        subscription = self._attached(object_id, origin, options, form)
        try:
            # Messages are queued from now on; `open` removes those that the starting point already contains.
            subscription.open()
        except BaseException:
            subscription.cancel()
            raise
        if options.progress:
            self._start_ticker()
        if on_change is not None:
            subscription.call(on_change, on_error)
        return subscription

    def suspend(self, object_id: int, error: BaseException) -> None:
        """Reports an error that may heal. It is raised once in every subscriber, after everything published before; the subscriber stays attached.

        Until `resume`, no contents are read and published changes are not delivered.
        """
        channel = self._channels.get(object_id)
        if channel is None:
            return
        with channel.lock:
            if channel.ended or (channel.suspension is not None and channel.suspension.error is error):
                return
            epoch = channel.chain.newest.epoch if channel.suspension is None else channel.suspension.epoch
            suspension = channel.suspension = Suspension(error, epoch)
            subscribers = channel.alive()
        for s in subscribers:
            s.suspend(suspension)

    def resume(self, object_id: int) -> None:
        """The object works again; its subscribers continue where they stopped."""
        channel = self._channels.get(object_id)
        if channel is None:
            return
        with channel.lock:
            suspension, channel.suspension = channel.suspension, None
            subscribers = channel.alive()
        if suspension is not None:
            # Set first, so that a subscription that is being opened cannot miss it.
            suspension.healed = True
            for s in subscribers:
                s.resume()

    def restart(self, object_id: int, reason: str) -> None:
        """The object's newest epoch does not continue the published ones: every subscriber gets a resync with the reason."""
        channel = self._channels.get(object_id)
        for s in channel.alive() if channel is not None else ():
            s.restart(reason)

    def fail(self, object_id: int, error: BaseException) -> None:
        """Ends every subscription with `error`, after its unread changes. New subscriptions are accepted."""
        channel = self._channels.get(object_id)
        if channel is not None:
            self._finish(channel, error, fail("PSK-7001", f"{channel.name} failed."))

    def end(self, object_id: int) -> Point | None:
        """The object was dropped: its subscriptions end after their unread changes. Returns the last published point; None if the object is not open."""
        with self._lock:
            channel = self._channels.pop(object_id, None)
        if channel is None:
            return None
        return self._finish(channel, None, fail("PSK-1002", f"{channel.name} was dropped before all of it was read."))

    def close(self) -> None:
        """Ends every subscription, without waiting for readers or callbacks. Queued changes can still be read."""
        with self._lock:
            self._closed.set()
            channels = list(self._channels.values())
            self._channels.clear()
        for c in channels:
            self._finish(c, None, fail("PSK-0004", f"The database was closed before all of {c.name} was read."))
        # Not joined: a call on this thread may need a lock that the caller of close() holds.
        self._released.close(0)
        if self._ticker is not None:
            self._ticker.join(_CLOSE_S)

    def stats(self) -> dict[int, ChannelStats]:
        with self._lock:
            channels = dict(self._channels)
        out = {}
        for object_id, channel in channels.items():
            subscribers = channel.alive()
            waiting = [s.pending for s in subscribers]
            out[object_id] = ChannelStats(
                channel.name,
                channel.chain.newest.epoch,
                channel.chain.newest.lsn,
                len(subscribers),
                sum(s.behind for s in subscribers),
                sum(m for m, _ in waiting),
                sum(b for _, b in waiting),
                sum(s.dropped for s in subscribers),
            )
        return out

    def subscriptions(self) -> list[Subscription]:
        """Every subscription that may get more changes, by id."""
        with self._lock:
            channels = list(self._channels.values())
        return sorted((s for c in channels for s in c.alive()), key=lambda s: s.id)

    def _attached(self, object_id: int, origin: Origin, options: SubscribeOptions, form: Form) -> Subscription:
        channel = self._channels.get(object_id)
        if channel is None:
            raise self._refused(f"Object {object_id}")
        key = next(self._keys)
        subscribers, progressing, closing = channel.subscribers, channel.progressing, Closing(self._released.start)

        def detach() -> None:
            subscribers.pop(key, None)
            progressing.pop(key, None)

        def collected(_: weakref.ref[Subscription]) -> None:
            detach()
            if closing.calls:
                self._released.leave(closing.run)

        with channel.lock:
            if channel.ended:
                raise self._refused(channel.name)
            subscription = Subscription(
                channel.name,
                origin,
                options,
                form,
                chain=channel.chain,
                suspension=channel.suspension,
                detach=detach,
                closing=closing,
                number=key,
            )
            subscribers[key] = weakref.ref(subscription, collected)
            if options.progress:
                progressing[key] = subscribers[key]
        return subscription

    def _refused(self, name: str) -> PenstockError:
        if self._closed.is_set():
            return fail("PSK-0004", "The database is closed.")
        return fail("PSK-1002", f"{name} was dropped.")

    def _finish(self, channel: _Channel, error: BaseException | None, gone: PenstockError) -> Point:
        with channel.lock:
            channel.ended = channel.ended or error is None
            subscribers = channel.alive()
            channel.subscribers.clear()
            channel.progressing.clear()
            # Readers of the rest must not see epochs published for later subscribers.
            last = channel.chain.newest
            channel.chain = Chain(last)
        for s in subscribers:
            s.finish(error, gone)
        return last

    def _start_ticker(self) -> None:
        with self._lock:
            if self._ticker is None and not self._closed.is_set():
                self._ticker = threading.Thread(target=self._run_ticker, name="penstock-progress", daemon=True)
                self._ticker.start()

    def _run_ticker(self) -> None:
        while not self._closed.wait(self._tick_seconds):
            self._tick()

    def _tick(self) -> None:
        with self._lock:
            channels = list(self._channels.values())
        for channel in channels:
            # Read first: subscribers that attach later may be ahead of it, and ignore it.
            newest = channel.chain.newest
            for s in _alive(channel.progressing):
                s.offer_progress(newest, self._tick_seconds)
