"""No secret of a connector is stored, shown or logged."""

from __future__ import annotations

import socket
import traceback
from queue import Queue
from typing import Any

import pyarrow as pa
import pytest

from penstock.catalog.objects import Column, Connector
from penstock.config import substitute
from penstock.connect import (
    Access,
    Capabilities,
    Opening,
    Resolved,
    Sink,
    find_lookup,
    lookups,
    make_sink,
    make_source,
    masked,
    redacted,
    resolve,
    sinks,
)
from penstock.connect.lookups import LookupConnector
from penstock.errors import PenstockError, fail

VALUES = {"TOKEN": "s3cr3t/value", "HOST": "db.example", "SHORT": "9"}


def values(text: str) -> str:
    return substitute(text, VALUES)


ACCESS = Access(values)
COLUMNS = [Column("k", "bigint")]


def test_resolved_each_time() -> None:
    current = {"TOKEN": "old"}
    written = Connector("websocket", {"url": "wss://h/${TOKEN}"}, "json", {"json.column.k": "${K:-a.b}"})
    first = resolve(written, lambda text: substitute(text, current))
    current["TOKEN"] = "new"
    second = resolve(written, lambda text: substitute(text, current))
    assert (first.options["url"], second.options["url"]) == ("wss://h/old", "wss://h/new")
    assert second.format_options == {"json.column.k": "a.b"}
    assert written.options == {"url": "wss://h/${TOKEN}"}


def test_a_missing_variable_is_refused() -> None:
    with pytest.raises(PenstockError) as caught:
        resolve(Connector("x", {"a": "${NOT_SET_ANYWHERE}"}), values)
    assert caught.value.code == "PSK-0003"


def test_a_resolved_connector_shows_no_value() -> None:
    made = resolve(
        Connector("files", {"path": "/data/${HOST}/x", "password": "${TOKEN}", "url": "ws://u:${SHORT}@h"}), values
    )
    assert isinstance(made, Resolved)
    for shown in (repr(made), redacted(made), f"{made}", str([made])):
        assert "s3cr3t" not in shown and "db.example" not in shown and "u:9@" not in shown
    assert made.options["password"] == "s3cr3t/value"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("url = 'postgresql://h:5432/d', name = 'a@b'", "url = 'postgresql://h:5432/d', name = 'a@b'"),
        ("url = 'postgresql://u:secret@h/d'", "url = 'postgresql://u:***@h/d'"),
        ("url = 'postgresql://u:${PW}@h/d'", "url = 'postgresql://u:${PW}@h/d'"),
        ("url = 'postgresql://u:${PW:-x}y@h/d'", "url = 'postgresql://u:***@h/d'"),
        ("user = 'u', Password = 'it\\'s', table = 't'", "user = 'u', Password = '***', table = 't'"),
        ("'password' = '${PW}'", "'password' = '${PW}'"),
        ("sasl.password = r'x\\y'", "sasl.password = r'***'"),
        ('api_key = "k"', 'api_key = "***"'),
        ("url = 'wss://h/x?token=abc&a=b'", "url = 'wss://h/x?token=***&a=b'"),
    ],
)
def test_stored_statements_are_shown_without_secrets(written: str, shown: str) -> None:
    for statement in (
        "CREATE LOOKUP TABLE t (password STRING, PRIMARY KEY (password)) FROM POSTGRES ({}) WITH (refresh = '1 s')",
        "CREATE SINK k FROM s WHERE token = 'abc' INTO POSTGRES ({})",
        "CREATE SOURCE s (a INT) FROM WEBSOCKET (x = 'y') FORMAT JSON ({})",
    ):
        assert masked(statement.format(written)) == statement.format(shown)


def test_a_condition_is_shown_as_written() -> None:
    statement = "CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE token = 'abc' AND url = 'http://u:p@h'"
    assert masked(statement) == statement
    assert "abc" not in masked("CREATE SOURCE s FROM X (token = 'abc")  # it does not end


class _LeakingSink(Sink):
    """Puts all that it knows into its errors."""

    def __init__(self, connector: Connector, access: Access) -> None:
        self._known = str(connector.options)
        if connector.options.get("url") == "now":
            raise ValueError(self._known)

    capabilities = Capabilities(changelog=True)

    def open(self, opening: Opening) -> int:
        raise fail("PSK-5002", self._known, hint=self._known)

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        try:
            raise OSError(self._known)
        except OSError as why:
            raise RuntimeError(self._known) from why


class _LeakingLookup:
    def __init__(self, connector: Connector, columns: Any, key: Any, access: Access) -> None:
        self._known = str(connector.options)

    def check(self) -> None: ...

    def scan(self) -> pa.Table:
        raise fail("PSK-5002", self._known)

    def fetch(self, keys: pa.Table) -> pa.Table:
        raise KeyError(self._known)

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _leaking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sinks.SINKS._known, "LEAKING", sinks.SinkConnector(_LeakingSink, ("password",), False))
    monkeypatch.setitem(lookups.LOOKUPS._known, "LEAKING", LookupConnector(_LeakingLookup, ("password",), True))


def shown(error: PenstockError) -> str:
    return "\n".join([str(error), error.render(), repr(error), *traceback.format_exception(error)])


def test_errors_of_a_sink() -> None:
    connector = Connector("leaking", {"password": "${TOKEN}"})
    sink = make_sink(connector, changelog=True, access=ACCESS)
    assert sink.capabilities.changelog
    for call in (lambda: sink.open(Opening("i", pa.schema([]))), lambda: sink.write(1, 1, pa.table({}))):
        with pytest.raises(PenstockError) as caught:
            call()
        assert caught.value.code == "PSK-5002"
        assert "***" in caught.value.detail
        assert "s3cr3t" not in shown(caught.value)
    with pytest.raises(PenstockError) as caught:
        make_sink(Connector("leaking", {"url": "now", "password": "${TOKEN}"}), changelog=True, access=ACCESS)
    assert "s3cr3t" not in shown(caught.value)


def test_errors_of_a_lookup() -> None:
    source = find_lookup("leaking").factory(Connector("leaking", {"password": "${TOKEN}"}), COLUMNS, ["k"], ACCESS)
    source.check()
    for call in (source.scan, lambda: source.fetch(pa.table({}))):
        with pytest.raises(PenstockError) as caught:
            call()
        assert "s3cr3t" not in shown(caught.value)


def test_errors_of_a_source() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = "ws://user:${TOKEN}@127.0.0.1:" + str(port) + "/feed/${TOKEN}?api_key=${HOST}"
    access = Access(lambda text: substitute(text, {"TOKEN": "s3cr3t", "HOST": "db.example"}))
    source = make_source(Connector("websocket", {"url": url, "reconnect.min": "60"}), COLUMNS, access)
    reports: Queue[Any] = Queue()
    source.start(lambda batch: None, reports.put)
    status = reports.get(timeout=30)
    source.stop()
    assert status.state == "disconnected"
    assert str(port) in str(status.error)
    assert "s3cr3t" not in shown(status.error) and "db.example" not in shown(status.error)


def test_a_bad_url_is_not_shown_either() -> None:
    with pytest.raises(PenstockError) as caught:
        make_source(Connector("websocket", {"url": "http://u:${TOKEN}@h"}), COLUMNS, ACCESS)
    assert caught.value.code == "PSK-1011"
    assert "s3cr3t" not in shown(caught.value)
