"""POSTGRES: a lookup table that reads a table or query of a PostgreSQL server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.catalog.coerce import coerce
from penstock.catalog.objects import Column, Connector
from penstock.catalog.types import schema_of
from penstock.connect.access import Access
from penstock.connect.lookups import register_lookup
from penstock.connect.options import check_options, seconds
from penstock.connect.postgresurl import CONNECT_SECONDS, conninfo, failed
from penstock.connect.types import INTERVALS, VARIANTS, refuse_read
from penstock.errors import fail
from penstock.sql.names import suggestion

_OPTIONS = ("url", "table", "query", "user", "password", "timeout")
_TIMEOUT = "30"
_FETCH_ROWS = 10_000
_CANCEL_SECONDS = 2.0
_HINT = "Check url, table and query, and that the server is running and accepts this user."

T = TypeVar("T")


class PostgresTable:
    """Uses one read-only connection, opened on first use and reopened after a failure.

    Each call is one statement, so its rows are a consistent snapshot. A STRING column accepts any type, in the server's text format.
    """

    def __init__(
        self,
        conninfo: dict[str, Any],
        relation: tuple[str, str],
        timeout: float,
        columns: Sequence[Column],
        key: Sequence[str],
    ) -> None:
        self._conninfo = conninfo
        self._kind, self._text = relation
        self._timeout = timeout
        refuse_read("POSTGRES", columns, INTERVALS, VARIANTS)
        self._schema = schema_of(columns)
        self._key = list(key)
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._from: sql.Composable = sql.SQL("")
        self._names: dict[str, str] = {}
        self._types: dict[str, str] = {}

    def check(self) -> None:
        self._asked(lambda c: None)

    def scan(self) -> pa.Table:
        return self._asked(self._scan)

    def fetch(self, keys: pa.Table) -> pa.Table:
        return self._asked(lambda c: self._fetch(c, keys))

    def cancel(self) -> None:
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                connection.cancel_safe(timeout=_CANCEL_SECONDS)
            except psycopg.Error:
                connection.close()

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    # One call

    def _asked(self, ask: Callable[[psycopg.Connection[tuple[Any, ...]]], T]) -> T:
        with self._lock:
            try:
                return ask(self._connected())
            except psycopg.Error as why:
                self._disconnect()
                raise failed(why, self._conninfo, _HINT) from None
            except BaseException:
                self._disconnect()
                raise

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        connection: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(
            **self._conninfo, connect_timeout=min(CONNECT_SECONDS, max(1, int(self._timeout))), autocommit=True
        )
        self._connection = connection
        connection.prepare_threshold = None  # Connection poolers may not support prepared statements.
        for setting in (
            "SET TimeZone = 'UTC'",
            f"SET statement_timeout = {int(self._timeout * 1000)}",
            "SET default_transaction_read_only = on",
        ):
            connection.execute(setting)
        self._resolve(connection)
        return connection

    def _resolve(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Finds the relation, and the names and types of its columns."""
        if self._kind == "table":
            found = connection.execute("SELECT to_regclass(%s)::text", (self._text,)).fetchone()
            if found is None or found[0] is None:
                raise fail("PSK-5002", f"POSTGRES: there is no table {self._text}.", hint="Write it as in psql.")
            self._from = sql.SQL(found[0])
        else:
            self._from = sql.SQL("({}\n) AS penstock_query").format(sql.SQL(self._text))
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(self._from))
            have = {c.name: c.type_code for c in cursor.description or ()}
            folded = {n.lower(): n for n in have}
            for name in self._schema.names:
                own = name if name in have else folded.get(name.lower())
                if own is None:
                    raise fail("PSK-1004", f"POSTGRES: there is no column {name}.", hint=suggestion(name, have))
                self._names[name] = own
            for name in self._key:
                # -1: no length. NULL would give `character`, which means a length of one.
                cursor.execute("SELECT format_type(%s::oid, -1)", (have[self._names[name]],))
                row = cursor.fetchone()
                assert row is not None
                self._types[name] = row[0]

    def _select(self) -> sql.Composed:
        items = []
        for f in self._schema:
            own = sql.Identifier(self._names[f.name])
            items.append(sql.SQL("{}::text").format(own) if pa.types.is_string(f.type) else own)
        return sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(items), self._from)

    def _scan(self, connection: psycopg.Connection[tuple[Any, ...]]) -> pa.Table:
        parts = [self._schema.empty_table()]
        # A server-side cursor, so that not all rows are in memory as Python objects at once.
        with connection.transaction():
            connection.execute(sql.SQL("DECLARE penstock_scan NO SCROLL CURSOR FOR {}").format(self._select()))
            while rows := connection.execute(f"FETCH {_FETCH_ROWS} FROM penstock_scan").fetchall():
                parts.append(coerce(rows, self._schema))
        return pa.concat_tables(parts)

    def _fetch(self, connection: psycopg.Connection[tuple[Any, ...]], keys: pa.Table) -> pa.Table:
        wanted = list(zip(*(keys.column(n).to_pylist() for n in self._key), strict=True))
        try:
            rows = self._matching(connection, wanted)
        except psycopg.DataError:
            # A key that is not valid for its type on the server ('x' for a uuid) has no row there. Any other error occurs again.
            rows = self._matching(connection, self._valid(connection, wanted))
        return coerce(rows, self._schema) if rows else self._schema.empty_table()

    def _matching(
        self, connection: psycopg.Connection[tuple[Any, ...]], keys: list[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        names = [sql.Identifier(self._names[n]) for n in self._key]
        if len(names) == 1:
            where = sql.SQL("{} = ANY({})").format(names[0], self._arrays())
        else:
            where = sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(sql.SQL(", ").join(names), self._arrays())
        # The user's text may contain a %, which would start a parameter.
        select = self._select().as_string(connection).replace("%", "%%")
        return connection.execute(
            sql.SQL("{} WHERE {}").format(sql.SQL(select), where), _columns(keys, names)
        ).fetchall()

    def _valid(
        self, connection: psycopg.Connection[tuple[Any, ...]], keys: list[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        """The keys that are valid for their types on the server. Bisects to find the invalid ones."""
        try:
            connection.execute(sql.SQL("SELECT {}").format(self._arrays()), _columns(keys, self._key))
            return keys
        except psycopg.DataError:
            half = len(keys) // 2
            return [] if not half else [*self._valid(connection, keys[:half]), *self._valid(connection, keys[half:])]

    def _arrays(self) -> sql.Composable:
        return sql.SQL(", ").join(sql.SQL("%s::{}[]").format(sql.SQL(self._types[n])) for n in self._key)


def _columns(keys: list[tuple[Any, ...]], names: Sequence[object]) -> list[list[Any]]:
    return [[k[i] for k in keys] for i in range(len(names))]


@register_lookup("POSTGRES", _OPTIONS, by_key=True)
def _make(connector: Connector, columns: Sequence[Column], key: Sequence[str], access: Access) -> PostgresTable:
    options = connector.options
    check_options("POSTGRES", options, _OPTIONS)
    if connector.format or connector.format_options:
        raise fail("PSK-1012", "POSTGRES does not support FORMAT.", hint="Remove FORMAT.")
    given = [(k, options[k].strip().rstrip(";")) for k in ("table", "query") if options.get(k, "").strip()]
    if len(given) != 1:
        raise fail("PSK-1011", "POSTGRES needs one of the options 'table' and 'query'.")
    timeout = seconds("POSTGRES", "timeout", options.get("timeout", _TIMEOUT))
    return PostgresTable(conninfo(options, access), given[0], timeout, columns, key)
