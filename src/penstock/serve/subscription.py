"""One subscriber: its queue, its limits and what happens when it is too slow."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa

from penstock.errors import fail
from penstock.serve.change import Change, ChangeKind
from penstock.serve.envelope import Form
from penstock.serve.message import Message

Policy = Literal["block", "coalesce", "latest", "resync", "disconnect"]
POLICIES: tuple[Policy, ...] = ("block", "coalesce", "latest", "resync", "disconnect")
Snapshot = Callable[[], tuple[pa.Table, int, int]]
Where = Callable[[pa.Table], pa.Table]
Merge = Callable[[list[Message]], Message]


@dataclass(frozen=True)
class Limits:
    """What may wait for a slow subscriber, and what is done when that is full.

    block: `publish` waits until there is room, and with it everyone who follows the same object; nobody loses anything.
    coalesce: what waits becomes one message with the net changes; if that is still too large, as `resync`.
    latest: only the newest message waits; `prev_lsn` shows the gap.
    resync: what waits is dropped; a `resync` message with the current contents comes in its place.
    disconnect: the subscription fails with PSK-5010.
    """

    policy: Policy = "block"
    bytes: int = 64 << 20
    messages: int = 4096

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise fail("PSK-1011", f"Unknown policy {self.policy!r}.", hint=f"Use one of {', '.join(POLICIES)}.")
        if self.bytes < 1 or self.messages < 1:
            raise fail("PSK-1011", "The limits of a subscription are at least 1.")


class State(Enum):
    """ATTACHING: what comes is queued without limits until the starting point is known. OPEN → ENDED or FAILED once the
    object does, with what is queued still to be read. CLOSED: cancelled, or read to the end."""

    ATTACHING = "attaching"
    OPEN = "open"
    ENDED = "ended"
    FAILED = "failed"
    CLOSED = "closed"


_LIVE = (State.ATTACHING, State.OPEN)
_LOOK_S = 1.0


class Subscription:
    """An iterator of changes, in order, each once. Any thread may cancel it; one thread at a time reads it."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        form: Form,
        limits: Limits,
        *,
        snapshot: Snapshot | None,
        where: Where | None,
        progress: bool,
        up_to: int | None,
        detach: Callable[[Subscription], None],
    ) -> None:
        self.name = name
        self.wants_progress = progress
        self._schema = schema
        self._form = form
        self._limits = limits
        self._snapshot = snapshot
        self._where = where
        self._up_to = up_to
        self._detach = detach
        self._ready = threading.Condition()
        self._state = State.ATTACHING
        self._error: BaseException | None = None
        self._queue: deque[Message] = deque()
        self._bytes = 0
        self._first: tuple[ChangeKind, Message] | None = None
        self._progress: tuple[int, int, int | None] | None = None
        self._must_resync = False
        self._skipped: tuple[int, int] = (0, 0)
        self._floor = 0
        self._complete = False
        self._gap = False
        self._lsn = 0
        self._seq = 0
        self._sent_at = time.monotonic()
        self._thread: threading.Thread | None = None
        self._after: list[Callable[[], None]] = []
        self.dropped = 0

    def on_close(self, after: Callable[[], None]) -> None:
        """Calls `after` once when the subscription is over, however it ends; now, if it is over already."""
        with self._ready:
            if self._state is not State.CLOSED:
                self._after.append(after)
                return
        after()

    @property
    def schema(self) -> pa.Schema:
        """What the tables of its changes look like."""
        empty = self._schema.append(pa.field("__weight", pa.int64())).empty_table()
        schema: pa.Schema = self._form.render(empty, snapshot=False).schema
        return schema

    # Reading

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def next(self, timeout: float | None = None) -> Change | None:
        """The next change; None after `timeout` seconds, and at the end (`closed` is then true). Raises what failed the object."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            kind, message = self._take(deadline)
            if message is None:
                return None
            change = self._made(kind, message)
            if change is not None:
                return change

    @property
    def closed(self) -> bool:
        return self._state is State.CLOSED

    @property
    def error(self) -> BaseException | None:
        """What ended the subscription, if it did not end by itself."""
        return self._error

    @property
    def pending(self) -> tuple[int, int]:
        """Messages and bytes that wait to be read."""
        with self._ready:
            return len(self._queue), self._bytes

    def cancel(self) -> None:
        """Ends the subscription now; a thread that waits in it, or for it, goes on."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def call(self, on_change: Callable[[Change], object]) -> None:
        """Hands every change to `on_change` in a thread of its own; an error in it ends the subscription and is kept in `error`."""

        def run() -> None:
            try:
                for change in self:
                    on_change(change)
            except BaseException as why:
                self._error = why
                self._close()

        self._thread = threading.Thread(target=run, name=f"penstock-subscriber-{self.name}", daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the end of a subscription with a callback; False after `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    # The hub's side

    def start(self, epoch: int, lsn: int, first: tuple[ChangeKind, pa.Table] | None, replay: list[Message]) -> None:
        """Fixes the starting point: what was queued up to `epoch` is dropped, then `first` and `replay` come before the rest."""
        with self._ready:
            if self._state is State.CLOSED:
                return
            # If the object ended or failed meanwhile, what is known is still delivered.
            if self._state is State.ATTACHING:
                self._state = State.OPEN
            self._lsn = lsn
            if first is not None:
                self._first = (first[0], Message(epoch, lsn, lsn, first[1]))
            queued, self._queue = self._queue, deque()
            self._queue.extend(replay)
            self._floor = replay[-1].epoch if replay else epoch
            self._queue.extend(m for m in queued if m.epoch > self._floor)
            if self._up_to is not None:
                self._complete = max([self._floor, *(m.epoch for m in self._queue)]) >= self._up_to
                self._queue = deque(m for m in self._queue if m.epoch <= self._up_to)
            self._bytes = sum(m.size for m in self._queue)
            self._ready.notify_all()

    def offer(self, message: Message, merge: Merge) -> None:
        """Called by the publisher, in order. Waits only under the policy `block`."""
        with self._ready:
            # The store and the log are ahead of the hub: the starting point may hold what is published only now.
            if self._state not in _LIVE or self._complete or message.epoch <= self._floor:
                return
            if self._up_to is not None and self._state is State.OPEN and message.epoch > self._up_to:
                self._complete = True
                self._ready.notify_all()
                return
            if self._must_resync:
                self._skipped = (message.epoch, message.lsn)
                self.dropped += 1
                return
            if self._state is State.OPEN:
                if self._limits.policy == "block":
                    while self._state is State.OPEN and self._full(message):
                        self._ready.wait()
                    if self._state not in _LIVE:
                        return
                elif self._limits.policy == "latest":
                    self._gap = self._gap or bool(self._queue)
                    self.dropped += len(self._queue)
                    self._clear()
                self._complete = message.epoch == self._up_to
            self._queue.append(message)
            self._bytes += message.size
            if self._state is State.OPEN and self._over():
                self._overflow(message, merge)
            self._ready.notify_all()

    def offer_progress(self, epoch: int, lsn: int, watermark: int | None, *, idle: float = 0.0) -> None:
        """Says that nothing more comes up to `lsn`, unless something was said within the last `idle` seconds."""
        with self._ready:
            if self._state is not State.OPEN:
                return
            if self._up_to is not None and epoch >= self._up_to:
                # The last epoch that was asked for had nothing in it.
                self._complete = True
                self._ready.notify_all()
            if self.wants_progress and time.monotonic() - self._sent_at >= idle:
                self._progress = (epoch, lsn, watermark)
                self._ready.notify_all()

    def finish(self, error: BaseException | None = None) -> None:
        """The object ended or failed: what is queued can still be read."""
        with self._ready:
            if self._state in _LIVE:
                self._state = State.FAILED if error else State.ENDED
                self._error = error
                self._ready.notify_all()

    @property
    def blocking(self) -> bool:
        return self._limits.policy == "block"

    def _full(self, message: Message) -> bool:
        if not self._queue:
            return False
        return len(self._queue) >= self._limits.messages or self._bytes + message.size > self._limits.bytes

    def _over(self) -> bool:
        if self._limits.policy in ("block", "latest"):
            return False
        return len(self._queue) > self._limits.messages or self._bytes > self._limits.bytes

    def _overflow(self, message: Message, merge: Merge) -> None:
        policy = self._limits.policy
        if policy == "coalesce":
            whole = merge(list(self._queue))
            self._clear()
            self._queue.append(whole)
            self._bytes = whole.size
            if whole.size <= self._limits.bytes:
                return
        if policy == "disconnect":
            self._error = fail("PSK-5010", f"The subscriber of {self.name} did not keep up.")
            self._state = State.FAILED
        else:
            self._must_resync = True
            self._skipped = (message.epoch, message.lsn)
        self.dropped += len(self._queue)
        self._clear()
        if policy == "disconnect":
            self._detach(self)

    def _clear(self) -> None:
        self._queue.clear()
        self._bytes = 0

    def _take(self, deadline: float | None) -> tuple[ChangeKind, Message | None]:
        with self._ready:
            while True:
                if self._state is State.CLOSED:
                    return "progress", None
                if self._first is not None:
                    (kind, message), self._first = self._first, None
                    return kind, message
                if self._must_resync and self._state is not State.FAILED:
                    self._must_resync = False
                    # From here on messages are queued again; those that the contents hold already are dropped below.
                    return "resync", Message(*self._skipped, self._lsn, self._schema.empty_table())
                if self._queue:
                    message = self._queue.popleft()
                    self._bytes -= message.size
                    if self._gap:
                        self._gap, self._lsn = False, message.prev_lsn
                    self._ready.notify_all()
                    return "changes", message
                if self._complete or self._state in (State.ENDED, State.FAILED):
                    break
                if self._progress is not None:
                    (epoch, lsn, watermark), self._progress = self._progress, None
                    if lsn >= self._lsn:
                        return "progress", Message(epoch, lsn, self._lsn, self._schema.empty_table(), watermark)
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return "progress", None
                # not for ever: a signal that comes just before a thread begins to wait does not wake it
                self._ready.wait(_LOOK_S if left is None else min(left, _LOOK_S))
            error = self._error if self._state is State.FAILED else None
        self._close()
        if error is not None:
            raise error
        return "progress", None

    def _made(self, kind: ChangeKind, message: Message) -> Change | None:
        """The change for a message, or None if nothing of it concerns this subscriber."""
        epoch, lsn = message.epoch, message.lsn
        if kind == "resync" and self._snapshot is not None:
            table, epoch, lsn = self._snapshot()
            with self._ready:
                self._floor = epoch
                self._queue = deque(m for m in self._queue if m.epoch > epoch)
                self._bytes = sum(m.size for m in self._queue)
            message = Message(epoch, lsn, self._lsn, table)
        if kind == "changes" and self._where is None:
            table = message.rendered(self._form)
        else:
            kept = message.table if self._where is None or kind == "progress" else self._where(message.table)
            table = self._form.render(kept, snapshot=kind in ("snapshot", "resync"))
        if kind == "changes" and table.num_rows == 0:
            return None
        prev = self._lsn
        self._lsn = lsn
        self._seq += 1
        self._sent_at = time.monotonic()
        return Change(self.name, epoch, lsn, prev, self._seq, table, kind, message.watermark)

    def _close(self) -> None:
        with self._ready:
            was, self._state = self._state, State.CLOSED
            self._clear()
            self._first = self._progress = None
            then, self._after = self._after, []
            self._ready.notify_all()
        if was is not State.CLOSED:
            self._detach(self)
        for after in then:
            after()
