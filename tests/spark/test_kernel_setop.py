"""SetOp and Distinct against bags in Python, after every epoch of generated traces."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.kernel_trace import Bag, Trace, canonical

KINDS = ["except", "except all", "intersect", "intersect all", "union distinct"]


def answer(kind: str, left: Bag, right: Bag) -> Bag:
    out: Bag = Counter()
    for row in left.keys() | right.keys():
        a, b = left[row], right[row]
        out[row] = {
            "except": int(a > 0 and b == 0),
            "except all": max(a - b, 0),
            "intersect": int(a > 0 and b > 0),
            "intersect all": min(a, b),
            "union distinct": int(a > 0 or b > 0),
        }[kind]
    return +out


def changes(rng: random.Random, bag: Bag, rows: int, value: Any) -> list[tuple[Any, ...]]:
    out = []
    for _ in range(rows):
        there = [r for r, n in bag.items() if n > 0]
        if there and rng.random() < 0.45:
            row, weight = rng.choice(there), -1
        else:
            row, weight = value(), rng.randint(1, 2)
        bag[row] += weight
        out.append((*row, weight))
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_set_operation_follows_both_sides(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rng = random.Random(kind)
    spec = {"kind": kind, "columns": ["a$k", "d"], "weight": "__weight", "side": "__side"}
    trace = Trace(spark, tmp_path, "SetOp", "`a$k` string, d double, __side int, __weight bigint", spec)
    sides: list[Bag] = [Counter(), Counter()]

    def value() -> tuple[Any, ...]:
        return rng.choice(["x", "y", None]), rng.choice([1.5, 0.0, None, float("nan")])

    trace.start()
    for i in range(6):
        step = []
        for side in (0, 1):
            step += [(*r[:-1], side, r[-1]) for r in changes(rng, sides[side], 6, value)]
        rng.shuffle(step)
        trace.step(step)
        assert trace.state == answer(kind, *(canonical_bag(s) for s in sides))
        if i == 2:
            trace.stop()
            trace.start()
    trace.stop()


def canonical_bag(bag: Bag) -> Bag:
    out: Bag = Counter()
    for r, n in bag.items():
        out[canonical(r)] += n
    return out


def test_distinct_counts(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(7)
    trace = Trace(
        spark,
        tmp_path,
        "DistinctRows",
        "a string, t timestamp, __weight bigint",
        {"columns": ["a"], "weight": "__weight"},
    )
    there: Bag = Counter()
    trace.start()
    for i in range(5):
        step = changes(rng, there, 8, lambda: (rng.choice("abcd"), None))
        trace.step(step)
        assert trace.state == Counter({(r[0],) for r, n in there.items() if n > 0})
        if i == 1:
            trace.stop()
            trace.start()
    trace.stop()


def test_distinct_of_appends_speaks_once(spark: SparkSession, tmp_path: Path) -> None:
    trace = Trace(spark, tmp_path, "DistinctRows", "a int, b array<string>, d double", {"columns": ["a", "b", "d"]})
    trace.start()
    assert len(trace.step([(1, ["x"], -0.0), (1, ["x"], 0.0), (2, None, None)])) == 2
    assert trace.step([(1, ["x"], 0.0), (2, None, None)]) == []
    trace.stop()
    trace.start()
    assert trace.step([(2, None, None), (3, [], float("nan"))])[0][0] == 3
    trace.stop()
