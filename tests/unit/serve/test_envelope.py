from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.serve.envelope import Form
from penstock.serve.zset import consolidate


def zset(*rows: tuple[Any, Any, int]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([r[0] for r in rows], pa.int64()),
            "v": pa.array([r[1] for r in rows], pa.string()),
            "__weight": pa.array([r[2] for r in rows], pa.int64()),
        }
    )


CHANGED = zset((1, "new", 1), (1, "old", -1), (2, "gone", -1), (3, "fresh", 1))


def test_diff_follows_emit() -> None:
    assert Form("changes").render(CHANGED)["__weight"].to_pylist() == [-1, -1, 1, 1]
    assert Form("changes").render(CHANGED.drop_columns(["__weight"]))["__weight"].to_pylist() == [1] * 4
    assert Form("update").render(CHANGED).to_pylist() == [{"k": 1, "v": "new"}, {"k": 3, "v": "fresh"}]
    for emit in ("append", "close"):
        assert Form(emit).render(zset((1, "a", 2))).to_pylist() == [{"k": 1, "v": "a"}] * 2  # type: ignore[arg-type]
        with pytest.raises(PenstockError, match="PSK-8001"):
            Form(emit).render(CHANGED)  # type: ignore[arg-type]


def test_upsert_has_one_row_per_key() -> None:
    assert Form("changes", "upsert", ("k",)).render(CHANGED).to_pylist() == [
        {"k": 2, "v": None, "__op": "delete"},
        {"k": 1, "v": "new", "__op": "upsert"},
        {"k": 3, "v": "fresh", "__op": "upsert"},
    ]


@pytest.mark.parametrize("table", [zset((1, "a", 1), (1, "b", 1)), zset((1, "a", 2))])
def test_two_live_rows_under_a_key_are_an_error(table: pa.Table) -> None:
    with pytest.raises(PenstockError, match="PSK-5006"):
        Form("changes", "upsert", ("k",)).render(table)


def test_debezium_pairs_old_and_new_by_key() -> None:
    rows = Form("changes", "debezium", ("k",)).render(CHANGED).to_pylist()
    assert [(r["op"], r["before"] and r["before"]["v"], r["after"] and r["after"]["v"]) for r in rows] == [
        ("d", "gone", None),
        ("u", "old", "new"),
        ("c", None, "fresh"),
    ]
    assert all(r["ts_ms"] > 0 for r in rows)
    loose = Form("changes", "debezium").render(zset((1, "a", 2), (2, "b", -1)))
    assert loose["op"].to_pylist() == ["d", "c", "c"]
    assert Form("changes", "debezium", ("k",)).render(zset((1, "a", 1)), snapshot=True)["op"].to_pylist() == ["r"]
    assert Form("changes", "debezium", ("k",)).render(zset()).num_rows == 0


_FLOAT = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])
_ROWS = st.lists(st.tuples(_FLOAT, st.sampled_from(["a", None]), st.integers(-2, 2)), max_size=8)


def _same(value: float | None) -> float | str | None:
    return "NaN" if value is not None and value != value else value


@settings(deadline=None)
@given(_ROWS, st.booleans())
def test_consolidate_sums_equal_rows(rows: list[tuple[float | None, str | None, int]], nested: bool) -> None:
    floats, words, weights = ([r[i] for r in rows] for i in range(3))
    second = pa.array([[w] for w in words], pa.list_(pa.string())) if nested else pa.array(words, pa.string())
    table = pa.table({"__weight": pa.array(weights, pa.int64()), "f": pa.array(floats, pa.float64()), "s": second})
    out = consolidate(table)
    expected: Counter[Any] = Counter()
    for f, s, w in rows:
        expected[(_same(f), s)] += w
    got = {(_same(r["f"]), r["s"][0] if nested else r["s"]): r["__weight"] for r in out.to_pylist()}
    assert got == {k: w for k, w in expected.items() if w}
    assert out.num_rows == len(got)
    assert out.column_names == ["f", "s", "__weight"]
    assert out["__weight"].to_pylist() == sorted(out["__weight"].to_pylist(), key=lambda w: w > 0)
    assert out.schema.field("s").type == table.schema.field("s").type


def test_rows_that_differ_in_a_number_are_not_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load of new keys has nothing to add up, and grouping it would cost more than all else."""
    count = 1000
    numbers = pa.array([(n * 7919) % count for n in range(count)])
    words, weights = pa.array(["same"] * count), pa.array([(1, -1, 0)[n % 3] for n in range(count)], pa.int64())
    distinct = pa.table({"w": words, "n": numbers, "__weight": weights})
    # The last two numbers are equal.
    almost = distinct.set_column(1, "n", pa.array([*range(count - 1), count - 2]))
    grouped = consolidate(almost)
    assert grouped.num_rows == sum(1 for w in weights.to_pylist()[: count - 2] if w) + 1
    monkeypatch.setattr("penstock.serve.zset._grouped", None)
    out = consolidate(distinct)
    assert out["__weight"].to_pylist() == [-1] * 333 + [1] * 334
    kept = [n for n, w in zip(numbers.to_pylist(), weights.to_pylist(), strict=True) if w]
    assert sorted(out["n"].to_pylist()) == sorted(kept)
    with pytest.raises(TypeError):
        consolidate(almost)


def test_consolidate_by_arrow_keeps_types() -> None:
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("d", pa.decimal128(10, 2)), ("__weight", pa.int64())])
    table = pa.Table.from_pylist([{"t": None, "d": None, "__weight": 1}] * 3, schema=schema)
    out = consolidate(table)
    assert out.schema.equals(schema)
    assert out["__weight"].to_pylist() == [3]


def test_equal_floats_are_written_in_one_form() -> None:
    """What is retracted has the bytes of what was asserted, whichever of two equal rows stands for both."""
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    for floats in ([-0.0, 0.0, odd, float("nan"), None], [0.0, -0.0, float("nan"), odd, None]):
        out = consolidate(pa.table({"f": pa.array(floats, pa.float64()), "g": pa.array(floats, pa.float32())}))
        forms = [None if f is None else struct.pack("<d", f) for f in out["f"].to_pylist()]
        assert forms == [struct.pack("<d", 0.0), struct.pack("<d", float("nan")), None]
        assert out["__weight"].to_pylist() == [2, 2, 1]
    alone = consolidate(pa.table({"f": pa.array([-0.0], pa.float64())}))
    assert str(alone["f"][0].as_py()) == "0.0"


def test_floats_in_nested_values_have_one_form_too() -> None:
    kind = pa.struct([("l", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.float32())), ("s", pa.string())])
    for zero in (-0.0, 0.0):
        rows = [{"l": [zero, None, 1.5], "m": [("a", zero)], "s": "x"}, None, {"l": None, "m": None, "s": None}]
        column = pa.array([*rows, *rows], kind)
        for part in (column, column.slice(1, 4), column.slice(3)):
            out = consolidate(pa.table({"n": part}))["n"]
            out.validate(full=True)
            expected = {str(v).replace("-0.0", "0.0") for v in part.to_pylist()}
            assert {str(v) for v in out.to_pylist()} == expected
