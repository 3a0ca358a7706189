"""VARIANT in Python: Spark's bytes are values, and values are Spark's bytes."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.variant_utils import VariantUtils

from penstock.catalog.coerce import coerce
from penstock.catalog.objects import Column
from penstock.catalog.types import schema_of
from penstock.catalog.values import frame, values
from penstock.catalog.variant import decoded, encoded, json_text
from penstock.errors import PenstockError

VALUES: list[Any] = [
    None, True, False, 0, -1, 127, -128, 128, 32767, -32769, 1 << 31, -(1 << 63), (1 << 63) - 1, 1.5, -0.0, float("inf"), "", "a", "ä" * 40, "x" * 63, "x" * 64,
    Decimal("1.50"), Decimal("-99999999.99"), Decimal("12345678901234567890.5"), b"", b"\x00\xff", dt.date(1, 1, 1), dt.datetime(2026, 1, 1, 3, 4, 5, 6),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC), [], {}, [1, [2, None], {"a": []}], {"b": 1, "a": {"b": "x", "é": [True]}},
    list(range(300)), {f"k{i}": i for i in range(300)}, ["y" * 70_000, 1],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: repr(v)[:40])
def test_spark_reads_what_is_written(value: Any) -> None:
    made = encoded(value)
    assert decoded(**made) == value
    if not isinstance(value, str) or value:  # pyspark itself cannot read an empty string at the end of the bytes.
        assert VariantUtils.to_python(made["value"], made["metadata"]) == value


@pytest.mark.parametrize(
    "text", ['{"a": [1, 2.5, "x", null, true], "b": {"a": {}}}', "[]", "12345678901234567890", '"\\u00e9"', "1e300"]
)
def test_what_spark_writes_is_read(text: str) -> None:
    value, metadata = VariantUtils.parse_json(text)
    assert decoded(value, metadata) == json.loads(text, parse_float=lambda t: float(t) if "e" in t else Decimal(t))


def test_texts() -> None:
    found = json_text(
        {"a": [1, Decimal("1.50"), None, True], "ä": 'x"', "d": dt.date(2026, 1, 1), "b": b"\x01", "f": float("nan")}
    )
    assert json.loads(found) == {"a": [1, 1.5, None, True], "ä": 'x"', "d": "2026-01-01", "b": "AQ==", "f": "NaN"}
    assert "1.50" in found


@pytest.mark.parametrize("value", [b"", b"\xff", b"\x02\x05", bytes([12 << 2]), bytes([16 << 2, 255, 0, 0, 0])])
def test_bytes_that_are_no_variant_are_an_error(value: bytes) -> None:
    with pytest.raises(ValueError, match="malformed VARIANT"):
        decoded(value, b"\x01\x00\x00")
    with pytest.raises(ValueError, match="malformed VARIANT"):
        decoded(b"\x00", b"")


def test_columns_hold_values() -> None:
    schema = schema_of(
        [
            Column("v", "variant"),
            Column("n", "array<struct<v:variant,m:map<int,variant>>>"),
            Column("s", "struct<value:binary,metadata:binary>"),
        ]
    )
    row = {
        "v": {"a": [1, "x"]},
        "n": [{"v": "y", "m": {1: None, 2: [2]}}, None],
        "s": {"value": b"v", "metadata": b"m"},
    }
    table = coerce([row, {"v": None, "n": None, "s": None}, {"v": encoded(7), "n": [], "s": None}], schema)
    read = [values(table.column(i), f) for i, f in enumerate(table.schema)]
    assert read == [[row["v"], None, 7], [[{"v": "y", "m": {1: None, 2: [2]}}, None], None, []], [row["s"], None, None]]
    assert list(frame(table)["v"]) == [row["v"], None, 7]
    assert coerce(frame(table), schema).equals(table)
    assert coerce(pa.table(table), schema).equals(table)
    with pytest.raises(PenstockError, match=r"Row 2, column 'v'.*cannot hold object"):
        coerce([{"v": 1}, {"v": object()}], schema)
