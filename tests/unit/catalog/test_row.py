"""One row the short way is what the general way makes of it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.catalog.coerce import coerce
from penstock.catalog.row import RowEncoder

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("props", pa.map_(pa.string(), pa.int64())),
        pa.field("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)
DEFAULTS: dict[str, object] = {"name": "none", "price": lambda: Decimal("1.50")}


@pytest.mark.parametrize(
    "row",
    [
        {"k": 1},
        {"k": 2.0, "name": None, "ts": 1_700_000_000_123},
        {"ts": datetime(2024, 1, 2, tzinfo=UTC), "k": 3, "tags": ["a", None], "props": {"a": 1}, "place": (1.0, 2.0)},
        {"k": 4, "ts": "2024-01-02T03:04:05+02:00", "price": Decimal("9.99"), "place": {"x": 1.0}, "tags": []},
    ],
)
def test_same_as_the_general_way(row: dict[str, Any]) -> None:
    batch = RowEncoder(SCHEMA).encode(row, DEFAULTS)
    assert batch is not None
    assert batch.schema.equals(SCHEMA)
    assert batch.to_pylist() == coerce(row, SCHEMA, DEFAULTS).to_pylist()


@pytest.mark.parametrize(
    "row",
    [
        {"K": 1},
        {"k": None},
        {"k": 1.5},
        {"k": 1, "nmae": "x"},
        {"k": 1, "name": 3},
        {"k": 1, "place": {"z": 1.0}},
        {"k": 2**63},
    ],
)
def test_left_to_the_general_way(row: dict[str, Any]) -> None:
    assert RowEncoder(SCHEMA).encode(row, DEFAULTS) is None
