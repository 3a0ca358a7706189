"""Compiles a SELECT together with the tables that it reads, with the database's front end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.catalog.coerce import coerce
from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.catalog.types import schema_of
from penstock.errors import fail
from penstock.plan.repeats import canonical
from penstock.runtime.statements.engines import for_duckdb
from penstock.sql import statements as st
from penstock.sql.bind import bind, bind_batch
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from penstock.api.database import Database

Row = tuple[Any, ...]
Inputs = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class CompiledPlan:
    """`tables` are the columns of the input tables by name, `columns` the names of the result's columns. `canonical` is equal for plans with the same
    meaning over the same tables."""

    sql: str
    tables: Mapping[str, tuple[Column, ...]]
    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    canonical: str
    query: ParsedQuery
    database: Database

    def rows(self, table: str, rows: Iterable[Row]) -> pa.Table:
        """Rows of an input table, checked."""
        if table not in self.tables:
            raise fail("PSK-1002", f"{table} is not a table of the plan.", hint=f"It has {', '.join(self.tables)}.")
        return coerce([tuple(r) for r in rows], schema_of(self.tables[table]))


@dataclass(frozen=True)
class _Tables:
    """The catalogue for the SELECT of a plan."""

    objects: Mapping[str, ObjectInfo]

    def get(self, name: str, /) -> ObjectInfo | None:
        return self.objects.get(name.lower())

    def names(self) -> Iterable[str]:
        return [o.name for o in self.objects.values()]


def compile_plan(database: Database, sql: str, tables: Mapping[str, str]) -> CompiledPlan:
    """Compiles a SELECT. `tables` are the columns of each table that it reads, as in CREATE TABLE: `{"events": "id BIGINT, value BIGINT"}`."""
    columns: dict[str, tuple[Column, ...]] = {}
    for name, text in tables.items():
        (made,) = parse_script(f"CREATE TABLE `{name}` ({text})")
        assert isinstance(made, st.CreateTable)
        columns[name] = made.columns
    statements = parse_script(sql)
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, st.Select):
        raise fail("PSK-1001", "A plan is one SELECT.")
    known = _catalogue(columns)
    bound = bind(select.query, known)
    read = {n.object_id for n in bound.root.walk() if hasattr(n, "object_id")}
    inputs = tuple(o.name for o in known.objects.values() if o.id in read)
    return CompiledPlan(sql, columns, inputs, bound.names, canonical(bound) or sql, select.query, database)


def snapshot_run(plan: CompiledPlan, inputs: Inputs) -> list[Row]:
    """The result of a plan over rows, as a bag. It is computed once, as a batch, without state."""
    engine = plan.database._engine
    engine.check_open()
    batch = bind_batch(plan.query, _catalogue(plan.tables))
    given = {name: plan.rows(name, inputs.get(name, ())) for name in plan.inputs}
    if (text := for_duckdb(engine.settings, batch)) is not None:
        return to_rows(engine.store.over(text, given))
    return to_rows(engine.compute.batch.select(batch.spark_sql, given, batch.plan))


def to_rows(table: pa.Table) -> list[Row]:
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True)) if table.num_columns else []


def _catalogue(columns: Mapping[str, tuple[Column, ...]]) -> _Tables:
    return _Tables(
        {
            name.lower(): ObjectInfo(i, name, Kind.TABLE, made, changelog=True)
            for i, (name, made) in enumerate(columns.items(), 1)
        }
    )
