"""A handle for writing to one source or table."""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING, Any

from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.connect.decode import JsonDecoder
from penstock.errors import PenstockError, fail
from penstock.log import Part

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.runtime.engine import Engine
    from penstock.runtime.storage.backpressure import Pending

_MISFITS = frozenset({"PSK-5003", "PSK-5006", "PSK-5007"})
"""Errors that concern single rows."""


class SourceHandle:
    """`db.source(name)`."""

    def __init__(self, engine: Engine, info: ObjectInfo) -> None:
        self._engine = engine
        self._id = info.id
        self.name = info.name

    @property
    def _info(self) -> ObjectInfo:
        self._engine.check_open()
        return self._engine.catalog.by_id(self._id)

    def insert(self, data: object) -> int:
        """Inserts rows in one durable commit and returns its LSN."""
        self._engine.check_open()
        return self._engine.writer.insert(self.name, data)

    def _await_level(self) -> None:
        self._engine.storage.await_level(self._id)

    def check(self, data: object) -> None:
        """Raises the error that `insert` would raise for these rows, without storing them."""
        self._engine.storage.feed(self._info).part(data)

    def insert_json(self, lines: Any) -> int:
        """Inserts raw JSON documents in one commit, decoded by the source's FORMAT and `json.column.*` options."""
        info = self._info
        options = dict(info.connector.options) | dict(info.connector.format_options) if info.connector else {}
        wanted = {k: v for k, v in options.items() if k.startswith("json.") or k == "on_error"}
        return self.insert(JsonDecoder(info.columns, wanted).decode(lines))

    def watermark(self, ts: int | dt.datetime) -> int:
        """Advances the watermark to a time (UTC if it has no zone) or to Unix milliseconds. An earlier time has no effect."""
        info = self._info
        if info.kind is not Kind.SOURCE:
            raise fail("PSK-1008", f"{info.name} is a {info.kind.value} and does not have its own watermark.")
        if isinstance(ts, dt.datetime):
            ts = int((ts if ts.tzinfo else ts.replace(tzinfo=dt.UTC)).timestamp() * 1000)
        millis = int(ts)
        current = self.current_watermark
        if current is not None and millis <= current:
            return self._engine.log.head
        mark = Part(object_id=info.id, watermark=millis, column_count=len(info.columns))
        return self._engine.storage.commit([mark]).lsn

    @property
    def schema(self) -> tuple[Column, ...]:
        return self._info.columns

    @property
    def current_watermark(self) -> int | None:
        """Unix milliseconds; None before the first row."""
        return self._engine.log.watermark(self._info.id)

    @property
    def pending(self) -> int:
        """The number of committed rows that some running query has not processed yet. Rows from before a query's start do not count for it."""
        return self._pending.rows

    @property
    def capacity(self) -> int | None:
        """How many rows may be pending (`max_pending_rows`); None: any number."""
        return self._pending.limits.rows or None

    @property
    def utilization(self) -> float:
        """The used share of the limits in rows and bytes; 0 without limits. At 1 or more, `insert` waits or is refused."""
        return self._pending.utilization

    @property
    def is_backpressured(self) -> bool:
        """True above 80 % of a limit, so that a producer can slow down before it is blocked."""
        return self._pending.is_backpressured

    @property
    def _pending(self) -> Pending:
        return self._engine.storage.backpressure.pending(self._info.id)

    def writer(self, *, max_rows: int = 10_000, max_delay: float = 0.05) -> BatchingWriter:
        """A context manager that batches small inserts into larger commits."""
        return BatchingWriter(self, max_rows, max_delay)


class BatchingWriter:
    """Commits when there are `max_rows` rows or the first has waited `max_delay` seconds, and on `flush` and exit.

    The next call raises the error of a background commit. An invalid row is dropped and named in the error; the other rows of its batch are
    committed. If a commit fails for another reason, its rows are kept for the next commit.
    """

    def __init__(self, source: SourceHandle, max_rows: int, max_delay: float) -> None:
        self._source = source
        self._max_rows = max_rows
        self._max_delay = max_delay
        self._rows: list[Any] = []
        self._lock = threading.Condition()
        self._closed = False
        self.commits = self.refused = 0
        """Commits so far, and rows that were dropped because they were invalid."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-writer-{source.name}", daemon=True)
        self._thread.start()

    def write(self, row: dict[str, Any] | tuple[Any, ...]) -> None:
        with self._lock:
            self._check()
            self._rows.append(row)
            if len(self._rows) == 1 or len(self._rows) >= self._max_rows:
                self._lock.notify_all()

    def pace(self, max_rows: int, max_delay: float) -> None:
        """Changes the limits."""
        with self._lock:
            self._max_rows, self._max_delay = max_rows, max_delay
            self._lock.notify_all()

    @property
    def pending(self) -> int:
        """Rows that are not committed yet."""
        return len(self._rows)

    def flush(self) -> int | None:
        """Commits the buffered rows. Returns the LSN, or None if there were none."""
        with self._lock:
            self._check()
            return self._commit()

    def _check(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._closed:
            raise fail("PSK-0004", "The writer is closed.")

    def _commit(self) -> int | None:
        if self._rows:
            # Ctrl-C may end this wait, while the rows are still buffered.
            self._source._await_level()
        rows, self._rows = self._rows, []
        if not rows:
            return None
        try:
            return self._insert(rows)
        except PenstockError as error:
            if error.code not in _MISFITS:
                raise
        return self._commit_fitting(rows)

    def _insert(self, rows: list[Any]) -> int:
        """Commits rows; after an error that is not about the rows, they are kept for the next commit."""
        # Count first, because readers of the commit may be faster than this thread.
        self.commits += 1
        try:
            return self._source.insert(rows)
        except BaseException as error:
            self.commits -= 1
            if isinstance(error, PenstockError) and error.code not in _MISFITS:
                self._rows = [*rows, *self._rows]
            raise

    def _commit_fitting(self, rows: list[Any]) -> int | None:
        """Commits the valid rows and raises the error of the first invalid one."""
        fitting: list[Any] = []
        refused: list[tuple[Any, PenstockError]] = []
        for row in rows:
            try:
                self._source.check([row])
                fitting.append(row)
            except PenstockError as error:
                refused.append((row, error))
        self.refused += len(refused)
        lsn = self._insert(fitting) if fitting else None
        if refused:
            row, first = refused[0]
            raise fail(
                first.code,
                f"{len(refused)} of {len(rows)} rows were dropped, the others are committed. The first: {row!r}: {first.detail}",
                hint=first.hint,
            ) from first
        return lsn

    def _run(self) -> None:
        with self._lock:
            while not self._closed:
                self._lock.wait_for(lambda: self._rows or self._closed)
                if self._closed:
                    return
                self._lock.wait_for(lambda: len(self._rows) >= self._max_rows or self._closed, timeout=self._max_delay)
                try:
                    self._commit()
                except BaseException as error:
                    self._error = error

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self._check()
                self._commit()
            finally:
                self._closed = True
                self._lock.notify_all()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


__all__ = ["BatchingWriter", "SourceHandle"]
