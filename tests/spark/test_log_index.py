"""The kernel's index of the log against a list, over random commits, trims and questions."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.effort import times

from penstock.log import Entry
from penstock.spark import index as index_module
from penstock.spark.index import KernelIndex
from penstock.spark.session import jvm

OBJECT = 7
NONE = -(2**63)


class Item(NamedTuple):
    """An entry, and the LSN of the first of those that it stands for."""

    first: int
    entry: Entry


class Java:
    """Calls of methods and fields that only the kernel sees."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._new_array = gateway.new_array
        self._lang = gateway.jvm.java.lang

    def call(self, of: Any, method: str, *arguments: int) -> Any:
        kinds = [self._lang.Integer.TYPE, *[self._lang.Long.TYPE] * (len(arguments) - 1)] if arguments else []
        found = of.getClass().getDeclaredMethod(method, self._array(self._lang.Class, kinds))
        found.setAccessible(True)
        return found.invoke(of, self._array(self._lang.Object, arguments))

    def fields(self, of: Any, *names: str) -> tuple[Any, ...]:
        found = [of.getClass().getDeclaredField(name) for name in names]
        for field in found:
            field.setAccessible(True)
        return tuple(field.get(of) for field in found)

    def _array(self, kind: Any, values: Any) -> Any:
        array = self._new_array(kind, len(values))
        for i, value in enumerate(values):
            array[i] = value
        return array


def entry(chance: random.Random, lsn: int, watermark: int | None) -> Entry:
    """An entry with no, one or several messages, in a file that changes every ten commits."""
    batches, at = [], lsn * 1000
    for _ in range(chance.choice([0, 0, 1, 1, 1, 3])):
        batches.append((at, 240, chance.randrange(1, 9)))
        at += 240
    rows = sum(n for _, _, n in batches)
    path = f"/log/{lsn // 10}.seg"
    before = tuple(range(len(batches))) if chance.random() < 0.3 else ()
    idle = not rows and chance.random() < 0.3
    checks = tuple(chance.choice([0, 1, 2**32 - 1]) for _ in batches) if chance.random() < 0.7 else ()
    place = (lsn, OBJECT, path, lsn * 1000, 240, rows, tuple(batches))
    return Entry(*place, watermark, lsn, -1, 0, 4, lsn, idle, before, checks)


def kept(items: list[Item], one: Entry) -> list[Item]:
    if items and not one.rows and not items[-1].entry.rows:
        return [*items[:-1], Item(items[-1].first, one)]
    return [*items, Item(one.lsn, one)]


@pytest.mark.parametrize("seed", range(times(1)))
def test_the_index_against_a_list(spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_LINES", 3)
    chance, java, name = random.Random(seed), Java(spark), f"test-index-{seed}"
    told = KernelIndex(name)
    index = jvm().LogIndex.of(name)
    items: list[Item] = []
    gone: list[Item] = []
    lsn, watermark = 0, None
    try:
        for _ in range(40):
            news = []
            for _ in range(chance.randrange(8)):
                lsn += chance.choice([1, 1, 1, 4])
                if chance.random() < 0.5:
                    watermark = max(watermark or 0, lsn + chance.randrange(5))
                news.append(entry(chance, lsn, watermark))
            for _ in range(chance.choice([1, 1, 2])):
                told.add(news, lsn)  # What is repeated changes nothing.
            for one in news:
                items = kept(items, one)
            if chance.random() < 0.2:
                floor = chance.randrange(lsn + 1)
                told.trim(OBJECT, floor)
                gone += [i for i in items if i.entry.lsn <= floor]
                items = [i for i in items if i.entry.lsn > floor]
            told._drain()
            after, up_to = sorted([chance.randrange(lsn + 3), chance.randrange(lsn + 3)])
            expected = [i.entry for i in items if after < i.entry.lsn <= up_to]
            found = java.call(index, "entries", OBJECT, after, up_to)
            assert [java.fields(e, "lsn", "rows") for e in found] == [(e.lsn, e.rows) for e in expected]
            for have, want in list(zip(found, expected, strict=True))[:3]:
                slices = [
                    java.fields(s, "path", "lsn", "offset", "length", "rows", "check", "before")
                    for s in java.call(have, "slices")
                ]
                before = want.before or [NONE] * len(want.batches)
                checks = want.checks or [-1] * len(want.batches)
                expected_slices = zip(want.batches, checks, before, strict=True)
                assert slices == [(want.path, want.lsn, *b, c, w) for b, c, w in expected_slices]
            changed = any(i.entry.lsn > after and i.first <= up_to for i in items)
            assert java.call(index, "changed", OBJECT, after, up_to) == changed
            marks = [(i.entry.watermark, i.entry.idle) for i in (*gone[-1:], *items) if i in gone or i.first <= up_to]
            mark = java.call(index, "markAt", OBJECT, up_to)
            last, idle = marks[-1] if marks else (None, False)
            assert java.fields(mark, "watermark", "idle") == (NONE if last is None else last, idle)
    finally:
        told.close()


def test_times_are_kept_apart_between_which_rows_came(spark: SparkSession) -> None:
    java, told = Java(spark), KernelIndex("test-times")
    index = jvm().LogIndex.of("test-times")

    def mark(lsn: int, watermark: int) -> Entry:
        return Entry(lsn, OBJECT, "/log/1.seg", 0, 0, 0, (), watermark, lsn, -1, 0, 4, lsn)

    def rows(lsn: int) -> Entry:
        return Entry(lsn, OBJECT + 1, "/log/1.seg", 0, 240, 1, ((0, 240, 1),), None, lsn, -1, 0, 4, lsn)

    try:
        told.add([mark(1, 10), mark(2, 20), rows(3), mark(4, 40), mark(5, 50), rows(6), mark(7, 70)], 7)
        told._drain()
        found = java.call(index, "entries", OBJECT, 0, 9)
        assert [java.fields(e, "lsn") for e in found] == [(2,), (5,), (7,)]
    finally:
        told.close()
