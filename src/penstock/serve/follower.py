"""A subscriber's place in the timeline of its object, as the hub sees it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum, auto

import pyarrow as pa

from penstock.errors import PenstockError, fail
from penstock.serve.backlog import Backlog
from penstock.serve.chain import Chain
from penstock.serve.closing import Closing
from penstock.serve.envelope import Form
from penstock.serve.figures import SubscriptionFigures
from penstock.serve.lifecycle import LIVE, SubscriptionLifecycle, SubscriptionState
from penstock.serve.message import Message, Point, Rendering
from penstock.serve.opening import opening
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin
from penstock.serve.replay import Replay
from penstock.serve.suspension import Suspension
from penstock.serve.turns import Turns


class Step(Enum):
    """A reader's next step."""

    OPEN = auto()
    CONTENTS = auto()
    RESYNC = auto()
    REPLAY = auto()
    QUEUED = auto()
    PROGRESS = auto()
    RAISE = auto()
    END = auto()
    WAIT = auto()


class Follower:
    """State and position. `_look` decides the reader's next step; the hub announces events of the object."""

    def __init__(
        self,
        name: str,
        origin: Origin,
        options: SubscribeOptions,
        form: Form,
        *,
        chain: Chain,
        suspension: Suspension | None,
        detach: Callable[[], None],
        closing: Closing,
        number: int = 0,
    ) -> None:
        self.id = number
        self.name = name
        self.wants_progress = options.progress
        self._origin = origin
        self._options = options
        self._rendering = Rendering.of(form, origin.where_key)
        self._form = form
        self._detach = detach
        self._closing = closing
        self._lock = threading.Lock()
        self._turns = Turns(self._lock)
        self._lifecycle = SubscriptionLifecycle()
        self._backlog = Backlog(options.limits, chain)
        self._replay = Replay(origin.history)
        self._opened = False
        self._contents: Message | None = None
        self._progress: Point | None = None
        self._suspension = suspension
        self._told = False
        self._error: BaseException | None = None
        self._gone: PenstockError | None = None
        now = chain.newest
        self._lsn = now.lsn
        self._input_lsn = now.input_lsn
        self._seq = 0
        self._rows = self._bytes = self._resyncs = 0
        self._since_ms = int(time.time() * 1000)
        self._sent_at = time.monotonic()
        # Whether the next message of the chain may be delivered without further checks.
        self._steady = False
        self._plain = (
            options.policy != "latest"
            and options.up_to is None
            and options.up_to_lsn is None
            and (origin.where is None or origin.where_key is not None)
        )
        self.wake: Callable[[], None] | None = None
        """Called when there may be something new after `next` found nothing. It must not block or take locks that are held for long."""

    def on_close(self, after: Callable[[], None]) -> None:
        """Calls `after` once when the subscription ends for any reason; at once if it has ended.

        If the subscription is garbage-collected, a thread of the hub makes the call. `after` must not refer to the subscription.
        """
        self._closing.add(after)
        if self.closed:
            self._closing.run()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the tables in its changes."""
        empty = self._origin.schema.append(pa.field("__weight", pa.int64())).empty_table()
        schema: pa.Schema = self._form.render(empty, snapshot=False).schema
        return schema

    @property
    def state(self) -> SubscriptionState:
        return self._lifecycle.state

    @property
    def closed(self) -> bool:
        return self._lifecycle.state is SubscriptionState.CLOSED

    @property
    def error(self) -> BaseException | None:
        """The error that ended the subscription; with a callback, the last error."""
        return self._error

    @property
    def pending(self) -> tuple[int, int]:
        """Messages and bytes queued in memory."""
        with self._lock:
            return self._backlog.pending

    @property
    def behind(self) -> bool:
        """Whether the next changes come from the log or a resync rather than from memory."""
        with self._lock:
            backlog = self._backlog
            return backlog.behind or backlog.gap is not None or backlog.lost is not None

    @property
    def dropped(self) -> int:
        """Number of epochs that are never delivered because a snapshot or a newer message replaced them."""
        return self._backlog.dropped

    @property
    def reads(self) -> frozenset[int]:
        """The objects whose row rules apply to the subscriber."""
        return self._origin.reads

    @property
    def figures(self) -> SubscriptionFigures:
        messages, size = self.pending
        with self._lock:
            return SubscriptionFigures(
                id=self.id,
                name=self._options.name,
                object=self._origin.title or self.name,
                state=self._lifecycle.state.value,
                policy=self._options.policy,
                envelope=self._options.envelope,
                since_ms=self._since_ms,
                epoch=self._backlog.at,
                lsn=self._lsn,
                input_lsn=self._input_lsn,
                messages=self._seq,
                rows=self._rows,
                bytes=self._bytes,
                pending_messages=messages,
                pending_bytes=size,
                behind=self._backlog.behind or self._backlog.gap is not None or self._backlog.lost is not None,
                dropped=self._backlog.dropped,
                resyncs=self._resyncs,
                error=None if self._error is None else str(self._error),
            )

    def kill(self) -> None:
        """Ends the subscription for another session: its reader gets PSK-5018. Releases everything that it holds, including unread messages."""
        with self._lock:
            if self._lifecycle.state is SubscriptionState.CLOSED:
                return
            if self._lifecycle.state is not SubscriptionState.FAILED:
                if self._lifecycle.state is SubscriptionState.ENDED:
                    return
                self._lifecycle.to(SubscriptionState.FAILED)
            self._error = fail(
                "PSK-5018", f"The subscription {self.id} to {self._origin.title or self.name} was ended."
            )
            self._steady = False
            self._backlog.clear()
            self._contents = self._progress = self._suspension = None
            self._wake()
        self._detach()
        self._replay.close()
        self._closing.run()

    def _close(self) -> None:
        """Ends the subscription. A second call completes an interrupted one."""
        with self._lock:
            if self._lifecycle.state is not SubscriptionState.CLOSED:
                self._lifecycle.to(SubscriptionState.CLOSED)
            self._steady = False
            self._backlog.clear()
            self._contents = self._progress = None
            self._wake()
        self._detach()
        self._replay.close()
        self._closing.run()

    # The hub's side

    def open(self) -> None:
        """Reads the starting point; leaves it to the reader while the object is suspended."""
        with self._lock:
            if self._options.snapshot and self._suspension is not None and not self._suspension.healed:
                return
            now = self._backlog.restart()
        start = opening(self.name, self._origin, self._options, now)
        with self._lock:
            if self._lifecycle.state is SubscriptionState.CLOSED:
                return
            self._opened = True
            self._contents = start.contents
            self._lsn = start.lsn
            self._backlog.started(start.epoch)
            if start.lost is not None:
                self._backlog.lose(start.lost)
            # Deliver what was read even if the object has ended or failed meanwhile.
            if self._lifecycle.state is SubscriptionState.ATTACHING:
                held = self._suspension is not None and not self._suspension.healed
                self._lifecycle.to(SubscriptionState.SUSPENDED if held else SubscriptionState.OPEN)
            self._wake()

    def notify(self) -> None:
        """Announces that something was published."""
        with self._lock:
            self._wake()

    def trim(self) -> None:
        """Applies the policy if the limits are reached."""
        with self._lock:
            if self._lifecycle.state not in LIVE:
                return
            kept = self._backlog.trim()
            self._steady = self._steady and self._backlog.steady
            if not kept:
                self._error = fail("PSK-5010", f"The subscriber of {self.name} did not keep up.")
                self._lifecycle.to(SubscriptionState.FAILED)
                self._steady = False
                self._backlog.clear()
                self._wake()
        if not kept:
            self._detach()

    def offer_progress(self, point: Point, idle: float = 0.0) -> None:
        """Sends progress unless something was delivered within the last `idle` seconds."""
        with self._lock:
            if self._lifecycle.state in LIVE and (not idle or self._idle(idle)):
                self._progress = point
                self._wake()

    def _idle(self, seconds: float) -> bool:
        return self._lifecycle.state is SubscriptionState.OPEN and time.monotonic() - self._sent_at >= seconds

    def suspend(self, suspension: Suspension) -> None:
        """Announces an error of the object that may heal. It replaces one that was not raised yet."""
        with self._lock:
            if self._lifecycle.state not in LIVE:
                return
            self._suspension, self._told, self._progress, self._steady = suspension, False, None, False
            if self._lifecycle.state is SubscriptionState.OPEN:
                self._lifecycle.to(SubscriptionState.SUSPENDED)
            self._wake()

    def restart(self, reason: str) -> None:
        """The object is at another point: unread messages are void, and a resync follows."""
        with self._lock:
            if self._lifecycle.state in LIVE:
                self._contents, self._progress, self._steady = None, None, False
                self._backlog.lose(reason)
                self._wake()

    def resume(self) -> None:
        """The suspension has healed."""
        with self._lock:
            # Another suspension may have started meanwhile.
            healed = self._suspension is None or self._suspension.healed
            if self._lifecycle.state is SubscriptionState.SUSPENDED and healed:
                self._lifecycle.to(SubscriptionState.OPEN)
            self._wake()

    def finish(self, error: BaseException | None, gone: PenstockError) -> None:
        """The object failed or ended; the rest can still be read. If it ended and the rest is no longer retained, the reader gets `gone`."""
        with self._lock:
            if self._lifecycle.state in LIVE:
                self._lifecycle.to(SubscriptionState.FAILED if error else SubscriptionState.ENDED)
                self._error, self._gone = error, gone
                self._wake()

    def _wake(self) -> None:
        self._turns.wake()
        if self.wake is not None:
            self.wake()

    # The reader's next step

    def _look(self, passed: bool) -> Step:
        """Decides the next step. Called with the lock."""
        state, backlog = self._lifecycle.state, self._backlog
        if state is SubscriptionState.CLOSED:
            return Step.END
        if self._contents is not None:
            return Step.CONTENTS
        if not self._opened or backlog.lost is not None:
            if state not in LIVE:
                return self._error_first(Step.END)
            return self._error_first(Step.RESYNC if self._opened else Step.OPEN)
        epoch, last = backlog.upcoming(), self._options.up_to
        if last is not None and (epoch > last if epoch is not None else backlog.newest.epoch >= last):
            return Step.END
        if epoch is None:
            if state not in LIVE or passed:
                return self._error_first(Step.END)
            waiting = self._progress is not None and self._progress.lsn >= self._lsn
            return self._error_first(Step.PROGRESS if waiting else Step.WAIT)
        first = backlog.first
        if first is not None and self._options.up_to_lsn is not None and self._beyond(first):
            return Step.END
        do = Step.QUEUED if first is not None else Step.REPLAY
        if self._suspension is not None and epoch > self._suspension.epoch:
            return self._error_first(do)
        return do

    def _beyond(self, message: Message) -> bool:
        return self._options.up_to_lsn is not None and message.point.lsn > self._options.up_to_lsn

    def _error_first(self, do: Step) -> Step:
        """Raises a pending error first, and delays the step until the error has healed."""
        suspension = self._suspension
        if suspension is None:
            return do
        if not self._told:
            return Step.RAISE
        if suspension.healed:
            self._suspension = None
            return do
        # An object that has ended does not heal; deliver the rest.
        return Step.WAIT if self._lifecycle.state in LIVE else do
