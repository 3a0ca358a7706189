"""One subscriber: waits, reads and delivers changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self

import pyarrow as pa

from penstock.errors import PenstockError, fail
from penstock.serve.backlog import Backlog
from penstock.serve.change import Change, ChangeKind
from penstock.serve.closing import Closing
from penstock.serve.envelope import Form
from penstock.serve.figures import SubscriptionFigures
from penstock.serve.lifecycle import LIVE, SubscriptionLifecycle, SubscriptionState
from penstock.serve.message import Message, Point
from penstock.serve.opening import opening, read_contents
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin
from penstock.serve.replay import Replay
from penstock.serve.suspension import Suspension, raisable

_logger = logging.getLogger(__name__)
# A signal just before a wait does not end the wait, so every wait is bounded.
_LOOK_S = 1.0


class _Do(Enum):
    """What a reader does next."""

    OPEN = auto()
    CONTENTS = auto()
    RESYNC = auto()
    REPLAY = auto()
    QUEUED = auto()
    PROGRESS = auto()
    RAISE = auto()
    END = auto()
    WAIT = auto()


@dataclass(frozen=True)
class _Raised:
    """An error of the object, delivered in its place among the changes; errors of reading are simply raised."""

    error: BaseException


class Subscription:
    """An iterator of changes, in order, each once. Any thread may read or cancel it; readers take turns.

    An error that may heal is raised once, after the changes that came before it; the next call waits for what follows. An error that ends the
    object is raised last.

    The hub does not keep a subscription alive. With a callback, its thread does until `cancel`.
    """

    def __init__(
        self,
        name: str,
        origin: Origin,
        options: SubscribeOptions,
        form: Form,
        *,
        now: Point,
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
        self._up_to_lsn = options.up_to_lsn
        self._rendering = (form, origin.where_key)
        self._form = form
        self._detach = detach
        self._closing = closing
        self._lock = threading.Lock()
        # Bare locks that readers wait for. An interrupt inside threading.Condition could leave its lock in the wrong state.
        self._sleepers: list[threading.Lock] = []
        self._reader: int | None = None
        self._lifecycle = SubscriptionLifecycle()
        self._backlog = Backlog(options.limits, now)
        self._replay = Replay(origin.history)
        self._opened = False
        self._contents: Message | None = None
        self._progress: Point | None = None
        self._suspension = suspension
        self._told = False
        self._error: BaseException | None = None
        self._gone: PenstockError | None = None
        self._lsn = now.lsn
        self._input_lsn = now.input_lsn
        self._seq = 0
        self._rows = self._bytes = self._resyncs = 0
        self._since_ms = int(time.time() * 1000)
        self._sent_at = time.monotonic()
        self._thread: threading.Thread | None = None
        self.wake: Callable[[], None] | None = None
        """Called whenever there may be something new. It must not wait or take locks that others hold for long."""

    def on_close(self, after: Callable[[], None]) -> None:
        """Calls `after` once when the subscription ends, in whatever way; now, if it has ended.

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

    # Reading

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def next(self, timeout: float | None = None) -> Change | None:
        """The next change; None after `timeout` seconds, and at the end (`closed` is then true). Raises errors of the object.

        A timeout of 0 considers everything that was published before the call.
        """
        got = self._advance(_deadline(timeout))
        if isinstance(got, _Raised):
            raise raisable(got.error)
        return got

    def fetch(self, count: int | None = None, timeout: float | None = None) -> list[Change]:
        """Up to `count` available changes, waiting at most `timeout` seconds for the first. Without `count`, everything that was published
        before the call. At most about `buffer_bytes` are returned. An error is raised only if there is no change before it.
        """
        with self._lock:
            last = self._backlog.newest.epoch
        changes: list[Change] = []
        room = self._options.limits.bytes
        change = self.next(timeout) if count != 0 else None
        while change is not None:
            changes.append(change)
            room -= change.table.nbytes
            if room < 0 or (change.epoch >= last if count is None else len(changes) >= count):
                break
            got = self._advance(0.0, quiet=True)
            assert not isinstance(got, _Raised)
            change = got
        return changes

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
        """Messages and bytes that wait in memory."""
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
        """Epochs that are never delivered because a snapshot or a newer message replaced them."""
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

    def cancel(self) -> None:
        """Ends the subscription now and wakes its readers."""
        self._close()

    def kill(self) -> None:
        """Ends the subscription on behalf of somebody else: its reader gets PSK-5018. Everything that it holds is released, read or not."""
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
            self._backlog.clear()
            self._contents = self._progress = self._suspension = None
            self._wake()
        self._detach()
        self._replay.close()
        self._closing.run()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def call(
        self, on_change: Callable[[Change], object], on_error: Callable[[BaseException], object] | None = None
    ) -> None:
        """Passes every change to `on_change`, and every error of the object to `on_error`, in a thread of its own.

        Without `on_error`, errors are logged. Delivery continues after an error that heals. An error in a callback, or in reading changes, ends
        the subscription. `error` is the last error.
        """
        self._thread = threading.Thread(
            target=self._deliver_all, args=(on_change, on_error), name=f"penstock-subscriber-{self.name}", daemon=True
        )
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the end of a subscription with a callback; False after `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def _deliver_all(
        self, on_change: Callable[[Change], object], on_error: Callable[[BaseException], object] | None
    ) -> None:
        try:
            while (got := self._advance(None)) is not None:
                if isinstance(got, Change):
                    on_change(got)
                    continue
                self._error = got.error
                if on_error is not None:
                    on_error(got.error)
                else:
                    _logger.error("%s: %s", self.name, got.error)
        except BaseException as why:
            _logger.exception("the subscription to %s ended", self.name)
            self._error = why
            self._close()

    # The hub's side

    def open(self) -> None:
        """Reads the starting point. While contents may not be shown, this is left to the reader."""
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
            # If the object has ended or failed meanwhile, what was read is still delivered.
            if self._lifecycle.state is SubscriptionState.ATTACHING:
                held = self._suspension is not None and not self._suspension.healed
                self._lifecycle.to(SubscriptionState.SUSPENDED if held else SubscriptionState.OPEN)
            self._wake()

    def offer(self, point: Point, message: Message | None) -> None:
        """Called by the publisher for every epoch; without a message, nothing changed. Never blocks."""
        with self._lock:
            if self._lifecycle.state not in LIVE:
                return
            kept = self._backlog.offer(point, message)
            if not kept:
                self._error = fail("PSK-5010", f"The subscriber of {self.name} did not keep up.")
                self._lifecycle.to(SubscriptionState.FAILED)
                self._backlog.clear()
            if message is None and self.wants_progress:
                self._progress = point
            self._wake()
        if not kept:
            self._detach()

    def offer_progress(self, point: Point, idle: float) -> None:
        """Sends progress unless something was delivered within the last `idle` seconds."""
        with self._lock:
            if self._lifecycle.state is SubscriptionState.OPEN and time.monotonic() - self._sent_at >= idle:
                self._progress = point
                self._wake()

    def suspend(self, suspension: Suspension) -> None:
        """The object has an error that may heal. It replaces one that was not raised yet."""
        with self._lock:
            if self._lifecycle.state not in LIVE:
                return
            self._suspension, self._told, self._progress = suspension, False, None
            if self._lifecycle.state is SubscriptionState.OPEN:
                self._lifecycle.to(SubscriptionState.SUSPENDED)
            self._wake()

    def resume(self) -> None:
        """The suspension has healed."""
        with self._lock:
            # Another suspension may have begun meanwhile.
            healed = self._suspension is None or self._suspension.healed
            if self._lifecycle.state is SubscriptionState.SUSPENDED and healed:
                self._lifecycle.to(SubscriptionState.OPEN)
            self._wake()

    def finish(self, error: BaseException | None, gone: PenstockError) -> None:
        """The object failed or ended; the rest can still be read. If it ended and the rest is no longer available, `gone` is raised."""
        with self._lock:
            if self._lifecycle.state in LIVE:
                self._lifecycle.to(SubscriptionState.FAILED if error else SubscriptionState.ENDED)
                self._error, self._gone = error, gone
                self._wake()

    def _wake(self) -> None:
        while self._sleepers:
            self._sleepers.pop().release()
        if self.wake is not None:
            self.wake()

    # The reader's side

    def _advance(self, deadline: float | None, *, quiet: bool = False) -> Change | _Raised | None:
        """The next change or error; None at the deadline and at the end. `quiet`: leave errors and the end to the next call."""
        if not self._take_turn(deadline):
            return None
        try:
            with self._lock:
                seen = self._backlog.newest.epoch
            poll = deadline == 0.0
            enough = False
            while True:
                do = self._wait(deadline, quiet)
                if do is _Do.END:
                    return self._end()
                if do is _Do.RAISE:
                    return self._raise()
                if do is _Do.WAIT or enough:
                    return None
                change = self._carry_out(do)
                if change is not None:
                    return change
                late = deadline is not None and time.monotonic() >= deadline
                # A filter may drop many epochs in a row. Only a poll goes through all that were published before it.
                enough = late and do is not _Do.OPEN and (not poll or self._backlog.at >= seen)
        finally:
            with self._lock:
                self._reader = None
                self._wake()

    def _take_turn(self, deadline: float | None) -> bool:
        own = threading.get_ident()
        while True:
            with self._lock:
                if self._reader in (None, own):
                    self._reader = own
                    return True
                sleeper = self._sleeper()
            if not self._sleep(sleeper, deadline):
                return False

    def _wait(self, deadline: float | None, quiet: bool) -> _Do:
        while True:
            passed = self._up_to_lsn is not None and self._passed(self._up_to_lsn)
            with self._lock:
                do = self._look(passed)
                if quiet and do in (_Do.RAISE, _Do.END):
                    return _Do.WAIT
                if quiet or do is not _Do.WAIT:
                    return do
                sleeper = self._sleeper()
            if not self._sleep(sleeper, deadline):
                return _Do.WAIT

    def _sleeper(self) -> threading.Lock:
        """A lock that the next event releases. Called with the subscription's lock."""
        sleeper = threading.Lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        return sleeper

    def _sleep(self, sleeper: threading.Lock, deadline: float | None) -> bool:
        """Waits for the next event, without the lock; False if the deadline has passed."""
        left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
        if left > 0 and sleeper.acquire(timeout=left):
            return True
        with self._lock:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
        return left > 0

    def _passed(self, last: int) -> bool:
        """Whether everything up to the last LSN that is asked for has been published. Called without the lock."""
        head = self._origin.head
        return head is not None and head() >= last

    def _look(self, passed: bool) -> _Do:
        """Decides what to do next. Called with the lock."""
        state, backlog = self._lifecycle.state, self._backlog
        if state is SubscriptionState.CLOSED:
            return _Do.END
        if self._contents is not None:
            return _Do.CONTENTS
        if not self._opened or backlog.lost is not None:
            if state not in LIVE:
                return self._error_first(_Do.END)
            return self._error_first(_Do.RESYNC if self._opened else _Do.OPEN)
        epoch, last = backlog.upcoming(), self._options.up_to
        if last is not None and (epoch > last if epoch is not None else backlog.newest.epoch >= last):
            return _Do.END
        if epoch is None:
            if state not in LIVE or passed:
                return self._error_first(_Do.END)
            waiting = self._progress is not None and self._progress.lsn >= self._lsn
            return self._error_first(_Do.PROGRESS if waiting else _Do.WAIT)
        first = backlog.first
        if first is not None and self._up_to_lsn is not None and self._beyond(first):
            return _Do.END
        do = _Do.QUEUED if first is not None else _Do.REPLAY
        if self._suspension is not None and epoch > self._suspension.epoch:
            return self._error_first(do)
        return do

    def _beyond(self, message: Message) -> bool:
        return self._up_to_lsn is not None and message.point.lsn > self._up_to_lsn

    def _error_first(self, do: _Do) -> _Do:
        """Raises a pending error first, and holds the step back until the error has healed."""
        suspension = self._suspension
        if suspension is None:
            return do
        if not self._told:
            return _Do.RAISE
        if suspension.healed:
            self._suspension = None
            return do
        # An object that has ended does not heal; deliver the rest.
        return _Do.WAIT if self._lifecycle.state in LIVE else do

    def _raise(self) -> _Raised:
        with self._lock:
            assert self._suspension is not None
            self._told = True
            return _Raised(self._suspension.error)

    def _end(self) -> _Raised | None:
        with self._lock:
            error: BaseException | None = None
            if self._lifecycle.state is SubscriptionState.FAILED:
                error = self._error
            elif self._lifecycle.state is SubscriptionState.ENDED and (
                self._backlog.lost is not None or not self._opened
            ):
                error = self._error = self._gone
        self._close()
        return None if error is None else _Raised(error)

    def _carry_out(self, do: _Do) -> Change | None:
        """Carries a step out, without the lock. The position moves only when the change has been made, so an error loses nothing."""
        if do is _Do.OPEN:
            self.open()
        elif do is _Do.RESYNC:
            return self._resync()
        elif do is _Do.REPLAY:
            return self._read_past()
        elif do is _Do.PROGRESS:
            with self._lock:
                point, self._progress = self._progress, None
            if point is not None:
                return self._made("progress", Message(point, self._lsn, self._origin.schema.empty_table()))
        else:
            with self._lock:
                message = self._contents if do is _Do.CONTENTS else self._backlog.first
            if message is not None:
                return self._made("snapshot" if do is _Do.CONTENTS else "changes", message)
        return None

    def _resync(self) -> Change | None:
        with self._lock:
            now = self._backlog.restart()
            reason = self._backlog.lost
        try:
            contents = read_contents(self._origin, now)
        except PenstockError as why:
            if why.code != "PSK-5011":
                raise
            # The contents of a stream are its history, which is gone: there is nothing to continue from.
            self.finish(why, why)
            return None
        return self._made("resync", contents, reason=reason, started=max(contents.epoch, now.epoch))

    def _read_past(self) -> Change | None:
        """Reads the next epoch, or with `coalesce` the next epochs, from the log."""
        with self._lock:
            backlog = self._backlog
            at, last = backlog.at, backlog.gap
            stops = [s for s in (self._options.up_to, self._suspension.epoch if self._suspension else None) if s]
            stop = min((s for s in stops if s > at), default=None)
        if last is None:
            return None
        until = last if stop is None else min(last, stop)
        if self._options.policy == "coalesce" and self._options.up_to_lsn is None:
            message = self._replay.merged_after(at, until, self._options.limits.bytes)
        else:
            message = self._replay.message_after(at)
        if message is None:
            self._replay.close()
            with self._lock:
                if self._backlog.gap is not None:
                    self._backlog.lose(f"the changes after epoch {at} are no longer retained")
            return None
        if self._beyond(message):
            with self._lock:
                # Nothing up to the last LSN is left, and nothing after it is delivered.
                self._backlog.clear()
                self._backlog.passed(self._backlog.newest.epoch)
            return None
        if stop is not None and message.epoch > stop:
            with self._lock:
                self._backlog.passed(stop)
            return None
        change = self._made("changes", message)
        if self._backlog.gap is None:
            self._replay.close()
        return change

    def _made(
        self, kind: ChangeKind, message: Message, *, reason: str | None = None, started: int | None = None
    ) -> Change | None:
        """Makes the change for a message and moves the position; None if the filter leaves no rows."""
        where, backlog = self._origin.where, self._backlog
        if kind == "changes" and (where is None or self._origin.where_key is not None):
            table = message.rendered(self._rendering, where)
        else:
            kept = message.table if where is None or kind == "progress" else where(message.table)
            table = self._form.render(kept, snapshot=kind in ("snapshot", "resync"))
        with self._lock:
            if self._lifecycle.state is SubscriptionState.CLOSED:
                return None
            if kind == "snapshot":
                self._contents = None
            elif started is not None:
                backlog.started(started)
            elif kind == "changes":
                skipped = backlog.skipped and backlog.gap is None
                backlog.passed(message.epoch)
                if table.num_rows == 0:
                    return None
                if skipped:
                    backlog.skipped, self._lsn = False, message.prev_lsn
            prev, self._lsn, self._seq = self._lsn, message.point.lsn, self._seq + 1
            self._sent_at = time.monotonic()
            self._rows += table.num_rows
            self._bytes += message.size
            self._resyncs += kind == "resync"
            epoch, lsn, input_lsn, watermark = message.point
            self._input_lsn = input_lsn
            return Change(
                name=self.name,
                epoch=epoch,
                lsn=lsn,
                input_lsn=input_lsn,
                prev_lsn=prev,
                seq=self._seq,
                table=table,
                kind=kind,
                watermark=watermark,
                reason=reason,
            )

    def _close(self) -> None:
        """Ends the subscription. Calling it again completes a call that was interrupted."""
        with self._lock:
            if self._lifecycle.state is not SubscriptionState.CLOSED:
                self._lifecycle.to(SubscriptionState.CLOSED)
            self._backlog.clear()
            self._contents = self._progress = None
            self._wake()
        self._detach()
        self._replay.close()
        self._closing.run()


def _deadline(timeout: float | None) -> float | None:
    """The end of a wait on the monotonic clock; 0.0 for a poll."""
    if timeout is None or timeout <= 0:
        return None if timeout is None else 0.0
    return time.monotonic() + timeout
