from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.serve.ondisk.bloom import Bloom
from penstock.serve.ondisk.keys import blocks_of, encode, find, firsts, hashes, order, up_to

LEAST = -(1 << 63)
COLUMNS: dict[str, tuple[list[pa.DataType], list[tuple[Any, ...]]]] = {
    "number": ([pa.int64()], [(i,) for i in (LEAST, None, -1, 0, 1, (1 << 63) - 1)]),
    "date": ([pa.date32()], [(date(1969, 1, 1),), (None,), (date(2026, 1, 1),)]),
    "text": ([pa.string()], [("",), (None,), ("a",), ("a" * 200,), ("b" * 200,), ("\0",)]),
    # Two columns whose texts would be the same if they were put together without their lengths.
    "texts": ([pa.string(), pa.binary()], [("a", b"bc"), ("ab", b"c"), ("", b"abc"), (None, b"abc"), ("abc", None)]),
    "mixed": (
        [pa.decimal128(9, 2), pa.float64(), pa.bool_(), pa.int8()],
        [
            (Decimal("1.50"), 0.5, True, -1),
            (Decimal("1.50"), float("nan"), None, -1),
            (None, None, False, 1),
            (Decimal("-1.50"), 0.5, True, 1),
        ],
    ),
}


def rows(kind: str, chosen: list[tuple[Any, ...]]) -> tuple[pa.Table, list[str]]:
    kinds = COLUMNS[kind][0]
    names = [f"c{i}" for i in range(len(kinds))]
    return pa.table([pa.array([r[i] for r in chosen], k) for i, k in enumerate(kinds)], names=names), names


@pytest.mark.parametrize("kind", COLUMNS)
def test_keys_are_equal_exactly_if_their_values_are(kind: str) -> None:
    values = COLUMNS[kind][1]
    dice = random.Random(kind)
    some = dice.choices(values, k=50)
    keys = encode(*rows(kind, some))
    at = order(keys)
    keys = keys.take(pa.array(at))
    assert firsts(keys).sum() == len(set(map(repr, some)))
    kept = keys.filter(pa.array(firsts(keys)))
    wanted = encode(*rows(kind, values))
    places = find(kept, wanted)
    assert [p >= 0 for p in places] == [repr(v) in set(map(repr, some)) for v in values]
    assert [p >= 0 for p in (find(kept, wanted[i : i + 1])[0] for i in range(len(values)))] == list(places >= 0)
    found = kept.take(pa.array(places[places >= 0]))
    assert found.equals(wanted.filter(pa.array(places >= 0)))
    # The order is the same in each way to look at it, and in each block.
    for i in range(len(kept)):
        assert up_to(kept, kept[i]) > i
        first = kept.take(pa.array(range(0, len(kept), 2)))
        assert blocks_of(first, kept[i : i + 1])[0] == i // 2


def test_a_slice_has_the_keys_of_its_rows() -> None:
    table, names = rows("mixed", COLUMNS["mixed"][1] * 3)
    for start in range(6):
        part = table.slice(start, 4).combine_chunks()
        assert encode(part, names).equals(encode(table, names)[start : start + 4])
        assert (hashes(encode(part, names)) == hashes(encode(table, names))[start : start + 4]).all()


@pytest.mark.parametrize("kind", ["number", "text"])
@pytest.mark.parametrize(("rounds", "share"), [(1, 0.005), (2, 0.001)])
def test_a_filter_has_all_its_keys_and_few_others(kind: str, rounds: int, share: float) -> None:
    """Filters of earlier versions have one word for each key."""
    some = pa.array(range(20_000)) if kind == "number" else pa.array([f"key {i}" for i in range(20_000)])
    hashed = hashes(encode(pa.table({"k": some}), ["k"]))
    filled = Bloom(Bloom.for_keys(10_000)._words, rounds)
    filled.add(hashed[:10_000])
    again = Bloom.from_bytes(filled.to_bytes(), rounds)
    assert again.may_have(hashed[:10_000]).all()
    assert [again.may_have_one(int(h)) for h in hashed[::10]] == list(again.may_have(hashed[::10]))
    assert again.may_have(hashed[10_000:]).mean() < share
    assert not Bloom.for_keys(0).may_have(hashed).any()


def test_hashes_are_the_same_everywhere() -> None:
    numbers = hashes(encode(pa.table({"k": pa.array([0, 1, -1])}), ["k"]))
    texts = hashes(encode(pa.table({"k": pa.array(["", "a", "a" * 300])}), ["k"]))
    assert [hex(int(h)) for h in numbers] == NUMBERS
    assert [hex(int(h)) for h in texts] == TEXTS
    assert numbers.dtype == np.uint64


NUMBERS = ["0xe220a8397b1dcdaf", "0x910a2dec89025cc1", "0xe4d971771b652c20"]
TEXTS = ["0x55fabba600ca3f17", "0x47c835cb5f146468", "0x9c31325319f37b78"]
