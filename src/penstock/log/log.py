"""The commit log: append, find, read, trim."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Self, get_args

import google_crc32c
import pyarrow as pa

from penstock.disk import Witness, crash_point, make_folder, pack_json, unwritable
from penstock.errors import PenstockError, fail
from penstock.log.commit import Commit
from penstock.log.entry import Entry
from penstock.log.floors import FORGOTTEN, Floors
from penstock.log.floors import FORMAT as FLOORS_FORMAT
from penstock.log.holding import Holding, Kept
from penstock.log.index import Index
from penstock.log.maps import Maps
from penstock.log.part import Part
from penstock.log.payload import prepare
from penstock.log.pinned import Pinned
from penstock.log.recovery import recover
from penstock.log.segment import Segment, bury, grave
from penstock.log.state import Covered, ObjectState
from penstock.log.thin import disk_bytes, merge, space_of, thin_out
from penstock.log.writer import Mode, Writer, Written

_NOTHING = ObjectState()

# Entries materialised at once.
_PAGE = 10_000

# A record-batch message begins with a marker of this length, which is not zero.
_BEGIN = 4

# The allocation unit of file systems. A wrong value only makes estimates wrong.
_BLOCK = 4096

_logger = logging.getLogger(__name__)


class Log:
    """All commits of a database, in one sequence of LSNs that starts at 1 and rises by one.

    Commits are atomic. In mode `sync`, a commit is on disk before it is acknowledged or visible; in mode `async`, it is written before,
    and on disk within `async_interval_ms`.

    All methods are thread-safe. `on_durable` is called on the writer's thread with the entries of each group of commits, in LSN order,
    after they become visible and before they are acknowledged. It must not append, nor wait for a thread that does.
    """

    def __init__(
        self,
        folder: Path,
        *,
        mode: Mode,
        async_interval_ms: int,
        segment_bytes: int,
        on_durable: Callable[[list[Entry]], None] | None,
        expected: bool,
    ) -> None:
        self._database = folder.absolute()
        self._folder = self._database / "log"
        self._on_durable = on_durable
        self._lock = threading.Lock()
        self._trimming = threading.Lock()
        self._holes = True
        self._cramped = False
        self._maps = Maps()
        self._graves: list[Path] = []
        make_folder(self._folder)
        self._floors = Floors(self._folder)
        witness = Witness(self._folder / "head")
        state = recover(self._folder, self._floors, witness.number, expected=expected)
        self._index: Index = state.index
        self._segments: list[Segment] = state.segments
        self._head = state.next_lsn - 1
        self._end = state.active.end
        self._writer = Writer(
            self._folder,
            state.active,
            self._index.states,
            state.next_lsn,
            mode=mode,
            async_interval_ms=async_interval_ms,
            segment_bytes=segment_bytes,
            witness=witness,
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
        expected: bool = False,
    ) -> Self:
        """Opens or creates the log of a database folder; segments are in `folder/log`. `expected`: there must be one already.

        Truncates a tail that a crash left unfinished; any other damage raises PSK-6001. The caller must hold the folder's lock.
        """
        if mode not in get_args(Mode):
            raise fail("PSK-0002", f"The mode of the log must be {' or '.join(get_args(Mode))}, not {mode}.")
        return cls(
            folder,
            mode=mode,
            async_interval_ms=async_interval_ms,
            segment_bytes=segment_bytes,
            on_durable=on_durable,
            expected=expected,
        )

    @property
    def head(self) -> int:
        """The last LSN that readers may see; 0 in a new log."""
        return self._head

    def append(self, parts: Sequence[Part]) -> Commit:
        """Appends a commit and returns it when it is durable (`sync`) or written (`async`).

        Raises PSK-7004 if it cannot be written; it is then not in the log. An interrupt ends the wait, not the commit.
        """
        return self.append_future(parts).result()

    def append_future(self, parts: Sequence[Part]) -> Future[Commit]:
        """Appends a commit without waiting. Commits from one thread get LSNs in the order of the calls."""
        for part in parts:
            if self._floors.forgotten(part.object_id):
                raise fail("PSK-0009", f"Object {part.object_id} was dropped and accepts no more commits.")
        return self._writer.submit(prepare(parts))

    def entries(
        self, object_id: int, after: int = 0, up_to: int | None = None, *, limit: int | None = None
    ) -> list[Entry]:
        """The object's entries with `after` < LSN <= `up_to` (default: the head), in LSN order, at most `limit`.

        Of consecutive entries without rows only the newest is kept, so epochs can be missing between two entries.
        """
        with self._lock:
            end = self._head if up_to is None else min(up_to, self._head)
            return self._index.entries(object_id, after, end, limit)

    def iterate(self, object_id: int, after: int = 0, up_to: int | None = None) -> Iterator[Entry]:
        """Yields the same entries one at a time, for an object with very many. The head is that at the time of the call."""
        return self._pages(object_id, after, self._head if up_to is None else up_to)

    def _pages(self, object_id: int, after: int, up_to: int) -> Iterator[Entry]:
        while page := self.entries(object_id, after, up_to, limit=_PAGE):
            yield from page
            after = page[-1].lsn

    def object_ids(self) -> list[int]:
        """The objects that ever had an entry and were not forgotten."""
        with self._lock:
            return sorted(self._index.states)

    @property
    def highest_id(self) -> int:
        """The highest object id that the log has seen, even if forgotten; 0 in a new log."""
        with self._lock:
            return max([0, *self._index.states, *self._floors.ids()])

    def first_entry(self, object_id: int) -> Entry | None:
        with self._lock:
            return self._index.first(object_id)

    def last_entry(self, object_id: int, up_to: int | None = None) -> Entry | None:
        """The object's newest entry, or the newest at or before an LSN."""
        with self._lock:
            return self._index.last(object_id, self._head if up_to is None else up_to)

    def lsn_at_epoch(self, object_id: int, epoch: int) -> int:
        """The LSN of the object's newest entry at or before an epoch; 0 if there is none. Entries after it belong to later epochs."""
        with self._lock:
            return self._index.lsn_at_epoch(object_id, epoch)

    def reaches_back(self, object_id: int, epoch: int) -> bool:
        """Whether every epoch after this one is still retained, or had no rows."""
        with self._lock:
            taken_back = any(a < epoch <= b for a, b in self._taken_back(object_id))
            return not taken_back and self._index.reaches_back(object_id, epoch)

    def _taken_back(self, object_id: int) -> list[tuple[int, int]]:
        return [a.epochs[object_id] for a in self._floors.abandoned if object_id in a.epochs]

    def abandoned(self, lsn: int) -> bool:
        """Whether a restore has taken a commit back. Its number is not used again."""
        with self._lock:
            return any(a.after < lsn <= a.up_to for a in self._floors.abandoned)

    @contextmanager
    def pinned(self) -> Iterator[Pinned]:
        """All files of the log as they are at one moment; none is removed within the block, nor changed later, except that the last segment grows at its end."""
        with self._trimming:
            with self._lock:
                # A segment that was thinned out has its map after the last frame.
                older = [(s.path, s.size if s.holds is None else _length(s)) for s in self._segments[:-1]]
                segments = (*older, (self._segments[-1].path, self._end))
                floors = pack_json(self._floors.content(), FLOORS_FORMAT)
                states, taken_back = dict(self._index.states), tuple(self._floors.abandoned)
                found = Pinned(self._head, segments, floors, states, taken_back)
            yield found

    def retains(self, object_id: int, after: int) -> bool:
        """Whether all entries after an LSN are retained."""
        with self._lock:
            return self._floors[object_id] <= after

    def amount(self, object_id: int, after: int = 0, up_to: int | None = None) -> tuple[int, int]:
        """The bytes and rows of the entries with `after` < LSN <= `up_to` (default: the head)."""
        with self._lock:
            return self._index.amount(object_id, after, self._head if up_to is None else min(up_to, self._head))

    def beyond_bytes(self, object_id: int, limit: int) -> int:
        """The LSN up to which entries must be removed so that the rest fits in `limit` bytes; 0 if none."""
        with self._lock:
            return self._index.beyond_bytes(object_id, limit)

    def before_time(self, object_id: int, time_ms: int) -> int:
        """The LSN of the last entry committed before a time (Unix ms); 0 if there is none."""
        with self._lock:
            return self._index.before_time(object_id, time_ms)

    def watermark(self, object_id: int) -> int | None:
        """The object's watermark. Like its epochs, it survives trimming."""
        return self._index.states.get(object_id, _NOTHING).watermark

    def epoch(self, object_id: int) -> int:
        """The number of entries that the object has ever had."""
        return self._index.states.get(object_id, _NOTHING).epoch

    def job_epoch(self, object_id: int) -> int:
        """The job epoch of the object's last part from a job; -1 if there is none."""
        return self._index.states.get(object_id, _NOTHING).job_epoch

    def covered(self, object_id: int) -> Covered:
        """What the epoch had read that made the object's last part from a job."""
        return self._index.states.get(object_id, _NOTHING).covers

    def read(self, entry: Entry, schema: pa.Schema) -> pa.Table:
        """The rows of an entry, backed by memory-mapped files. Raises PSK-5011 if they were trimmed, PSK-6001 if they are damaged."""
        if not entry.batches:
            return schema.empty_table()
        messages = self._messages(entry)
        return pa.Table.from_batches([pa.ipc.read_record_batch(m, schema) for m in messages], schema)

    def check(self, entry: Entry) -> PenstockError | None:
        """Why the rows of an entry cannot be read; None if they are whole, or were trimmed."""
        try:
            self._messages(entry)
        except PenstockError as error:
            return error if error.code == "PSK-6001" else None
        return None

    def _messages(self, entry: Entry) -> list[pa.Buffer]:
        why = None
        try:
            data = self._maps.slice(entry.path, entry.offset, entry.length)
        except OSError as error:
            why = error.strerror or str(error)
        if why is None and data.size == entry.length:
            messages = [data.slice(offset - entry.offset, length) for offset, length, _ in entry.batches]
            if _is_whole(entry, messages):
                return messages
        with self._lock:
            needed = self._index.has(entry.object_id, entry.lsn)
        # What is not needed was removed or thinned out.
        raise _damaged(entry, why) if needed else _gone(entry)

    def forget(self, object_id: int) -> None:
        """Forgets a dropped object: its entries are no longer needed, even after a restart, and it accepts no more commits. Its id must not be reused.

        The next `trim` frees its space.
        """
        with self._trimming:
            with self._lock:
                self._floors.forget(object_id, self._head)
                self._index.remove(object_id, FORGOTTEN)
                self._index.states.pop(object_id, None)
            self._floors.save()

    def trim(self, keep_after: Mapping[int, int]) -> int:
        """Removes the entries of each given object up to and including the given LSN.

        Deletes segments without needed entries, and returns the bytes freed. Thins out segments whose needed entries
        have not changed since the last trim, if that frees half of them. Watermarks, epochs and LSNs are not affected. A call with nothing
        to do is cheap.
        """
        with self._trimming:
            with self._lock:
                for object_id, lsn in keep_after.items():
                    # A floor above the head would drop future commits.
                    floor = min(lsn, self._head)
                    if self._index.remove(object_id, floor):
                        self._floors.raise_to(object_id, floor)
                # Keep the last segment: its head has the states of all objects.
                older = self._segments[:-1]
                unneeded = [s for s in older if s.needed == 0]
                pinned = [s for s in older if s.needed and s.needed == s.before != s.judged]
                for segment in older:
                    segment.before = segment.needed
                self._floors.settle(lambda i, lsn: not any(s.may_hold(i, lsn) for s in self._segments))
            freed = 0
            if unneeded or pinned or self._graves:
                self._floors.remove(s.number for s in unneeded)
                try:
                    self._floors.save()
                except PenstockError:
                    # Trimming matters most on a full disk. The oldest segments can be given up without saved floors, because the
                    # remaining ones have no gaps. That frees the space for the floors.
                    leading = [s for s, of in zip(unneeded, self._segments, strict=False) if s is of]
                    if not leading:
                        raise
                    freed += self._bury(leading)
                    unneeded = unneeded[len(leading) :]
                    self._floors.save()
                while self._graves:
                    _unlink(self._graves.pop())
            freed += self._delete_segments(unneeded)
            # Smallest first: on a nearly full disk, they free the space for the larger copies.
            return freed + sum([self._thin_out(s) for s in sorted(pinned, key=lambda s: s.needed)])

    def retained(self, object_id: int) -> tuple[int, int, int]:
        """Bytes and rows of the object's entries, and the time (Unix ms) of the oldest; zeros if it has none."""
        with self._lock:
            return self._index.retained(object_id)

    @property
    def size(self) -> int:
        """The size of the log on disk: all segments, including the space reserved for the last."""
        with self._lock:
            return sum(s.disk_bytes for s in self._segments)

    def holdings(self) -> list[Holding]:
        """The part of the log that each object retains."""
        with self._lock:
            return self._index.holdings()

    def kept(self) -> list[Kept]:
        """The existing segments, oldest first, with the objects that need them."""
        with self._lock:
            return self._index.kept(self._segments)

    def sync(self) -> None:
        """Returns when every commit acknowledged so far is on disk."""
        self._writer.submit([]).result()

    def close(self) -> None:
        """Writes and syncs all submitted commits and ends the writer. Entries can still be read.

        Raises PSK-7004 if the last commits of an asynchronous log could not be made durable; the files are closed anyway.
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
            for object_id, state in written.states.items():
                if not self._floors.forgotten(object_id):
                    index.states[object_id] = state
            self._head, self._end = written.head, written.end
        if self._on_durable is not None:
            try:
                self._on_durable(written.entries)
            except Exception:
                # The commits are in the log, so they must not be reported as failed. The storage's listener only queues them
                # for the kernel's index, which repeats what it could not send.
                _logger.exception("the listener of the log failed at commit %d", written.head)

    def _rolled(self, segment: Segment) -> None:
        with self._lock:
            self._segments.append(segment)
            self._end = segment.size

    def _bury(self, segments: list[Segment]) -> int:
        self._graves.append(grave(segments[-1].path))
        bury(segments)
        return self._delete_segments(segments)

    def _delete_segments(self, segments: list[Segment]) -> int:
        numbers = {s.number for s in segments}
        with self._lock:
            self._segments = [s for s in self._segments if s.number not in numbers]
        for segment in segments:
            self._maps.drop(segment.file)
            _unlink(segment.path)
            crash_point("log.trimmed")
        return sum(s.disk_bytes for s in segments)

    def _thin_out(self, segment: Segment) -> int:
        """Thins out a segment if that frees at least half of it; returns the bytes freed."""
        if not self._holes:
            return 0
        with self._lock:
            segment.judged = segment.needed
            following = self._segments[self._segments.index(segment) + 1].first_lsn
            runs = self._index.runs_in(segment)
            if 2 * sum(run.size for run in runs) > segment.disk_bytes:
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
            # The segment is unchanged. A later trim may have more disk space.
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
            # This file system has no sparse files, or a larger allocation unit.
            self._holes = False
        return freed


def _length(segment: Segment) -> int:
    try:
        return segment.path.stat().st_size
    except FileNotFoundError:
        # Whoever needs the file will say so.
        return segment.size


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def _is_whole(entry: Entry, messages: Sequence[pa.Buffer]) -> bool:
    if entry.checks:
        return all(google_crc32c.value(m) == crc for m, crc in zip(messages, entry.checks, strict=True))
    # A message never begins with zeros.
    return bool(messages[0].slice(0, _BEGIN).to_pybytes().strip(b"\0"))


def _damaged(entry: Entry, why: str | None = None) -> PenstockError:
    found = f"is damaged at offset {entry.offset}" if why is None else f"cannot be read ({why})"
    return fail(
        "PSK-6001",
        f"{entry.path} {found}: the {entry.rows} rows of commit {entry.lsn} are lost.",
        hint="Restore the file from a backup.",
    )


def _gone(entry: Entry) -> PenstockError:
    return fail("PSK-5011", f"Commit {entry.lsn} of object {entry.object_id} was removed.")
