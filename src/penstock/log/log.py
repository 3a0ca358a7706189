"""The commit log: append, find, read, trim."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self, get_args

import pyarrow as pa

from penstock.errors import fail
from penstock.log.carry import Carry
from penstock.log.entry import Entry
from penstock.log.floors import FORGOTTEN, Floors
from penstock.log.index import Index
from penstock.log.maps import Maps
from penstock.log.part import Part
from penstock.log.payload import prepare
from penstock.log.recovery import recover
from penstock.log.segment import Segment
from penstock.log.writer import Mode, Writer, Written

_NOTHING = Carry()

_logger = logging.getLogger(__name__)


class Log:
    """All commits of a database, in one sequence of LSNs that starts at 1 and rises by one.

    A commit is there as a whole or not at all, whatever happens. In mode `sync` it is on disk before it is acknowledged or seen by
    anyone; in mode `async` it is written before, and on disk after `async_interval_ms` at the latest.

    All methods may be called from any thread. `on_durable` is called on the writer's thread with the entries of each group of
    commits in LSN order, after readers can see them and before they are acknowledged; it must not append, nor wait for a thread that does.
    """

    def __init__(
        self,
        folder: Path,
        *,
        mode: Mode,
        async_interval_ms: int,
        segment_bytes: int,
        on_durable: Callable[[list[Entry]], None] | None,
    ) -> None:
        self._database = folder.absolute()
        self._folder = self._database / "log"
        self._on_durable = on_durable
        self._lock = threading.Lock()
        self._trimming = threading.Lock()
        self._maps = Maps()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._floors = Floors(self._folder)
        state = recover(self._database, self._folder, self._floors)
        self._index: Index = state.index
        self._segments: list[Segment] = state.segments
        self._head = state.next_lsn - 1
        self._writer = Writer(
            self._database,
            self._folder,
            state.active,
            self._index.carries,
            state.next_lsn,
            mode=mode,
            async_interval_ms=async_interval_ms,
            segment_bytes=segment_bytes,
            publish=self._publish,
            rolled=self._rolled,
        )

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        mode: Mode = "sync",
        async_interval_ms: int = 50,
        segment_bytes: int = 64 << 20,
        on_durable: Callable[[list[Entry]], None] | None = None,
    ) -> Self:
        """Opens the log of a database folder, or makes it; segments are in `folder/log`.

        A tail that a crash left unfinished is cut off; any other damage raises PSK-6001. The caller holds the folder's lock.
        """
        if mode not in get_args(Mode):
            raise fail("PSK-0002", f"The mode of the log is {' or '.join(get_args(Mode))}, not {mode}.")
        return cls(
            folder,
            mode=mode,
            async_interval_ms=async_interval_ms,
            segment_bytes=segment_bytes,
            on_durable=on_durable,
        )

    @property
    def head(self) -> int:
        """The last LSN that readers may see; 0 in a new log."""
        return self._head

    def append(self, parts: Sequence[Part]) -> int:
        """Appends a commit and returns its LSN when it is durable (`sync`) or written (`async`).

        Raises PSK-7004 if it cannot be written; nothing of it is kept then. An interrupt ends the wait, not the commit.
        """
        return self.append_future(parts).result()

    def append_future(self, parts: Sequence[Part]) -> Future[int]:
        """Appends a commit without waiting. Commits of one thread get LSNs in the order of the calls."""
        for part in parts:
            if self._floors.forgotten(part.object_id):
                raise fail("PSK-0009", f"Object {part.object_id} was dropped and takes no more commits.")
        return self._writer.submit(prepare(parts, self._database))

    def entries(self, object_id: int, after: int = 0, up_to: int | None = None) -> list[Entry]:
        """The object's entries with `after` < LSN <= `up_to` (the head, if not given), in LSN order."""
        with self._lock:
            return self._index.entries(object_id, after, self._head if up_to is None else min(up_to, self._head))

    def object_ids(self) -> list[int]:
        """The objects that have entries."""
        with self._lock:
            return self._index.object_ids()

    def first_lsn(self, object_id: int) -> int | None:
        """The LSN of the object's oldest entry that is still there."""
        with self._lock:
            entry = self._index.first(object_id)
        return entry.lsn if entry else None

    def last_entry(self, object_id: int) -> Entry | None:
        with self._lock:
            return self._index.last(object_id)

    def watermark(self, object_id: int) -> int | None:
        """The object's watermark. Like its epochs, it survives trimming."""
        return self._index.carries.get(object_id, _NOTHING).watermark

    def epoch(self, object_id: int) -> int:
        """How many entries the object has ever had."""
        return self._index.carries.get(object_id, _NOTHING).epoch

    def job_epoch(self, object_id: int) -> int:
        """The job epoch of the object's last part that came from a job; -1 if there was none."""
        return self._index.carries.get(object_id, _NOTHING).job_epoch

    def read(self, entry: Entry, schema: pa.Schema) -> pa.Table:
        """The rows of an entry, over memory-mapped files. Raises PSK-5011 if they were trimmed away."""
        if not entry.batches:
            return schema.empty_table()
        try:
            data = self._maps.slice(entry.path, entry.offset, entry.length)
        except FileNotFoundError:
            raise fail("PSK-5011", f"Commit {entry.lsn} of object {entry.object_id} was removed.") from None
        if data.size != entry.length:
            raise fail("PSK-6001", f"{entry.path} is damaged at offset {entry.offset + data.size}: it ends too early.")
        messages = (data.slice(offset - entry.offset, length) for offset, length, _ in entry.batches)
        return pa.Table.from_batches([pa.ipc.read_record_batch(m, schema) for m in messages], schema)

    def forget(self, object_id: int) -> None:
        """The object was dropped: its entries are not needed, now or after a restart, and it takes no more commits.

        The space is freed by the next `trim`, its external files at once.
        """
        with self._trimming:
            with self._lock:
                self._floors.raise_to(object_id, FORGOTTEN)
                removed = self._index.remove(object_id, FORGOTTEN)
                self._index.carries.pop(object_id, None)
            self._save_floors()
            self._delete_external(removed)

    def trim(self, keep_after: Mapping[int, int]) -> int:
        """Removes, for each object given, the entries up to and including the LSN given.

        Deletes the segments and external files in which no entry is needed any more, and returns the bytes freed. Watermarks,
        epochs and the LSN go on as if nothing had been removed.
        """
        with self._trimming:
            removed: list[Entry] = []
            with self._lock:
                for object_id, lsn in keep_after.items():
                    # A floor above the head would swallow commits that are yet to come.
                    floor = min(lsn, self._head)
                    gone = self._index.remove(object_id, floor)
                    if gone:
                        self._floors.raise_to(object_id, floor)
                        removed += gone
                # The last segment stays: its head carries the states of all objects.
                unneeded = [s for s in self._segments[:-1] if s.needed == 0]
            freed = 0
            if unneeded or any(self._is_external(e) for e in removed):
                try:
                    self._floors.save()
                except OSError:
                    # A full disk is when trimming matters most. The oldest segments can go without floors, for what is left
                    # has no holes; that makes room for them.
                    leading = [s for s, of in zip(unneeded, self._segments, strict=False) if s is of]
                    freed += self._delete_segments(leading)
                    unneeded = unneeded[len(leading) :]
                    self._save_floors()
            freed += self._delete_external(removed)
            return freed + self._delete_segments(unneeded)

    def retained(self, object_id: int) -> tuple[int, int, int]:
        """Bytes and rows of the object's entries, and the time (epoch ms) of the oldest; zeros if it has none."""
        with self._lock:
            return self._index.retained(object_id)

    def sync(self) -> None:
        """Returns when every commit acknowledged so far is on disk."""
        self._writer.submit([]).result()

    def close(self) -> None:
        """Writes and syncs what was handed over and ends the writer. Entries can still be read."""
        self._writer.close()
        self._maps.clear()

    def _publish(self, written: Written) -> None:
        with self._lock:
            for entry in written.entries:
                if not self._floors.forgotten(entry.object_id):
                    self._index.add(entry, written.segment)
                    self._index.carries[entry.object_id] = written.carries[entry.object_id]
            self._head = written.head
        if self._on_durable is not None:
            try:
                self._on_durable(written.entries)
            except Exception:
                # The commits are in the log: they must not be reported as failed.
                _logger.exception("the listener of the log failed at commit %d", written.head)

    def _rolled(self, segment: Segment) -> None:
        with self._lock:
            self._segments.append(segment)

    def _save_floors(self) -> None:
        try:
            self._floors.save()
        except OSError as error:
            raise fail("PSK-7004", f"The floors in {self._folder} could not be written: {error.strerror}.") from error

    def _delete_segments(self, segments: list[Segment]) -> int:
        numbers = {s.number for s in segments}
        with self._lock:
            self._segments = [s for s in self._segments if s.number not in numbers]
        for segment in segments:
            self._maps.drop(str(segment.path))
            segment.path.unlink(missing_ok=True)
        return sum(s.size for s in segments)

    def _is_external(self, entry: Entry) -> bool:
        return os.path.dirname(entry.path) != str(self._folder)

    def _delete_external(self, entries: list[Entry]) -> int:
        freed = 0
        for entry in entries:
            if self._is_external(entry):
                self._maps.drop(entry.path)
                Path(entry.path).unlink(missing_ok=True)
                freed += entry.length
        return freed
