"""The one thread that writes.

Appending threads hand over finished payloads and wait; the writer takes everything that waits, gives it numbers, writes it with
one call and syncs once. It is a thread of its own so that an interrupt in an appending thread can never strike halfway
through a write.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

import pyarrow as pa

from penstock.errors import PenstockError, fail
from penstock.log import frame
from penstock.log.carry import Carry
from penstock.log.entry import Entry
from penstock.log.frame import Frame
from penstock.log.payload import Payload
from penstock.log.segment import Segment, SegmentWriter, create_segment

Mode = Literal["sync", "async"]

# One group is written before anyone in it is acknowledged: this bounds how long the first waits for the last.
_GROUP_BYTES = 32 << 20

# Threads that were acknowledged together come back together: waiting this long for the rest of them saves a sync.
_GATHER_S = 0.0005

_logger = logging.getLogger(__name__)


class Commit(NamedTuple):
    """Work for the writer: payloads to append, or none to sync what was written."""

    payloads: list[Payload]
    future: Future[int]


class Written(NamedTuple):
    """A group that was written: its entries in LSN order, the states after it, and the segment it is in."""

    entries: list[Entry]
    carries: dict[int, Carry]
    head: int
    segment: Segment


class Writer:
    """Numbers, writes and syncs commits.

    `publish` is called on the writer's thread, once for each group, before its commits are acknowledged; it moves the states in
    `carries` forward. `rolled` is told of every new segment before anything is in it.
    """

    def __init__(
        self,
        database: Path,
        folder: Path,
        active: SegmentWriter,
        carries: dict[int, Carry],
        next_lsn: int,
        *,
        mode: Mode,
        async_interval_ms: int,
        segment_bytes: int,
        publish: Callable[[Written], None],
        rolled: Callable[[Segment], None],
    ) -> None:
        self._database = database
        self._folder = folder
        self._active = active
        self._carries = carries
        self._next_lsn = next_lsn
        self._durable_lsn = next_lsn - 1
        self._sync_each = mode == "sync"
        self._interval = async_interval_ms / 1000
        self._segment_bytes = segment_bytes
        self._publish = publish
        self._rolled = rolled
        self._queue: SimpleQueue[Commit | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._broken: PenstockError | None = None
        self._sync_due: float | None = None
        self._crowd = 1
        self._thread = threading.Thread(target=self._run, name="penstock-log", daemon=True)
        self._thread.start()

    def submit(self, payloads: list[Payload]) -> Future[int]:
        """Hands over a commit; the future gives its LSN. With no payloads it gives the LSN up to which all is synced."""
        commit = Commit(payloads, Future())
        # A commit taken over before it is written could not be called back.
        commit.future.set_running_or_notify_cancel()
        with self._gate:
            if self._closed:
                raise fail("PSK-0004", "The log is closed.")
            self._queue.put(commit)
        return commit.future

    def close(self) -> None:
        """Writes and syncs what was handed over, then ends the thread. Raises if the last sync fails."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        try:
            self._active.close()
        except OSError as error:
            raise _unwritable(self._active.segment.path, error) from error
        if self._broken is not None:
            raise self._broken

    def _run(self) -> None:
        running = True
        while running:
            group, syncs, running = self._take()
            if group:
                self._append(group)
            due = self._sync_due is not None and time.monotonic() >= self._sync_due
            if syncs or due or not running:
                self._sync()
            for commit in syncs:
                if self._broken is not None:
                    commit.future.set_exception(self._broken)
                else:
                    commit.future.set_result(self._durable_lsn)

    def _take(self) -> tuple[list[Commit], list[Commit], bool]:
        """Everything that waits, up to the size of a group; waits for the first, but not past the next sync that is due, and a moment for as many as came the last time."""
        group: list[Commit] = []
        syncs: list[Commit] = []
        size = 0
        crowd = self._crowd
        try:
            timeout = None if self._sync_due is None else max(0.0, self._sync_due - time.monotonic())
            item = self._queue.get(timeout=timeout)
            until = time.monotonic() + _GATHER_S if crowd > 1 else 0.0
            while item is not None:
                (group if item.payloads else syncs).append(item)
                size += sum(p.length for p in item.payloads)
                if size >= _GROUP_BYTES:
                    return group, syncs, True
                left = until - time.monotonic() if len(group) < crowd else 0.0
                item = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
        except Empty:
            return group, syncs, True
        finally:
            self._crowd = max(1, len(group))
        return group, syncs, False

    def _append(self, group: list[Commit]) -> None:
        failure = self._broken
        if failure is None:
            try:
                lsns = self._write(group)
            except OSError as error:
                failure = _unwritable(self._active.segment.path, error)
                self._withdraw(failure)
            except Exception as error:
                failure = fail("PSK-8001", f"The log could not take a commit: {error!r}.")
                self._withdraw(failure)
            else:
                for commit, lsn in zip(group, lsns, strict=True):
                    commit.future.set_result(lsn)
                return
        for commit in group:
            commit.future.set_exception(failure)

    def _withdraw(self, failure: PenstockError) -> None:
        try:
            self._active.withdraw()
        except OSError:
            # What is past the end is not known now, so nothing may be added to it.
            self._broken = failure
            _logger.error("the log takes no more commits: %s", failure)

    def _write(self, group: list[Commit]) -> range:
        """Writes a group as a whole: it is all in the log afterwards, or an OSError says that nothing is."""
        first = self._next_lsn
        time_ms = time.time_ns() // 1_000_000
        carries: dict[int, Carry] = {}
        frames: list[tuple[int, Frame]] = []
        buffers: list[bytes | pa.Buffer] = []
        length = 0
        for lsn, commit in enumerate(group, first):
            final = len(commit.payloads) - 1
            for n, payload in enumerate(commit.payloads):
                part = payload.part
                known = carries.get(part.object_id) or self._carries.get(part.object_id) or Carry()
                carry = carries[part.object_id] = known.after(part.watermark, part.job_epoch)
                header = _frame(payload, carry, lsn, self._durable_lsn, time_ms, last=n == final)
                packed = frame.pack(header)
                length += len(packed)
                frames.append((length, header))
                length += payload.length
                buffers.append(packed)
                buffers.extend(payload.messages)
        if self._active.end + length > self._segment_bytes and self._next_lsn > self._active.segment.first_lsn:
            self._roll()
        active = self._active
        active.write(buffers, length)
        if self._sync_each:
            active.sync()
        elif self._sync_due is None:
            self._sync_due = time.monotonic() + self._interval
        base = active.end
        active.accept(length)
        self._next_lsn = first + len(group)
        if self._sync_each:
            self._durable_lsn = self._next_lsn - 1
        path = str(active.segment.path)
        entries = [entry_of(header, path, base + at, self._database) for at, header in frames]
        self._publish(Written(entries, carries, self._next_lsn - 1, active.segment))
        return range(first, self._next_lsn)

    def _roll(self) -> None:
        old = self._active
        if self._sync_due is not None:
            old.sync()
            self._sync_due = None
            self._durable_lsn = self._next_lsn - 1
        segment = create_segment(self._folder, old.segment.number + 1, self._next_lsn, dict(self._carries))
        try:
            self._active = SegmentWriter(segment, segment.size)
        except OSError:
            segment.path.unlink(missing_ok=True)
            raise
        self._rolled(segment)
        old.close()

    def _sync(self) -> None:
        if self._sync_due is None:
            return
        self._sync_due = None
        try:
            self._active.sync()
        except OSError as error:
            # These commits were acknowledged, and after a failed sync the system no longer knows which of them it lost.
            self._broken = _unwritable(self._active.segment.path, error)
            _logger.error("the log takes no more commits: %s", self._broken)
        else:
            self._durable_lsn = self._next_lsn - 1


def entry_of(header: Frame, segment: str, payload: int, database: Path) -> Entry:
    """The entry of a frame whose payload is at an offset of a segment."""
    path, length = segment, header.payload_length
    if header.external_path is not None:
        path, payload, length = str(database / header.external_path), 0, header.external_length
    return Entry(
        header.lsn,
        header.object_id,
        path,
        payload,
        length,
        header.rows,
        tuple([(payload + offset, size, rows) for offset, size, rows in header.batches]),
        header.watermark,
        header.epoch,
        header.job_epoch,
        header.time_ms,
        header.schema_version,
    )


def _frame(payload: Payload, carry: Carry, lsn: int, durable_lsn: int, time_ms: int, *, last: bool) -> Frame:
    part = payload.part
    return Frame(
        lsn,
        durable_lsn,
        part.object_id,
        last,
        payload.rows,
        carry.watermark,
        carry.epoch,
        part.job_epoch,
        time_ms,
        part.schema_version,
        payload.length,
        payload.crc,
        payload.batches,
        part.file.path if part.file else None,
        part.file.length if part.file else 0,
    )


def _unwritable(path: Path, error: OSError) -> PenstockError:
    return fail("PSK-7004", f"{path} could not be written: {error.strerror or error}.")
