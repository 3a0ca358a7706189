"""INSERT, UPDATE, DELETE and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import fail
from penstock.runtime.statements.select import select
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.visible import visible
from penstock.runtime.storage.writes import Write
from penstock.sql import statements as st
from penstock.sql.names import suggestion


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
            return _write(session, None, lambda: [_insert(session, s)])
        case st.Update():
            return _write(session, _table(session, s.target), lambda: _update(session, s))
        case st.Delete():
            return _write(session, _table(session, s.target), lambda: _delete(session, s))
    return None


def _open(session: Session) -> list[Write]:
    if session.pending is None:
        raise fail("PSK-0006", "No transaction is open.", hint="BEGIN one first.")
    return session.pending


def _write(session: Session, alone: ObjectInfo | None, prepare: Callable[[], list[Write]]) -> pa.Table:
    """A commit of its own, or a part of the open transaction. What breaks a constraint by then is refused now.

    `alone`: the table into which no other commit may come between what is read and what is written.
    """
    if session.pending is not None:
        writes = prepare()
        if any(action != "insert" for _, action, _ in writes):
            session.writer.preview([*session.pending, *writes])
        session.pending.extend(writes)
    else:
        with session.writer.alone([alone] if alone is not None else []):
            writes = prepare()
            session.last_lsn = session.writer.commit(writes, fresh=alone is not None)
    count = max(sum(b.num_rows for b in part.batches) for _, _, part in writes)
    return pa.table({"rows": pa.array([count], pa.int64())})


def _insert(session: Session, s: st.Insert) -> Write:
    info = session.writer.target(s.target)
    names = list(s.columns) if s.columns is not None else [c.name for c in info.columns]
    if s.values is not None:
        rows = _values(session, s, names)
    else:
        assert s.select is not None
        rows = select(session, s.select)
    if rows.num_columns != len(names):
        raise fail("PSK-1016", f"{rows.num_columns} values are given for {len(names)} columns of {info.name}.")
    types = {c.name.lower(): c.type for c in info.columns}
    for n in names:
        if n.lower() not in types:
            raise fail("PSK-1004", f"{info.name} has no column {n}.", hint=suggestion(n, types))
    cast = ", ".join(f"CAST(`v{i}` AS {types[n.lower()]}) AS `{n}`" for i, n in enumerate(names))
    typed = session.engine.compute.batch.select(
        f"SELECT {cast} FROM v", {"v": rows.rename_columns([f"v{i}" for i in range(len(names))])}
    )
    return info, "insert", session.engine.storage.feed(info).part(typed)


def _values(session: Session, s: st.Insert, names: list[str]) -> pa.Table:
    assert s.values is not None
    rows = []
    for row in s.values:
        if len(row) != len(names):
            raise fail("PSK-1016", f"{len(row)} values are given for {len(names)} columns.")
        rows.append("(" + ", ".join(e.sql(dialect="spark") for e in row) + ")")
    return session.engine.compute.batch.select(f"SELECT * FROM VALUES {', '.join(rows)}", {})


def _table(session: Session, name: str) -> ObjectInfo:
    info = session.writer.target(name)
    if info.kind is Kind.SOURCE:
        raise fail(
            "PSK-5005", f"{info.name} is a source and only takes new rows.", hint="Use a TABLE for rows that change."
        )
    return info


def _update(session: Session, s: st.Update) -> list[Write]:
    info = _table(session, s.target)
    sets = {n.lower(): e for n, e in s.assignments}
    unknown = [n for n in sets if info.column(n) is None]
    if unknown:
        raise fail("PSK-1004", f"{info.name} has no column {unknown[0]}.")
    old = [f"`{c.name}`" for c in info.columns]
    new = [
        f"CAST({sets[c.name.lower()].sql(dialect='spark') if c.name.lower() in sets else f'`{c.name}`'} AS {c.type})"
        for c in info.columns
    ]
    chosen = [f"{e} AS `{side}{i}`" for side, exprs in (("b", old), ("a", new)) for i, e in enumerate(exprs)]
    rows = _matching(session, info, ", ".join(chosen), s.where, sets.values())
    feed, names, width = session.engine.storage.feed(info), [c.name for c in info.columns], len(info.columns)
    before, after = (rows.select(range(at, at + width)).rename_columns(names) for at in (0, width))
    return [(info, "delete", feed.part(before)), (info, "place", feed.part(after))]


def _delete(session: Session, s: st.Delete) -> list[Write]:
    info = _table(session, s.target)
    rows = _matching(session, info, "*", s.where, ())
    return [(info, "delete", session.engine.storage.feed(info).part(rows))]


def _matching(
    session: Session, info: ObjectInfo, chosen: str, where: exp.Expression | None, values: Iterable[exp.Expression]
) -> pa.Table:
    """`chosen` of the rows that fulfil a condition, which may have subqueries over other objects, as may the values."""
    read = {info.id: info}
    for e in (*values, *((where,) if where is not None else ())):
        for table in e.find_all(exp.Table):
            found = session.engine.catalog.get(table.name)
            if found is None:
                raise fail(
                    "PSK-1002",
                    f"{table.name} is not found.",
                    hint=suggestion(table.name, session.engine.catalog.names()),
                )
            read[found.id] = found
    condition = f" WHERE {where.sql(dialect='spark')}" if where is not None else ""
    return session.engine.compute.batch.select(
        f"SELECT {chosen} FROM `{info.name}`{condition}", visible(session, read.values())
    )
