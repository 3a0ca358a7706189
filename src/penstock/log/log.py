"""The commit log: append, find, read, trim."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self, get_args

import pyarrow as pa

from penstock.disk import make_folder, unwritable
from penstock.errors import PenstockError, fail
from penstock.log.carry import Carry
from penstock.log.commit import Commit
from penstock.log.entry import Entry
from penstock.log.floors import FORGOTTEN, Floors
from penstock.log.holding import Holding, Kept
from penstock.log.index import Index
from penstock.log.maps import Maps
from penstock.log.part import Part
from penstock.log.payload import prepare
from penstock.log.recovery import recover
from penstock.log.segment import Segment
from penstock.log.thin import disk_bytes, merge, space_of, thin_out
from penstock.log.writer import Mode, Writer, Written

_NOTHING = Carry()

# Entries that are made into objects at once.
_PAGE = 10_000

# How a record-batch message begins, with a marker that is not zero.
_BEGIN = 4

# The unit in which file systems give space; an error here makes a wrong estimate and nothing worse.
_BLOCK = 4096

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
        self._holes = True
        self._cramped = False
        self._maps = Maps()
        make_folder(self._folder)
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

    def append(self, parts: Sequence[Part]) -> Commit:
        """Appends a commit and returns it when it is durable (`sync`) or written (`async`).

        Raises PSK-7004 if it cannot be written; nothing of it is kept then. An interrupt ends the wait, not the commit.
        """
        return self.append_future(parts).result()

    def append_future(self, parts: Sequence[Part]) -> Future[Commit]:
        """Appends a commit without waiting. Commits of one thread get LSNs in the order of the calls."""
        for part in parts:
            if self._floors.forgotten(part.object_id):
                raise fail("PSK-0009", f"Object {part.object_id} was dropped and takes no more commits.")
        return self._writer.submit(prepare(parts, self._database))

    def entries(
        self, object_id: int, after: int = 0, up_to: int | None = None, *, limit: int | None = None
    ) -> list[Entry]:
        """The object's entries with `after` < LSN <= `up_to` (the head, if not given), in LSN order; the first `limit` of them, if given.

        Of consecutive entries without rows only the newest is there, so epochs can be missing between two entries.
        """
        with self._lock:
            end = self._head if up_to is None else min(up_to, self._head)
            return self._index.entries(object_id, after, end, limit)

    def iterate(self, object_id: int, after: int = 0, up_to: int | None = None) -> Iterator[Entry]:
        """The same entries one after the other, for an object that may have very many; the head is that of the call."""
        return self._pages(object_id, after, self._head if up_to is None else up_to)

    def _pages(self, object_id: int, after: int, up_to: int) -> Iterator[Entry]:
        while page := self.entries(object_id, after, up_to, limit=_PAGE):
            yield from page
            after = page[-1].lsn

    def object_ids(self) -> list[int]:
        """The objects that have ever had an entry and were not forgotten."""
        with self._lock:
            return sorted(self._index.carries)

    @property
    def highest_id(self) -> int:
        """The highest id that an object of the log has had, also one that was forgotten; 0 in a new log."""
        with self._lock:
            return max([0, *self._index.carries, *self._floors.ids()])

    def first_entry(self, object_id: int) -> Entry | None:
        with self._lock:
            return self._index.first(object_id)

    def last_entry(self, object_id: int, up_to: int | None = None) -> Entry | None:
        """The object's newest entry, or the newest at or before an LSN."""
        with self._lock:
            return self._index.last(object_id, self._head if up_to is None else up_to)

    def lsn_at_epoch(self, object_id: int, epoch: int) -> int:
        """The LSN of the object's newest entry at or before an epoch; 0 if it has none. What follows it are the epochs after."""
        with self._lock:
            return self._index.lsn_at_epoch(object_id, epoch)

    def reaches_back(self, object_id: int, epoch: int) -> bool:
        """Whether every epoch after this one is still there, or had no rows."""
        with self._lock:
            return self._index.reaches_back(object_id, epoch)

    def amount(self, object_id: int, after: int = 0, up_to: int | None = None) -> tuple[int, int]:
        """The bytes and the rows of the entries with `after` < LSN <= `up_to` (the head, if not given)."""
        with self._lock:
            return self._index.amount(object_id, after, self._head if up_to is None else min(up_to, self._head))

    def beyond_bytes(self, object_id: int, limit: int) -> int:
        """The LSN up to which entries have to go so that the rest is not larger than `limit` bytes; 0 if none."""
        with self._lock:
            return self._index.beyond_bytes(object_id, limit)

    def before_time(self, object_id: int, time_ms: int) -> int:
        """The LSN of the last entry that was committed before a moment (epoch ms); 0 if there is none."""
        with self._lock:
            return self._index.before_time(object_id, time_ms)

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
            raise _gone(entry) from None
        begin = entry.batches[0][0] - entry.offset
        # No message begins with zeros.
        if data.size != entry.length or not data.slice(begin, _BEGIN).to_pybytes().strip(b"\0"):
            with self._lock:
                needed = self._index.has(entry.object_id, entry.lsn)
            if not needed:
                # Its segment was thinned out.
                raise _gone(entry)
            raise fail(
                "PSK-6001", f"{entry.path} is damaged at offset {entry.offset}: commit {entry.lsn} is not there."
            )
        messages = (data.slice(offset - entry.offset, length) for offset, length, _ in entry.batches)
        return pa.Table.from_batches([pa.ipc.read_record_batch(m, schema) for m in messages], schema)

    def forget(self, object_id: int) -> None:
        """The object was dropped: its entries are not needed, now or after a restart, and it takes no more commits. Its id must not be used again.

        The space is freed by the next `trim`, its external files at once.
        """
        with self._trimming:
            with self._lock:
                self._floors.forget(object_id, self._head)
                removed = self._index.remove(object_id, FORGOTTEN)
                self._index.carries.pop(object_id, None)
            self._floors.save()
            self._delete_files(removed.files)

    def trim(self, keep_after: Mapping[int, int]) -> int:
        """Removes, for each object given, the entries up to and including the LSN given.

        Deletes the segments and external files in which no entry is needed any more, and returns the bytes freed. Thins out segments that still have
        the same needed entries as at the last trim, if that frees half of them. Watermarks,
        epochs and the LSN go on as if nothing had been removed. A call with nothing to do is cheap.
        """
        with self._trimming:
            files: list[tuple[str, int]] = []
            with self._lock:
                for object_id, lsn in keep_after.items():
                    # A floor above the head would swallow commits that are yet to come.
                    floor = min(lsn, self._head)
                    removed = self._index.remove(object_id, floor)
                    if removed.number:
                        self._floors.raise_to(object_id, floor)
                        files += removed.files
                # The last segment stays: its head carries the states of all objects.
                older = self._segments[:-1]
                unneeded = [s for s in older if s.needed == 0]
                pinned = [s for s in older if s.needed and s.needed == s.before != s.judged]
                for segment in older:
                    segment.before = segment.needed
                self._floors.settle(lambda i, lsn: not any(s.may_hold(i, lsn) for s in self._segments))
            freed = 0
            if unneeded or files or pinned:
                try:
                    self._floors.save()
                except PenstockError:
                    # A full disk is when trimming matters most. The oldest segments can go without floors, for what is left
                    # has no holes; that makes room for them.
                    leading = [s for s, of in zip(unneeded, self._segments, strict=False) if s is of]
                    freed += self._delete_segments(leading)
                    unneeded = unneeded[len(leading) :]
                    self._floors.save()
            freed += self._delete_files(files)
            freed += self._delete_segments(unneeded)
            # On a nearly full disk the smallest copies make room for the others.
            return freed + sum([self._thin_out(s) for s in sorted(pinned, key=lambda s: s.needed)])

    def retained(self, object_id: int) -> tuple[int, int, int]:
        """Bytes and rows of the object's entries, and the time (epoch ms) of the oldest; zeros if it has none."""
        with self._lock:
            return self._index.retained(object_id)

    @property
    def size(self) -> int:
        """The bytes that the log takes on disk: all segments, with what is reserved for the last, and all external files."""
        with self._lock:
            return sum(s.disk_bytes for s in self._segments) + self._index.external_bytes

    def holdings(self) -> list[Holding]:
        """What each object keeps in the log."""
        with self._lock:
            return self._index.holdings()

    def kept(self) -> list[Kept]:
        """The segments that are there, oldest first, and for which objects."""
        with self._lock:
            return self._index.kept(self._segments)

    def sync(self) -> None:
        """Returns when every commit acknowledged so far is on disk."""
        self._writer.submit([]).result()

    def close(self) -> None:
        """Writes and syncs what was handed over and ends the writer. Entries can still be read.

        Raises PSK-7004 if the last commits of an asynchronous log could not be made durable; the files are closed all the same.
        """
        try:
            self._writer.close()
        finally:
            self._maps.clear()

    def _publish(self, written: Written) -> None:
        base, segment, index = written.base, written.segment, self._index
        with self._lock:
            for at, frame in written.frames:
                if not self._floors.forgotten(frame.object_id):
                    index.add(base + at, frame, segment)
            for object_id, carry in written.carries.items():
                if not self._floors.forgotten(object_id):
                    index.carries[object_id] = carry
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

    def _delete_segments(self, segments: list[Segment]) -> int:
        numbers = {s.number for s in segments}
        with self._lock:
            self._segments = [s for s in self._segments if s.number not in numbers]
        for segment in segments:
            self._maps.drop(segment.file)
            _unlink(segment.path)
        return sum(s.disk_bytes for s in segments)

    def _delete_files(self, files: list[tuple[str, int]]) -> int:
        for file, _ in files:
            path = self._database / file
            self._maps.drop(str(path))
            _unlink(path)
        return sum(length for _, length in files)

    def _thin_out(self, segment: Segment) -> int:
        """Thins out a segment if that frees at least half of it; returns the bytes freed."""
        if not self._holes:
            return 0
        with self._lock:
            segment.judged = segment.needed
            following = self._segments[self._segments.index(segment) + 1].first_lsn
            runs = self._index.runs_in(segment)
            if 2 * sum(run.inline_bytes() for run in runs) > segment.disk_bytes:
                return 0
            runs = [run.copy() for run in runs]
        ranges = merge(frame for run in runs for frame in run.frames())
        expected = space_of(ranges, _BLOCK) if ranges else segment.disk_bytes
        if 2 * expected > segment.disk_bytes:
            return 0
        try:
            thin_out(segment, following, ranges)
            left = disk_bytes(segment.path)
        except (PenstockError, OSError) as error:
            # The segment is unchanged. A later trim may find room.
            segment.judged = -1
            if not self._cramped:
                _logger.warning("%s could not be thinned out: %s", segment.path, error)
            self._cramped = True
            return 0
        self._cramped = False
        self._maps.drop(segment.file)
        with self._lock:
            segment.holds = frozenset(run.object_id for run in runs)
            freed, segment.disk_bytes = segment.disk_bytes - left, left
        if left > 2 * expected:
            # This file system does not store holes, or in larger pieces.
            self._holes = False
        return freed


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def _gone(entry: Entry) -> PenstockError:
    return fail("PSK-5011", f"Commit {entry.lsn} of object {entry.object_id} was removed.")
