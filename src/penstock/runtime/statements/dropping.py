"""DROP and OR REPLACE: an object goes with all that belongs to it, and is kept while others depend on it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.catalog.policies import policies
from penstock.errors import fail
from penstock.runtime.engine import Engine
from penstock.runtime.statements.draft import remove_remains
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.sql import statements as st
from penstock.sql.names import suggestion
from penstock.sql.script import parse_condition


def replaced(engine: Engine, name: str, or_replace: bool, if_not_exists: bool) -> list[ObjectInfo] | None:
    """The objects that a new object of a name replaces; None if there is nothing to do. A replaced object must have no dependents."""
    have = engine.catalog.get(name)
    if have is None:
        return []
    if if_not_exists:
        return None
    if not or_replace:
        raise fail("PSK-1003", f"{have.name} already exists.")
    return _goes_with(engine, have, cascade=False)


def drop_statement(engine: Engine, s: st.Drop) -> None:
    with engine.ddl:
        info = engine.catalog.get(s.name)
        if info is None:
            if s.if_exists:
                return
            names = [o.name for o in engine.catalog.objects() if o.kind.value == s.kind]
            raise fail("PSK-1002", f"{s.kind.capitalize()} {s.name} is not found.", hint=suggestion(s.name, names))
        if info.kind.value != s.kind:
            raise fail(
                "PSK-1008", f"{info.name} is a {info.kind.value}.", hint=f"DROP {info.kind.value.upper()} {info.name}"
            )
        drop(engine, info, cascade=s.cascade)


def drop(engine: Engine, info: ObjectInfo, *, cascade: bool) -> None:
    """Drops an object: first from the catalogue, then its files and jobs."""
    gone = _goes_with(engine, info, cascade=cascade)
    with uninterrupted():
        engine.catalog.remove(*(o.id for o in gone))
        for o in gone:
            remove_remains(engine, o)


def _goes_with(engine: Engine, info: ObjectInfo, *, cascade: bool) -> list[ObjectInfo]:
    """An object and all objects dropped with it, dependents first: those that belong to it and, with `cascade`, those that depend on it."""
    if info.role in (Role.LATE_ROWS, Role.ERRORS) and info.owner_id is not None:
        owner = engine.catalog.by_id(info.owner_id)
        rows = "late rows" if info.role is Role.LATE_ROWS else "errors"
        raise fail("PSK-1009", f"{info.name} receives the {rows} of {owner.name}.", hint=f"Drop {owner.name}.")
    gone = _with_dependents(engine, info)
    check_parts(engine, gone)
    others = users(engine, info)
    if others and not cascade:
        raise fail("PSK-1009", f"{info.name} is in use by {', '.join(others)}.")
    return gone


def check_parts(engine: Engine, gone: list[ObjectInfo]) -> None:
    """A default or a row rule is not dropped, and its object even less, because a function that it calls is."""
    ids = {o.id for o in gone}
    functions = {o.name.lower(): o for o in gone if o.kind is Kind.FUNCTION}
    for o in engine.catalog.objects() if functions else ():
        if o.id in ids:
            continue
        for part, text in _expressions(o):
            tree = parse_condition(text, programs=engine.settings.security.allow_programs)
            used = next(
                (functions[n.name.lower()] for n in tree.find_all(exp.Anonymous) if n.name.lower() in functions), None
            )
            if used is not None:
                raise fail(
                    "PSK-1009",
                    f"{used.name} is in use by {part} of {o.name}.",
                    hint="Drop the column or the policy first.",
                )


def _expressions(info: ObjectInfo) -> Iterator[tuple[str, str]]:
    """The expressions of an object that call functions without being a query, with what they are."""
    for c in info.columns:
        if c.default is not None and info.kind is not Kind.FUNCTION:
            yield f"the default of column {c.name}", c.default
    for name, text in policies(info).items():
        yield f"the policy {name}", text


def users(engine: Engine, info: ObjectInfo) -> list[str]:
    """The names of the objects that use this one, directly or not."""
    return sorted({engine.owner(o).name for o in _with_dependents(engine, info) if engine.owner(o).id != info.id})


def _with_dependents(engine: Engine, info: ObjectInfo) -> list[ObjectInfo]:
    """The object, all its dependents and all objects that belong to any of them, dependents first."""
    seen: dict[int, ObjectInfo] = {}
    objects = engine.catalog.objects()

    def visit(o: ObjectInfo) -> None:
        if o.id in seen:
            return
        seen[o.id] = o
        for other in objects:
            owned = other.owner_id == o.id or o.owner_id == other.id
            if owned or o.id in other.depends_on or o.id in other.expands:
                visit(other)

    visit(info)
    order = [o.id for o in objects]
    return sorted(seen.values(), key=lambda o: -order.index(o.id))
