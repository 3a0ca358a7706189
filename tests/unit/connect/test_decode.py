from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.catalog.objects import Column
from penstock.connect.decode import JsonDecoder
from penstock.errors import PenstockError

FEED = [
    Column("id", "bigint"),
    Column("kind", "string"),
    Column("region", "string"),
    Column("status", "string"),
    Column("tags", "array<string>"),
]
PATHS = {"json.column.region": "meta.region", "json.column.status": "meta.status", "json.column.tags": "tags"}


def test_nested_values_are_found_by_path() -> None:
    lines: list[str | bytes] = [
        '{"id":1,"kind":"order","meta":{"region":"us","status":"open"},"tags":["a","b"]}',
        b'{"id":2,"kind":"order","meta":{"region":"eu"},"tags":["b"],"extra":1}',
        '{"id":4,"kind":"heartbeat","meta":null,"tags":[]}',
        '{"id":5,"meta":"flat","meta.region":"whole"}',
        '[{"id":6},{"id":7}]',
    ]
    batch = JsonDecoder(FEED, PATHS).decode(lines)
    assert [tuple(r.values()) for r in batch.to_pylist()] == [
        (1, "order", "us", "open", ["a", "b"]),
        (2, "order", "eu", None, ["b"]),
        (4, "heartbeat", None, None, []),
        (5, None, "whole", None, None),
        (6, None, None, None, None),
        (7, None, None, None, None),
    ]


def test_every_type() -> None:
    types = {
        "i": "int",
        "d": "double",
        "m": "decimal(10,2)",
        "t": "timestamp",
        "n": "timestamp_ntz",
        "y": "date",
        "b": "binary",
        "s": "struct<a:int,at:timestamp>",
        "o": "map<string,double>",
        "j": "string",
        "f": "boolean",
    }
    line = {
        "i": 1,
        "d": 2,
        "m": "1.50",
        "t": "2024-05-01T12:00:00Z",
        "n": 1714564800000,
        "y": "2024-05-01",
        "b": "AP8=",
        "s": {"a": 1, "at": 1714564800000, "more": 1},
        "o": {"k": 1},
        "j": {"x": [1]},
        "f": True,
    }
    batch = JsonDecoder([Column(n, t) for n, t in types.items()], {}).decode([json.dumps(line)])
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert batch.to_pylist() == [
        {
            "i": 1,
            "d": 2.0,
            "m": Decimal("1.50"),
            "t": noon,
            "n": noon.replace(tzinfo=None),
            "y": date(2024, 5, 1),
            "b": b"\x00\xff",
            "s": {"a": 1, "at": noon},
            "o": [("k", 1.0)],
            "j": '{"x": [1]}',
            "f": True,
        }
    ]


BAD = ["{", "7", '{"id":"x"}', '{"id":1.5}', '{"tags":"ab"}', "[1]"]


@pytest.mark.parametrize("line", BAD)
def test_a_bad_row_raises(line: str) -> None:
    with pytest.raises(PenstockError, match="PSK-5007"):
        JsonDecoder(FEED, {}).decode(['{"id":1}', line])


def test_bad_rows_can_be_skipped_and_are_counted() -> None:
    decoder = JsonDecoder(FEED, {"on_error": "skip"})
    batch = decoder.decode(['{"id":1}', *BAD, '{"id":2}'])
    assert batch.column("id").to_pylist() == [1, 2]
    assert decoder.skipped == len(BAD)


def test_not_null_columns_need_a_value() -> None:
    columns = [Column("id", "bigint", nullable=False)]
    with pytest.raises(PenstockError, match=r"PSK-5007.*'id'"):
        JsonDecoder(columns, {}).decode(["{}"])
    skipping = JsonDecoder(columns, {"on_error": "skip"})
    assert skipping.decode(["{}", '{"id":3}']).to_pylist() == [{"id": 3}]
    assert skipping.skipped == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"on_eror": "skip"}, "PSK-1010"),
        ({"on_error": "ignore"}, "PSK-1011"),
        ({"json.column.nope": "a"}, "PSK-1004"),
        ({"json.column.": "a"}, "PSK-1010"),
        ({"json.column.id": "a..b"}, "PSK-1011"),
    ],
)
def test_options_are_checked(options: dict[str, str], code: str) -> None:
    with pytest.raises(PenstockError) as e:
        JsonDecoder(FEED, options)
    assert e.value.code == code


_ROW = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "kind": st.none() | st.text(),
        "tags": st.none() | st.lists(st.none() | st.text()),
    },
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_ROW, max_size=5))
def test_rows_come_back_as_they_were_written(rows: list[dict[str, object]]) -> None:
    batch = JsonDecoder(FEED, {}).decode([json.dumps(r) for r in rows])
    assert batch.to_pylist() == [{c.name: r.get(c.name) for c in FEED} for r in rows]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text() | st.binary(), max_size=5))
def test_no_input_breaks_a_decoder_that_skips(lines: list[str | bytes]) -> None:
    decoder = JsonDecoder(FEED, {"on_error": "skip"})
    assert decoder.decode(lines).num_rows + decoder.skipped >= 0
