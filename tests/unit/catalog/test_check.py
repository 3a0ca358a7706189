"""Arrow memory that holds what cannot be stored is refused as a whole, with the row, the column and the reason."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog.coerce import coerce
from penstock.catalog.row import RowEncoder
from penstock.catalog.types import to_arrow
from penstock.errors import PenstockError

GOOD = pa.array(["a", "b", "c"])


def schema_of(type: str) -> pa.Schema:
    return pa.schema([("n", pa.int64()), ("c", to_arrow(type))])


def refused(values: Any, type: str, row: int, reason: str) -> PenstockError:
    """Column c of a table of Arrow data, of which row `row`, from 1, is the first that cannot be stored."""
    table = pa.table({"n": pa.array(range(len(values)), pa.int64()), "c": values})
    with pytest.raises(PenstockError) as caught:
        coerce(table, schema_of(type))
    assert caught.value.code == "PSK-5003"
    assert f"Row {row}, column 'c'" in caught.value.detail
    assert reason in caught.value.detail
    return caught.value


def text(*values: bytes, kind: pa.DataType | None = None) -> pa.Array:
    """Strings that Arrow has not looked at."""
    kind = kind or pa.string()
    large = pa.types.is_large_string(kind)
    offsets = np.cumsum([0, *(len(v) for v in values)]).astype(np.int64 if large else np.int32)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))])


def times(*micros: int, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(micros, pa.int64()).view(kind or pa.timestamp("us", tz="UTC"))


BAD = text(b"a", b"b", b"\xff\xfe", b"\xff")


def test_text_that_is_not_utf8() -> None:
    refused(BAD, "string", 3, "not UTF-8")
    refused(text(b"a", b"\xc3", kind=pa.large_string()), "string", 2, "not UTF-8")
    refused(pa.chunked_array([GOOD, BAD]), "string", 6, "not UTF-8")
    refused(BAD.slice(1), "string", 2, "not UTF-8")
    refused(pa.ListArray.from_arrays([0, 1, 4], BAD), "array<string>", 2, "not UTF-8")
    refused(pa.StructArray.from_arrays([BAD], ["a"]), "struct<a:string>", 3, "not UTF-8")
    refused(pa.MapArray.from_arrays([0, 4], BAD, pa.array([1, 2, 3, 4], pa.int32())), "map<string,int>", 1, "not UTF-8")
    refused(pa.DictionaryArray.from_arrays(pa.array([0, 2]), BAD), "string", 1, "not UTF-8")
    assert coerce(pa.table({"n": [1, 2], "c": BAD.slice(0, 2)}), schema_of("string")).column("c").to_pylist() == [
        "a",
        "b",
    ]
    assert coerce(pa.table({"n": [1], "c": text(b"\xff").cast(pa.binary())}), schema_of("binary")).num_rows == 1


def test_offsets_and_indices_that_point_nowhere() -> None:
    def offsets(*values: int) -> pa.Buffer:
        return pa.py_buffer(struct.pack(f"{len(values)}i", *values))

    bytes_ = pa.py_buffer(b"abc")
    child = pa.array([1, 2, 3], pa.int32())
    damaged = [
        (pa.Array.from_buffers(pa.string(), 2, [None, offsets(0, 9, 3), bytes_]), "string", 1),
        (pa.Array.from_buffers(pa.binary(), 2, [None, offsets(0, 3, 1), bytes_]), "binary", 2),
        (pa.Array.from_buffers(pa.list_(pa.int32()), 2, [None, offsets(0, 7, 3)], children=[child]), "array<int>", 1),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1, 9]), GOOD, safe=False), "string", 3),
    ]
    errors = [refused(array, type, row, "damaged") for array, type, row in damaged]
    assert [e.code for e in errors] == ["PSK-5003"] * len(damaged)


@pytest.mark.parametrize(
    ("micros", "row"),
    [
        ((0, 253_402_300_800_000_000), 2),
        ((-62_135_596_800_000_001, 0), 1),
        ((2**63 - 1,), 1),
        ((-(2**63),), 1),
        ((0, 0, -(2**63) + 1), 3),
    ],
)
def test_times_outside_the_years_1_to_9999(micros: tuple[int, ...], row: int) -> None:
    refused(times(*micros), "timestamp", row, "years 1 to 9999")
    refused(times(*micros, kind=pa.timestamp("us")), "timestamp_ntz", row, "years 1 to 9999")
    refused(pa.chunked_array([times(0), times(*micros)]), "timestamp", row + 1, "years 1 to 9999")


def test_the_first_and_the_last_time() -> None:
    for type in ("timestamp", "timestamp_ntz"):
        edges = times(-62_135_596_800_000_000, 253_402_300_799_999_999, kind=to_arrow(type))
        out = coerce(pa.table({"n": [1, 2], "c": edges}), schema_of(type)).column("c").to_pylist()
        assert [v.replace(tzinfo=None) for v in out] == [datetime.min, datetime.max]
    days = pa.array([-719_162, 2_932_896], pa.int32()).view(pa.date32())
    assert coerce(pa.table({"n": [1, 2], "c": days}), schema_of("date")).column("c").to_pylist() == [date.min, date.max]


def test_times_of_other_units_and_inside_values() -> None:
    seconds = pa.array([0, 2**40], pa.int64()).view(pa.timestamp("s"))
    refused(seconds, "timestamp", 2, "")
    refused(pa.array([0, 2**60], pa.int64()).view(pa.timestamp("ms", "UTC")), "timestamp", 2, "")
    refused(pa.array([0, 10**15], pa.int64()), "timestamp", 2, "")
    refused(pa.array([0, 3_000_000], pa.int32()).view(pa.date32()), "date", 2, "years 1 to 9999")
    refused(pa.array([-(2**31)], pa.int32()).view(pa.date32()), "date", 1, "years 1 to 9999")
    late = times(0, 0, 2**62)
    refused(pa.ListArray.from_arrays([0, 1, 3], late), "array<timestamp>", 2, "years 1 to 9999")
    refused(pa.StructArray.from_arrays([late], ["a"]), "struct<a:timestamp>", 3, "years 1 to 9999")
    keys = pa.array(["a", "b", "c"])
    refused(pa.MapArray.from_arrays([0, 2, 3], keys, late), "map<string,timestamp>", 2, "years 1 to 9999")
    refused(pa.MapArray.from_arrays([0, 2, 3], times(0, 1, 2**62), keys), "map<timestamp,string>", 2, "years 1 to 9999")
    nested = pa.ListArray.from_arrays([0, 1, 2], pa.ListArray.from_arrays([0, 2, 3], late))
    refused(nested, "array<array<timestamp>>", 2, "years 1 to 9999")


def test_a_value_under_a_null_does_not_count() -> None:
    hidden = pa.StructArray.from_arrays([times(0, 2**62)], ["a"], mask=pa.array([False, True]))
    out = coerce(pa.table({"n": [1, 2], "c": hidden}), schema_of("struct<a:timestamp>"))
    assert out.column("c").to_pylist()[1] is None


@pytest.mark.parametrize(
    ("type", "keys"),
    [
        ("map<string,int>", ["a", "b", "a"]),
        ("map<bigint,int>", [1, 2, 1]),
        ("map<double,int>", [float("nan"), 1.0, float("nan")]),
        ("map<double,int>", [0.0, 1.0, -0.0]),
        ("map<date,int>", [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 1)]),
        ("map<binary,int>", [b"a", b"b", b"a"]),
        ("map<decimal(5,2),int>", [Decimal("1.0"), Decimal("2"), Decimal("1.00")]),
        ("map<boolean,int>", [True, False, True]),
        ("map<struct<x:int>,int>", [{"x": 1}, {"x": 2}, {"x": 1}]),
        ("map<timestamp,int>", [datetime(2024, 1, 1), datetime(2024, 1, 2), datetime(2024, 1, 1, tzinfo=UTC)]),
    ],
)
def test_a_map_with_a_key_twice(type: str, keys: list[Any]) -> None:
    kind = to_arrow(type)
    items = pa.array([1, 2, 3], pa.int32())
    made = pa.MapArray.from_arrays(pa.array([0, 0, 3], pa.int32()), pa.array(keys, kind.key_type), items)
    refused(made, type, 2, "duplicate")
    refused(pa.ListArray.from_arrays([0, 2], made), f"array<{type}>", 1, "duplicate")
    # The same key in two rows is not a duplicate.
    apart = pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array(keys, kind.key_type), items)
    assert coerce(pa.table({"n": [1, 2], "c": apart}), schema_of(type)).num_rows == 2
    # As Python values, in rows and as one row.
    pairs = [(k, 1) for k in keys]
    with pytest.raises(PenstockError) as caught:
        coerce([{"n": 1, "c": None}, {"n": 2, "c": pairs}], schema_of(type))
    assert "Row 2, column 'c'" in caught.value.detail
    assert "duplicate" in caught.value.detail
    assert RowEncoder(schema_of(type)).encode({"n": 1, "c": pairs}, {}) is None
    assert RowEncoder(schema_of(type)).encode({"n": 1, "c": pairs[:2]}, {}) is not None


@pytest.mark.parametrize(
    "value", [[None], [(None, 1)], {None: 1}, [("a",)], [("a", 1, 2)], "ab", 5, [5], [[]], {"a": 1, None: 2}]
)
def test_what_is_no_map(value: Any) -> None:
    schema = schema_of("map<string,int>")
    with pytest.raises(PenstockError) as caught:
        coerce([{"n": 1, "c": value}], schema)
    assert caught.value.code == "PSK-5003"
    assert RowEncoder(schema).encode({"n": 1, "c": value}, {}) is None
    with pytest.raises(PenstockError):
        coerce([{"n": 1, "c": [value]}], schema_of("array<map<string,int>>"))


def test_decimals_beyond_their_precision() -> None:
    big = pa.Array.from_buffers(pa.decimal128(5, 2), 1, [None, pa.py_buffer((10**9).to_bytes(16, "little"))])
    refused(big, "decimal(5,2)", 1, "precision")
    refused(pa.array([Decimal("1"), Decimal("123456789")]), "decimal(5,2)", 2, "")
    refused(pa.array([Decimal("1.234")]), "decimal(5,2)", 1, "")
    refused(pa.array([Decimal(10) ** 60], pa.decimal256(70, 0)), "decimal(38,0)", 1, "")


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (pa.array([pa.MonthDayNano([1, 2, 3])]), "array<int>"),
        (pa.array([pa.MonthDayNano([1, 2, 3])]), "struct<a:int,b:int,c:int>"),
        (pa.array([timedelta(1)]), "bigint"),
        (pa.array([1], pa.time64("us")), "timestamp"),
        (pa.array([1], pa.time32("ms")), "string"),
        (pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]), "bigint"),
        (pa.array([1.5]), "bigint"),
        (pa.array(["x"]), "bigint"),
        (pa.array([2**63], pa.uint64()), "bigint"),
    ],
)
def test_types_that_are_not_taken(values: pa.Array, type: str) -> None:
    refused(values, type, 1, "")


def test_encodings_that_are_taken() -> None:
    strings = ["a", None, "a"]
    forms = [
        pa.array(strings, pa.large_string()),
        pa.array(strings, pa.string_view()),
        pa.array(strings).dictionary_encode(),
        pa.chunked_array([pa.array(strings[:1]).dictionary_encode(), pa.array(strings[1:]).dictionary_encode()]),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(strings)),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(strings).dictionary_encode()),
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(strings)),
    ]
    for form in forms:
        assert coerce(pa.table({"n": [1, 2, 3], "c": form}), schema_of("string")).column("c").to_pylist() == strings
    lists = [[1, 2], None, []]
    for kind in (pa.list_view, pa.large_list_view, pa.large_list):
        form = pa.array(lists, kind(pa.int32()))
        assert coerce(pa.table({"n": [1, 2, 3], "c": form}), schema_of("array<int>")).column("c").to_pylist() == lists


@pytest.mark.parametrize(
    "value",
    [
        10**15, -(10**15), 2**62, 10**30,
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5))),
        "0001-01-01T00:00:00+05:00", "10000-01-01", "+12345-01-01T00:00:00Z",
        np.datetime64("10000-01-01"), np.datetime64("-0001-01-01", "s"), np.datetime64(2**62, "s"), np.int64(10**15),
        pa.scalar(2**62, pa.timestamp("us")),
    ],
)  # fmt: skip
def test_python_times_out_of_range(value: Any) -> None:
    schema = schema_of("timestamp")
    with pytest.raises(PenstockError) as caught:
        coerce([{"n": 1, "c": value}], schema)
    assert caught.value.code == "PSK-5003"
    assert "Row 1, column 'c'" in caught.value.detail
    assert RowEncoder(schema).encode({"n": 1, "c": value}, {}) is None


def test_numpy_times() -> None:
    schema = schema_of("timestamp")
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    millis = int(noon.timestamp() * 1000)
    for value in (np.datetime64("2024-05-01T12:00"), np.int64(millis), pa.scalar(noon), pd.Timestamp(noon)):
        assert coerce([{"n": 1, "c": value}], schema).column("c")[0].as_py() == noon
    for value in (np.datetime64("NaT"), pd.NaT):
        assert coerce([{"n": 1, "c": value}], schema).column("c")[0].as_py() is None
        assert coerce([{"n": 1, "c": value}], schema_of("date")).column("c")[0].as_py() is None


def test_lists_of_numpy() -> None:
    out = coerce([{"n": 1, "c": np.array([1, 2])}, {"c": np.array([3])}], schema_of("array<int>"))
    assert out.column("c").to_pylist() == [[1, 2], [3]]


def test_errors_stay_short() -> None:
    with pytest.raises(PenstockError) as caught:
        coerce([{"n": 1, "c": b"x" * 1_000_000}], schema_of("string"))
    assert len(caught.value.detail) < 300


def test_readers_that_break() -> None:
    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return "no capsule"

    with pytest.raises(PenstockError) as caught:
        coerce(Broken(), schema_of("string"))
    assert caught.value.code == "PSK-5003"


@given(st.lists(st.integers(-2, 12), max_size=6), st.binary(max_size=12), st.sampled_from(["string", "binary"]))
def test_any_memory_is_stored_whole_or_refused(middle: list[int], data: bytes, type: str) -> None:
    offsets = [0, *middle, len(data)]
    rows = len(offsets) - 1
    buffers = [None, pa.py_buffer(struct.pack(f"{len(offsets)}i", *offsets)), pa.py_buffer(data)]
    array = pa.Array.from_buffers(to_arrow(type), rows, buffers)
    for values in (array, pa.DictionaryArray.from_arrays(pa.array([0] * rows), array, safe=False)):
        try:
            out = coerce(pa.table({"n": pa.array(range(rows), pa.int64()), "c": values}), schema_of(type))
        except PenstockError:
            continue
        out.validate(full=True)
        assert len(out.to_pylist()) == rows
