"""The contents of one object on disk.

Changes are collected in memory. When there are enough of them they are *frozen*, sorted and written as a file, and the manifest, which names all files, is replaced;
the log before its LSN is then no longer needed. Files of similar size are merged in the background, so there are few of them, and each row is written a few times in all.
Files are never changed in place: a reader keeps the files that it started with, and checkpoints link them.

After a crash the manifest says which files are valid, and the log has everything after its LSN. Files that it does not name are removed.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock.disk import crash_point, make_folder
from penstock.errors import PenstockError, fail
from penstock.serve.layout import WEIGHT
from penstock.serve.ondisk.form import Form, Kind
from penstock.serve.ondisk.manifest import MANIFEST, Manifest, read_manifest, write_manifest
from penstock.serve.ondisk.memory import Memory
from penstock.serve.ondisk.merge import merged
from penstock.serve.ondisk.segment import Segment, write_segment
from penstock.serve.ondisk.snapshot import Snapshot
from penstock.serve.ondisk.tiers import is_large, spans
from penstock.serve.worker import Worker

_logger = logging.getLogger(__name__)

_MOST_FROZEN = 2
_MOST_FILES = 40
"""A read by key may have to search each file. With more, a writer waits for merges."""
_DAMAGED = "damaged"


class _Given(Exception):
    """The object was dropped, or the store is closed."""


class Workers:
    """The threads that write for all objects: one for changes, one for small merges and one for large ones. Small merges never wait for large ones, so there are few files at any time.
    `files` is held while a manifest and its files change."""

    def __init__(self) -> None:
        self.writing = Worker("penstock-flusher")
        self.merging = {large: Worker(f"penstock-merger-{int(large)}") for large in (False, True)}
        self.files = threading.RLock()
        self.closed = False

    def settle(self) -> None:
        for worker in (self.writing, *self.merging.values()):
            worker.run(lambda: None)

    def close(self, timeout: float) -> bool:
        self.closed = True
        ended = [w.close(timeout) for w in (self.writing, *self.merging.values())]
        return all(ended)


@dataclass(frozen=True)
class _Frozen:
    memory: Memory
    epoch: int
    lsn: int
    count: int


class DiskContents:
    """Thread-safe, but only one thread at a time may add. `failed` is called, from any thread, when a file is damaged or the contents are inconsistent."""

    def __init__(
        self,
        folder: Path,
        form: Form,
        workers: Workers,
        part_bytes: int,
        failed: Callable[[PenstockError], None],
        manifest: Manifest | None = None,
    ) -> None:
        self.form = form
        self._folder = folder
        self._workers = workers
        self._part_bytes = part_bytes
        self._failed = failed
        self._room = threading.Condition()
        self._gone = False
        self._refused = False
        self._memory = Memory(form)
        self._frozen: tuple[_Frozen, ...] = ()
        self._merging: set[bool] = set()
        """The kinds of merges (large or not) that are running or queued."""
        self._claimed: dict[bool, tuple[Segment, ...]] = {}
        """The files that are being merged."""
        # Both change together, with `files` and `_room` held.
        self._saved = manifest or Manifest(0, 0, 0, 1, form.kind.value, form.keys, ())
        self._segments = tuple(Segment(folder / f.name, form, f) for f in self._saved.files)

    @staticmethod
    def open(
        folder: Path, form: Form, workers: Workers, part_bytes: int, failed: Callable[[PenstockError], None]
    ) -> DiskContents:
        """Opens existing contents. Raises PSK-6001 if they are known to be damaged, or a file is missing."""
        if (folder / _DAMAGED).exists():
            raise fail("PSK-6001", f"{folder} was found damaged: {(folder / _DAMAGED).read_text()}")
        found = DiskContents(folder, form, workers, part_bytes, failed, read_manifest(folder, form))
        named = {MANIFEST, *(f.name for f in found._saved.files)}
        for file in folder.iterdir():
            if file.name not in named:
                file.unlink(missing_ok=True)
        # The last process may have ended before its merges.
        found._merge_if_due()
        return found

    @property
    def saved(self) -> tuple[int, int, int]:
        """The epoch, LSN and number of rows of the contents in the files."""
        manifest = self._saved
        return manifest.epoch, manifest.lsn, manifest.count

    @property
    def highest(self) -> int | None:
        """An upper bound of the keys; None if keys are not numbers."""
        return max((f.last for f in self._saved.files if f.last is not None), default=None)

    @property
    def size(self) -> int:
        """Of the files, in bytes."""
        return sum(f.size for f in self._saved.files)

    @property
    def is_merging(self) -> bool:
        return bool(self._merging)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    # Changes

    def add(self, change: pa.Table) -> None:
        """Adds the change of one epoch, as `Form.change` makes it."""
        self._memory.add(change)

    def fill(self, pieces: Iterable[pa.Table], epoch: int, lsn: int, count: int) -> None:
        """Writes the first contents of an object, of any size. Raises PSK-7004, and then leaves nothing behind."""
        try:
            written: list[Segment] = []
            memory = Memory(self.form)
            for piece in pieces:
                memory.add(self.form.change(piece))
                if memory.size > self._part_bytes:
                    written += self._filled(memory)
                    memory = Memory(self.form)
            written += self._filled(memory)
            if written:
                written[-1].facts = replace(written[-1].facts, count=count)
            make_folder(self._folder)
            with self._workers.files:
                self._publish(tuple(written), replace(self._saved, epoch=epoch, lsn=lsn, count=count))
                self._segments = tuple(written)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._merge_if_due()

    def _filled(self, memory: Memory) -> list[Segment]:
        rows, _ = memory.whole()
        return [self._written([rows], rows.num_rows, None, weighted=self._has_weights(rows))] if rows.num_rows else []

    def _has_weights(self, rows: pa.Table) -> bool:
        return self.form.kind is not Kind.APPENDED and bool((rows[WEIGHT].to_numpy() != 1).any())

    @property
    def is_full(self) -> bool:
        """Whether to write the changes in memory."""
        return self._memory.size > self._part_bytes

    def freeze(self, epoch: int, lsn: int, count: int) -> None:
        """Queues everything in memory for writing, as the contents at this position."""
        with self._room:
            self._frozen = (*self._frozen, _Frozen(self._memory, epoch, lsn, count))
            self._memory = Memory(self.form)
        self._workers.writing.start()
        self._workers.writing.leave(self._write_frozen)

    def await_room(self) -> None:
        """Blocks while too many changes wait for the disk, or too many files for merges. Returns at once while the disk refuses writes."""
        with self._room:
            while self._is_behind() and not (self._refused or self._gone or self._workers.closed):
                self._room.wait(0.5)

    def _is_behind(self) -> bool:
        return len(self._frozen) > _MOST_FROZEN or (bool(self._merging) and len(self._segments) > _MOST_FILES)

    def save(self, epoch: int, lsn: int, count: int) -> None:
        """Freezes all changes that the files lack, at the object's position; `await_saved` waits for them. Nothing may be added meanwhile."""
        if self._memory.rows or (epoch, lsn) != self.saved[:2]:
            self.freeze(epoch, lsn, count)

    def await_saved(self) -> tuple[int, int]:
        """Waits until everything frozen before is in the files; returns their epoch and LSN. Raises PSK-7004."""
        try:
            self._workers.writing.run(self._flush)
        except _Given:
            self._check_known()
        return self.saved[:2]

    def _check_known(self) -> None:
        if self._workers.closed:
            raise fail("PSK-0004", "The view store is closed.")
        if self._gone:
            raise fail("PSK-1002", f"Object {self.form.id} was dropped.")

    # Reading

    def snapshot(self) -> Snapshot:
        """The contents now."""
        with self._room:
            memories = [self._memory, *(f.memory for f in reversed(self._frozen))]
            segments = self._segments
        return Snapshot(self.form, tuple(r for m in memories for r in m.runs()), segments[::-1])

    # The end

    def drop(self, *, keep_files: bool = False) -> None:
        """Ends all work on the files, and removes them unless `keep_files`. Readers may continue."""
        with self._workers.files, self._room:
            self._gone = True
            self._room.notify_all()
            if not keep_files:
                shutil.rmtree(self._folder, ignore_errors=True)

    def mark(self, why: PenstockError) -> None:
        """Marks the contents as damaged on disk, so that the next `open` refuses them."""
        try:
            (self._folder / _DAMAGED).write_text(str(why.detail))
        except OSError as error:
            _logger.warning("%s could not be marked as damaged: %s", self._folder, error)

    # On the threads of the store

    def _write_frozen(self) -> None:
        try:
            self._flush()
        except _Given:
            return
        except PenstockError as why:
            if why.code == "PSK-7004":
                # The log has everything; the next changes or snapshot retry.
                _logger.warning("changes of object %d wait for the disk: %s", self.form.id, why.detail)
            else:
                self._failed(why)
        except Exception as why:
            self._failed(fail("PSK-8001", f"Contents could not be written: {type(why).__name__}: {why}"))

    def _flush(self) -> None:
        """Writes frozen changes, the oldest first. Raises PSK-7004."""
        while self._frozen:
            frozen = self._frozen[0]
            try:
                self._flush_one(frozen)
            except PenstockError:
                with self._room:
                    self._refused = True
                    self._room.notify_all()
                raise
            with self._room:
                self._refused = False
                self._room.notify_all()
            # Check now: a writer that is always ahead must not postpone merges.
            self._merge_if_due()

    def _flush_one(self, frozen: _Frozen) -> None:
        self._check_there()
        rows, _ = frozen.memory.whole()
        written: tuple[Segment, ...] = ()
        if rows.num_rows:
            if not self._segments:
                rows = self._without_dead(rows)
            weighted = self._has_weights(rows)
            written = (self._written([rows], rows.num_rows, frozen.count, weighted=weighted),)
        crash_point("contents.written")
        with self._workers.files:
            self._check_there()
            segments = (*self._segments, *written)
            self._publish(segments, replace(self._saved, epoch=frozen.epoch, lsn=frozen.lsn, count=frozen.count))
            with self._room:
                self._segments, self._frozen = segments, self._frozen[1:]
        crash_point("contents.published")

    def _publish(self, segments: tuple[Segment, ...], manifest: Manifest) -> None:
        """Replaces the manifest. The caller holds `files`."""
        manifest = replace(manifest, files=tuple(s.facts for s in segments), next=self._saved.next)
        write_manifest(self._folder, manifest)
        self._saved = manifest

    def _written(self, parts: Iterable[pa.Table], most_rows: int, count: int | None, *, weighted: bool) -> Segment:
        with self._workers.files:
            number = self._saved.next
            self._saved = replace(self._saved, next=number + 1)
        make_folder(self._folder)
        path = self._folder / f"{number}.seg"
        facts = write_segment(path, self.form, parts, most_rows, weighted=weighted)
        return Segment(path, self.form, replace(facts, count=count))

    def _without_dead(self, rows: pa.Table) -> pa.Table:
        """Drops retractions from the oldest rows, where they can cancel nothing."""
        if self.form.kind is Kind.APPENDED:
            return rows
        weights = rows[WEIGHT].to_numpy()
        if (weights > 0).all():
            return rows
        if self.form.kind is Kind.BAG and weights.min() < 0:
            raise self.form.broken()
        return rows.filter(pa.array(weights > 0))

    def _check_there(self) -> None:
        if self._gone or self._workers.closed:
            raise _Given

    # Merging

    def _merge_if_due(self) -> None:
        for large, worker in self._workers.merging.items():
            with self._room:
                if large in self._merging or self._gone or not self._due(large):
                    continue
                self._merging.add(large)
            worker.start()
            worker.leave(partial(self._merge, large))

    def _due(self, large: bool) -> tuple[Segment, ...]:
        """The adjacent files that one of the threads should merge, none of which the other thread has. The caller holds `_room`."""
        free = self._segments
        others = self._claimed.get(not large)
        # The other thread's files may have just been replaced.
        if others and others[0] in free:
            at = free.index(others[0])
            free = free[:at] if large else free[at + len(others) :]
        facts = [s.facts for s in free]
        count = self._saved.count if len(free) == len(self._segments) else None
        found = [
            (start, end)
            for start, end in spans(facts, self._part_bytes, count)
            if is_large(facts[start:end], self._part_bytes) == large
        ]
        return free[slice(*found[-1])] if found else ()

    def _merge(self, large: bool) -> None:
        refused = False
        try:
            with self._workers.files, self._room:
                old = self._claimed[large] = self._due(large)
                oldest = self._segments[:1] == old[:1]
            if old:
                self._merge_files(old, oldest=oldest)
        except _Given:
            pass
        except PenstockError as why:
            refused = True
            if why.code != "PSK-7004":
                self._failed(why)
            else:
                _logger.warning("files of object %d were not merged: %s", self.form.id, why.detail)
        except Exception as why:
            refused = True
            self._failed(fail("PSK-8001", f"Files could not be merged: {type(why).__name__}: {why}"))
        finally:
            with self._room:
                self._claimed.pop(large, None)
                self._merging.discard(large)
                self._room.notify_all()
        if not refused:
            # Queued again, so other objects go first.
            self._merge_if_due()

    def _merge_files(self, old: tuple[Segment, ...], *, oldest: bool) -> None:
        """Replaces adjacent files by one. Raises PSK-8001 if the number of rows is not the sum of the changes: a missing row was retracted, or an existing one inserted."""
        rows = sum(s.facts.rows for s in old)
        if self.form.kind is Kind.APPENDED:
            parts, weighted = self._checked(t for s in old for t in s.scan()), False
        else:
            parts = self._checked(merged(self.form, [s.scan() for s in reversed(old)]))
            weighted = not (oldest and self.form.kind is Kind.KEYED)
            if oldest:
                parts = (self._without_dead(t) for t in parts)
        count = old[-1].facts.count
        new = self._written(parts, rows, count, weighted=weighted)
        if oldest and self.form.kind is Kind.KEYED and count is not None and new.facts.rows != count:
            new.path.unlink(missing_ok=True)
            raise self.form.broken()
        crash_point("contents.merged")
        with self._workers.files:
            self._check_there()
            now = self._segments
            at = now.index(old[0])
            segments = (*now[:at], *((new,) if new.facts.rows else ()), *now[at + len(old) :])
            self._publish(segments, self._saved)
            with self._room:
                self._segments = segments
            for segment in old:
                segment.path.unlink(missing_ok=True)
            if not new.facts.rows:
                new.path.unlink(missing_ok=True)

    def _checked(self, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for part in parts:
            self._check_there()
            yield part
