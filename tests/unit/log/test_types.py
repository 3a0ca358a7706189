from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log import Log, Part

MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456)

COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(3),
    "boolean": pa.array([True, None, False]),
    "tinyint": pa.array([-128, None, 127], pa.int8()),
    "smallint": pa.array([-(2**15), None, 1], pa.int16()),
    "int": pa.array([-(2**31), None, 1], pa.int32()),
    "bigint": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "unsigned": pa.array([0, None, 2**64 - 1], pa.uint64()),
    "half": pa.array([1.5, None, -0.0], pa.float16()),
    "float": pa.array([1.5, None, float("-inf")], pa.float32()),
    "double": pa.array([1.5, None, float("inf")], pa.float64()),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("-99999.99")], pa.decimal128(38, 2)),
    "string": pa.array(["", None, "žluťoučký 🐎"]),
    "large string": pa.array(["", None, "x" * 1000], pa.large_string()),
    "binary": pa.array([b"", None, b"\0PSKf\xff"], pa.binary()),
    "fixed binary": pa.array([b"abcd", None, b"\0\0\0\0"], pa.binary(4)),
    "date": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date32()),
    "time": pa.array([time(0), None, time(23, 59, 59, 999999)], pa.time64("us")),
    "timestamp": pa.array([MOMENT.replace(tzinfo=UTC), None, MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
    "timestamp without zone": pa.array([MOMENT, None, MOMENT], pa.timestamp("us")),
    "duration": pa.array([timedelta(days=1), None, timedelta(microseconds=-1)], pa.duration("us")),
    "months": pa.array([(1, 15, -30), None, (0, 0, 0)], pa.month_day_nano_interval()),
    "list": pa.array([[1, None, 3], None, []], pa.list_(pa.int32())),
    "list of strings": pa.array([["a", None, ""], None, []], pa.list_(pa.string())),
    "fixed list": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float64(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "nested": pa.array(
        [[{"m": [("k", [1, None])]}, None], None, []],
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int16())))])),
    ),
    "all null": pa.nulls(3, pa.string()),
}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.open(tmp_path)


@pytest.mark.parametrize("name", COLUMNS)
def test_types(log: Log, name: str) -> None:
    batch = pa.record_batch({"c": COLUMNS[name]})
    for piece in (batch, batch.slice(1), batch.slice(1, 1), batch.slice(0, 0)):
        lsn = log.append([Part(1, (piece,))]).lsn
        (entry,) = log.entries(1, lsn - 1)
        table = log.read(entry, batch.schema)
        table.validate(full=True)
        assert table == pa.Table.from_batches([piece])
    log.close()


def test_all_columns_together(log: Log, tmp_path: Path) -> None:
    batch = pa.record_batch(COLUMNS)
    log.append([Part(1, (batch, batch.slice(2)))])
    log.close()
    log = Log.open(tmp_path)
    assert log.read(log.entries(1)[0], batch.schema) == pa.Table.from_batches([batch, batch.slice(2)])
    log.close()


def test_rows_without_columns(log: Log) -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    log.append([Part(1, (batch,))])
    assert log.read(log.entries(1)[0], batch.schema).num_rows == 2
    log.close()


def test_sliced_batches_store_their_rows_only(log: Log) -> None:
    batch = pa.record_batch({"s": pa.array(["x" * 1000] * 10_000)})
    log.append([Part(1, (batch.slice(5000, 1),))])
    assert log.entries(1)[0].length < 2000
    log.close()
