"""INSERT, UPDATE, DELETE and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa
from sqlglot import exp

from penstock.catalog.declared import without_lengths
from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.plan.dialect import DIALECT
from penstock.runtime.statements.constants import Bound
from penstock.runtime.statements.copying import copied_in
from penstock.runtime.statements.engines import spark_as_known
from penstock.runtime.statements.faithful import check_expressions
from penstock.runtime.statements.named import whole
from penstock.runtime.statements.points import NotPoint, assignment, inserted, matched
from penstock.runtime.statements.select import select
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.visible import rows_of_key, visible
from penstock.runtime.storage.writes import Write
from penstock.sql import statements as st
from penstock.sql.bind.inlining import Inlining
from penstock.sql.dml import is_default
from penstock.sql.names import suggestion


def run_write(session: Session, s: st.Statement, bound: Bound | None = None) -> pa.Table | None:
    """`bound` are the values of the statement's placeholders. If Spark has to carry it out, NotPoint is raised before any effect."""
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
            return _write(session, None, lambda: _inserts(session, s, bound or {}))
        case st.CopyFrom():
            return _write(session, None, lambda: [copied_in(session, s)])
        case st.Update():
            return _write(session, _table(session, s.target), lambda: _update(session, s, bound or {}))
        case st.Delete():
            return _write(session, _table(session, s.target), lambda: _delete(session, s, bound or {}))
    return None


def _open(session: Session) -> list[Write]:
    if session.pending is None:
        raise fail("PSK-0006", "No transaction is open.", hint="BEGIN one first.")
    return session.pending


def _write(session: Session, alone: ObjectInfo | None, prepare: Callable[[], list[Write]]) -> pa.Table:
    """Commits the writes, or adds them to the open transaction. A constraint violation is refused immediately.

    `alone`: the table that no other commit may change between the read and the write.
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
    counts = [sum(b.num_rows for b in part.batches) for _, _, part in writes]
    # A changed row is deleted and inserted.
    count = sum(counts) if all(action == "insert" for _, action, _ in writes) else max(counts)
    return pa.table({"rows": pa.array([count], pa.int64())})


def _inserts(session: Session, s: st.Insert, bound: Bound) -> list[Write]:
    """One write, or one for each run of rows with DEFAULT in the same columns, which are left out."""
    if s.values is None or not any(is_default(e) for row in s.values for e in row):
        return [_insert(session, s, bound)]
    names = s.columns or [c.name for c in session.writer.target(s.target).columns]
    out = []
    for left_out, run in groupby(s.values, key=lambda row: tuple(map(is_default, row))):
        if len(left_out) != len(names):
            raise fail("PSK-1016", f"{len(left_out)} values are given for {len(names)} columns.")
        if all(left_out):
            raise fail("PSK-1012", "A row has no value but DEFAULT.", hint="Write the value of one column.")
        kept = [i for i, omitted in enumerate(left_out) if not omitted]
        rows = tuple(tuple(row[i] for i in kept) for row in run)
        out.append(_insert(session, replace(s, columns=tuple(names[i] for i in kept), values=rows), bound))
    return out


def _insert(session: Session, s: st.Insert, bound: Bound) -> Write:
    info = session.writer.target(s.target)
    names = list(s.columns) if s.columns is not None else [c.name for c in info.columns]
    if s.values is not None and spark_as_known(session.engine.settings):
        made = inserted(info, names, s.values, bound)
        if made is not None:
            data = made[0] if len(made) == 1 else made
            return info, "insert", session.engine.storage.feed(info).part(data)
    _needs_spark(bound)
    types = {c.name.lower(): without_lengths(c.type) for c in info.columns}
    for n in names:
        if n.lower() not in types:
            raise fail("PSK-1004", f"{info.name} has no column {n}.", hint=suggestion(n, types))
    if s.values is not None:
        check_expressions(session.engine, s, *(e for row in s.values for e in row))
        inline = _inlined(session)
        values = [[inline(e) for e in row] for row in s.values]
        typed = _values(session, values, names, [types[n.lower()] for n in names])
        return info, "insert", session.engine.storage.feed(info).part(typed)
    assert s.select is not None
    rows = select(session, s.select)
    if rows.num_columns != len(names):
        raise fail("PSK-1016", f"{rows.num_columns} values are given for {len(names)} columns of {info.name}.")
    cast = ", ".join(f"CAST(`v{i}` AS {types[n.lower()]}) AS `{n}`" for i, n in enumerate(names))
    typed = session.engine.compute.batch.select(
        f"SELECT {cast} FROM v", {"v": rows.rename_columns([f"v{i}" for i in range(len(names))])}
    )
    return info, "insert", session.engine.storage.feed(info).part(typed)


def _needs_spark(bound: Bound) -> None:
    """Spark reads text, which has no placeholders."""
    if bound:
        raise NotPoint


def _inlined(session: Session) -> Callable[[exp.Expr], exp.Expr]:
    """Replaces the calls of SQL functions in an expression."""
    engine = session.engine
    return Inlining(engine.catalog, None, programs=engine.settings.security.allow_programs).tree


def _values(session: Session, values: Sequence[Sequence[exp.Expr]], names: list[str], types: list[str]) -> pa.Table:
    """The rows of VALUES, each value cast to the type of its column: the values of a column need not have one type."""
    rows = []
    for row in values:
        if len(row) != len(names):
            raise fail("PSK-1016", f"{len(row)} values are given for {len(names)} columns.")
        rows.append([f"CAST({e.sql(dialect=DIALECT)} AS {t})" for e, t in zip(row, types, strict=True)])
    columns = [f"`{n}`" for n in names]
    listed = ", ".join(f"({', '.join(cells)})" for cells in rows)
    try:
        return session.engine.compute.batch.select(f"SELECT * FROM VALUES {listed} AS v({', '.join(columns)})", {})
    except PenstockError as error:
        if "inline table" not in error.detail:
            raise
    # Spark does not say why a value in VALUES fails, but it does of the same value anywhere else.
    structs = (", ".join(f"{c} AS {n}" for c, n in zip(cells, columns, strict=True)) for cells in rows)
    listed = ", ".join(f"struct({s})" for s in structs)
    return session.engine.compute.batch.select(f"SELECT inline(array({listed}))", {})


def _table(session: Session, name: str) -> ObjectInfo:
    info = session.writer.target(name)
    if info.kind is Kind.SOURCE:
        raise fail(
            "PSK-5005", f"{info.name} is a source and only accepts new rows.", hint="Use a TABLE for rows that change."
        )
    return info


def _update(session: Session, s: st.Update, bound: Bound) -> list[Write]:
    info = _table(session, s.target)
    sets: dict[str, exp.Expr] = {n.lower(): e for n, e in s.assignments}
    unknown = [n for n in sets if info.column(n) is None]
    if unknown:
        raise fail("PSK-1004", f"{info.name} has no column {unknown[0]}.")
    changed = _update_point(session, info, sets, s.where, bound)
    if changed is not None:
        return _replaced(session, info, *changed)
    _needs_spark(bound)
    check_expressions(session.engine, s, s.where, *sets.values())
    inline = _inlined(session)
    sets = {n: inline(e) for n, e in sets.items()}
    old = [f"`{c.name}`" for c in info.columns]
    new = [
        f"CAST({sets[c.name.lower()].sql(dialect=DIALECT) if c.name.lower() in sets else f'`{c.name}`'} AS {without_lengths(c.type)})"
        for c in info.columns
    ]
    chosen = [f"{e} AS `{side}{i}`" for side, exprs in (("b", old), ("a", new)) for i, e in enumerate(exprs)]
    rows = _matching(session, info, ", ".join(chosen), s.where and inline(s.where), sets.values())
    names, width = [c.name for c in info.columns], len(info.columns)
    before, after = (rows.select(range(at, at + width)).rename_columns(names) for at in (0, width))
    return _replaced(session, info, before, after)


def _replaced(session: Session, info: ObjectInfo, before: pa.Table, after: pa.Table) -> list[Write]:
    feed = session.engine.storage.feed(info)
    return [(info, "delete", feed.part(before)), (info, "place", feed.part(after))]


def _update_point(
    session: Session, info: ObjectInfo, sets: Mapping[str, exp.Expr], where: exp.Expression | None, bound: Bound
) -> tuple[pa.Table, pa.Table] | None:
    """The row with a key before and after an UPDATE; None if Spark has to find or compute it."""
    if not spark_as_known(session.engine.settings):
        return None
    match = matched(info, info.name, where, bound)
    if match is None:
        return None
    changes: dict[int, Callable[[Mapping[str, Any]], Any]] = {}
    for i, c in enumerate(info.columns):
        if c.name.lower() in sets:
            change = assignment(info, c, sets[c.name.lower()], bound)
            if change is None:
                return None
            changes[i] = change
    before = after = rows_of_key(session, info, match)
    if before.num_rows:
        row = before.to_pylist()[0]
        for i, change in changes.items():
            try:
                value = change(row)
            except NotPoint:
                return None
            # Nullable here, so that NULL in a NOT NULL column is refused like any other row.
            field = before.schema.field(i).with_nullable(True)
            after = after.set_column(i, field, pa.array([value], field.type))
    return before, after


def _delete(session: Session, s: st.Delete, bound: Bound) -> list[Write]:
    info = _table(session, s.target)
    match = matched(info, info.name, s.where, bound) if spark_as_known(session.engine.settings) else None
    if match is not None:
        return [(info, "delete", session.engine.storage.feed(info).part(rows_of_key(session, info, match)))]
    _needs_spark(bound)
    check_expressions(session.engine, s, s.where)
    rows = _matching(session, info, "*", s.where and _inlined(session)(s.where), ())
    return [(info, "delete", session.engine.storage.feed(info).part(rows))]


def _matching(
    session: Session, info: ObjectInfo, chosen: str, where: exp.Expr | None, values: Iterable[exp.Expr]
) -> pa.Table:
    """`chosen` of the rows that match a condition. Both may have subqueries over other objects."""
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
    views = {i.name: select(session, whole(session.engine, i)) for i in read.values() if i.kind is Kind.NAMED_QUERY}
    condition = f" WHERE {where.sql(dialect=DIALECT)}" if where is not None else ""
    return session.engine.compute.batch.select(
        f"SELECT {chosen} FROM `{info.name}`{condition}",
        views | visible(session, [i for i in read.values() if i.name not in views]),
    )
