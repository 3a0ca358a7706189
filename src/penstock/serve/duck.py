"""The DuckDB behind the view store: cursors, bounded results, coded errors."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from penstock.errors import PenstockError, fail

_logger = logging.getLogger(__name__)

_BATCH_ROWS = 122_880  # a row group of DuckDB
_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4}
# An interrupted query ends at the next block of rows.
_CLOSE_S = 10.0

Cursor = duckdb.DuckDBPyConnection
Explain = Callable[[Exception], PenstockError | None]
"""Translates an error of DuckDB; None for the general code."""


def size_of(text: str) -> int:
    """Parses a size such as `2gb` or `512 MiB` into bytes; PSK-0002 if it is not one."""
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt])(i?)b\s*", text, re.IGNORECASE)
    if found is None or not int(found[1]):
        raise fail("PSK-0002", f"{text!r} is not a size.", hint="Write a size such as '512mb' or '2gb'.")
    return int(found[1]) * int((1024 if found[3] else 1000) ** _UNITS[found[2].lower()])


class Duck:
    """An in-memory DuckDB that uses at most `memory_limit` and spills to the folder `spill`, which it creates and removes.

    Every operation opens its own cursor, which costs microseconds, and closes it at the end. So a cursor that was interrupted or failed within
    a transaction is never reused; DuckDB rolls the transaction back.
    """

    def __init__(self, memory_limit: str, spill: Path | None) -> None:
        self.limit = size_of(memory_limit)
        self.spill = spill
        self._closed = False
        self._lock = threading.Lock()
        self._busy: dict[int, Cursor] = {}
        if spill is not None:
            # Left behind by a process that was killed.
            shutil.rmtree(spill, ignore_errors=True)
        self._db = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{self.limit}b",
                "temp_directory": "" if spill is None else str(spill),
                # A table name in SQL never refers to a Python variable.
                "python_enable_replacements": False,
            },
        )
        self._db.execute("SET GLOBAL TimeZone = 'UTC'")

    @property
    def closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        if self._closed:
            raise fail("PSK-0004", "The view store is closed.")

    @contextmanager
    def cursor(self, explain: Explain | None = None) -> Iterator[Cursor]:
        """A cursor for one operation. Errors are raised with a code: the one that `explain` returns, or PSK-7001."""
        self.check_open()
        try:
            with self._lock:
                con = self._db.cursor()
            try:
                self._busy[id(con)] = con
                yield con
            finally:
                self._busy.pop(id(con), None)
                con.close()
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as why:
            error = self._translated(why, explain)
            if error is None:
                raise
            raise error from why

    @contextmanager
    def transaction(self, explain: Explain | None = None) -> Iterator[Cursor]:
        """A cursor in a transaction, which is committed at the end of the block."""
        with self.cursor(explain) as con:
            con.execute("BEGIN")
            yield con
            con.execute("COMMIT")

    def batches(self, con: Cursor, sql: str) -> pa.RecordBatchReader:
        """The result of a SELECT, computed as it is read."""
        return con.sql(sql).to_arrow_reader(_BATCH_ROWS)

    def table(self, con: Cursor, sql: str) -> pa.Table:
        """The whole result of a SELECT; PSK-7009 if it exceeds the memory limit."""
        with self.batches(con, sql) as reader:
            schema, batches, size = reader.schema, [], 0
            for batch in reader:
                size += batch.nbytes
                if size > self.limit:
                    raise _too_large(f"it has more than {self.limit} bytes")
                batches.append(batch)
        return pa.Table.from_batches(batches, schema)

    def interrupt(self) -> None:
        """Refuses new operations and interrupts the running ones."""
        self._closed = True
        for con in list(self._busy.values()):
            try:
                con.interrupt()
            except duckdb.Error:  # It has just ended.
                continue

    def close(self) -> None:
        """Releases memory and files. Idempotent, also after an interrupted call."""
        deadline = time.monotonic() + _CLOSE_S
        try:
            while True:
                self.interrupt()
                try:
                    self._db.close()
                    return
                except duckdb.Error as why:
                    # DuckDB refuses to close while a cursor is in use.
                    if time.monotonic() > deadline:
                        _logger.warning("a query still runs after the view store was closed: %s", why)
                        return
                time.sleep(0.01)
        finally:
            if self.spill is not None:
                shutil.rmtree(self.spill, ignore_errors=True)

    def _translated(self, why: Exception, explain: Explain | None) -> BaseException | None:
        """The error with a code; None if it does not come from DuckDB."""
        text = str(why)
        if isinstance(why, RuntimeError):
            # DuckDB turns Ctrl-C into this error.
            return KeyboardInterrupt() if text == "Query interrupted" else None
        if isinstance(why, OSError) and why.errno is not None:
            return None
        if self._closed:
            return fail("PSK-0004", "The view store is closed.")
        # An error while reading a result passes through Arrow, which keeps only its text.
        full = (MemoryError, duckdb.OutOfMemoryException, duckdb.IOException)
        if isinstance(why, full) or text.startswith(("Out of Memory Error", "IO Error")):
            return _too_large(text.partition("\n")[0])
        own = explain(why) if explain is not None else None
        return own if own is not None else fail("PSK-7001", f"The query failed: {_message(text)}")


def _message(text: str) -> str:
    """The error without the query, which is not the user's."""
    return text.partition("\n\nLINE ")[0].strip()


def _too_large(why: str) -> PenstockError:
    return fail("PSK-7009", f"The result does not fit in memory: {why}.")
