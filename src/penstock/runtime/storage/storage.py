"""One open database without its JVM: its durable data, its contents, and the single path that changes either."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.catalog.store import Catalog
from penstock.catalog.types import schema_of, stored_schema
from penstock.config import Settings
from penstock.disk import make_folder
from penstock.errors import PenstockError, fail
from penstock.log import Commit, Entry, Log, Part, Pinned
from penstock.runtime.storage.alignment import Alignment
from penstock.runtime.storage.backpressure import Backpressure, Full
from penstock.runtime.storage.checkpoints import CheckpointStore, Manifest
from penstock.runtime.storage.contents import read_entry
from penstock.runtime.storage.feed import Feed
from penstock.runtime.storage.format import bring_up_to_date
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.layout import Layout, remove
from penstock.runtime.storage.pervalue import ValueWatermark
from penstock.runtime.storage.restoring import finish
from penstock.runtime.storage.totals import Totals
from penstock.serve.duck import size_of
from penstock.serve.hub import Hub
from penstock.serve.ondisk import MANIFEST
from penstock.serve.store import ViewStore

T = TypeVar("T")

_logger = logging.getLogger(__name__)

FED = (Kind.SOURCE, Kind.TABLE, Kind.LOOKUP)
"""The kinds of objects that accept writes."""


class Index(Protocol):
    """Is notified of the location of rows in the log: the kernel, while its JVM runs."""

    def add(self, entries: Iterable[Entry], head: int) -> None: ...

    def trimmed(self, object_id: int, watermark: int) -> None: ...

    def trim(self, object_id: int, lsn: int) -> None: ...

    def forget(self, object_id: int) -> None: ...


class NoIndex:
    """Used while no JVM runs."""

    def add(self, entries: Iterable[Entry], head: int) -> None: ...

    def trimmed(self, object_id: int, watermark: int) -> None: ...

    def trim(self, object_id: int, lsn: int) -> None: ...

    def forget(self, object_id: int) -> None: ...


class Storage:
    """Log, catalogue, contents and hub of one database folder. Thread-safe.

    Lock order: the caller's locks (`Engine.ddl`, then `TableWriter.alone`), then the objects of a commit in the order of their
    ids, then the alignment of sources, the store, a channel of the hub. Nothing waits for a reader, a job or a connector under any of these.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.settings = settings
        self.layout = Layout(folder)
        self.checkpoints = CheckpointStore(self.layout.checkpoints)
        self.commits = threading.Condition()
        """Notified after every group of commits."""
        self.hub = Hub()
        self.restored: int | None = None
        """The checkpoint that the database was last restored from, in this process or at its start."""
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self.crowded = threading.Event()
        """Set when the log has no room: the ticker removes at once what is no longer needed."""
        self._open()
        self.is_open = True
        """False if the files could not be opened again after they were exchanged."""

    def _open(self) -> None:
        settings, folder = self.settings, self.layout.root
        if self.layout.is_savepoint:
            raise fail(
                "PSK-0009",
                f"{folder} is a savepoint, and not the folder of a database.",
                hint=f"penstock checkpoint import {folder} ./copy makes a database of it.",
            )
        self.restored = finish(folder) or self.restored
        self.migrated_from = bring_up_to_date(folder)
        """The format of the folder before it was opened, if an earlier version wrote it."""
        self.index: Index = NoIndex()
        self.feeds: dict[int, Feed] = {}
        self.closed: dict[int, PenstockError] = {}
        """Objects that accept no rows, and why."""
        self.damage: dict[int, PenstockError] = {}
        """Objects whose contents could not be rebuilt or saved, and why. Others are not affected."""
        self.full: PenstockError | None = None
        """Why new rows are refused, while the log exceeds its limit."""
        self.alignment = Alignment(self._stood_still)
        """Decides which sources accept no rows now, because they are too far ahead of others."""
        self._frozen: PenstockError | None = None
        self._attached: dict[int, tuple[ObjectInfo, pa.Schema]] = {}
        self._orders: dict[int, threading.Lock] = {}
        with ExitStack() as undo:
            self.log = Log.open(
                folder,
                mode=settings.log.wal_mode,
                async_interval_ms=settings.log.async_interval_ms,
                segment_bytes=settings.log.segment_bytes,
                on_durable=self._durable,
                expected=self.layout.catalog.exists() or self.layout.serial.exists(),
            )
            undo.callback(self.log.close)
            self.found = self.log.head
            """The last commit when the log was opened. The numbers after it are given out again if it has lost commits."""
            self._check_reaches(self.checkpoints.newest())
            self.doubtful = self.layout.job_folders()
            """Jobs of earlier processes, which may have recorded what the log has lost; until they have been compared with it."""
            self.totals = Totals(self.layout.totals, self.log)
            self.backpressure = Backpressure(self.log, lambda: self.settings, self._stood_still)
            """Decides which sources accept no rows now, because too many wait for queries."""
            self.catalog = Catalog(self.layout.catalog, expected=self.log.head > 1)
            undo.callback(self.catalog.close)
            # An undone statement or a crash may have left an id in the log that is not in the catalogue. The log accepts no
            # more commits for it, so it must not be reused.
            self.catalog.reserve(self.log.highest_id)
            self.store = ViewStore(
                memory_limit=settings.serve.memory_limit,
                spill=folder / "spill",
                folder=self.layout.contents(0).parent,
                object_bytes=size_of(settings.serve.object_memory),
                on_damage=self._damaged,
            )
            undo.callback(self.store.close)
            undo.pop_all()

    def _check_reaches(self, newest: Manifest | None) -> None:
        """The log was on disk up to the last commit of each checkpoint before that was made."""
        if newest is not None and newest.lsn > self.found:
            raise fail(
                "PSK-6001",
                f"The log in {self.layout.root} ends with commit {self.found}, and checkpoint {newest.id} has commits up to {newest.lsn}: commits are lost.",
            )

    def freeze(self, why: PenstockError) -> None:
        """Refuses all further commits. Those under way are complete when this returns."""
        with uninterrupted(), self._in_order(list(self._attached)):
            self._frozen = why

    def thaw(self) -> None:
        self._frozen = None

    def reopen(self, change: Callable[[], None]) -> None:
        """Closes the files of the database, changes them, and opens them again; no object is attached then. Subscribers stay. What `change` raises is raised when the files are open again. If they cannot be opened, that is raised; it can be tried again."""
        self.alignment.close()
        self.backpressure.close()
        self.is_open = False
        error: BaseException | None = None
        try:
            self._close_files()
            change()
        except BaseException as why:
            error = why
        self._open()
        self.is_open = True
        if error is not None:
            raise error

    # Commits

    def commit(self, parts: Sequence[Part], *, aligned: bool = True) -> Commit:
        """Makes one atomic commit. Once begun it completes, even if the caller is interrupted:

        1. append it to the log, durably;
        2. apply it to the contents of tables and views;
        3. publish it to subscribers.

        Commits to one object take these steps in LSN order. Rows for a source that is too far ahead of its group, or full, are refused
        (`Ahead`, `Full`); callers wait without holding locks (`when_level`, `persist`). Not `aligned`: the rows are accepted all the same.
        """
        # The locks are taken inside, so that Ctrl-C cannot interrupt between acquiring one and registering its release. Their holders are
        # in such a block as well, so the wait is bounded.
        with uninterrupted(), self._in_order([p.object_id for p in parts]):
            for part in parts:
                self._check_known(part.object_id)
            if aligned:
                # Under the locks, so that at most one of several concurrent commits goes past the limit.
                self.alignment.check(parts, self._foreseen)
                self.backpressure.check(parts)
                self._check_room(parts)
            stamped = [self._stamped(p) for p in parts]
            commit = self.log.append(stamped)
            self.alignment.moved(commit.entries)
            self._publish(commit, stamped)
            return commit

    def _check_room(self, parts: Sequence[Part]) -> None:
        """Raises `Full` (PSK-5013) while the log is too large for more rows of a source or table. If it has just become so, writers wait while history is removed."""
        limit = self.settings.log.max_bytes
        rows = next((p for p in parts if p.object_id in self.feeds and any(b.num_rows for b in p.batches)), None)
        if rows is None or not limit:
            return
        full, size = self.full, self.log.size
        if full is not None or size > limit:
            self.crowded.set()
            detail = full.detail if full is not None else f"The log has {size} bytes, log.max_bytes allows {limit}."
            raise Full(detail, rows.object_id, waits=full is None, code="PSK-5013")

    def await_published(self, object_id: int) -> None:
        """Returns when all earlier commits of an object are also in its contents."""
        with uninterrupted(), self._in_order([object_id]):
            pass

    def _stamped(self, part: Part) -> Part:
        """The part with the times that its clock assigns (processing time, a watermark per value), in commit order."""
        feed = self.feeds.get(part.object_id)
        if feed is None or feed.clock is None:
            return part
        with feed.clock.lock:
            return feed.stamped(part)

    def _foreseen(self, part: Part) -> int | None:
        """The watermark that the part will carry when it is committed."""
        feed = self.feeds.get(part.object_id)
        if feed is None or not isinstance(feed.clock, ValueWatermark):
            return part.watermark
        with feed.clock.lock:
            return feed.foreseen(part)

    def _stood_still(self, object_id: int, seconds: float) -> None:
        feed = self.feeds.get(object_id)
        if feed is not None and isinstance(feed.clock, ValueWatermark):
            feed.clock.stood_still(seconds)

    def await_level(self, object_id: int) -> None:
        """Returns when a source accepts rows; raises PSK-5014 if it is too far ahead of its group for too long, PSK-5020 if it is full for too long."""

        def admit() -> None:
            self.alignment.admit([object_id], {})
            self.backpressure.admit(object_id)

        self.when_level(admit)

    def when_level(self, commit: Callable[[], T]) -> T:
        """Calls `commit` and returns its result; retries for `engine.drift_timeout_ms` while the rows are too far ahead, and for `engine.full_timeout_ms`
        while a source is full. The caller must hold no lock."""
        engine = self.settings.engine
        return self.backpressure.attempt(
            lambda: self.alignment.attempt(commit, engine.drift_timeout_ms / 1000), engine.full_timeout_ms / 1000
        )

    def persist(self, part: Part, over: Callable[[], bool]) -> None:
        """Commits rows of a connector when the source accepts them, without a time limit; at once when `over` becomes true, which `Alignment.nudge` signals."""

        def commit() -> Commit:
            return self.alignment.persist(lambda: self.commit([part], aligned=not over()), over)

        if self.backpressure.persist(commit, over) is None:
            self.commit([part], aligned=False)

    def _check_known(self, object_id: int) -> None:
        if self._frozen is not None:
            raise self._frozen
        if object_id not in self._attached:
            raise fail("PSK-1002", "The object was dropped.")

    def _publish(self, commit: Commit, parts: Sequence[Part]) -> None:
        by_id = {p.object_id: p for p in parts}
        told: list[tuple[Entry, pa.Table]] = []
        for entry in commit.entries:
            info, schema = self._attached[entry.object_id]
            if info.kind is not Kind.SOURCE:
                told.append((entry, pa.Table.from_batches(by_id[entry.object_id].batches, schema)))
        kept = [(e, t) for e, t in told if self._keeps(e.object_id)]
        if kept:
            applied = [(e.object_id, t, e.epoch) for e, t in kept]
            try:
                self.store.apply_many(applied, commit.lsn)
            except Exception:
                # All or none was applied. One at a time, only the object at fault is marked damaged.
                self._apply_each(applied, commit.lsn)
        for entry, table in told:
            watermark = by_id[entry.object_id].watermark
            changes = table if table.num_rows else None
            self.hub.publish(entry.object_id, entry.epoch, commit.lsn, changes, watermark, input_lsn=entry.input_lsn)

    def _apply_each(self, changes: Sequence[tuple[int, pa.Table, int]], lsn: int) -> None:
        """The commit is durable and cannot be undone: the objects at fault are not served until they are rebuilt, the others are."""
        for change in changes:
            try:
                self.store.apply_many([change], lsn)
            except Exception as error:
                if isinstance(error, PenstockError) and error.code == "PSK-0004":
                    return  # The database was closed meanwhile; the next open reads the commit from the log.
                self._damaged(change[0], error)

    def _keeps(self, object_id: int) -> bool:
        return self._attached[object_id][0].has_contents and object_id not in self.damage

    @contextmanager
    def _in_order(self, object_ids: Iterable[int]) -> Iterator[None]:
        with ExitStack() as held:
            for object_id in sorted(set(object_ids)):
                with self._lock:
                    order = self._orders.setdefault(object_id, threading.Lock())
                held.enter_context(order)
            yield

    def _durable(self, entries: list[Entry]) -> None:
        self.index.add(entries, entries[-1].lsn)
        with self.commits:
            self.commits.notify_all()

    # Objects

    def attach(self, info: ObjectInfo, defaults: Mapping[str, object] | None = None) -> None:
        """Sets up an object in this process; its contents come from its snapshot and the log.

        An object whose contents cannot be rebuilt is attached as damaged.
        """
        if info.kind in FED:
            self.feeds[info.id] = self._feed(info, defaults or {})
        self._attached[info.id] = (info, stored_schema(info))
        # What a crash has kept from being counted.
        self.totals.take([(info.id, info.depends_on)], self.log.covered(info.id).reach)
        last = self.log.last_entry(info.id)
        self.alignment.join(info, self.log.watermark(info.id), idle=last is not None and last.idle)
        self.backpressure.join(info)
        self.hub.open(
            info.id,
            info.name,
            epoch=self.log.epoch(info.id),
            lsn=last.lsn if last else 0,
            input_lsn=last.input_lsn if last else None,
        )
        if info.has_contents and info.id not in self.store.ids():
            try:
                self._fill(info)
            except Exception as error:
                self._damaged(info.id, error)

    def _feed(self, info: ObjectInfo, defaults: Mapping[str, object]) -> Feed:
        schema = stored_schema(info)
        history = (read_entry(self.log, e, schema) for e in self.log.iterate(info.id) if e.rows)
        skew_ms = self.settings.engine.max_future_skew_ms
        counts = self.totals.of(info.id)
        return Feed(info, dict(defaults), skew_ms, self.log.watermark(info.id), history, counts)

    def _fill(self, info: ObjectInfo) -> None:
        schema = stored_schema(info)
        self._create(info)
        self._take_saved(info)
        _, lsn = self.store.position(info.id)
        for entry in self.log.iterate(info.id, after=lsn):
            table = read_entry(self.log, entry, schema) if entry.rows else schema.empty_table()
            self.store.apply(info.id, table, epoch=entry.epoch, lsn=entry.lsn)

    def _take_saved(self, info: ObjectInfo) -> None:
        """Gives an object the contents that were saved last: on disk, or a snapshot; or none, if the log has all changes."""
        folder, path = self.layout.contents(info.id), self.layout.snapshot(info.id)
        complete = self.log.reaches_back(info.id, 0)
        error: PenstockError | None = None
        for file in (folder / MANIFEST, path):
            if not file.exists():
                continue
            try:
                if file is path:
                    self.store.load(info.id, path)
                else:
                    self.store.open_saved(info.id)
                self._check_agrees(info, file)
                return
            except PenstockError as why:
                error = error or why
                self.store.drop(info.id, keep_files=True)
                self._create(info)
        if not complete:
            raise error or fail("PSK-6001", f"{path} is missing, and the log no longer has all changes of {info.name}.")
        if error is not None:
            _logger.warning("the contents of %s are rebuilt from the log: %s", info.name, error.detail)
            remove(folder)

    def _create(self, info: ObjectInfo) -> None:
        self.store.create(info.id, schema_of(info.columns), keys=info.key, append_only=not info.changelog)

    def _check_agrees(self, info: ObjectInfo, path: Path) -> None:
        """A snapshot must not be ahead of the log, and the log must have all changes after it."""
        epoch, lsn = self.store.position(info.id)
        if epoch > self.log.epoch(info.id) or lsn > self.log.head:
            raise fail(
                "PSK-6001", f"{path} has epoch {epoch} of {info.name}; the log ends with {self.log.epoch(info.id)}."
            )
        if not self.log.reaches_back(info.id, epoch):
            raise fail(
                "PSK-6001",
                f"{path} is an older one: it has epoch {epoch} of {info.name}, and the log no longer has all changes after it.",
            )

    def _damaged(self, object_id: int, error: Exception) -> None:
        found = self._attached.get(object_id)
        if found is None:
            return  # It has been dropped.
        info, _ = found
        why = error.detail if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        self.damage[object_id] = fail(
            "PSK-6004",
            f"The contents of {info.name} are damaged: {why}",
            hint=f"Everything else continues to work. Drop {info.name}, or go back: SHOW CHECKPOINTS lists what RESTORE FROM CHECKPOINT can go back to.",
        )
        _logger.error("%s", self.damage[object_id], exc_info=error)
        self.hub.suspend(object_id, self.damage[object_id])

    def info(self, object_id: int) -> ObjectInfo:
        """An attached object; raises PSK-1002 if it has been dropped."""
        found = self.find(object_id)
        if found is None:
            raise fail("PSK-1002", "The object was dropped.")
        return found

    def find(self, object_id: int) -> ObjectInfo | None:
        """An attached object; None if it has been dropped."""
        found = self._attached.get(object_id)
        return None if found is None else found[0]

    def owned(self, owner_id: int, role: Role) -> ObjectInfo | None:
        """The attached object that another one owns in a role."""
        found = (o for o, _ in list(self._attached.values()) if o.owner_id == owner_id and o.role is role)
        return next(found, None)

    def feed(self, info: ObjectInfo) -> Feed:
        """The feed of a source or table.

        Raises PSK-1002 if it has been dropped, PSK-5013 while the log is too large, or the reason why it is closed.
        """
        if self.full is not None:
            self.crowded.set()
            raise self.full
        return self.open_feed(info)

    def open_feed(self, info: ObjectInfo) -> Feed:
        """The same, of a connector: it waits for room in the log (`persist`)."""
        if info.id in self.closed:
            raise self.closed[info.id]
        feed = self.feeds.get(info.id)
        if feed is None:
            raise fail(
                "PSK-1002", f"{info.name} was dropped, or its columns were altered, before the rows were committed."
            )
        return feed

    def check_sound(self, info: ObjectInfo) -> None:
        """Raises PSK-6004 for an object whose contents are damaged."""
        if info.id in self.damage:
            raise self.damage[info.id]

    def detach(self, object_id: int) -> None:
        """Removes an object for good: contents, subscribers and log. The catalogue has dropped it, or never had it.

        Commits in progress complete first; later ones are refused.
        """
        with uninterrupted(), self._in_order([object_id]):
            self._attached.pop(object_id, None)
            self.feeds.pop(object_id, None)
            self.damage.pop(object_id, None)
            self.closed.pop(object_id, None)
            self.alignment.leave(object_id)
            self.backpressure.leave(object_id)
            with self._lock:
                self._orders.pop(object_id, None)
        # If one step fails, the others still run.
        with ExitStack() as rest:
            rest.callback(remove, self.layout.contents(object_id))
            rest.callback(remove, self.layout.snapshot(object_id))
            rest.callback(self.index.forget, object_id)
            rest.callback(self.log.forget, object_id)
            rest.callback(self.totals.forget, object_id)
            rest.callback(self.store.drop, object_id)
            self.hub.end(object_id)

    def regrow(self, info: ObjectInfo, defaults: Mapping[str, object]) -> None:
        """Applies added columns of an object: rows without them are no longer accepted."""
        self._attached[info.id] = (info, stored_schema(info))
        self.feeds[info.id] = self._feed(info, defaults)

    def inscribe(self, info: ObjectInfo) -> None:
        """The object has another name or comment, and is the same otherwise."""
        if info.id in self._attached:
            self._attached[info.id] = (info, self._attached[info.id][1])
            self.hub.rename(info.id, info.name)
        if info.id in self.feeds:
            self.feeds[info.id].info = info

    def renew(self, info: ObjectInfo) -> None:
        """The object has another query, and the same columns."""
        self._attached[info.id] = (info, stored_schema(info))

    def save_contents(self) -> None:
        """Writes snapshots of tables and views, so that opening the database no longer needs the log before them."""
        for info in self.catalog.objects(Kind.TABLE, Kind.LOOKUP, Kind.VIEW):
            if info.id not in self.damage:
                self.save(info)

    def save(self, info: ObjectInfo) -> int:
        """Writes a snapshot of one object; returns its LSN."""
        path = self.layout.snapshot(info.id)
        # CHECKPOINT and retention may write the same file at the same time.
        with self._saving:
            make_folder(path.parent)
            _, lsn = self.store.save(info.id, path)
        return lsn

    @contextmanager
    def pinned(self) -> Iterator[Pinned]:
        """All files of the log at one moment, and snapshots that are neither replaced within the block nor ahead of it: the log has all changes after them."""
        with self._saving, self.store.held(), self.log.pinned() as found:
            yield found

    def close(self) -> None:
        """Releases all resources, then raises the first error."""
        with ExitStack() as last:
            last.callback(self._close_files)
            last.callback(self.hub.close)

    def _close_files(self) -> None:
        with ExitStack() as last:
            last.callback(self.store.close)
            last.callback(self.catalog.close)
            last.callback(self.log.close)


__all__ = ["FED", "Index", "NoIndex", "Storage"]
