from __future__ import annotations

import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest
from websockets.sync.server import ServerConnection, serve
from websockets.utils import accept_key

from penstock.catalog.objects import Column, Connector
from penstock.connect import Status, make_source
from penstock.errors import PenstockError

COLUMNS = [Column("id", "bigint"), Column("region", "string")]


@contextmanager
def server(handler: Callable[[ServerConnection], None]) -> Iterator[str]:
    with serve(handler, "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{running.socket.getsockname()[1]}"
        finally:
            running.shutdown()
            thread.join()


class Feed:
    """A started source and what came of it."""

    def __init__(self, url: str, first: Callable[[], object] = lambda: None, **options: str) -> None:
        """`first` is called before the first rows are taken."""
        self._first: Callable[[], object] | None = first
        given = {"url": url, "format": "json", "json.column.region": "meta.region", "reconnect.min": "0.01"}
        self.source = make_source(Connector("websocket", given | options), COLUMNS)
        self.rows: queue.Queue[dict[str, object]] = queue.Queue()
        self.statuses: queue.Queue[Status] = queue.Queue()
        self.source.start(self._insert, self.statuses.put)

    def _insert(self, batch: pa.RecordBatch) -> None:
        first, self._first = self._first, None
        if first is not None:
            first()
        for row in batch.to_pylist():
            self.rows.put(row)

    def ids(self, n: int) -> list[object]:
        return [self.rows.get(timeout=10)["id"] for _ in range(n)]


def test_messages_become_rows() -> None:
    def handler(connection: ServerConnection) -> None:
        connection.send('{"id": 1, "meta": {"region": "us"}}')
        connection.send(b'{"id": 2}')
        connection.recv()

    with server(handler) as url:
        feed = Feed(url)
        assert feed.rows.get(timeout=10) == {"id": 1, "region": "us"}
        assert feed.rows.get(timeout=10) == {"id": 2, "region": None}
        assert feed.statuses.get(timeout=10).state == "connected"
        feed.source.stop()


def test_it_connects_again() -> None:
    count = iter(range(100))

    def handler(connection: ServerConnection) -> None:
        connection.send(f'{{"id": {next(count)}}}')

    with server(handler) as url:
        feed = Feed(url)
        assert feed.ids(3) == [0, 1, 2]
        feed.source.stop()
    states = [feed.statuses.get_nowait().state for _ in range(3)]
    assert states == ["connected", "disconnected", "connected"]


def test_rows_may_be_held_for_longer_than_a_server_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connect.websocket._QUIET_SECONDS", 0.3)
    monkeypatch.setattr("penstock.connect.websocket._MAX_BATCH", 1)
    connections: list[ServerConnection] = []

    def handler(connection: ServerConnection) -> None:
        connections.append(connection)
        for n in range(500):
            connection.send(f'{{"id": {n}}}')
        for _ in connection:
            pass

    with server(handler) as url:
        began = time.monotonic()
        feed = Feed(url, first=lambda: threading.Event().wait(0.7))
        assert feed.ids(500) == list(range(500))
        assert time.monotonic() - began >= 0.7
        # Nothing comes any more, but the server answers.
        assert not threading.Event().wait(0.7)
        feed.source.stop()
    assert len(connections) == 1 and feed.statuses.qsize() == 1


def test_a_server_that_is_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection, and then neither reads nor writes."""
    monkeypatch.setattr("penstock.connect.websocket._QUIET_SECONDS", 0.1)
    monkeypatch.setattr("penstock.connect.websocket._CLOSE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> socket.socket:
            connection, _ = listening.accept()
            key = re.search(rb"Sec-WebSocket-Key: (\S+)", connection.recv(65536))
            assert key is not None
            head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            accepted = accept_key(key[1].decode())
            connection.sendall(f"{head}Sec-WebSocket-Accept: {accepted}\r\n\r\n".encode())
            return connection

        with ThreadPoolExecutor() as pool:
            accepting = pool.submit(accept)
            port = listening.getsockname()[1]
            feed = Feed(f"ws://127.0.0.1:{port}", **{"reconnect.min": "60", "reconnect.max": "60"})
            with accepting.result(10):
                assert feed.statuses.get(timeout=10).state == "connected"
                left = feed.statuses.get(timeout=10)
        assert left.state == "disconnected" and "no answer" in str(left.error)
        feed.source.stop()


def test_nobody_there_is_reported_and_stop_ends_the_wait() -> None:
    with server(lambda connection: None) as url:
        pass
    feed = Feed(url, **{"reconnect.min": "60", "reconnect.max": "60"})
    status = feed.statuses.get(timeout=10)
    assert status.state == "disconnected"
    assert status.error is not None
    assert status.error.code == "PSK-5002"
    feed.source.stop()


def test_a_bad_message_fails_the_source_after_the_good_ones() -> None:
    def handler(connection: ServerConnection) -> None:
        for text in ('{"id": 1}', "nonsense", '{"id": 2}'):
            connection.send(text)
        connection.recv()

    with server(handler) as url:
        feed = Feed(url)
        assert feed.ids(1) == [1]
        assert feed.statuses.get(timeout=10).state == "connected"
        failed = feed.statuses.get(timeout=10)
        assert failed.state == "failed"
        assert failed.error is not None
        assert failed.error.code == "PSK-5007"
        feed.source.stop()
        skipping = Feed(url, on_error="skip")
        assert skipping.ids(2) == [1, 2]
        skipping.source.stop()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "PSK-1011"),
        ({"url": "http://x"}, "PSK-1011"),
        ({"url": "ws://x", "format": "avro"}, "PSK-1011"),
        ({"url": "ws://x", "ulr": "ws://y"}, "PSK-1010"),
        ({"url": "ws://x", "reconnect.min": "soon"}, "PSK-1011"),
        ({"url": "ws://x", "json.column.nope": "a"}, "PSK-1004"),
    ],
)
def test_options_are_checked(options: dict[str, str], code: str) -> None:
    with pytest.raises(PenstockError) as e:
        make_source(Connector("WEBSOCKET", options), COLUMNS)
    assert e.value.code == code


def test_unknown_sources_are_named() -> None:
    with pytest.raises(PenstockError, match="Did you mean WEBSOCKET"):
        make_source(Connector("WEBSOKET"), COLUMNS)
