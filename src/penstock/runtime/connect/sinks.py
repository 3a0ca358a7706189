"""Sinks: each follows the log of one stream from its stored position, and delivers every epoch in order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.catalog.types import stored_schema
from penstock.connect import Access, Sink, make_sink
from penstock.disk import make_folder, write_durably
from penstock.errors import PenstockError, fail
from penstock.log import Entry
from penstock.runtime.lifecycle import SINK_STEPS, Lifecycle, SinkState, wait_s
from penstock.runtime.storage.contents import complete, read_entry
from penstock.runtime.storage.storage import Storage
from penstock.serve.zset import weighted

_LOOK_S = 0.5
_ENTRIES = 1000
"""Entries that are delivered before the position is written."""


def check_start(storage: Storage, feeding: ObjectInfo) -> None:
    """PSK-5011 for a stream of which a new sink would miss the beginning."""
    if not feeding.has_contents and not complete(storage.log, feeding.id):
        raise fail(
            "PSK-5011",
            f"The history of {feeding.name} is no longer complete; a sink would begin in the middle of it.",
            hint=f"Create a materialized view on {feeding.name} and sink that, or create the stream again with a larger retain_history.",
        )


class SinkRunner:
    """A thread that follows one stream. An error disturbs this sink alone: it is opened again after a growing wait.

    `access` says what its connector may reach now; `opened` is a sink that is open already; `held` says why nothing may be delivered now, if so.
    """

    def __init__(
        self,
        storage: Storage,
        info: ObjectInfo,
        access: Callable[[], Access],
        held: Callable[[], PenstockError | None],
        opened: Sink | None = None,
    ) -> None:
        self.name = info.name
        self.rows = 0
        self.error: PenstockError | None = None
        self.durable_lsn = 0
        self._life = Lifecycle(f"Sink {info.name}", SinkState.OPENING, SINK_STEPS)
        self._storage = storage
        self._info = info
        self._input = storage.info(info.depends_on[0])
        self._schema = stored_schema(self._input)
        self._access = access
        self._held = held
        self._sink = opened
        self._position = storage.layout.job(info.id) / "position.json"
        self._failures = 0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._done = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"penstock-sink-{info.name}", daemon=True)
        with suppress(PenstockError):
            _, self.durable_lsn = self._load()
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
        epoch, lsn = self._load()
        if lsn and not self._storage.log.reaches_back(self._input.id, epoch):
            raise fail(
                "PSK-5011",
                f"Sink {self.name} had come to epoch {epoch} of {self._input.name}, and what follows it is gone.",
                hint=f"Restore the folder from a backup, or drop sink {self.name} and create it again.",
            )
        if self._sink is None:
            assert self._info.connector is not None
            self._sink = make_sink(self._info.connector, changelog=self._info.changelog, access=self._access())
            self._sink.open(self._schema, epoch)
        self.durable_lsn = lsn
        self._life.to(SinkState.RUNNING)

    def _failed(self, error: PenstockError) -> None:
        self._release()
        if self._stop.is_set():
            return
        with self._done:
            self._failures += 1
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
        if self.durable_lsn == 0 and not complete(log, self._input.id):
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
                self._deliver(entries)
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
        """The changelog no longer reaches back to its beginning: the rows of some epoch stand for all before it."""
        self._storage.check_sound(self._input)
        table, epoch, lsn = self._storage.store.snapshot(self._input.id)
        rows = weighted(table) if self._input.changelog else table
        if rows.num_rows:
            assert self._sink is not None
            self._sink.write(epoch, lsn, rows.cast(self._schema))
            self.rows += rows.num_rows
        self._acknowledge(epoch, lsn)

    def _deliver(self, entries: list[Entry]) -> None:
        assert self._sink is not None
        for entry in entries:
            if self._stop.is_set():
                return
            if entry.rows:
                self._sink.write(entry.epoch, entry.lsn, self._read(entry))
                self.rows += entry.rows
        self._acknowledge(entries[-1].epoch, entries[-1].lsn)

    def _read(self, entry: Entry) -> pa.Table:
        return read_entry(self._storage.log, entry, self._schema)

    def _acknowledge(self, epoch: int, lsn: int) -> None:
        assert self._sink is not None
        self._sink.flush()
        position = json.dumps({"epoch": epoch, "lsn": lsn}).encode()
        make_folder(self._position.parent)
        write_durably(self._position, position)
        self._well(lsn)

    def _well(self, lsn: int | None = None) -> None:
        """Everything up to an LSN is delivered; None: there is nothing to deliver."""
        with self._done:
            self.durable_lsn = self.durable_lsn if lsn is None else lsn
            self.error = None
            self._failures = 0
            self._done.notify_all()

    def _load(self) -> tuple[int, int]:
        try:
            stored = json.loads(self._position.read_text())
            return int(stored["epoch"]), int(stored["lsn"])
        except FileNotFoundError:
            return 0, 0
        except (OSError, ValueError, KeyError, TypeError) as why:
            raise fail(
                "PSK-6001",
                f"{self._position} is damaged: the position of sink {self.name} is not known.",
                hint=f"Restore the file from a backup, or drop sink {self.name} and create it again.",
            ) from why

    def settle(self, deadline: float | None) -> bool:
        """Waits until everything committed so far is delivered; False when the time is over.

        A sink that waits for its next attempt makes it now. Raises why the sink cannot get there, if it fails twice meanwhile.
        """
        last = self._storage.log.last_entry(self._input.id)
        if last is None:
            return True
        with self._done:
            known = self._failures
            while self.durable_lsn < last.lsn and not self._stop.is_set():
                # What holds it may have healed since it has looked.
                cause = self._held() if self.state is SinkState.HELD else None
                if self._failures > known + 1:
                    cause = self.error
                if cause is not None:
                    raise fail("PSK-7006", f"Sink {self.name} cannot deliver: {cause.detail}", hint=cause.hint)
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                if self.state is SinkState.RETRYING:
                    self._wake.set()
                self._done.wait(0.25)
        return True

    def stop(self) -> None:
        """Ends the delivery after the epoch that is under way; returns when it has ended, or after ten seconds."""
        self._stop.set()
        self._wake.set()
        with self._storage.commits:
            self._storage.commits.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
