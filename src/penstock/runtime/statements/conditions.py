"""Conditions over the rows of one object, outside of any query: WHERE of SUBSCRIBE, and row rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.runtime.engine import Engine
from penstock.sql import statements as st
from penstock.sql.bind import bind_batch
from penstock.sql.script import parse_script

_ALL = "SELECT *"


@dataclass(frozen=True)
class _Only:
    """A catalogue of one object."""

    info: ObjectInfo

    def get(self, name: str, /) -> ObjectInfo | None:
        return self.info if name.lower() == self.info.name.lower() else None

    def names(self) -> Iterable[str]:
        return [self.info.name]


def condition(
    engine: Engine, info: ObjectInfo, text: str, names: tuple[str, ...] = ()
) -> Callable[[pa.Table], pa.Table]:
    """A filter over the object's rows, or a Z-set of them, validated now. `names`: the columns as the condition names them.

    The view store evaluates it where DuckDB and Spark agree on its meaning; otherwise it is a Spark job.
    """
    if names:
        info = replace(
            info, columns=tuple(replace(c, name=n) for c, n in zip(info.columns, names, strict=True)), key=()
        )
    (statement,) = parse_script(
        f"{_ALL} FROM `{info.name}` WHERE {text}", programs=engine.settings.security.allow_programs
    )
    assert isinstance(statement, st.Select)
    bound = bind_batch(statement.query, _Only(info))
    if bound.duckdb_sql is not None and bound.duckdb_sql.startswith(_ALL):
        rest = bound.duckdb_sql.removeprefix(_ALL)
        return lambda table: engine.store.matching(_named(table, names), info.name, rest, table)
    engine.compute.batch.schema(bound.spark_sql, {info.name: info.columns})

    def keep(table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        kept = engine.compute.batch.select(bound.spark_sql, {info.name: _named(table, names)})
        return kept.rename_columns(table.column_names).cast(table.schema)

    return keep


def _named(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    return table.rename_columns([*names, *table.column_names[len(names) :]]) if names else table
