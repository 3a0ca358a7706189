"""POSTGRES: a sink that writes to a table of a PostgreSQL server."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from psycopg import sql

from penstock.catalog.declared import declared
from penstock.catalog.objects import Connector
from penstock.catalog.types import WEIGHT
from penstock.catalog.values import values
from penstock.catalog.variant import json_text
from penstock.connect.access import Access
from penstock.connect.options import check_options, choice, required
from penstock.connect.postgresurl import CONNECT_SECONDS, conninfo, failed
from penstock.connect.sinks import Capabilities, Opening, Sink, register_sink
from penstock.connect.types import INTERVALS, refuse_written
from penstock.errors import PenstockError, fail
from penstock.serve.zset import consolidate, inserted
from penstock.sql.names import suggestion

_OPTIONS = ("url", "user", "password", "table", "mode", "key", "epochs", "epoch_column")
_EPOCHS = "penstock_sinks"
_HINT = "Check url and table, and that the server is running and lets this user write to the table."
_CHANGES = sql.Identifier("pg_temp", "penstock_changes")
# Without statistics the server joins larger tables badly.
_ANALYZE_ROWS = 1000
_AS_TEXT = frozenset({"json", "jsonb", "text", "character varying"})

M = TypeVar("M", bound=Callable[..., Any])


def _translated(method: M) -> M:
    """Turns errors of psycopg into PSK-5002."""

    @wraps(method)
    def call(self: PostgresSink, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except psycopg.Error as why:
            raise failed(why, self._address, _HINT) from None

    return cast(M, call)


class PostgresSink(Sink):
    """Exactly once: the last epoch is recorded in the table `epochs`, in the transaction that writes the rows.

    `mode = 'append'` inserts rows with COPY. `mode = 'upsert'` applies a changelog: the changes of a transaction are added up, and for each key the one live row is
    inserted or updated, or the row is deleted if none is left. Two live rows with one key are an error (PSK-5006). With `epoch_column` every appended row has
    the number of its epoch, so that epochs can be taken back.
    """

    def __init__(
        self,
        address: dict[str, Any],
        table: str,
        key: tuple[str, ...] | None,
        epochs: str,
        epoch_column: str | None = None,
    ) -> None:
        """`key`: None to append; empty for the primary key of the table."""
        self.capabilities = Capabilities(
            changelog=key is not None, exactly_once=True, takes_back=epoch_column is not None
        )
        self._epoch_column = epoch_column
        self._address = address
        self._text = table
        self._key = key
        self._epochs = sql.Identifier(*epochs.split("."))
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._table: sql.Composable = sql.SQL("")
        self._names: dict[str, str] = {}
        self._schema: pa.Schema = pa.schema([])
        self._identity: str | None = None
        self._committed = 0
        self._changes: list[pa.Table] = []

    # Opening

    @_translated
    def open(self, opening: Opening) -> int:
        connection = psycopg.connect(**self._address, connect_timeout=CONNECT_SECONDS)
        self._connection = connection
        try:
            self._prepare(connection, opening)
            connection.commit()
        except BaseException:
            self.close()
            raise
        return self._committed

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]], opening: Opening) -> None:
        connection.prepare_threshold = None  # Connection poolers may not support prepared statements.
        connection.execute("SET TimeZone = 'UTC'")
        # The server then notices within seconds that a connection is gone, and releases its locks. Versions before 14 cannot.
        connection.execute(
            "SELECT set_config(name, '2s', false) FROM pg_settings WHERE name = 'client_connection_check_interval'"
        )
        # A commit is the decision, and must be on disk before it is announced. The other values say at least that.
        connection.execute(
            "SELECT set_config(name, 'on', false) FROM pg_settings WHERE name = 'synchronous_commit' AND setting = 'off'"
        )
        self._schema = pa.schema([f for f in opening.schema if f.name != WEIGHT])
        refuse_written("POSTGRES", (f for f in self._schema if pa.types.is_nested(f.type)), INTERVALS)
        self._resolve(connection)
        self._committed = opening.committed
        if opening.exactly_once:
            self._check_logged(connection)
            self._identity = opening.identity
            self._committed = self._recorded(connection, opening)

    def _resolve(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Finds the table, its columns and its key."""
        found = connection.execute("SELECT to_regclass(%s)::text", (self._text,)).fetchone()
        if found is None or found[0] is None:
            raise fail(
                "PSK-5002", f"POSTGRES: there is no table {self._text}.", hint="Create it, or write it as in psql."
            )
        self._table = sql.SQL(found[0])
        have = dict(
            connection.execute(
                "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
                "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                (self._text,),
            ).fetchall()
        )
        folded = {n.lower(): n for n in have}
        for field in self._schema:
            own = field.name if field.name in have else folded.get(field.name.lower())
            if own is None:
                raise fail("PSK-1004", f"POSTGRES: there is no column {field.name}.", hint=suggestion(field.name, have))
            if pa.types.is_nested(field.type) and have[own] not in _AS_TEXT:
                raise fail(
                    "PSK-5002",
                    f"POSTGRES: the nested column {field.name} cannot be written to a column of type {have[own]}.",
                    hint="Nested values are written as JSON: use a column of type jsonb, json or text.",
                )
            self._names[field.name] = own
        if self._epoch_column is not None and (self._epoch_column not in have or self._epoch_column in self._names):
            raise fail(
                "PSK-1004",
                f"POSTGRES: there is no column {self._epoch_column} for epochs alone.",
                hint=f"ALTER TABLE {self._text} ADD COLUMN … bigint.",
            )
        if self._key is not None:
            self._find_key(connection)

    def _check_logged(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """An unlogged table is emptied when the server crashes, and the record of epochs is not."""
        found = connection.execute(
            "SELECT relpersistence::text FROM pg_class WHERE oid = %s::regclass", (self._text,)
        ).fetchone()
        if found == ("u",):
            raise fail(
                "PSK-5031",
                f"POSTGRES: {self._text} is unlogged, so a crash of the server empties it.",
                hint=f"ALTER TABLE {self._text} SET LOGGED, or WITH (guarantee = 'at-least-once').",
            )

    def _find_key(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        unique = connection.execute(
            "SELECT indisprimary, array(SELECT attname::text FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)) "
            "FROM pg_index i WHERE indrelid = %s::regclass AND indisunique AND indimmediate AND indisvalid "
            "AND indpred IS NULL AND indexprs IS NULL",
            (self._text,),
        ).fetchall()
        if not self._key:
            primary = [tuple(columns) for is_primary, columns in unique if is_primary]
            if not primary:
                raise fail(
                    "PSK-5002", f"POSTGRES: {self._text} has no primary key.", hint="Name the key: key = 'a, b'."
                )
            self._key = primary[0]
        own = tuple(self._own(name) for name in self._key)
        if not any(set(columns) == set(own) for _, columns in unique):
            raise fail(
                "PSK-5002",
                f"POSTGRES: {self._text} has no unique index on ({', '.join(own)}).",
                hint="Create one: CREATE UNIQUE INDEX ON … (…).",
            )
        self._key = own

    def _own(self, name: str) -> str:
        for column, own in self._names.items():
            if name in (column, own) or name.lower() == column.lower():
                return own
        raise fail("PSK-1004", f"POSTGRES: the stream has no key column {name}.", hint=suggestion(name, self._names))

    def _recorded(self, connection: psycopg.Connection[tuple[Any, ...]], opening: Opening) -> int:
        """The last epoch of this sink that the server has; registers a new sink."""
        if connection.execute("SELECT to_regclass(%s)", (self._epochs.as_string(connection),)).fetchone() == (None,):
            # Of two sinks that create it at once, one fails, and is opened again.
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (sink text PRIMARY KEY, epoch bigint NOT NULL, "
                    "written timestamptz NOT NULL DEFAULT now())"
                ).format(self._epochs)
            )
        if not opening.committed:
            connection.execute(
                sql.SQL("INSERT INTO {} (sink, epoch) VALUES (%s, 0) ON CONFLICT DO NOTHING").format(self._epochs),
                (opening.identity,),
            )
        found = connection.execute(
            sql.SQL("SELECT epoch FROM {} WHERE sink = %s").format(self._epochs), (opening.identity,)
        ).fetchone()
        epoch = found[0] if found is not None else None
        if epoch is None or epoch < opening.committed:
            said = f"its last epoch is {epoch}" if epoch is not None else "it does not know this sink"
            raise fail(
                "PSK-5017",
                f"POSTGRES: epoch {opening.committed} was committed, but according to {self._epochs.as_string(connection)} {said}.",
                hint="The database was probably restored from a backup. Drop the sink, empty the table and create the sink again.",
            )
        return int(epoch)

    # A transaction

    @_translated
    def begin(self, epoch: int) -> None:
        self._changes = []
        if self._identity is None:
            return
        # The lock waits for the end of a transaction that was interrupted, and keeps others with the same identity out.
        found = self._open.execute(
            sql.SQL("SELECT epoch FROM {} WHERE sink = %s FOR UPDATE").format(self._epochs), (self._identity,)
        ).fetchone()
        if found != (self._committed,):
            raise fail(
                "PSK-5015",
                f"POSTGRES: another process delivers as this sink: the last epoch is {found[0] if found else None}, not {self._committed}.",
                hint="Only one copy of a database may deliver. Close the other one, or drop the sink here.",
            )

    @_translated
    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        if self._key is None:
            rows, column = inserted(table), self._epoch_column
            if column is not None:
                rows = rows.append_column(column, pa.array([epoch] * rows.num_rows, pa.int64()))
            self._copy(self._table, rows, [] if column is None else [column])
        else:
            self._changes.append(table)

    @_translated
    def pre_commit(self, epoch: int) -> None:
        if self._changes:
            self._apply(consolidate(pa.concat_tables(self._changes)))
            self._changes = []
        if self._identity is not None:
            self._open.execute(
                sql.SQL("UPDATE {} SET epoch = %s, written = now() WHERE sink = %s").format(self._epochs),
                (epoch, self._identity),
            )
        self._open.execute("SET CONSTRAINTS ALL IMMEDIATE")

    @_translated
    def commit(self, epoch: int) -> None:
        self._open.commit()
        self._committed = epoch

    @_translated
    def rollback(self, epoch: int) -> None:
        self._changes = []
        self._open.rollback()

    @_translated
    def take_back(self, after: int, up_to: int) -> None:
        """One transaction removes the rows, and lets the record say so."""
        assert self._epoch_column is not None
        if self._identity is not None:
            self._open.execute(
                sql.SQL(
                    "UPDATE {} SET epoch = %s, written = now() WHERE sink = %s AND epoch > %s AND epoch <= %s"
                ).format(self._epochs),
                (after, self._identity, after, up_to),
            )
        self._open.execute(
            sql.SQL("DELETE FROM {0} WHERE {1} > %s AND {1} <= %s").format(
                self._table, sql.Identifier(self._epoch_column)
            ),
            (after, up_to),
        )
        self._open.commit()
        if after < self._committed <= up_to:
            self._committed = after

    def cancel(self) -> None:
        connection = self._connection
        if connection is None or connection.closed:
            return
        # A request to cancel would need a server that answers. The copy of the descriptor is ours to close.
        try:
            with socket.socket(fileno=os.dup(connection.fileno())) as shared:
                shared.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            return

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None:
            raise fail("PSK-5002", "POSTGRES: the connection is closed.")
        return self._connection

    # Rows

    def _copy(self, into: sql.Composable, table: pa.Table, more: list[str]) -> None:
        columns = [sql.Identifier(self._names[n]) for n in self._schema.names] + [sql.Identifier(n) for n in more]
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(into, sql.SQL(", ").join(columns))
        with self._open.cursor().copy(statement) as out:
            for batch in table.select([*self._schema.names, *more]).to_batches(max_chunksize=20_000):
                out.write(_csv(batch))

    def _apply(self, changes: pa.Table) -> None:
        """Applies a Z-set to the table."""
        if not changes.num_rows:
            return
        assert self._key is not None
        connection = self._open
        own = sql.SQL(", ").join(sql.Identifier(self._names[n]) for n in self._schema.names)
        key = sql.SQL(", ").join(sql.Identifier(n) for n in self._key)
        parts = {
            "changes": _CHANGES,
            "into": self._table,
            "columns": own,
            "key": key,
            "same": _all(self._key, "c.{0} = t.{0}"),
            "retracted": sql.SQL("EXISTS (SELECT FROM {} r WHERE r.__weight < 0 AND {})").format(
                _CHANGES, _all(self._key, "r.{0} = c.{0}")
            ),
        }

        def run(text: str) -> psycopg.Cursor[tuple[Any, ...]]:
            return connection.execute(sql.SQL(text).format(**parts))

        run(
            "CREATE TEMPORARY TABLE penstock_changes ON COMMIT DROP AS SELECT {columns}, 0::bigint AS __weight FROM {into} LIMIT 0"
        )
        self._copy(_CHANGES, changes, [WEIGHT])
        if changes.num_rows > _ANALYZE_ROWS:
            run("ANALYZE {changes}")
        # 1. Refuse what has no key, or is not the only live row of its key.
        parts["null"] = _all(self._key, "{0} IS NOT NULL")
        if run("SELECT FROM {changes} WHERE NOT ({null}) LIMIT 1").rowcount:
            raise fail("PSK-5006", f"POSTGRES: a row has NULL in its key ({', '.join(self._key)}).")
        twice = run("SELECT {key} FROM {changes} WHERE __weight > 0 GROUP BY {key} HAVING sum(__weight) > 1 LIMIT 1")
        self._refuse(twice.fetchone())
        if self._committed and self._identity is not None:
            # The first transaction takes over what is in the table. Without exactly-once, a key may be there because its epoch is repeated.
            kept = sql.SQL(", ").join(sql.SQL("c.{}").format(sql.Identifier(n)) for n in self._key)
            parts["kept"] = kept
            found = run(
                "SELECT {kept} FROM {changes} c JOIN {into} t ON {same} WHERE c.__weight > 0 AND NOT {retracted} LIMIT 1"
            )
            self._refuse(found.fetchone())
        # 2. Delete the keys that are left without a row.
        parts["live"] = sql.SQL("EXISTS (SELECT FROM {} r WHERE r.__weight > 0 AND {})").format(
            _CHANGES, _all(self._key, "r.{0} = c.{0}")
        )
        run("DELETE FROM {into} t USING {changes} c WHERE {same} AND c.__weight < 0 AND NOT {live}")
        # 3. Insert or update the others.
        rest = [sql.Identifier(o) for o in self._names.values() if o not in self._key]
        sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(n) for n in rest)
        parts["action"] = sql.SQL("UPDATE SET {}").format(sets) if rest else sql.SQL("NOTHING")
        run(
            "INSERT INTO {into} ({columns}) SELECT {columns} FROM {changes} WHERE __weight > 0 ON CONFLICT ({key}) DO {action}"
        )

    def _refuse(self, key: tuple[Any, ...] | None) -> None:
        if key is not None:
            assert self._key is not None
            shown = ", ".join(f"{name} = {value}" for name, value in zip(self._key, key, strict=True))
            raise fail(
                "PSK-5006",
                f"POSTGRES: there is more than one row with {shown}.",
                hint="mode = 'upsert' needs a key that no two rows of the stream share, and a table that nobody else writes to.",
            )


def _all(names: tuple[str, ...], template: str) -> sql.Composable:
    return sql.SQL(" AND ").join(sql.SQL(template).format(sql.Identifier(n)) for n in names)


def _csv(batch: pa.RecordBatch) -> bytes:
    """COPY's CSV: NULL is nothing, and the empty string is quoted."""
    columns = [_plain(batch.column(i), field) for i, field in enumerate(batch.schema)]
    out = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=False)
    pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), out, options)
    return out.getvalue()


def _plain(column: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if (declared(field) or "").startswith("interval"):
        unit = "microseconds" if pa.types.is_duration(kind) else "months"
        numbers = column.cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(numbers, pa.scalar(unit), " ")
    if pa.types.is_nested(kind):
        return pa.array([None if v is None else json_text(v) for v in values(column, field)], pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else "\\x" + v.hex() for v in column.to_pylist()], pa.string())
    return column


@register_sink("POSTGRES", _OPTIONS, exactly_once=True)
def _make(connector: Connector, access: Access) -> PostgresSink:
    options = connector.options
    check_options("POSTGRES", options, _OPTIONS)
    if connector.format or connector.format_options:
        raise fail("PSK-1012", "POSTGRES does not support FORMAT.", hint="Remove FORMAT.")
    mode = choice("POSTGRES", "mode", options.get("mode", "append"), ("append", "upsert"))
    key = tuple(k.strip() for k in options.get("key", "").split(",") if k.strip())
    if key and mode == "append":
        raise _unused_key()
    if mode == "upsert" and "epoch_column" in options:
        raise fail("PSK-1011", "POSTGRES: epoch_column has no meaning with mode = 'upsert'.", hint="Leave it out.")
    return PostgresSink(
        conninfo(options, access),
        required("POSTGRES", options, "table"),
        key if mode == "upsert" else None,
        options.get("epochs") or _EPOCHS,
        options.get("epoch_column"),
    )


def _unused_key() -> PenstockError:
    return fail("PSK-1011", "POSTGRES: key has no meaning with mode = 'append'.", hint="Write mode = 'upsert'.")
