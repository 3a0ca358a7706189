"""The interval join: the conformance cases, and generated traces against Spark's batch join."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.effort import EFFORT

from .join_trace import Bag, JoinTrace, Spec, Step, rows_of
from .kernel_trace import write

LEFT = "lk string, lv bigint, lt bigint, lw bigint"
RIGHT = "rk string, rv bigint, rt bigint, rw bigint"
KINDS = {"inner": "INNER", "left": "LEFT", "right": "RIGHT", "full": "FULL", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}


def spec(kind: str, lower: int, upper: int, residual: str | None = None, weights: bool = False) -> Spec:
    """Bounds in milliseconds."""
    return {
        "kind": kind,
        "leftKeys": ["lk"],
        "rightKeys": ["rk"],
        "nullSafe": [False],
        "leftColumns": ["lk", "lv", "lt"],
        "rightColumns": ["rk", "rv", "rt"],
        "leftWeight": "lw" if weights else None,
        "rightWeight": "rw" if weights else None,
        "residual": residual,
        "leftTime": "lt",
        "rightTime": "rt",
        "lowerMicros": lower * 1000,
        "upperMicros": upper * 1000,
        "leftLagMicros": 0,
        "rightLagMicros": 0,
    }


def at(key: str | None, value: int | None, ms: int | None, weight: int = 1) -> tuple[Any, ...]:
    return (key, value, None if ms is None else ms * 1000, weight)


def brief(change: Bag) -> list[tuple[Any, ...]]:
    """Output rows as (key, left ms, right ms)."""
    out = []
    for r in rows_of(change):
        times = [r[c] // 1000 if c in r else None for c in ("lt", "rt")]
        out.append((r.get("lk"), *times))
    return sorted(out, key=repr)


def test_conformance(spark: SparkSession, tmp_path: Path) -> None:
    joins = {kind: ("IntervalJoin", spec(kind, 0, 100)) for kind in KINDS}
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins, event_time=True)
    run.start()
    try:
        got = run.step(Step(left=[at("A", 1, 100), at("B", 1, 200), at("C", 1, 100), at(None, 1, 150)]))
        assert brief(got["left"]) == [(None, 150, None)]
        assert brief(got["anti"]) == [(None, 150, None)]
        assert not got["inner"] and not got["semi"] and not got["right"]
        got = run.step(Step(right=[at("A", 1, 110), at("B", 1, 250), at("C", 1, 300)], watermark=100))
        for kind in ("inner", "left", "right", "full"):
            assert brief(got[kind]) == [("A", 100, 110), ("B", 200, 250)]
        assert brief(got["semi"]) == [("A", 100, None), ("B", 200, None)]
        assert not got["anti"]
        run.stop()
        run.start()
        got = run.step(Step(right=[at("A", 2, 150)], watermark=200))
        assert brief(got["inner"]) == [("A", 100, 150)]
        # 100 + 100 is not below the watermark of 200: a right row at 200 may still come.
        assert not got["anti"] and not got["semi"]
        got = run.step(Step(watermark=201))
        assert brief(got["left"]) == [("C", 100, None)]
        assert brief(got["anti"]) == [("C", 100, None)]
        got = run.step(Step(watermark=300))
        assert not got["full"]
        got = run.step(Step(watermark=301))
        assert brief(got["full"]) == [(None, None, 300)]
        assert brief(got["right"]) == [(None, None, 300)]
        got = run.step(Step(watermark=900))
        assert not any(got.values())
    finally:
        run.stop()
    assert run.state_entries(*range(len(joins))) == 0


def test_generated_traces(plain_spark: SparkSession, tmp_path: Path) -> None:
    """Rows and retractions that are never late: once the watermark has passed everything, the sum is the batch join."""
    residual = "coalesce(lv, 0) <= coalesce(rv, 0) + 2"
    joins = {}
    for kind in KINDS:
        joins[kind] = ("IntervalJoin", spec(kind, -30, 50, weights=True))
        joins[f"{kind} residual"] = ("IntervalJoin", spec(kind, -30, 50, residual, weights=True))
    rng = random.Random(5)
    live: list[list[tuple[Any, ...]]] = [[], []]
    steps = []
    mark = 1000

    def rows(side: int) -> list[tuple[Any, ...]]:
        out = []
        for _ in range(rng.randint(5, 40)):
            fresh = [r for r in live[side] if r[2] is None or r[2] >= mark * 1000]
            if fresh and rng.random() < 0.3:
                gone = rng.choice(fresh)
                live[side].remove(gone)
                out.append((*gone[:3], -1))
            else:
                time = None if rng.random() < 0.05 else mark + rng.randint(0, 150)
                row = at(rng.choice([None, "a", "b"]), rng.choice([None, 1, 2, 3, 4]), time)
                live[side].append(row)
                out.append(row)
        return out

    for _ in range(3 if EFFORT == 1 else 6):
        # The watermark after a step is in force in the next one.
        following = mark + rng.choice([0, 40, 80])
        steps.append(Step(rows(0), rows(1), watermark=following))
        mark = following
    steps.append(Step(watermark=10_000))
    run = JoinTrace(plain_spark, tmp_path / "run", LEFT, RIGHT, joins, event_time=True)
    run.start()
    try:
        for i, step in enumerate(steps):
            if i == 2:
                run.stop()
                run.start()
            run.step(step)
    finally:
        run.stop()
    write(tmp_path / "l.parquet", LEFT, live[0])
    write(tmp_path / "r.parquet", RIGHT, live[1])
    plain_spark.read.parquet(str(tmp_path / "l.parquet")).createOrReplaceTempView("lefts")
    plain_spark.read.parquet(str(tmp_path / "r.parquet")).createOrReplaceTempView("rights")
    for label, (_, join) in joins.items():
        names = join["leftColumns"] + ([] if join["kind"] in ("semi", "anti") else join["rightColumns"])
        extra = f" AND {join['residual']}" if join["residual"] else ""
        sql = (
            f"SELECT to_json(struct({', '.join(names)})) FROM lefts {KINDS[join['kind']]} JOIN rights "
            f"ON lk = rk AND rt - lt BETWEEN -30000 AND 50000{extra}"
        )
        assert run.sums[label] == Counter(r[0] for r in plain_spark.sql(sql).collect()), label
    assert run.state_entries(*range(len(joins))) == 0


def test_many_rows_at_one_time(spark: SparkSession, tmp_path: Path) -> None:
    """They fill several chunks of state; any of them can be retracted, in the epoch that has read them and later. Without a weight every row is one more."""
    joins = {
        "changes": ("IntervalJoin", spec("inner", 0, 0, weights=True)),
        "rows": ("IntervalJoin", spec("inner", 0, 0)),
    }
    steps = [
        [(v, 1) for v in range(300)],
        [(v, 1) for v in range(300, 400)],
        [*((v, -1) for v in range(0, 400, 3)), (5, -1), (5, 1), (5, 1), (7, 1)],
        [(7, -1), (8, -1)],
    ]
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins, event_time=True)
    run.start()
    try:
        for step in steps:
            run.step(Step(right=[at("A", v, 100, weight) for v, weight in step]))
        got = run.step(Step(left=[at("A", 1, 100)], watermark=200))
        run.step(Step(watermark=300))
        run.step(Step(watermark=400))
    finally:
        run.stop()
    rows, changes = Counter(), Counter()
    for v, weight in chain(*steps):
        rows[v] += 1
        changes[v] += weight
    assert Counter(r["rv"] for r in rows_of(got["rows"])) == rows
    assert Counter(r["rv"] for r in rows_of(got["changes"])) == +changes
    assert run.state_entries(0, 1) == 0
