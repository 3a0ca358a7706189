"""INSERT, UPDATE, DELETE and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import fail
from penstock.log import Part
from penstock.runtime.contents import contents
from penstock.runtime.select import select
from penstock.sql import statements as st

if TYPE_CHECKING:
    from penstock.runtime.execute import Session

Write = tuple[ObjectInfo, str, Part]


def run_write(session: Session, s: st.Statement) -> pa.Table | None:
    match s:
        case st.Begin():
            if session.pending is not None:
                raise fail("PSK-0006", "A transaction is already open.", hint="COMMIT or ROLLBACK it first.")
            session.pending = []
        case st.Commit():
            writes = _open(session)
            session.pending = None
            if writes:
                session.last_lsn = session.writer.commit(writes)
        case st.Rollback():
            _open(session)
            session.pending = None
        case st.Insert():
            return _write(session, [_insert(session, s)])
        case st.Update():
            return _write(session, _update(session, s))
        case st.Delete():
            return _write(session, _delete(session, s))
    return None


def _open(session: Session) -> list[Write]:
    if session.pending is None:
        raise fail("PSK-0006", "No transaction is open.", hint="BEGIN one first.")
    return session.pending  # type: ignore[return-value]


def _write(session: Session, writes: list[Write]) -> pa.Table:
    count = sum(b.num_rows for _, action, part in writes if action == "insert" for b in part.batches)
    count = count or sum(b.num_rows for _, _, part in writes for b in part.batches)
    if session.pending is not None:
        session.pending.extend(writes)
    else:
        session.last_lsn = session.writer.commit(writes)
    return pa.table({"rows": pa.array([count], pa.int64())})


def _insert(session: Session, s: st.Insert) -> Write:
    info = session.writer.target(s.target)
    names = list(s.columns) if s.columns is not None else [c.name for c in info.columns]
    if s.values is not None:
        rows = _values(session, s, names)
    else:
        assert s.select is not None
        rows = select(session.engine, s.select)
    if rows.num_columns != len(names):
        raise fail("PSK-1016", f"{rows.num_columns} values are given for {len(names)} columns of {info.name}.")
    types = {c.name.lower(): c.type for c in info.columns}
    for n in names:
        if n.lower() not in types:
            from penstock.sql.names import suggestion

            raise fail("PSK-1004", f"{info.name} has no column {n}.", hint=suggestion(n, types))
    cast = ", ".join(f"CAST(`v{i}` AS {types[n.lower()]}) AS `{n}`" for i, n in enumerate(names))
    typed = session.engine.batch.select(
        f"SELECT {cast} FROM v", {"v": rows.rename_columns([f"v{i}" for i in range(len(names))])}
    )
    return info, "insert", session.engine.feeds[info.id].part(typed)


def _values(session: Session, s: st.Insert, names: list[str]) -> pa.Table:
    assert s.values is not None
    rows = []
    for row in s.values:
        if len(row) != len(names):
            raise fail("PSK-1016", f"{len(row)} values are given for {len(names)} columns.")
        rows.append("(" + ", ".join(e.sql(dialect="spark") for e in row) + ")")
    return session.engine.batch.select(f"SELECT * FROM VALUES {', '.join(rows)}", {})


def _table(session: Session, name: str) -> ObjectInfo:
    info = session.writer.target(name)
    if info.kind is Kind.SOURCE:
        raise fail(
            "PSK-5005", f"{info.name} is a source and only takes new rows.", hint="Use a TABLE for rows that change."
        )
    if session.pending:
        raise fail(
            "PSK-1012",
            "UPDATE and DELETE cannot follow other writes in one transaction.",
            hint="Put them first, or in a transaction of their own.",
        )
    return info


def _update(session: Session, s: st.Update) -> list[Write]:
    info = _table(session, s.target)
    sets = {n.lower(): e.sql(dialect="spark") for n, e in s.assignments}
    unknown = [n for n in sets if info.column(n) is None]
    if unknown:
        raise fail("PSK-1004", f"{info.name} has no column {unknown[0]}.")
    where = f" WHERE {s.where.sql(dialect='spark')}" if s.where is not None else ""
    before, after = (
        session.engine.batch.select(
            f"SELECT {', '.join(cols)} FROM `{info.name}`{where}", {info.name: contents(session.engine, info)}
        )
        for cols in (
            [f"`{c.name}`" for c in info.columns],
            [f"CAST({sets.get(c.name.lower(), f'`{c.name}`')} AS {c.type}) AS `{c.name}`" for c in info.columns],
        )
    )
    feed = session.engine.feeds[info.id]
    return [(info, "delete", feed.part(before)), (info, "insert", feed.part(after))]


def _delete(session: Session, s: st.Delete) -> list[Write]:
    info = _table(session, s.target)
    where = f" WHERE {s.where.sql(dialect='spark')}" if s.where is not None else ""
    rows = session.engine.batch.select(
        f"SELECT * FROM `{info.name}`{where}", {info.name: contents(session.engine, info)}
    )
    return [(info, "delete", session.engine.feeds[info.id].part(rows))]
