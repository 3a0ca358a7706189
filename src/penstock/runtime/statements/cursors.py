"""DECLARE, FETCH and CLOSE: a subscription that statements read from."""

from __future__ import annotations

import io

import pyarrow as pa

from penstock.connect.encode import json_lines
from penstock.errors import fail
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.subscribe import subscribe_statement
from penstock.serve.group import GroupChange, GroupSubscription
from penstock.serve.layout import WEIGHT
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.names import suggestion

_WAIT_S = 1.0
_GROUP = pa.schema([("object", pa.string()), ("row", pa.string()), ("lsn", pa.int64()), (WEIGHT, pa.int64())])
"""The columns of a group, whose members have different ones: a row as JSON."""


def declare(session: Session, s: st.DeclareCursor) -> None:
    name = s.cursor.lower()
    if name in session.cursors:
        raise fail("PSK-1003", f"Cursor {s.cursor} already exists.", hint=f"CLOSE {s.cursor} first.")
    session.cursors[name] = subscribe_statement(session, s.subscribe)


def fetch(session: Session, s: st.Fetch) -> pa.Table:
    """Up to `count` pending changes; if there are none, those that arrive within a second."""
    cursor = _cursor(session, s.cursor)
    if isinstance(cursor, GroupSubscription):
        return _group(cursor, s.count, session.engine.settings.subscribe.buffer_bytes)
    changes = cursor.fetch(s.count, timeout=_WAIT_S)
    return pa.concat_tables([c.table for c in changes]) if changes else cursor.schema.empty_table()


def close(session: Session, s: st.CloseCursor) -> None:
    _cursor(session, s.cursor).cancel()
    del session.cursors[s.cursor.lower()]


def _cursor(session: Session, name: str) -> Subscription | GroupSubscription:
    found = session.cursors.get(name.lower())
    if found is None:
        raise fail("PSK-1002", f"Cursor {name} is not found.", hint=suggestion(name, session.cursors))
    return found


def _group(cursor: GroupSubscription, count: int | None, room: int) -> pa.Table:
    parts: list[pa.Table] = []
    left = count
    while left != 0 and room > 0 and (change := cursor.next(0.0 if parts else _WAIT_S)) is not None:
        parts.append(_rows(change))
        room -= parts[-1].nbytes
        left = None if left is None else left - 1
    return pa.concat_tables(parts) if parts else _GROUP.empty_table()


def _rows(change: GroupChange) -> pa.Table:
    parts = [_GROUP.empty_table()]
    for name, table in change.tables.items():
        weighted = WEIGHT in table.column_names
        text = io.BytesIO()
        json_lines(table.drop_columns([WEIGHT]) if weighted else table, text)
        count = table.num_rows
        weights = table[WEIGHT] if weighted else pa.nulls(count, pa.int64())
        rows = [line.decode() for line in text.getvalue().splitlines()]
        columns = [
            pa.repeat(name, count),
            pa.array(rows, pa.string()),
            pa.repeat(pa.scalar(change.lsn, pa.int64()), count),
        ]
        parts.append(pa.Table.from_arrays([*columns, weights], schema=_GROUP))
    return pa.concat_tables(parts)
