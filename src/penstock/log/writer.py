"""The writer thread.

Appending threads submit serialised payloads and wait. The writer drains the queue, assigns LSNs, writes everything with one call and syncs
once. It is a separate thread so that an interrupt of an appending thread can never hit the middle of a write.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

import pyarrow as pa

from penstock.disk import Witness, crash_point, of_parent, unwritable
from penstock.errors import PenstockError, fail
from penstock.log import frame
from penstock.log.commit import Commit
from penstock.log.entry import Entry
from penstock.log.frame import Frame
from penstock.log.payload import Payload
from penstock.log.segment import Segment, SegmentWriter, create_segment
from penstock.log.state import NOTHING_COVERED, ObjectState

Mode = Literal["sync", "async"]

# A group is acknowledged as a whole, so this bounds how long its first commit waits for its last.
_GROUP_BYTES = 32 << 20

# Threads that were acknowledged together append again together: waiting this long for the rest of them saves a sync.
_GATHER_S = 0.0005

# How long to wait after a failed sync before the next attempt, unless a commit comes first.
_RETRY_S = 1.0

# Unsynced data stays in memory, because a sync can fail: this bounds it.
_UNSYNCED_BYTES = 128 << 20

_logger = logging.getLogger(__name__)


class _Work(NamedTuple):
    """Work for the writer: payloads to append, or none to sync written data."""

    payloads: list[Payload]
    future: Future[Commit]


class Written(NamedTuple):
    """A written group: its offset and end, its frames in LSN order with the offsets of their payloads relative to it, their entries, the states
    after it, and its segment.
    """

    base: int
    end: int
    frames: list[tuple[int, Frame]]
    entries: list[Entry]
    states: dict[int, ObjectState]
    head: int
    segment: Segment


class Writer:
    """Numbers, writes and syncs commits.

    `publish` is called on the writer's thread, once for each group, before its commits are acknowledged; it updates the states in
    `states`. `rolled` is called with every new segment before anything is written to it. `witness` attests the last durable commit.

    While the disk fails, commits fail. Each group first repairs the damage of the last failure, so the writer recovers as soon as the disk does.
    """

    def __init__(
        self,
        folder: Path,
        active: SegmentWriter,
        states: dict[int, ObjectState],
        next_lsn: int,
        *,
        mode: Mode,
        async_interval_ms: int,
        segment_bytes: int,
        witness: Witness,
        publish: Callable[[Written], None],
        rolled: Callable[[Segment], None],
    ) -> None:
        self._folder = folder
        self._owner = os.getpid()
        self._active = active
        self._states = states
        self._next_lsn = next_lsn
        self._durable_lsn = next_lsn - 1
        self._sync_each = mode == "sync"
        self._interval = async_interval_ms / 1000
        self._segment_bytes = segment_bytes
        self._witness = witness
        self._publish = publish
        self._rolled = rolled
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        # A failed write could not be removed from past the end.
        self._torn = False
        # Acknowledged but unsynced data: offsets and bytes; and whether syncing it has failed.
        self._unsynced: list[tuple[int, list[bytes | pa.Buffer]]] = []
        self._unsynced_bytes = 0
        self._unsure = False
        self._sync_due: float | None = None
        self._crowd = 1
        self._last_failure: PenstockError | None = None
        if self._durable_lsn > witness.number:
            witness.attest(self._durable_lsn)
        self._thread = threading.Thread(target=self._run, name="penstock-log", daemon=True)
        self._thread.start()

    def submit(self, payloads: list[Payload]) -> Future[Commit]:
        """Submits a commit. Without payloads, the future returns an empty commit with the LSN up to which everything is synced."""
        if os.getpid() != self._owner:
            raise of_parent(self._folder, self._owner)
        work = _Work(payloads, Future())
        # A submitted commit cannot be cancelled.
        work.future.set_running_or_notify_cancel()
        with self._gate:
            if self._closed:
                raise fail("PSK-0004", "The log is closed.")
            self._queue.put(work)
        return work.future

    def close(self) -> None:
        """Writes and syncs all submitted commits, ends the thread and closes the file. Then raises if the last sync failed. In a forked child it does nothing: the log grows at its parent's hand."""
        if os.getpid() != self._owner:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        try:
            self._active.close()
        except OSError as error:
            raise unwritable(self._active.segment.path, error) from error
        finally:
            self._witness.close()
        if self._last_failure is not None:
            raise self._last_failure

    def _run(self) -> None:
        running = True
        while running:
            group, syncs, running = self._take()
            if group:
                self._append(group)
            due = self._sync_due is not None and time.monotonic() >= self._sync_due
            failure = self._sync() if syncs or due or not running else None
            for sync in syncs:
                if failure is not None:
                    sync.future.set_exception(failure)
                else:
                    sync.future.set_result(Commit(self._durable_lsn, ()))
        self._last_failure = failure

    def _take(self) -> tuple[list[_Work], list[_Work], bool]:
        """Drains the queue, up to one group. Blocks for the first commit (at most until a sync is due), then lingers briefly for as many commits as the last group had."""
        group: list[_Work] = []
        syncs: list[_Work] = []
        size = 0
        crowd = self._crowd
        try:
            timeout = None if self._sync_due is None else max(0.0, self._sync_due - time.monotonic())
            item = self._queue.get(timeout=timeout)
            until = time.monotonic() + _GATHER_S if crowd > 1 else 0.0
            while item is not None:
                (group if item.payloads else syncs).append(item)
                size += sum([p.length for p in item.payloads])
                if size >= _GROUP_BYTES:
                    return group, syncs, True
                left = until - time.monotonic() if len(group) < crowd else 0.0
                item = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
        except Empty:
            return group, syncs, True
        finally:
            self._crowd = max(1, len(group))
        return group, syncs, False

    def _append(self, group: list[_Work]) -> None:
        failure = self._mend()
        if failure is None:
            try:
                commits = self._write(group)
            except OSError as error:
                failure = unwritable(self._active.segment.path, error)
                self._withdraw()
            except PenstockError as error:
                failure = error
                self._withdraw()
            except Exception as error:
                failure = fail("PSK-8001", f"The log could not append a commit: {error!r}.")
                self._withdraw()
            else:
                for work, commit in zip(group, commits, strict=True):
                    work.future.set_result(commit)
                return
        for work in group:
            work.future.set_exception(failure)

    def _withdraw(self) -> None:
        self._torn = True
        failure = self._mend()
        if failure is not None:
            _logger.error("the log accepts no commits until the disk recovers: %s", failure)

    def _mend(self) -> PenstockError | None:
        """Repairs the damage of failures: removes data past the end, and repeats a failed sync. Returns an error if that is not possible now."""
        try:
            if self._torn:
                self._tear_off()
            if self._unsure:
                # After a failed sync, the operating system does not know which pages it lost, so all of them are written again.
                for offset, buffers in self._unsynced:
                    self._active.rewrite(buffers, offset)
                self._active.sync()
                self._synced()
        except OSError as error:
            return unwritable(self._active.segment.path, error)
        return None

    def _tear_off(self) -> None:
        """Removes data past the end. Its content is unknown, so nothing may be appended before this succeeds."""
        try:
            self._active.withdraw()
        except OSError:
            # `withdraw` syncs the whole file.
            self._unsure = bool(self._unsynced)
            raise
        self._torn = False
        if not self._unsure:
            self._synced()

    def _write(self, group: list[_Work]) -> list[Commit]:
        """Writes a group atomically: afterwards all of it is in the log, or none if it raises OSError."""
        first = self._next_lsn
        time_ms = time.time_ns() // 1_000_000
        states: dict[int, ObjectState] = {}
        frames: list[tuple[int, Frame]] = []
        buffers: list[bytes | pa.Buffer] = []
        length = 0
        for lsn, work in enumerate(group, first):
            final = len(work.payloads) - 1
            for n, payload in enumerate(work.payloads):
                part = payload.part
                known = states.get(part.object_id) or self._states.get(part.object_id) or ObjectState()
                state = states[part.object_id] = known.after(part.watermark, part.job_epoch, payload.rows, part.covers)
                header = _frame(
                    payload, state, lsn, self._durable_lsn, time_ms, since=known.row_epoch + 1, last=n == final
                )
                packed = frame.pack(header)
                length += len(packed)
                frames.append((length, header))
                length += payload.length
                buffers.append(packed)
                buffers.extend(payload.messages)
        if self._is_full(length):
            self._roll()
        active = self._active
        active.write(buffers, length)
        crash_point("log.written")
        if self._sync_each:
            active.sync()
            crash_point("log.synced")
        base = active.end
        active.accept(length)
        self._next_lsn = first + len(group)
        if self._sync_each:
            self._durable(self._next_lsn - 1)
        else:
            self._sync_later(base, buffers, length)
        file = active.segment.file
        entries = [entry_of(header, file, base + at) for at, header in frames]
        self._publish(Written(base, base + length, frames, entries, states, self._next_lsn - 1, active.segment))
        commits, at = [], 0
        for lsn, work in enumerate(group, first):
            end = at + len(work.payloads)
            commits.append(Commit(lsn, tuple(entries[at:end])))
            at = end
        return commits

    def _is_full(self, length: int) -> bool:
        segment = self._active.segment
        # All frames of a segment have the same format.
        older = segment.version < frame.FORMAT
        return older or (self._active.end + length > self._segment_bytes and self._next_lsn > segment.first_lsn)

    def _roll(self) -> None:
        old = self._active
        failure = self._sync()
        if failure is not None:
            raise failure
        segment = create_segment(self._folder, old.segment.number + 1, self._next_lsn, dict(self._states))
        try:
            self._active = SegmentWriter(segment, segment.size)
        except OSError:
            segment.path.unlink(missing_ok=True)
            raise
        crash_point("log.rolled")
        self._rolled(segment)
        old.close()

    def _sync_later(self, offset: int, buffers: list[bytes | pa.Buffer], length: int) -> None:
        self._unsynced.append((offset, buffers))
        self._unsynced_bytes += length
        if self._unsynced_bytes > _UNSYNCED_BYTES:
            self._sync_due = time.monotonic()
        elif self._sync_due is None:
            self._sync_due = time.monotonic() + self._interval

    def _sync(self) -> PenstockError | None:
        """Syncs acknowledged commits. Returns an error if that is not possible now."""
        if not self._unsynced:
            return None
        if self._unsure:
            failure = self._mend()
        else:
            failure = self._sync_file()
        if failure is not None:
            self._sync_due = time.monotonic() + _RETRY_S
        return failure

    def _sync_file(self) -> PenstockError | None:
        try:
            self._active.sync()
        except OSError as error:
            self._unsure = True
            failure = unwritable(self._active.segment.path, error)
            _logger.error("acknowledged commits are not on disk yet: %s", failure)
            return failure
        self._synced()
        return None

    def _synced(self) -> None:
        self._sync_due = None
        self._unsynced.clear()
        self._unsynced_bytes = 0
        self._unsure = False
        self._durable(self._next_lsn - 1)

    def _durable(self, lsn: int) -> None:
        if lsn != self._durable_lsn:
            self._durable_lsn = lsn
            self._witness.attest(lsn)


def entry_of(header: Frame, segment: str, payload: int) -> Entry:
    """The entry of a frame whose payload is at an offset of a segment."""
    batches = header.batches
    values = (
        header.lsn,
        header.object_id,
        segment,
        payload,
        header.payload_length,
        header.rows,
        tuple([(payload + offset, size, rows) for offset, size, rows in batches]) if batches else (),
        header.watermark,
        header.epoch,
        header.job_epoch,
        header.time_ms,
        header.column_count,
        header.input_lsn,
        header.idle,
        header.before,
        header.checks,
    )
    # This runs for every commit, and is twice as fast as the constructor.
    return Entry._make(values)


def _frame(
    payload: Payload, state: ObjectState, lsn: int, durable_lsn: int, time_ms: int, *, since: int, last: bool
) -> Frame:
    part = payload.part
    values = (
        lsn,
        durable_lsn,
        part.object_id,
        last,
        payload.rows,
        state.watermark,
        state.epoch,
        part.job_epoch,
        time_ms,
        part.column_count,
        lsn if part.input_lsn is None else part.input_lsn,
        since,
        payload.length,
        0,
        payload.batches,
        part.idle,
        payload.before,
        payload.checks,
        part.covers or NOTHING_COVERED,
    )
    return Frame._make(values)
