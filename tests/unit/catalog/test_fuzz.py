"""Any input rows become a table that can be stored, or an error with a code."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.effort import times

from penstock.catalog.coerce import coerce
from penstock.catalog.row import RowEncoder
from penstock.catalog.types import to_arrow
from penstock.errors import PenstockError

TYPES = [
    "bigint", "tinyint", "float", "double", "string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "decimal(5,2)", "array<int>",
    "array<timestamp>", "map<string,int>", "map<double,date>", "struct<a:int,b:string>", "array<struct<a:array<string>>>",
]  # fmt: skip
EXOTIC: list[Any] = [
    pd.NaT, pd.NA, np.nan, np.datetime64("NaT"), np.datetime64("10000-01-01"), np.int8(5), np.float32(1.5), np.array([1, 2]), np.str_("x"),
    decimal.Decimal("sNaN"), decimal.Decimal("Infinity"), decimal.Decimal("1E+40"), pa.scalar(5), pa.scalar("x"), pa.scalar(2**62, pa.timestamp("us")),
    object(), b"\xff", "\ud800", 10**400, -(2**63) - 1, float("inf"), range(3), {1, 2}, iter([1]), Ellipsis, dt.UTC, type, memoryview(b"a"),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))), [[("a", 1), ("a", 2)]], {"a": {"a": {"a": 1}}}, [("a", 1), ("a", 2)],
]  # fmt: skip
plain = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5) | st.decimals() | st.datetimes()
    | st.datetimes(timezones=st.timezones()) | st.dates() | st.times() | st.timedeltas() | st.sampled_from(EXOTIC)
)  # fmt: skip
values = st.recursive(
    plain,
    lambda v: (
        st.lists(v, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]) | st.integers(), v, max_size=3)
        | st.lists(st.tuples(v, v), max_size=3)
    ),
    max_leaves=5,
)


def stored(table: pa.Table, schema: pa.Schema) -> None:
    assert table.schema.equals(schema)
    table.validate(full=True)
    table.to_pylist()


@settings(max_examples=times(60, quick=20))
@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3), st.data())
def test_rows(types: list[str], data: st.DataObject) -> None:
    schema = pa.schema([pa.field(f"c{i}", to_arrow(t), nullable=i > 0) for i, t in enumerate(types)])
    rows = data.draw(st.lists(st.tuples(*[values] * len(types)), max_size=3))
    dicts = [dict(zip(schema.names, r, strict=True)) for r in rows]
    forms: list[Any] = [
        rows,
        dicts,
        iter(dicts),
        pd.DataFrame({n: [r[n] for r in dicts] for n in schema.names}, dtype=object),
    ]
    for form in forms:
        try:
            stored(coerce(form, schema), schema)
        except PenstockError as error:
            error.render().encode(errors="replace")
    for row in dicts:
        batch = RowEncoder(schema).encode(row, {})
        if batch is not None:
            stored(pa.Table.from_batches([batch]), schema)
            assert (
                pa.Table.from_batches([batch]).equals(coerce([row], schema))
                or "NaN" in str(batch)
                or "nan" in str(batch)
            )


@settings(max_examples=times(40, quick=15))
@given(values, st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_arrow_of_any_type(value: object, source: str, target: str) -> None:
    """What Arrow makes of a value by itself, or as some type, is taken for another."""
    schema = pa.schema([("c", to_arrow(target))])
    for kind in (None, to_arrow(source)):
        if kind is not None and "map" in source:
            continue  # Arrow itself ends the process over [None] as a map.
        try:
            given_ = pa.table({"c": pa.array([value, None], kind)})
        except Exception:
            continue
        try:
            stored(coerce(given_, schema), schema)
        except PenstockError as error:
            error.render().encode(errors="replace")


@given(values)
@example(5)
@example("abc")
@example([5])
@example([None])
@example([{}, ()])
@example([[1], {"c": 1}])
@example({5: 1})
@example([{"C": 1, "c": 2}])
def test_anything_as_data(data: object) -> None:
    schema = pa.schema([("c", pa.int64())])
    try:
        stored(coerce(data, schema), schema)
    except PenstockError as error:
        error.render().encode(errors="replace")
