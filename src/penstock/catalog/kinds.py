"""The types a column can have, and where each may appear. The reference page of the types is generated from this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TypeKind:
    """One type: its declaration, its Arrow type, and the Python types of read values (and of other accepted ones).

    `grouped`: GROUP BY. `equal`: `=`, join keys, DISTINCT, set operations, PARTITION BY. `ordered`: ORDER BY, MIN, MAX. `key`: PRIMARY KEY, also of lookup tables.
    `text`: FILES in CSV and JSON, and source connectors.
    """

    name: str
    declared: str
    arrow: str
    python: str
    grouped: bool = True
    equal: bool = True
    ordered: bool = True
    key: bool = True
    text: str = "CSV, JSON"


KINDS = (
    TypeKind("BOOLEAN", "BOOLEAN", "bool", "bool"),
    TypeKind("TINYINT", "TINYINT", "int8", "int"),
    TypeKind("SMALLINT", "SMALLINT", "int16", "int"),
    TypeKind("INT", "INT", "int32", "int"),
    TypeKind("BIGINT", "BIGINT", "int64", "int"),
    TypeKind("FLOAT", "FLOAT", "float", "float"),
    TypeKind("DOUBLE", "DOUBLE", "double", "float"),
    TypeKind("DECIMAL", "DECIMAL(p, s)", "decimal128(p, s)", "Decimal"),
    TypeKind("STRING", "STRING", "string", "str"),
    TypeKind("VARCHAR", "VARCHAR(n)", "string", "str"),
    TypeKind("CHAR", "CHAR(n)", "string", "str"),
    TypeKind("BINARY", "BINARY", "binary", "bytes"),
    TypeKind("DATE", "DATE", "date32", "date"),
    TypeKind("TIMESTAMP", "TIMESTAMP", "timestamp[us, UTC]", "datetime in UTC (Unix ms, ISO 8601)"),
    TypeKind("TIMESTAMP_NTZ", "TIMESTAMP_NTZ", "timestamp[us]", "datetime"),
    TypeKind("TIME", "TIME(p)", "time64[ns]", "time (ISO 8601)"),
    TypeKind("INTERVAL YEAR TO MONTH", "INTERVAL YEAR TO MONTH", "int32", "int: months", text=""),
    TypeKind("INTERVAL DAY TO SECOND", "INTERVAL DAY TO SECOND", "duration[us]", "timedelta", text=""),
    TypeKind("ARRAY", "ARRAY<t>", "list", "list", text="JSON"),
    TypeKind("STRUCT", "STRUCT<a: t, …>", "struct", "dict", text="JSON"),
    TypeKind("MAP", "MAP<k, v>", "map", "dict", equal=False, ordered=False, key=False, text="JSON"),
    TypeKind(
        "VARIANT",
        "VARIANT",
        "struct<value, metadata: binary>",
        "the value: dict, list, str, int, float, Decimal …",
        grouped=False,
        equal=False,
        ordered=False,
        key=False,
        text="CSV, JSON (only written)",
    ),
    TypeKind("VOID", "only in queries: NULL", "null", "None", key=False),
)
