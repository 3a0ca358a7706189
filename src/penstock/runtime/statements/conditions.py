"""Conditions over the rows of one object, outside of any query: WHERE of SUBSCRIBE, and row rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.runtime.engine import Engine
from penstock.runtime.statements.engines import for_duckdb
from penstock.sql import statements as st
from penstock.sql.bind import BatchQuery, CatalogView, bind_batch
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script

_ALL = "SELECT *"


@dataclass(frozen=True)
class _Only:
    """A catalogue of one object, and of functions."""

    info: ObjectInfo
    functions: CatalogView

    def get(self, name: str, /) -> ObjectInfo | None:
        if name.lower() == self.info.name.lower():
            return self.info
        found = self.functions.get(name)
        return found if found is not None and found.kind is Kind.FUNCTION else None

    def names(self) -> Iterable[str]:
        return [self.info.name]


def condition(engine: Engine, info: ObjectInfo, text: str) -> Callable[[pa.Table], pa.Table]:
    """A filter over the object's rows, or a Z-set of them, validated now. It is a Spark job for each call, unless `stored` has one."""
    found = stored(engine, info, text)
    if found is not None:
        return found
    bound = _bound(engine, info, text)
    engine.compute.batch.schema(bound.spark_sql, {info.name: info.columns})

    def keep(table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        kept = engine.compute.batch.select(bound.spark_sql, {info.name: table})
        return kept.rename_columns(table.column_names).cast(table.schema)

    return keep


def stored(
    engine: Engine, info: ObjectInfo, text: str, names: tuple[str, ...] = ()
) -> Callable[[pa.Table], pa.Table] | None:
    """The same, evaluated by the view store; None unless DuckDB and Spark agree on the condition's meaning. `names`: the columns as the
    condition names them."""
    if names:
        columns = tuple(replace(c, name=n) for c, n in zip(info.columns, names, strict=True))
        info = replace(info, columns=columns, key=())
    bound = _bound(engine, info, text)
    whole = for_duckdb(engine.settings, bound)
    if whole is None or not whole.startswith(_ALL):
        return None
    rest = whole.removeprefix(_ALL)
    return lambda table: engine.store.matching(_named(table, names), info.name, rest, table)


def _bound(engine: Engine, info: ObjectInfo, text: str) -> BatchQuery:
    return bind_batch(selected(engine, info.name, text), _Only(info, engine.catalog))


def selected(engine: Engine, name: str, text: str | None, names: Iterable[tuple[str, str]] = ()) -> ParsedQuery:
    """The query for the rows of an object that satisfy a condition; `names`: its columns, and what the condition and the result call them."""
    source = f"`{name}`"
    if renamed := ", ".join(f"`{a}` AS `{b}`" for a, b in names):
        source = f"(SELECT {renamed} FROM {source})"
    where = "" if text is None else f" WHERE {text}"
    (statement,) = parse_script(f"{_ALL} FROM {source}{where}", programs=engine.settings.security.allow_programs)
    assert isinstance(statement, st.Select)
    return statement.query


def _named(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    return table.rename_columns([*names, *table.column_names[len(names) :]]) if names else table
