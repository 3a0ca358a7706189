from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.catalog.coerce import coerce
from penstock.catalog.types import to_arrow
from penstock.errors import PenstockError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ]
)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
ROWS = [{"id": 1, "name": "a", "price": 1.5, "ts": NOON}, {"id": 2, "name": None, "price": 2.0, "ts": None}]


def one(value: Any, spark: str) -> Any:
    return coerce([(value,)], pa.schema([("c", to_arrow(spark))])).column(0)[0].as_py()


def code(data: object, schema: pa.Schema = SCHEMA) -> PenstockError:
    with pytest.raises(PenstockError) as e:
        coerce(data, schema)
    return e.value


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        [tuple(r.values()) for r in ROWS],
        (r for r in ROWS),
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        pa.Table.from_pylist(ROWS).to_reader(),
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        [{k.upper(): v for k, v in r.items()} for r in ROWS],
        pa.Table.from_pylist(ROWS).select(["ts", "price", "id", "name"]),
    ],
    ids=["dicts", "tuples", "generator", "table", "batch", "reader", "pandas", "polars", "case", "order"],
)
def test_every_form_gives_the_same_table(data: object) -> None:
    out = coerce(data, SCHEMA)
    assert out.schema.equals(SCHEMA)
    assert out.to_pylist() == ROWS


def test_an_object_with_an_arrow_stream_is_taken() -> None:
    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.Table.from_pylist(ROWS).__arrow_c_stream__(requested_schema)

    assert coerce(Stream(), SCHEMA).to_pylist() == ROWS


def test_one_dict_is_one_row_and_nothing_is_no_row() -> None:
    assert coerce({"id": 7}, SCHEMA).to_pylist() == [{"id": 7, "name": None, "price": None, "ts": None}]
    assert coerce([], SCHEMA).num_rows == 0


@pytest.mark.parametrize(
    ("value", "spark", "expected"),
    [
        (1.0, "bigint", 1),
        (1, "double", 1.0),
        (1, "decimal(10,2)", Decimal("1.00")),
        (Decimal("1.5"), "decimal(10,2)", Decimal("1.50")),
        (NOON_MS, "timestamp", NOON),
        ("2024-05-01T12:00:00Z", "timestamp", NOON),
        ("2024-05-01 12:00:00", "timestamp", NOON),
        ("2024-05-01T14:00:00+02:00", "timestamp", NOON),
        (datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))), "timestamp", NOON),
        (date(2024, 5, 1), "timestamp", NOON.replace(hour=0)),
        (NOON_MS, "timestamp_ntz", NOON.replace(tzinfo=None)),
        ("2024-05-01", "date", date(2024, 5, 1)),
        (b"\x00\xff", "binary", b"\x00\xff"),
        ({"a": 1}, "map<string,int>", [("a", 1)]),
        ({"a": NOON_MS}, "struct<a:timestamp,b:int>", {"a": NOON, "b": None}),
        ([NOON_MS, None], "array<timestamp>", [NOON, None]),
    ],
)
def test_safe_conversions(value: Any, spark: str, expected: Any) -> None:
    assert one(value, spark) == expected
    kept = coerce(
        pa.table({"c": pa.array([value])}) if not isinstance(value, dict) else [(value,)],
        pa.schema([("c", to_arrow(spark))]),
    )
    assert kept.column(0)[0].as_py() == expected


@pytest.mark.parametrize(
    ("value", "spark"),
    [
        (1.5, "bigint"),
        (True, "bigint"),
        ("1", "bigint"),
        (float("nan"), "bigint"),
        (300, "tinyint"),
        (1, "string"),
        (b"a", "string"),
        ("1.5", "decimal(10,2)"),
        (1.5, "decimal(10,2)"),
        (Decimal("1.555"), "decimal(10,2)"),
        (True, "double"),
        (1e300, "float"),
        (2**53 + 1, "double"),
        ("yesterday", "timestamp"),
        (1.5, "timestamp"),
        (5, "date"),
        (NOON, "date"),
        ("ab", "array<string>"),
        ("ab", "binary"),
        (1, "boolean"),
        ({"z": 1}, "struct<a:int>"),
    ],
)
def test_what_would_lose_something_is_refused(value: Any, spark: str) -> None:
    schema = pa.schema([("c", to_arrow(spark))])
    for data in ([(None,), (value,)], pa.table({"c": pa.array([None, value])})):
        error = code(data, schema)
        assert error.code == "PSK-5003"
        assert "Row 2, column 'c'" in error.detail


def test_unknown_columns_are_named_with_the_nearest() -> None:
    error = code([{"id": 1, "pric": 2.0}])
    assert error.code == "PSK-1004"
    assert error.hint == "Did you mean 'price'?"
    assert code(pa.table({"id": [1], "zzz": [1]})).code == "PSK-1004"
    assert code([{"id": 1, "ID": 2}]).code == "PSK-1014"


def test_not_null_names_row_and_column() -> None:
    for data in (
        [{"id": 1}, {"id": None}],
        [{"id": 1}, {"name": "x"}],
        pa.table({"id": [1, None]}),
        pd.DataFrame({"id": [1, None]}),
    ):
        error = code(data)
        assert error.code == "PSK-5003"
        assert "Row 2, column 'id'" in error.detail
    assert code(pa.table({"name": ["x"]})).code == "PSK-5003"


def test_missing_columns_take_their_default() -> None:
    ticks = iter(range(10))
    out = coerce([{"id": 1}, {"id": 2, "name": None}], SCHEMA, {"name": "n", "price": lambda: next(ticks)})
    assert out.column("name").to_pylist() == ["n", None]
    assert out.column("price").to_pylist() == [0.0, 1.0]
    assert coerce(pa.table({"id": [1]}), SCHEMA, {"name": "n"}).column("name").to_pylist() == ["n"]


@pytest.mark.parametrize(
    "rows", [[(1, "a")], [(1, "a", 1.0, None), {"id": 1}], [{"id": 1}, (1, "a", 1.0, None)], [1], ["x"]]
)
def test_rows_of_another_shape_are_refused(rows: list[object]) -> None:
    assert code(rows).code == "PSK-5003"


def test_scalars_are_not_rows() -> None:
    assert code("rows").code == "PSK-0009"
    assert code(5).code == "PSK-0009"


def test_encodings_become_canonical() -> None:
    schema = pa.schema([("s", pa.string()), ("l", pa.list_(pa.string())), ("b", pa.binary())])
    words = pa.array(["x", None, "x"])
    table = pa.table(
        {
            "s": words.dictionary_encode(),
            "l": pa.array([["a"], None, []], pa.large_list(pa.string_view())),
            "b": pa.array([b"1", None, b""], pa.large_binary()),
        }
    )
    out = coerce(table, schema)
    assert out.schema.equals(schema)
    assert out.to_pydict() == {"s": ["x", None, "x"], "l": [["a"], None, []], "b": [b"1", None, b""]}
    assert coerce(pl.DataFrame({"s": ["x"]}), schema).column("s").to_pylist() == ["x"]


def test_nan_stays_nan_in_rows_and_means_null_in_pandas() -> None:
    schema = pa.schema([("c", pa.float64())])
    kept = coerce([(float("nan"),)], schema).column(0)[0].as_py()
    assert kept != kept
    assert coerce(pd.DataFrame({"c": [float("nan")]}), schema).column(0)[0].as_py() is None


def test_a_pandas_column_of_mixed_objects_fits_by_value() -> None:
    frame = pd.DataFrame({"id": [1, 2], "ts": [NOON_MS, "2024-05-01T12:00:00Z"]})
    assert coerce(frame, SCHEMA).column("ts").to_pylist() == [NOON, NOON]


_VALUES = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "binary": st.binary(),
    "array<int>": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)),
    "struct<a:bigint,b:string>": st.fixed_dictionaries(
        {"a": st.none() | st.integers(-(2**63), 2**63 - 1), "b": st.none() | st.text()}
    ),
}


# The first draw of text loads hypothesis' character tables.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_rows_come_back_as_they_went_in(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=4))
    schema = pa.schema([(f"c{i}", to_arrow(t)) for i, t in enumerate(types)])
    rows = data.draw(st.lists(st.tuples(*(st.none() | _VALUES[t] for t in types)), max_size=5))
    by_tuple = coerce(rows, schema)
    by_dict = coerce([dict(zip(schema.names, r, strict=True)) for r in rows], schema)
    assert [tuple(r.values()) for r in by_tuple.to_pylist()] == rows
    assert by_dict.equals(by_tuple)
    assert coerce(by_tuple, schema).equals(by_tuple)


def test_one_row_is_quick() -> None:
    row, best = [ROWS[0]], 1.0
    for _ in range(200):
        start = time.perf_counter()
        coerce(row, SCHEMA)
        best = min(best, time.perf_counter() - start)
    assert best < 100e-6
