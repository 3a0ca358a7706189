"""WEBSOCKET: a source that reads messages from a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pyarrow as pa
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

from penstock.catalog.objects import Column, Connector
from penstock.connect.access import Access
from penstock.connect.decode import COLUMN_PREFIX, OPTIONS
from penstock.connect.formats import decoded, find_format
from penstock.connect.options import check_options, choice, required, seconds
from penstock.connect.sources import Insert, Report, Status, register_source
from penstock.errors import PenstockError, fail

_OPTIONS = ("url", "format", "reconnect.min", "reconnect.max")
_FIRST_WAIT = "0.1"
_LONGEST_WAIT = "30"
# How long a thread that waits for a message may take to notice a stop.
_POLL_SECONDS = 0.1
_MAX_BATCH = 1000
# After so long without a message the server is asked whether it is there, and has as long again to answer.
_QUIET_SECONDS = 20.0
# A server that still sends messages, which nobody reads, is not waited for longer.
_CLOSE_SECONDS = 1.0


@register_source("WEBSOCKET", (*_OPTIONS, *OPTIONS, f"{COLUMN_PREFIX}<column>"), replayable=False)
class WebSocketSource:
    """One thread that connects, decodes and inserts, and reconnects with exponential backoff when the connection is lost.

    Options: `url`, `format` (json), `json.column.<name>`, `on_error`, `reconnect.min` and `reconnect.max` in seconds.
    Messages that the server sends while there is no connection are lost.
    `insert` may take as long as it likes: the library's own pings, which nobody answers while no messages are read, are off.
    """

    def __init__(self, connector: Connector, columns: Sequence[Column], access: Access) -> None:
        options = connector.options
        name = choice("WEBSOCKET", "format", connector.format or options.get("format", "json"), decoded())
        format = find_format(name)
        prefixes = (format.prefix,) if format.prefix is not None else ()
        check_options("WEBSOCKET", options, (*_OPTIONS, *format.options), prefixes=prefixes)
        self._url = required("WEBSOCKET", options, "url")
        try:
            parse_uri(self._url)
        except InvalidURI as why:
            raise fail("PSK-1011", f"WEBSOCKET: url = {self._url!r} is not a ws:// or wss:// address.") from why
        self._first_wait = seconds("WEBSOCKET", "reconnect.min", options.get("reconnect.min", _FIRST_WAIT))
        self._longest_wait = seconds("WEBSOCKET", "reconnect.max", options.get("reconnect.max", _LONGEST_WAIT))
        own = {k: v for k, v in options.items() if k not in _OPTIONS}
        assert format.decoder is not None
        self.decoder = format.decoder(columns, {**own, **connector.format_options})
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, insert: Insert, report: Report) -> None:
        """Starts the thread. It passes rows to `insert`, and connection changes and errors to `report`."""
        self._thread = threading.Thread(target=self._run, args=(insert, report), name="penstock-websocket", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns once the thread has ended and everything it received is inserted."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, insert: Insert, report: Report) -> None:
        wait = self._first_wait
        while not self._stop.is_set():
            try:
                with connect(
                    self._url, open_timeout=10, close_timeout=_CLOSE_SECONDS, ping_interval=None
                ) as connection:
                    report(Status("connected"))
                    wait = self._first_wait
                    self._read(connection, insert)
                    return
            except PenstockError as why:
                report(Status("failed", why))
                return
            except (OSError, InvalidHandshake, ConnectionClosed) as why:
                report(Status("disconnected", fail("PSK-5002", f"WEBSOCKET: {self._url}: {why}")))
            except Exception as why:
                report(Status("failed", fail("PSK-5002", f"WEBSOCKET: {type(why).__name__}: {why}")))
                return
            self._stop.wait(wait)
            wait = min(wait * 2, self._longest_wait)

    def _read(self, connection: ClientConnection, insert: Insert) -> None:
        heard, asked, answer = time.monotonic(), 0.0, None
        while not self._stop.is_set():
            lines: list[str | bytes] = []
            try:
                lines.append(connection.recv(timeout=_POLL_SECONDS))
                while len(lines) < _MAX_BATCH:
                    lines.append(connection.recv(timeout=0))
            except TimeoutError:
                pass
            finally:
                # Keep messages that arrived before the connection broke.
                if lines:
                    self._insert(lines, insert)
            now = time.monotonic()
            if lines or (answer is not None and answer.is_set()):
                heard, answer = now, None
            elif answer is None and now - heard > _QUIET_SECONDS:
                asked, answer = now, connection.ping()
            elif answer is not None and now - asked > _QUIET_SECONDS:
                raise TimeoutError(f"no message and no answer for {now - heard:.0f} s")

    def _insert(self, lines: list[str | bytes], insert: Insert) -> None:
        try:
            batch = self.decoder.decode(lines)
        except PenstockError:
            # Batch boundaries are arbitrary, so the lines before the bad one are kept in any case.
            for line in lines:
                self._deliver(self.decoder.decode([line]), insert)
            raise
        self._deliver(batch, insert)

    def _deliver(self, batch: pa.RecordBatch, insert: Insert) -> None:
        if batch.num_rows:
            insert(batch)
