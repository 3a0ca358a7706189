"""Sinks: each follows the log of one stream from its stored position, and delivers every epoch in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.catalog.types import stored_schema
from penstock.connect import Access, Opening, Sink, make_sink
from penstock.disk import crash_point
from penstock.errors import PenstockError, fail
from penstock.log import Entry
from penstock.runtime.connect.delivery import Delivery, delivery, write_timeout_s
from penstock.runtime.lifecycle import SINK_STEPS, Lifecycle, SinkState, wait_s
from penstock.runtime.storage.contents import complete, read_entry
from penstock.runtime.storage.position import Position, PositionFile
from penstock.runtime.storage.storage import Storage
from penstock.serve.zset import weighted

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_S = 0.5
_STOP_S = 10.0
_CANCEL_S = 2.0
_DOUBLED = 4
"""So often the write timeout is doubled."""
_ENTRIES = 1000
"""The largest number of epochs in one transaction."""
_ROWS = 200_000
"""A transaction that has this many rows takes no further epoch: an upsert keeps its rows in memory."""


def check_start(storage: Storage, feeding: ObjectInfo) -> None:
    """Raises PSK-5011 if a new sink would miss the beginning of the stream."""
    if not feeding.has_contents and not complete(storage.log, feeding.id):
        raise fail(
            "PSK-5011",
            f"The history of {feeding.name} is no longer complete; a sink would miss its beginning.",
            hint=f"Create a materialized view on {feeding.name} and a sink on that, or create the stream again with a larger retain_history.",
        )


def open_sink(storage: Storage, info: ObjectInfo, sink: Sink, position: Position) -> tuple[Delivery, int]:
    """Opens a sink: checks its guarantee, and settles what a crash has left. Returns the guarantee and the last epoch that it has committed."""
    promised = delivery(storage.info, storage.settings, info, sink.capabilities)
    identity = info.identity or f"object-{info.id}"
    schema = stored_schema(storage.info(info.depends_on[0]))
    committed = sink.open(Opening(identity, schema, position.committed, promised.exactly_once))
    if position.undo is not None:
        after, up_to = position.undo
        sink.take_back(after, up_to)
        committed = committed if committed > up_to else min(committed, after)
    if sink.capabilities.prepares:
        # Decided: commit. Undecided: roll back.
        sink.commit(position.epoch)
        sink.rollback(position.epoch + 1)
    return promised, committed


class SinkRunner:
    """A thread that follows one stream. An error affects this sink only: it is reopened with backoff.

    `access` returns what its connector may access; `opened` is a sink that is already open; `held` returns why nothing may be delivered now, or None.
    """

    def __init__(
        self,
        storage: Storage,
        info: ObjectInfo,
        access: Callable[[], Access],
        held: Callable[[], PenstockError | None],
        opened: tuple[Sink, Delivery] | None = None,
    ) -> None:
        self.name = info.name
        self._counts = storage.totals.of(info.id)
        self.error: PenstockError | None = None
        self.durable_lsn = 0
        self.delivery: Delivery | None = opened[1] if opened else None
        self._life = Lifecycle(f"Sink {info.name}", SinkState.OPENING, SINK_STEPS)
        self._storage = storage
        self._info = info
        self._input = storage.info(info.depends_on[0])
        self._schema = stored_schema(self._input)
        self._access = access
        self._held = held
        self._sink = opened[0] if opened else None
        self._file = PositionFile(storage.layout.job(info.id) / "position.json", info.name)
        self._position = Position()
        self._timeout_s = 0.0
        self._call: tuple[str, float] | None = None
        self._late: PenstockError | None = None
        self._recovered = False
        self._failures = 0
        self._timeouts = 0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._done = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"penstock-sink-{info.name}", daemon=True)
        with suppress(PenstockError):
            self.durable_lsn = self._file.read().lsn
        self._thread.start()

    @property
    def state(self) -> SinkState:
        return self._life.state

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._open()
                self._follow()
            except PenstockError as error:
                self._failed(error)
            except Exception as error:
                wrapped = fail("PSK-5002", f"{self.name}: {type(error).__name__}: {error}")
                wrapped.__cause__ = error
                self._failed(wrapped)
        self._release()
        self._life.attempt(SinkState.STOPPED)

    def _open(self) -> None:
        # An epoch may be too large for the timeout: more time for each attempt in a row, or it would be tried for ever.
        self._timeout_s = write_timeout_s(self._storage.settings, self._info) * 2 ** min(self._timeouts, _DOUBLED)
        at = self._file.read()
        self._check(at, at.epoch)
        if self._sink is None:
            assert self._info.connector is not None
            sink = make_sink(self._info.connector, changelog=self._info.changelog, access=self._access())
            self._sink = sink
            self.delivery, committed = self._timed("open", lambda: open_sink(self._storage, self._info, sink, at))
            self._deliver_again(sink, at)
            if committed > at.epoch:
                # A crash came after the target had committed, and before that was written down.
                self._check(at, committed)
                lsn = self._storage.log.lsn_at_epoch(self._input.id, committed)
                at = replace(at, epoch=committed, lsn=lsn, committed=committed)
                self._file.write(at)
            if at.undo is not None or at.ends is not None:
                crash_point("sink.taken_back")
                at = replace(at, undo=None, ends=None)
                self._file.write(at)
            if self.delivery.warning:
                _logger.warning("%s", self.delivery.warning)
        with self._done:
            self._position, self.durable_lsn, self._recovered = at, at.lsn, True
            self._done.notify_all()
        self._life.to(SinkState.RUNNING)

    def _deliver_again(self, sink: Sink, at: Position) -> None:
        """Delivers what was decided before a crash and has not arrived: it was removed from where it was prepared. Raises PSK-5017 if the log no longer has it."""
        if not sink.capabilities.prepares or at.undo is not None or at.before is None or at.before >= at.committed:
            return
        log, stream = self._storage.log, self._input.id
        if not log.reaches_back(stream, at.before):
            if not sink.has(at.committed):
                raise self._lost(at.committed)
            return
        decided = log.entries(stream, after=log.lsn_at_epoch(stream, at.before) if at.before else 0)
        lost = [e for e in decided if e.rows and at.before < e.epoch <= at.committed and not sink.has(e.epoch)]
        if not lost:
            return
        _logger.warning(
            "sink %s: epochs %s were prepared and have disappeared; they are delivered again",
            self.name,
            ", ".join(str(e.epoch) for e in lost),
        )
        last = lost[-1].epoch
        self._timed("begin", lambda: sink.begin(lost[0].epoch))
        for entry in lost:
            self._timed("write", partial(sink.write, entry.epoch, entry.lsn, self._read(entry)))
        self._timed("pre_commit", lambda: sink.pre_commit(last))
        self._timed("commit", lambda: sink.commit(last))

    def _lost(self, epoch: int) -> PenstockError:
        return fail(
            "PSK-5017",
            f"Sink {self.name}: epoch {epoch} was prepared and has disappeared, and the log no longer has it.",
            hint=f"Drop sink {self.name} and create it again, with an empty target.",
        )

    def _check(self, at: Position, delivered: int) -> None:
        """Raises an error if the log does not continue after an epoch that was delivered. One that the log did not have is not the one that gets its number later: that is written down."""
        log, stream = self._storage.log, self._input.id
        hint = f"Restore the folder from a backup, or drop sink {self.name} and create it again."
        said = f"Sink {self.name} has delivered epoch {delivered} of {self._input.name}"
        last = log.epoch(stream) if at.ends is None else at.ends
        if delivered > last or (delivered == at.epoch and at.lsn > log.head):
            if at.ends is None:
                self._file.write(replace(at, ends=min(last, delivered - 1)))
            raise fail("PSK-6001", f"{said}, but the log ended with epoch {last}: commits are lost.", hint=hint)
        if delivered and not log.reaches_back(stream, delivered):
            raise fail("PSK-5011", f"{said}, and the next epoch is no longer retained.", hint=hint)

    def _failed(self, error: PenstockError) -> None:
        self._release()
        if self._stop.is_set():
            return
        with self._done:
            self._failures += 1
            self._timeouts += error.code == "PSK-5016"
            self.error = error
            self._life.to(SinkState.RETRYING)
            self._done.notify_all()
        self._wake.wait(wait_s(self._failures))
        self._wake.clear()
        if not self._stop.is_set():
            self._life.to(SinkState.OPENING)

    def _release(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            with suppress(Exception):
                sink.close()

    def _follow(self) -> None:
        log = self._storage.log
        if not self._position.epoch and not complete(log, self._input.id):
            while not self._allowed():
                if self._stop.wait(_LOOK_S):
                    return
            self._begin_with_contents()
        while not self._stop.is_set():
            with self._storage.commits:
                entries = log.entries(self._input.id, after=self.durable_lsn, limit=_ENTRIES)
                if not entries:
                    self._well()
                    self._storage.commits.wait(_LOOK_S)
                    continue
            # The errors of an epoch are in the same commit as its rows.
            self._storage.await_published(self._input.id)
            if self._allowed():
                self._deliver(_some(entries))
            else:
                self._stop.wait(_LOOK_S)

    def _allowed(self) -> bool:
        cause = self._held()
        if (cause is not None) != (self.state is SinkState.HELD):
            self._life.to(SinkState.HELD if cause is not None else SinkState.RUNNING)
            with self._done:
                self.error = cause
                self._done.notify_all()
        return cause is None

    def _begin_with_contents(self) -> None:
        """Delivers the contents as of an epoch in place of all earlier changes, because the changelog no longer reaches back to its beginning."""
        self._storage.check_sound(self._input)
        table, epoch, lsn = self._storage.store.snapshot(self._input.id)
        rows = weighted(table) if self._input.changelog else table
        whole = [(epoch, lsn, lambda: rows.cast(self._schema))] if rows.num_rows else []
        self._transact(whole, Position(epoch, lsn), rows.num_rows)

    def _deliver(self, entries: Sequence[Entry]) -> None:
        due = [(e.epoch, e.lsn, partial(self._read, e)) for e in entries if e.rows]
        at = self._position
        to = replace(at, epoch=entries[-1].epoch, lsn=entries[-1].lsn)
        self._transact(due, to, sum(e.rows for e in entries))

    def _transact(self, epochs: Sequence[tuple[int, int, Callable[[], pa.Table]]], to: Position, rows: int) -> None:
        """Delivers epochs (number, LSN, rows) in one transaction, and everything up to `to` with them."""
        if not epochs:
            self._file.write(to)
            self._announce(to)
            return
        assert self._sink is not None
        sink = self._sink
        first, last = epochs[0][0], epochs[-1][0]
        to = replace(to, committed=last, before=self._position.committed)
        # No row leaves the database before it is on disk: otherwise another row could get the number of its epoch.
        if self._storage.settings.log.wal_mode == "async":
            self._storage.log.sync()
        # 1. Begin.
        self._timed("begin", lambda: sink.begin(first))
        crash_point("sink.begun")
        # 2. Write.
        for epoch, lsn, read in epochs:
            if self._stop.is_set():
                self._timed("rollback", lambda: sink.rollback(first))
                return
            self._timed("write", partial(sink.write, epoch, lsn, read()))
            crash_point("sink.written")
        # 3. Pre-commit.
        self._timed("pre_commit", lambda: sink.pre_commit(last))
        crash_point("sink.prepared")
        # 4. Decide, durably. A sink that does not prepare decides with its own commit.
        if sink.capabilities.prepares:
            self._file.write(to)
            crash_point("sink.decided")
        # 5. Commit.
        self._timed("commit", lambda: sink.commit(last))
        crash_point("sink.committed")
        if not sink.capabilities.prepares:
            self._file.write(to)
        # 6. Announce.
        self._counts.delivered += rows
        self._announce(to)
        crash_point("sink.announced")

    def _announce(self, to: Position) -> None:
        self._position = to
        self._well(to.lsn)

    def _timed(self, step: str, call: Callable[[], T]) -> T:
        """Runs one call of the sink. `look` cancels it when it takes too long; then it has failed, whatever it returns."""
        self._call = (step, time.monotonic())
        try:
            result = call()
        except Exception:
            if self._late is None:
                raise
        finally:
            with self._done:
                self._call, late, self._late = None, self._late, None
        if late is not None:
            raise late
        return result

    def look(self) -> None:
        """Cancels a call of the sink that has taken longer than the write timeout. Called every second."""
        with self._done:
            if self._call is None or self._late is not None:
                return
            step, since = self._call
            if time.monotonic() - since < self._timeout_s:
                return
            self.error = self._late = fail(
                "PSK-5016", f"Sink {self.name}: {step} took longer than {self._timeout_s:g} s."
            )
            self._life.attempt(SinkState.STUCK)
            self._done.notify_all()
            sink = self._sink
        if sink is not None:
            sink.cancel()

    def _read(self, entry: Entry) -> pa.Table:
        return read_entry(self._storage.log, entry, self._schema)

    def _well(self, lsn: int | None = None) -> None:
        """Records that everything up to an LSN is delivered; None: there is nothing to deliver."""
        with self._done:
            self.durable_lsn = self.durable_lsn if lsn is None else lsn
            self.error = None
            self._failures = 0
            if lsn is not None:
                self._timeouts = 0
            self._done.notify_all()

    def settle(self, deadline: float | None) -> bool:
        """Waits until everything committed so far is delivered, and what a restore or a crash has left is settled; False after the timeout.

        A sink that waits for its next attempt retries immediately. Raises the cause if the sink fails twice during the wait.
        """
        last = self._storage.log.last_entry(self._input.id)
        lsn = 0 if last is None else last.lsn
        with self._done:
            known = self._failures
            while not (self._recovered and self.durable_lsn >= lsn) and not self._stop.is_set():
                # The errors may be gone since the sink last looked.
                cause = self._held() if self.state is SinkState.HELD else None
                if self._failures > known + 1 or self._late is not None:
                    cause = self.error
                if cause is not None:
                    raise fail("PSK-7006", f"Sink {self.name} cannot deliver: {cause.detail}", hint=cause.hint)
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                if self.state is SinkState.RETRYING:
                    self._wake.set()
                self._done.wait(0.25)
        return True

    def ask_to_stop(self) -> None:
        """The delivery ends after the current call of the sink."""
        self._stop.set()
        self._wake.set()
        with self._storage.commits:
            self._storage.commits.notify_all()

    def stop(self, deadline: float | None = None) -> bool:
        """Stops the delivery after the current call of the sink, which is cancelled after ten seconds, or at the `deadline` (monotonic clock). False if it has not returned even then."""
        self.ask_to_stop()
        if threading.current_thread() is self._thread:
            return True
        left = _STOP_S if deadline is None else min(_STOP_S, max(0.0, deadline - time.monotonic()))
        self._thread.join(timeout=left)
        sink = self._sink
        if self._thread.is_alive() and sink is not None:
            sink.cancel()
            self._thread.join(timeout=_CANCEL_S)
        return self.stopped

    @property
    def stopped(self) -> bool:
        """True if no call of the sink is under way, and none will follow."""
        return not self._thread.is_alive()


def _some(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries that one transaction takes."""
    rows = 0
    for i, entry in enumerate(entries):
        rows += entry.rows
        if rows >= _ROWS:
            return entries[: i + 1]
    return entries
