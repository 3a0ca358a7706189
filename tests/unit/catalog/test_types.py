from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.catalog.types import schema_of, stored_schema, to_arrow
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bigint", pa.int64()),
        ("INT", pa.int32()),
        ("smallint", pa.int16()),
        ("tinyint", pa.int8()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal(12, 3)", pa.decimal128(12, 3)),
        ("decimal", pa.decimal128(10, 0)),
        ("string", pa.string()),
        ("varchar(20)", pa.string()),
        ("char(3)", pa.string()),
        ("boolean", pa.bool_()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("binary", pa.binary()),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("map<string,array<double>>", pa.map_(pa.string(), pa.list_(pa.float64()))),
        (
            "struct<a:int,`b c`:struct<d:date>>",
            pa.struct([("a", pa.int32()), ("b c", pa.struct([("d", pa.date32())]))]),
        ),
        ("struct<>", pa.struct([])),
        ("time(3)", pa.time64("ns")),
        ("array<interval day to hour>", pa.list_(pa.duration("us"))),
        ("map<interval year to month,interval second>", pa.map_(pa.int32(), pa.duration("us"))),
        ("struct<v:variant>", pa.struct([("v", pa.struct([("value", pa.binary()), ("metadata", pa.binary())]))])),
        ("array<void>", pa.list_(pa.null())),
    ],
)
def test_each_spark_type_has_one_arrow_type(text: str, expected: pa.DataType) -> None:
    assert to_arrow(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "blob",
        "time",
        "time(7)",
        "interval day to month",
        "interval month to year",
        "decimal(39,0)",
        "decimal(3,4)",
        "int(3)",
        "varchar",
        "array<int",
        "array<int>>",
        "map<int>",
        "struct<a>",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(PenstockError) as e:
        to_arrow(text)
    assert e.value.code == "PSK-1013"


@pytest.mark.parametrize("text", ["interval", "array<interval>", "map<void,void>"])
def test_types_that_no_column_can_have(text: str) -> None:
    with pytest.raises(PenstockError, match="PSK-2010"):
        to_arrow(text)


_SCALARS = st.sampled_from(
    ["bigint", "int", "double", "string", "boolean", "date", "timestamp", "decimal(10,2)", "binary"]
)
_TYPES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        inner.map(lambda t: f"array<{t}>"),
        st.tuples(_SCALARS, inner).map(lambda p: f"map<{p[0]},{p[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: "struct<" + ",".join(f"f{i}:{t}" for i, t in enumerate(ts)) + ">"
        ),
    ),
    max_leaves=6,
)


@given(_TYPES)
def test_white_space_means_nothing(text: str) -> None:
    spaced = text.replace("<", " < ").replace(",", " , ").replace(">", " > ")
    assert to_arrow(spaced) == to_arrow(text)


def test_schema_keeps_order_and_nullability() -> None:
    schema = schema_of([Column("k", "bigint", nullable=False), Column("v", "array<string>")])
    assert schema.names == ["k", "v"]
    assert [f.nullable for f in schema] == [False, True]


def test_a_changelog_is_stored_with_its_weight() -> None:
    columns = (Column("k", "bigint", nullable=False), Column("v", "string"))
    plain = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
    of = ObjectInfo(id=1, name="v", kind=Kind.VIEW, columns=columns)
    assert stored_schema(of) == plain
    assert stored_schema(replace(of, changelog=True)) == plain.append(pa.field("__weight", pa.int64()))
