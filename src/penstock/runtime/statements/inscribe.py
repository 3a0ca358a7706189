"""ALTER … RENAME TO and COMMENT ON: what is written about an object."""

from __future__ import annotations

from dataclasses import replace

from penstock.catalog.objects import ObjectInfo, Role
from penstock.errors import fail
from penstock.runtime.engine import Engine
from penstock.runtime.statements.dropping import check_parts, users
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.sql import statements as st
from penstock.sql.altering import with_name
from penstock.sql.names import suggestion


def found(engine: Engine, kind: str | None, name: str) -> ObjectInfo:
    info = engine.catalog.get(name)
    if info is None or info.hidden:
        raise fail("PSK-1002", f"{name} is not found.", hint=suggestion(name, engine.catalog.names()))
    if kind is not None and info.kind.value != kind:
        raise fail("PSK-1008", f"{info.name} is a {info.kind.value}.", hint=f"Write {info.kind.value.upper()}.")
    return info


def rename(engine: Engine, s: st.Rename) -> None:
    """Gives an object another name. What uses it has the old name in its statement, so there must be nothing."""
    with engine.ddl:
        info = found(engine, s.kind, s.name)
        have = engine.catalog.get(s.new_name)
        if have is not None and have.id != info.id:
            raise fail("PSK-1003", f"{have.name} already exists.", hint="Choose another name.")
        if info.role is not Role.USER or info.owner_id is not None:
            raise fail("PSK-1012", f"{info.name} belongs to {engine.owner(info).name}, whose statement names it.")
        check_parts(engine, [info])
        others = users(engine, info)
        if others:
            raise fail(
                "PSK-1009",
                f"{info.name} is in use by {', '.join(others)}, whose statements have its name.",
                hint=f"Create a view of the new name: CREATE VIEW {s.new_name} AS SELECT * FROM {info.name}.",
            )
        owned = next((o for o in engine.catalog.objects() if o.owner_id == info.id), None)
        if owned is not None:
            raise fail("PSK-1012", f"{info.name} has side streams or a query of its own.", hint="Create it again.")
        renamed = replace(info, name=s.new_name, sql=with_name(info.sql, s.new_name))
        _become(engine, renamed)


def comment_on(engine: Engine, s: st.Comment) -> None:
    with engine.ddl:
        info = found(engine, s.kind, s.name)
        if s.column is None:
            _become(engine, replace(info, comment=s.comment))
            return
        column = info.column(s.column)
        if column is None:
            raise fail(
                "PSK-1004",
                f"{info.name} has no column {s.column}.",
                hint=suggestion(s.column, [c.name for c in info.columns]),
            )
        others = {n: t for n, t in info.column_comments.items() if n != column.name}
        made = others | ({column.name: s.comment} if s.comment is not None else {})
        _become(engine, replace(info, column_comments=made))


def _become(engine: Engine, info: ObjectInfo) -> None:
    with uninterrupted():
        engine.catalog.replace(info)
        engine.storage.inscribe(info)
