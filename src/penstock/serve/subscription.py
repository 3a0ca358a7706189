"""One subscriber: waits, reads and delivers changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from penstock.errors import PenstockError
from penstock.serve.callback import Callback
from penstock.serve.change import Change, ChangeKind
from penstock.serve.changes import Changes
from penstock.serve.follower import Follower, Step
from penstock.serve.lifecycle import SubscriptionState
from penstock.serve.message import Message
from penstock.serve.opening import read_contents
from penstock.serve.suspension import raisable
from penstock.serve.turns import deadline_of

# Rendering fewer bytes takes at most about a millisecond, once for all subscribers.
_QUICK_BYTES = 256 << 10


class Readiness(Enum):
    """LATER: nothing is available. NOW: a change is in memory. WORK: one may have to be read or computed first."""

    LATER = auto()
    NOW = auto()
    WORK = auto()


@dataclass(frozen=True)
class Raised:
    """An error of the object, delivered in order among the changes; errors while reading are simply raised."""

    error: BaseException


class Subscription(Follower, Changes[Change]):
    """An iterator of changes, in order, each once. Any thread may read or cancel it; readers take turns.

    An error that may heal is raised once, after the changes before it; the next call waits for what follows. An error that ends the
    object is raised last.

    The hub does not keep a subscription alive. With a callback, its thread does until `cancel`.
    """

    _callback: Callback | None = None

    def next(self, timeout: float | None = None) -> Change | None:
        """The next change; None after `timeout` seconds, and at the end (`closed` is then true). Raises errors of the object.

        A timeout of 0 considers everything published before the call.
        """
        change = self.at_hand()
        if change is not None:
            return change
        got = self._advance(deadline_of(timeout))
        if isinstance(got, Raised):
            raise raisable(got.error)
        return got

    def fetch(self, count: int | None = None, timeout: float | None = None) -> list[Change]:
        """Up to `count` available changes, waiting at most `timeout` seconds for the first. Without `count`, everything published
        before the call. It returns at most about `buffer_bytes`. An error is raised only if there is no change before it.
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
            got = self.at_hand() or self._advance(0.0, quiet=True)
            assert not isinstance(got, Raised)
            change = got
        return changes

    def cancel(self) -> None:
        """Ends the subscription now and wakes its readers."""
        self._close()

    def call(
        self, on_change: Callable[[Change], object], on_error: Callable[[BaseException], object] | None = None
    ) -> None:
        """Passes every change to `on_change`, and every error of the object to `on_error`, in its own thread.

        Without `on_error`, errors are logged. Delivery continues after an error that heals. An error in a callback, or in reading changes, ends
        the subscription. `error` is the last error.
        """
        self._callback = Callback(self, on_change, on_error)

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the end of a subscription with a callback; False after `timeout` seconds."""
        return self._callback is None or self._callback.join(timeout)

    def change_or_error(self) -> Change | BaseException | None:
        """The next change, or an error of the object; waits. None at the end. Errors of reading are raised."""
        got = self.at_hand() or self._advance(None)
        return got.error if isinstance(got, Raised) else got

    def note(self, error: BaseException) -> None:
        """Records an error that was passed on."""
        self._error = error

    # Reading

    def at_hand(self) -> Change | None:
        """The next change if it is in memory and another subscriber has already rendered it. None does not mean that there is none. Never waits.

        With many subscribers of one object, nearly all deliveries take this path.
        """
        with self._lock:
            if not self._steady or self._turns.reader is not None:
                return None
            backlog = self._backlog
            link = backlog.link
            if link is None or (after := link.next) is None or (message := link.message) is None:
                return None
            found = message.rendered.get(self._rendering)
            if found is None or not found[1]:
                return None
            backlog.link = after
            backlog.at, lsn, input_lsn, watermark = message.point
            prev, self._lsn, self._input_lsn = self._lsn, lsn, input_lsn
            self._seq = seq = self._seq + 1
            self._rows += found[1]
            self._bytes += message.size
            if self.wants_progress:
                self._sent_at = time.monotonic()
            return Change(self.name, backlog.at, lsn, input_lsn, prev, seq, found[0], "changes", watermark)

    def readiness(self) -> Readiness:
        """What a call to `next` would find. After LATER, `wake` is called when that may have changed."""
        with self._lock:
            if self._turns.reader is not None or self._options.up_to_lsn is not None:
                return Readiness.WORK
            step = self._look(False)
            if step is Step.WAIT:
                self._backlog.chain.waiting[self.id] = None
                step = self._look(False)
            if step is Step.WAIT:
                return Readiness.LATER
            if step in (Step.RAISE, Step.END, Step.PROGRESS):
                return Readiness.NOW
            first = self._backlog.first
            if step is Step.QUEUED and first is not None:
                quick = self._origin.where is None and first.size <= _QUICK_BYTES
                return Readiness.NOW if quick or self._rendering in first.rendered else Readiness.WORK
            return Readiness.WORK

    def _advance(self, deadline: float | None, *, quiet: bool = False) -> Change | Raised | None:
        """The next change or error; None at the deadline and at the end. `quiet`: leave errors and the end to the next call."""
        if not self._turns.take(deadline):
            return None
        try:
            with self._lock:
                seen = self._backlog.newest.epoch
            poll = deadline == 0.0
            enough = False
            while True:
                do = self._wait(deadline, quiet)
                if do is Step.END:
                    return self._end()
                if do is Step.RAISE:
                    return self._raise()
                if do is Step.WAIT or enough:
                    return None
                change = self._carry_out(do)
                if change is not None:
                    return change
                late = deadline is not None and time.monotonic() >= deadline
                # A filter may drop many epochs in a row. Only a poll goes through all epochs published before it.
                enough = late and do is not Step.OPEN and (not poll or self._backlog.at >= seen)
        finally:
            self._turns.end()

    def _wait(self, deadline: float | None, quiet: bool) -> Step:
        last = self._options.up_to_lsn
        while True:
            passed = last is not None and self._passed(last)
            with self._lock:
                do = self._look(passed)
                if quiet and do in (Step.RAISE, Step.END):
                    return Step.WAIT
                if quiet or do is not Step.WAIT or (deadline == 0.0 and self.wake is None):
                    return do
                # Anything published after this line wakes the reader; anything published before is found now.
                self._backlog.chain.waiting[self.id] = None
                do = self._look(passed)
                if do is not Step.WAIT:
                    return do
                sleeper = self._turns.sleeper()
            if not self._turns.sleep(sleeper, deadline):
                return Step.WAIT

    def _passed(self, last: int) -> bool:
        """Whether everything up to the last requested LSN has been published. Called without the lock."""
        head = self._origin.head
        return head is not None and head() >= last

    def _raise(self) -> Raised:
        with self._lock:
            assert self._suspension is not None
            self._told = True
            return Raised(self._suspension.error)

    def _end(self) -> Raised | None:
        with self._lock:
            error: BaseException | None = None
            if self._lifecycle.state is SubscriptionState.FAILED:
                error = self._error
            elif self._lifecycle.state is SubscriptionState.ENDED and (
                self._backlog.lost is not None or not self._opened
            ):
                error = self._error = self._gone
        self._close()
        return None if error is None else Raised(error)

    def _carry_out(self, do: Step) -> Change | None:
        """Performs a step, without the lock. The position moves only once the change exists, so an error loses nothing."""
        if do is Step.OPEN:
            self.open()
        elif do is Step.RESYNC:
            return self._resync()
        elif do is Step.REPLAY:
            return self._read_past()
        elif do is Step.PROGRESS:
            with self._lock:
                point, self._progress = self._progress, None
            if point is not None:
                return self._made("progress", Message(point, self._lsn, self._origin.schema.empty_table()))
        else:
            with self._lock:
                message = self._contents if do is Step.CONTENTS else self._backlog.first
            if message is not None:
                return self._made("snapshot" if do is Step.CONTENTS else "changes", message)
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
            # A stream's contents are its history, which is gone, so the subscription cannot continue.
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
            table = message.render(self._rendering, where)
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
                self._steady = self._plain and self._suspension is None and self._opened and backlog.steady
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
