"""ALTER TABLE: adding, dropping and renaming columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from penstock.catalog.objects import Column, ObjectInfo
from penstock.catalog.policies import policies
from penstock.catalog.types import coerce, schema_of
from penstock.errors import fail
from penstock.runtime.engine import Engine
from penstock.runtime.statements.ddl import check_columns
from penstock.runtime.statements.draft import drafting
from penstock.runtime.statements.dropping import users
from penstock.runtime.statements.inscribe import found
from penstock.runtime.storage.feed import computed
from penstock.runtime.storage.record import change_part
from penstock.serve.zset import weighted
from penstock.sql import statements as st
from penstock.sql.altering import quoted
from penstock.sql.names import suggestion


def alter_column(engine: Engine, s: st.AlterTableColumn) -> None:
    """The table is replaced by one with the new columns and the same rows: one change of the catalogue, or none.

    What reads the table has state that depends on its rows, so there must be nothing.
    """
    with engine.ddl:
        info = found(engine, s.kind, s.name)
        if info.connector is not None:
            raise fail("PSK-1012", f"{info.name} is fed by {info.connector.name.upper()}.", hint="Create it again.")
        others = users(engine, info)
        if others:
            raise fail(
                "PSK-1009",
                f"{info.name} is in use by {', '.join(others)}.",
                hint="Drop them first, and create them again afterwards.",
            )
        changed = _changed(info, s)
        if s.add is not None:
            check_columns(engine, [s.add])
        elif policies(info):
            raise fail("PSK-1009", f"{info.name} has row rules.", hint="DROP POLICY … ON it first.")
        with engine.writer.alone([info]), drafting(engine, [info]) as draft:
            made = replace(changed, id=draft.new_id(), sql=_statement(changed))
            engine.storage.check_sound(info)
            convert = _conversion(engine, info, made, s)
            draft.attach(made)
            # Nobody sees the new table before all its rows are there, so it may take several commits.
            with engine.store.reading(info.id) as now:
                for piece in now.pieces:
                    engine.storage.commit([change_part(made, weighted(convert(piece)))])


def _changed(info: ObjectInfo, s: st.AlterTableColumn) -> ObjectInfo:
    if s.add is not None:
        if info.column(s.add.name) is not None:
            raise fail("PSK-1014", f"{info.name} already has a column {s.add.name}.")
        return replace(info, columns=(*info.columns, s.add))
    old = _column(info, s.drop if s.drop is not None else s.rename[0] if s.rename is not None else "")
    if s.rename is None:
        if old.name in info.key:
            raise fail("PSK-5006", f"{old.name} is a part of the key of {info.name}.", hint="Create a new table.")
        if len(info.columns) == 1:
            raise fail("PSK-1012", f"{old.name} is the only column of {info.name}.", hint=f"DROP TABLE {info.name}.")
        comments = {n: t for n, t in info.column_comments.items() if n != old.name}
        return replace(info, columns=tuple(c for c in info.columns if c is not old), column_comments=comments)
    new = s.rename[1]
    taken = info.column(new)
    if taken is not None and taken is not old:
        raise fail("PSK-1014", f"{info.name} already has a column {taken.name}.")
    return replace(
        info,
        columns=tuple(replace(c, name=new) if c is old else c for c in info.columns),
        key=tuple(new if n == old.name else n for n in info.key),
        column_comments={new if n == old.name else n: t for n, t in info.column_comments.items()},
    )


def _column(info: ObjectInfo, name: str) -> Column:
    column = info.column(name)
    if column is None:
        names = [c.name for c in info.columns]
        raise fail("PSK-1004", f"{info.name} has no column {name}.", hint=suggestion(name, names))
    return column


def _conversion(
    engine: Engine, info: ObjectInfo, made: ObjectInfo, s: st.AlterTableColumn
) -> Callable[[pa.Table], pa.Table]:
    """Gives rows of the table its new columns; an added one has its default."""
    schema = schema_of(made.columns)
    if s.add is not None:
        if not s.add.nullable and s.add.default is None and engine.store.count(info.id):
            raise fail(
                "PSK-5006",
                f"The rows of {info.name} have no value for the NOT NULL column {s.add.name}.",
                hint="Give it a DEFAULT, or leave NOT NULL out.",
            )
        defaults = computed(engine.defaults(made.columns))
        return lambda rows: coerce(rows, schema, defaults)
    kept = [c.name for c in made.columns] if s.drop is not None else None
    return lambda rows: (rows if kept is None else rows.select(kept)).rename_columns(schema.names).cast(schema)


def _statement(info: ObjectInfo) -> str:
    """CREATE TABLE, as SHOW CREATE shows it."""
    parts = []
    for c in info.columns:
        null = "" if c.nullable or c.name in info.key else " NOT NULL"
        default = f" DEFAULT {c.default}" if c.default is not None else ""
        parts.append(f"{quoted(c.name)} {c.type.upper()}{null}{default}")
    if info.key:
        parts.append(f"PRIMARY KEY ({', '.join(quoted(n) for n in info.key)})")
    options = {k: v for k, v in info.options.items() if not k.startswith("policy.")}
    listed = ", ".join(f"{k} = '{v}'" for k, v in options.items())
    tail = f" WITH ({listed})" if listed else ""
    return f"CREATE {info.kind.value.upper()} {quoted(info.name)} ({', '.join(parts)}){tail}"
