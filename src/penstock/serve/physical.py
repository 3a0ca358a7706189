"""The form of values in DuckDB, which has no durations: a day-time interval is a number of microseconds, at any nesting depth.

Both forms have the same layout in memory, so no value is copied.
"""

from __future__ import annotations

from functools import lru_cache

import duckdb
import pyarrow as pa

from penstock.serve.layout import quote

_DECLARED: dict[pa.DataType, str] = {}
"""The names of DuckDB for types that were asked for; there are as many as in the schemas of the process."""


def physical(table: pa.Table) -> pa.Table:
    """The table in DuckDB's form."""
    schema = physical_schema(table.schema)
    return table if schema is table.schema else _reread(table, schema)


def logical(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A result of DuckDB as a table of `schema`."""
    stored = physical_schema(schema)
    table = table.cast(stored)
    return table if stored is schema else _reread(table, schema)


def declared(con: duckdb.DuckDBPyConnection, schema: pa.Schema) -> str:
    """The columns of a CREATE TABLE whose rows are those of the schema."""
    stored = physical_schema(schema)
    if any(f.type not in _DECLARED for f in stored):
        # DuckDB knows; a table made from a result takes three times as long.
        con.register("incoming", stored.empty_table())
        found = con.execute("DESCRIBE SELECT * FROM incoming").fetchall()
        _DECLARED.update(zip(stored.types, (row[1] for row in found), strict=True))
    return ", ".join(f"{quote(f.name)} {_DECLARED[f.type]}" for f in stored)


@lru_cache(maxsize=4096)
def physical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema itself if it has no durations."""
    fields = [f.with_type(_physical(f.type)) for f in schema]
    return schema if all(a.type.equals(b.type) for a, b in zip(fields, schema, strict=True)) else pa.schema(fields)


def _physical(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_duration(kind):
        return pa.int64()
    if t.is_map(kind):
        return pa.map_(_physical(kind.key_type), _physical(kind.item_type))
    if t.is_list(kind):
        return pa.list_(kind.value_field.with_type(_physical(kind.value_type)))
    if t.is_struct(kind):
        return pa.struct([f.with_type(_physical(f.type)) for f in kind])
    return kind


def _reread(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        same = column.type.equals(field.type)
        chunks = column.chunks if same else [_as(c, field.type) for c in column.chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    _, values = array.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(kind.__arrow_c_schema__(), values)
