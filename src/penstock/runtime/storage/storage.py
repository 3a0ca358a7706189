"""One open database without its JVM: what is durable, what is served, and the one way in which either changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.catalog.store import Catalog
from penstock.catalog.types import schema_of, stored_schema
from penstock.config import Settings
from penstock.disk import make_folder
from penstock.errors import PenstockError, fail
from penstock.log import Commit, Entry, Log, Part
from penstock.runtime.storage.contents import read_entry
from penstock.runtime.storage.feed import Feed
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.layout import Layout, remove
from penstock.serve.hub import Hub
from penstock.serve.store import ViewStore

_logger = logging.getLogger(__name__)

FED = (Kind.SOURCE, Kind.TABLE, Kind.LOOKUP)
"""Objects that rows are written into."""


class Index(Protocol):
    """Who must know where the rows of the log are: the kernel, while its JVM runs."""

    def add(self, entries: Iterable[Entry], head: int) -> None: ...

    def trimmed(self, object_id: int, watermark: int) -> None: ...

    def trim(self, object_id: int, lsn: int) -> None: ...

    def forget(self, object_id: int) -> None: ...


class NoIndex:
    """Stands in while no JVM runs."""

    def add(self, entries: Iterable[Entry], head: int) -> None: ...

    def trimmed(self, object_id: int, watermark: int) -> None: ...

    def trim(self, object_id: int, lsn: int) -> None: ...

    def forget(self, object_id: int) -> None: ...


class Storage:
    """Log, catalogue, contents and hub of one database folder. Thread-safe.

    Lock order: the caller's locks (`Engine.ddl`, then `TableWriter.alone`), then the objects of a commit in the order of their
    ids, then the store, then a channel of the hub. Nothing waits for a reader, a job or a connector under any of the last three.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.settings = settings
        self.layout = Layout(folder)
        self.index: Index = NoIndex()
        self.feeds: dict[int, Feed] = {}
        self.closed: dict[int, PenstockError] = {}
        """Objects that take no rows, and why."""
        self.damage: dict[int, PenstockError] = {}
        """Objects whose contents could not be rebuilt or kept, and why. The others are not disturbed."""
        self.full: PenstockError | None = None
        """Why no new rows are taken, while the log is larger than it may be."""
        self.commits = threading.Condition()
        """Notified after every group of commits."""
        self._attached: dict[int, tuple[ObjectInfo, pa.Schema]] = {}
        self._orders: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        with ExitStack() as undo:
            self.log = Log.open(
                folder,
                mode=settings.log.wal_mode,
                async_interval_ms=settings.log.async_interval_ms,
                segment_bytes=settings.log.segment_bytes,
                on_durable=self._durable,
            )
            undo.callback(self.log.close)
            self.catalog = Catalog(self.layout.catalog, expected=self.log.head > 1)
            # A statement that was undone, or a crash, may have left an id in the log that the catalogue never heard of. The log takes no
            # more commits under it.
            self.catalog.reserve(self.log.highest_id)
            self.hub = Hub()
            self.store = ViewStore(
                memory_limit=settings.serve.memory_limit, spill=folder / "spill", on_damage=self._damaged
            )
            undo.callback(self.store.close)
            undo.pop_all()

    # Commits

    def commit(self, parts: Sequence[Part]) -> Commit:
        """One atomic commit. Once begun it is finished, whatever strikes the caller:

        1. it is durable in the log;
        2. it is in the contents of tables and views;
        3. it is on its way to subscribers.

        Commits into one object take these steps in the order of their LSNs.
        """
        # The locks are taken within, where no Ctrl-C can strike between taking one and noting that it is to be released. Whoever has them is
        # in such a block as well, so the wait is bounded.
        with uninterrupted(), self._in_order([p.object_id for p in parts]):
            for part in parts:
                self._check_known(part.object_id)
            stamped = [self._stamped(p) for p in parts]
            commit = self.log.append(stamped)
            self._publish(commit, stamped)
            return commit

    def await_published(self, object_id: int) -> None:
        """Returns when every commit into an object that the log had before is in the contents too."""
        with uninterrupted(), self._in_order([object_id]):
            pass

    def _stamped(self, part: Part) -> Part:
        """What a clock says of the times of a part (processing time, a watermark per value) is decided in the order of the commits."""
        feed = self.feeds.get(part.object_id)
        if feed is None or feed.clock is None:
            return part
        with feed.clock.lock:
            return feed.stamped(part)

    def _check_known(self, object_id: int) -> None:
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
            try:
                self.store.apply_many([(e.object_id, t, e.epoch) for e, t in kept], commit.lsn)
            except Exception as error:
                # The commit is durable and cannot be taken back: what it belongs to is not served until it is rebuilt.
                for entry, _ in kept:
                    self._damaged(entry.object_id, error)
        for entry, table in told:
            watermark = by_id[entry.object_id].watermark
            changes = table if table.num_rows else None
            self.hub.publish(entry.object_id, entry.epoch, commit.lsn, changes, watermark, input_lsn=entry.input_lsn)

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
        """Makes what an object needs in this process; contents come from its snapshot and the log.

        An object whose contents cannot be rebuilt is attached as damaged.
        """
        if info.kind in FED:
            self.feeds[info.id] = self._feed(info, defaults or {})
        self._attached[info.id] = (info, stored_schema(info))
        last = self.log.last_entry(info.id)
        self.hub.open(info.id, info.name, epoch=self.log.epoch(info.id), lsn=last.lsn if last else 0)
        if info.has_contents and info.id not in self.store.ids():
            try:
                self._fill(info)
            except Exception as error:
                self._damaged(info.id, error)

    def _feed(self, info: ObjectInfo, defaults: Mapping[str, object]) -> Feed:
        schema = stored_schema(info)
        history = (read_entry(self.log, e, schema) for e in self.log.iterate(info.id) if e.rows)
        skew_ms = self.settings.engine.max_future_skew_ms
        return Feed(info, dict(defaults), skew_ms, self.log.watermark(info.id), history)

    def _fill(self, info: ObjectInfo) -> None:
        schema = stored_schema(info)
        self.store.create(info.id, schema_of(info.columns), keys=info.key, append_only=not info.changelog)
        path = self.layout.snapshot(info.id)
        if path.exists():
            self.store.load(info.id, path)
        _, lsn = self.store.position(info.id)
        for entry in self.log.iterate(info.id, after=lsn):
            table = read_entry(self.log, entry, schema) if entry.rows else schema.empty_table()
            self.store.apply(info.id, table, epoch=entry.epoch, lsn=entry.lsn)

    def _damaged(self, object_id: int, error: Exception) -> None:
        found = self._attached.get(object_id)
        if found is None:
            return  # It was dropped meanwhile.
        info, _ = found
        why = error.detail if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        self.damage[object_id] = fail(
            "PSK-6004",
            f"The contents of {info.name} are damaged: {why}",
            hint=f"Everything else works on. Drop {info.name}, or restore the folder from a backup.",
        )
        _logger.error("%s", self.damage[object_id], exc_info=error)
        self.hub.suspend(object_id, self.damage[object_id])

    def info(self, object_id: int) -> ObjectInfo:
        """An attached object; PSK-1002 if it was dropped meanwhile."""
        found = self._attached.get(object_id)
        if found is None:
            raise fail("PSK-1002", "The object was dropped.")
        return found[0]

    def owned(self, owner_id: int, role: Role) -> ObjectInfo | None:
        """The attached object that another one has for some purpose."""
        found = (o for o, _ in list(self._attached.values()) if o.owner_id == owner_id and o.role is role)
        return next(found, None)

    def feed(self, info: ObjectInfo) -> Feed:
        """The way into a source or table.

        Raises PSK-1002 if it was dropped meanwhile, PSK-5013 while the log is too large, and the reason for which it is closed.
        """
        if self.full is not None:
            raise self.full
        if info.id in self.closed:
            raise self.closed[info.id]
        feed = self.feeds.get(info.id)
        if feed is None:
            raise fail("PSK-1002", f"{info.name} was dropped.")
        return feed

    def check_sound(self, info: ObjectInfo) -> None:
        """Raises PSK-6004 for an object whose contents are damaged."""
        if info.id in self.damage:
            raise self.damage[info.id]

    def detach(self, object_id: int) -> None:
        """Forgets an object for good: contents, subscribers and log. The catalogue has dropped it, or never had it.

        A commit that has begun is finished first; later ones are refused.
        """
        with uninterrupted(), self._in_order([object_id]):
            self._attached.pop(object_id, None)
            self.feeds.pop(object_id, None)
            self.damage.pop(object_id, None)
            self.closed.pop(object_id, None)
            with self._lock:
                self._orders.pop(object_id, None)
        # Whatever fails, the rest goes.
        with ExitStack() as rest:
            rest.callback(remove, self.layout.snapshot(object_id))
            rest.callback(self.index.forget, object_id)
            rest.callback(self.log.forget, object_id)
            rest.callback(self.store.drop, object_id)
            self.hub.end(object_id)

    def regrow(self, info: ObjectInfo, defaults: Mapping[str, object]) -> None:
        """The object has more columns now: rows without them can no longer come in."""
        self._attached[info.id] = (info, stored_schema(info))
        self.feeds[info.id] = self._feed(info, defaults)

    def save_contents(self) -> None:
        """Writes the contents of tables and views, so that the log before them is no longer needed to open the database."""
        for info in self.catalog.objects(Kind.TABLE, Kind.LOOKUP, Kind.VIEW):
            if info.id not in self.damage:
                self.save(info)

    def save(self, info: ObjectInfo) -> int:
        """Writes down the contents of one object; the LSN that they stand for."""
        path = self.layout.snapshot(info.id)
        # CHECKPOINT and the removal of history may come to the same file at once.
        with self._saving:
            make_folder(path.parent)
            _, lsn = self.store.save(info.id, path)
        return lsn

    def close(self) -> None:
        """Releases everything; the first error is raised after all is released."""
        with ExitStack() as last:
            last.callback(self.store.close)
            last.callback(self.log.close)
            last.callback(self.hub.close)


__all__ = ["FED", "Index", "NoIndex", "Storage"]
