"""ASOF, temporal and probe joins: the conformance cases, watermarks, retractions, and a naive reference."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.effort import EFFORT

from penstock.spark.kernel import Kernel

from .join_trace import Bag, JoinTrace, Spec, Step, rows_of

LEFT = "`t$k` string, `t$v` double, `t$ts` bigint, lw bigint"
RIGHT = "`q$k` string, `q$bid` double, `q$ts` bigint, rw bigint"
QUOTES = [("AAPL", 149.0, 90), ("AAPL", 151.0, 180), ("GOOG", 2790.0, 140), ("AAPL", 153.0, 250), ("GOOG", 2795.0, 160)]
TRADES = [("AAPL", 150.0, 100), ("AAPL", 152.0, 200), ("GOOG", 2800.0, 150), ("AAPL", 153.0, 300)]


def spec(direction: str | None = "backward", mode: str = "eager", **more: Any) -> Spec:
    made = {
        "kind": "left",
        "leftKeys": ["t$k"],
        "rightKeys": ["q$k"],
        "leftColumns": ["t$k", "t$v", "t$ts"],
        "rightColumns": ["q$k", "q$bid", "q$ts"],
        "leftTime": "t$ts",
        "rightTime": "q$ts",
        "mode": mode,
        "leftWeight": None,
        "rightWeight": None,
        **more,
    }
    if direction is not None:
        made["direction"] = direction
    return made


def at(*rows: tuple[Any, ...], weight: int = 1) -> list[tuple[Any, ...]]:
    """(key, value, ms) as input rows."""
    return [(k, v, None if t is None else t * 1000, weight) for k, v, t in rows]


def brief(change: Bag) -> list[tuple[Any, ...]]:
    """Output rows as (key, left ms, right ms, bid)."""
    out = []
    for r in rows_of(change):
        left, right = (r[c] // 1000 if c in r else None for c in ("t$ts", "q$ts"))
        out.append((r.get("t$k"), left, right, r.get("q$bid")))
    return sorted(out, key=repr)


def test_conformance_of_eager_joins(spark: SparkSession, tmp_path: Path) -> None:
    joins = {
        "backward": ("AsofJoin", spec()),
        "forward": ("AsofJoin", spec("forward")),
        "nearest": ("AsofJoin", spec("nearest")),
        "tolerance": ("AsofJoin", spec(toleranceMicros=15_000)),
        "inner": ("AsofJoin", spec(kind="inner", toleranceMicros=15_000)),
        "strict": ("AsofJoin", spec(strict=True)),
        "temporal": ("TemporalJoin", spec(None, kind="inner", rightWeight="rw")),
    }
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins)
    run.start()
    try:
        assert not any(run.step(Step(right=at(*QUOTES))).values())
        got = run.step(Step(left=at(*TRADES, ("AAPL", 0.0, 180), (None, 1.0, 100), ("MSFT", 1.0, 100))))
        alone = [("MSFT", 100, None, None), (None, 100, None, None)]
        back = [
            ("AAPL", 100, 90, 149.0),
            ("AAPL", 200, 180, 151.0),
            ("AAPL", 300, 250, 153.0),
            ("GOOG", 150, 140, 2790.0),
        ]
        assert brief(got["backward"]) == sorted([*back, ("AAPL", 180, 180, 151.0), *alone], key=repr)
        assert brief(got["strict"]) == sorted([*back, ("AAPL", 180, 90, 149.0), *alone], key=repr)
        assert brief(got["temporal"]) == sorted([*back, ("AAPL", 180, 180, 151.0)], key=repr)
        assert brief(got["forward"]) == sorted(
            [("AAPL", 100, 180, 151.0), ("AAPL", 180, 180, 151.0), ("AAPL", 200, 250, 153.0), ("GOOG", 150, 160, 2795.0),
             ("AAPL", 300, None, None), *alone], key=repr)  # fmt: skip
        assert brief(got["nearest"]) == sorted([*back, ("AAPL", 180, 180, 151.0), *alone], key=repr)
        close = [("AAPL", 100, 90, 149.0), ("AAPL", 180, 180, 151.0), ("GOOG", 150, 140, 2790.0)]
        assert brief(got["inner"]) == sorted(close, key=repr)
        far = [("AAPL", 200, None, None), ("AAPL", 300, None, None)]
        assert brief(got["tolerance"]) == sorted([*close, *far, *alone], key=repr)
        run.stop()
        run.start()
        # The last arrived of one time counts, and a row that is retracted is not seen again.
        same = [("AAPL", 1.0, 310), ("AAPL", 9.0, 310), ("AAPL", 5.0, 310)]
        got = run.step(Step(left=at(("AAPL", 1.0, 320)), right=at(*same)))
        assert brief(got["backward"]) == [("AAPL", 320, 310, 5.0)]
        assert brief(got["temporal"]) == [("AAPL", 320, 310, 5.0)]
        got = run.step(Step(left=at(("AAPL", 2.0, 321)), right=at(same[2], weight=-1)[:0]))
        run.step(Step(right=at(("AAPL", 1.0, 310))))
        got = run.step(Step(left=at(("AAPL", 3.0, 322))))
        assert brief(got["temporal"]) == brief(got["backward"]) == [("AAPL", 322, 310, 1.0)]
    finally:
        run.stop()


def test_versions_of_a_table_can_be_retracted(spark: SparkSession, tmp_path: Path) -> None:
    joins = {
        "left": ("TemporalJoin", spec(None, rightWeight="rw")),
        "inner": ("TemporalJoin", spec(None, kind="inner", rightWeight="rw", leftWeight="lw")),
    }
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins)
    run.start()
    try:
        first, second = ("USD", 1.0, 100), ("USD", 1.1, 200)
        got = run.step(Step(left=at(("USD", 1.0, 250), ("USD", 1.0, 50)), right=at(first, second)))
        assert brief(got["left"]) == [("USD", 250, 200, 1.1), ("USD", 50, None, None)]
        assert brief(got["inner"]) == [("USD", 250, 200, 1.1)]
        got = run.step(Step(right=at(second, weight=-1)))
        assert not any(got.values())
        got = run.step(Step(left=at(("USD", 2.0, 250))))
        assert brief(got["left"]) == brief(got["inner"]) == [("USD", 250, 100, 1.0)]
    finally:
        run.stop()


def test_a_retracted_left_row_takes_its_answer_back(spark: SparkSession, tmp_path: Path) -> None:
    joins = {
        "eager": ("AsofJoin", spec(leftWeight="lw")),
        "watermark": ("AsofJoin", spec(mode="watermark", leftWeight="lw")),
    }
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins, event_time=True)
    run.start()
    try:
        trade, other = ("A", 1.0, 100), ("A", 2.0, 900)
        run.step(Step(left=at(trade, other), right=at(("A", 5.0, 90)), watermark=200))
        assert brief(run.sums["eager"]) == [("A", 100, 90, 5.0), ("A", 900, 90, 5.0)]
        assert brief(run.sums["watermark"]) == [("A", 100, 90, 5.0)]
        run.step(Step(right=at(("A", 6.0, 95)), watermark=200))
        run.step(Step(left=at(trade, other, weight=-1), watermark=300))
        assert not run.sums["eager"] and not run.sums["watermark"]
        run.step(Step(watermark=2000))
        assert not run.sums["watermark"]
    finally:
        run.stop()
    # The right rows of "A" are left, and nothing else.
    assert (run.state_entries(0), run.state_entries(1)) == (1, 1)


def naive(
    direction: str, strict: bool, tolerance: int | None, trade: tuple[Any, ...], quotes: list[tuple[Any, ...]]
) -> Any:
    """The answer over all quotes, in order of arrival."""
    best: tuple[tuple[int, ...], tuple[Any, ...]] | None = None
    for number, quote in enumerate(quotes):
        if quote[0] is None or quote[0] != trade[0]:
            continue
        gap = trade[2] - quote[2]
        if tolerance is not None and abs(gap) > tolerance:
            continue
        if (strict and gap == 0) or (direction == "backward" and gap < 0) or (direction == "forward" and gap > 0):
            continue
        rank = (-abs(gap), gap, number)
        if best is None or rank > best[0]:
            best = (rank, quote)
    return best[1] if best else None


VARIANTS = [
    (direction, strict, tolerance)
    for direction in ("backward", "forward", "nearest")
    for strict, tolerance in ((False, None), (True, 40), (False, 25))
]


def test_watermark_joins_against_a_naive_reference(plain_spark: SparkSession, tmp_path: Path) -> None:
    """Every left row is answered once, with the final answer, whatever the order in which rows come."""
    joins = {}
    for direction, strict, tolerance in VARIANTS:
        micros = None if tolerance is None else tolerance * 1000
        joins[f"{direction} {strict} {tolerance}"] = (
            "AsofJoin", spec(direction, "watermark", strict=strict, toleranceMicros=micros),
        )  # fmt: skip
    rng = random.Random(11)
    run = JoinTrace(plain_spark, tmp_path, LEFT, RIGHT, joins, event_time=True)
    run.start()
    trades: list[tuple[Any, ...]] = []
    quotes: list[tuple[Any, ...]] = []
    mark = 1000
    try:
        for i in range(4 if EFFORT == 1 else 7):
            if i == 3:
                run.stop()
                run.start()
            count = 200 if i == 2 else 25
            new_quotes = [(rng.choice("AB"), float(len(quotes) + n), mark + rng.randint(0, 120)) for n in range(count)]
            new_trades = [
                (rng.choice(["A", "B", "C", None]), float(len(trades) + n), mark + rng.randint(0, 120))
                for n in range(20)
            ]
            quotes += new_quotes
            trades += new_trades
            mark += rng.choice([0, 50, 90])
            run.step(Step(left=at(*new_trades), right=at(*new_quotes), watermark=mark))
        run.step(Step(watermark=100_000))
    finally:
        run.stop()
    for (direction, strict, tolerance), label in zip(VARIANTS, joins, strict=True):
        wanted: Counter[Any] = Counter()
        for trade in trades:
            quote = naive(direction, strict, tolerance, trade, quotes)
            if quote is None and direction != "backward" and tolerance is None and trade[0] is not None:
                continue  # it waits for a right row for ever
            wanted[(trade[1], quote[1] if quote else None)] += 1
        got = Counter((r["t$v"], r.get("q$bid")) for r in rows_of(run.sums[label]))
        assert got == wanted, label
    numbers = [i for i, (direction, _, tolerance) in enumerate(VARIANTS) if tolerance is not None]
    assert run.state_entries(*numbers) == 0
    # Looking backward without a tolerance keeps one row a key.
    assert run.state_entries(0) == 2


def test_when_the_watermark_settles_an_answer(spark: SparkSession, tmp_path: Path) -> None:
    joins = {
        "backward": ("AsofJoin", spec(mode="watermark")),
        "strict": ("AsofJoin", spec(mode="watermark", strict=True)),
    }
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins, event_time=True)
    run.start()
    try:
        got = run.step(Step(left=at(("A", 1.0, 100)), right=at(("A", 5.0, 90)), watermark=99))
        assert not any(got.values())
        got = run.step(Step(watermark=100))
        assert not got["backward"]
        assert brief(got["strict"]) == [("A", 100, 90, 5.0)]
        got = run.step(Step(right=at(("A", 6.0, 100)), watermark=101))
        assert brief(got["backward"]) == [("A", 100, 100, 6.0)]
        assert not got["strict"]
    finally:
        run.stop()


def probe(offsets: list[int], mode: str = "watermark", **more: Any) -> tuple[str, Spec]:
    made = spec(
        None, mode, offsetsMicros=[o * 1000 for o in offsets], offsetName="p$offset_ms", probeName="p$probe_ts", **more
    )
    del made["kind"], made["leftWeight"]
    return "ProbeJoin", made


def probes(change: Bag) -> list[tuple[Any, ...]]:
    rows = rows_of(change)
    assert all(r["p$probe_ts"] == r["t$ts"] + r["p$offset_ms"] * 1000 for r in rows)
    return sorted(((r.get("t$k"), r["p$offset_ms"], r.get("q$bid")) for r in rows), key=repr)


def test_conformance_of_probe_joins(spark: SparkSession, tmp_path: Path) -> None:
    joins = {
        "back": probe([0, -5000, -1000]),
        "ahead": probe([0, 5000, 10000]),
        "eager": probe([-5000, 5000], "eager"),
    }
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins, event_time=True)
    run.start()
    try:
        quotes = [("AAPL", 150.0, 90_000), ("AAPL", 151.0, 95_000), ("AAPL", 152.0, 100_000)]
        run.step(Step(right=at(*quotes), watermark=0))
        got = run.step(Step(left=at(("AAPL", 1.0, 100_000), (None, 1.0, 100_000)), watermark=100_000))
        assert probes(got["back"]) == sorted(
            [("AAPL", -5000, 151.0), ("AAPL", -1000, 151.0), ("AAPL", 0, 152.0),
             (None, -5000, None), (None, -1000, None), (None, 0, None)], key=repr)  # fmt: skip
        assert ("AAPL", 0, 152.0) in probes(got["ahead"]) and len(got["ahead"]) == 4
        assert ("AAPL", -5000, 151.0) in probes(got["eager"]) and ("AAPL", 5000, 152.0) in probes(got["eager"])
        run.stop()
        run.start()
        got = run.step(Step(watermark=102_000))
        assert not any(got.values())
        got = run.step(Step(right=at(("AAPL", 155.0, 105_000), ("AAPL", 160.0, 110_000)), watermark=112_000))
        assert probes(got["ahead"]) == [("AAPL", 10000, 160.0), ("AAPL", 5000, 155.0)]
        got = run.step(Step(left=at(("MSFT", 1.0, 113_000)), watermark=200_000))
        assert probes(got["ahead"]) == [("MSFT", 0, None), ("MSFT", 10000, None), ("MSFT", 5000, None)]
    finally:
        run.stop()
    # The last right row of "AAPL" is left.
    assert (run.state_entries(0), run.state_entries(1)) == (1, 1)


def test_a_left_side_that_retracts_cannot_be_probed(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'a' AS `t$k`, 1D AS `t$v`, 1L AS `t$ts`, 1L AS lw")
    import json

    _, made = probe([0])
    with pytest.raises(Exception, match="must not retract"):
        Kernel(spark._jvm).ProbeJoin.apply(frame._jdf, frame._jdf, json.dumps({**made, "leftWeight": "lw"}))
