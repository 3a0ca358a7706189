"""Aggregate against Spark batch, after every epoch of generated traces; windows, chains and arrival by hand."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.kernel_state import state_entries, timers
from tests.spark.kernel_trace import Rows, Trace, apply, canonical, expected

DDL = (
    "`k$a` double, id bigint, i int, l bigint, f double, d double, r float, m decimal(12,2), s string, b boolean, "
    "t timestamp, e date, y binary, __weight bigint"
)

ORDER_S = [{"col": "s", "desc": True, "nullsFirst": False}, {"col": "id"}]

# What Spark is asked, and how the kernel is: function, arguments, and more.
FUNCTIONS: list[tuple[str, str, list[str], dict[str, Any]]] = [
    ("count(*)", "count", [], {}),
    ("count(i)", "count", ["i"], {}),
    ("count(i, s)", "count", ["i", "s"], {}),
    ("count(DISTINCT i, s)", "count", ["i", "s"], {"distinct": True}),
    ("count(DISTINCT d)", "count", ["d"], {"distinct": True}),
    ("sum(i)", "sum", ["i"], {}),
    ("sum(l)", "sum", ["l"], {}),
    ("sum(DISTINCT i)", "sum", ["i"], {"distinct": True}),
    ("sum(f)", "sum", ["f"], {}),
    ("sum(d)", "sum", ["d"], {}),
    ("sum(r)", "sum", ["r"], {}),
    ("sum(m)", "sum", ["m"], {}),
    ("avg(i)", "avg", ["i"], {}),
    ("avg(d)", "avg", ["d"], {}),
    ("avg(m)", "avg", ["m"], {}),
    ("avg(DISTINCT m)", "avg", ["m"], {"distinct": True}),
    ("min(i)", "min", ["i"], {}),
    ("max(i)", "max", ["i"], {}),
    ("min(d)", "min", ["d"], {}),
    ("max(d)", "max", ["d"], {}),
    ("min(s)", "min", ["s"], {}),
    ("max(s)", "max", ["s"], {}),
    ("max(m)", "max", ["m"], {}),
    ("min(b)", "min", ["b"], {}),
    ("max(t)", "max", ["t"], {}),
    ("min(e)", "min", ["e"], {}),
    ("max(y)", "max", ["y"], {}),
    ("min_by(s, id)", "min_by", ["s", "id"], {}),
    ("max_by(i, id)", "max_by", ["i", "id"], {}),
    ("stddev(f)", "stddev_samp", ["f"], {}),
    ("stddev_pop(i)", "stddev_pop", ["i"], {}),
    ("variance(d)", "var_samp", ["d"], {}),
    ("var_pop(m)", "var_pop", ["m"], {}),
    ("covar_samp(f, i)", "covar_samp", ["f", "i"], {}),
    ("covar_pop(f, i)", "covar_pop", ["f", "i"], {}),
    ("corr(f, i)", "corr", ["f", "i"], {}),
    ("bool_and(b)", "bool_and", ["b"], {}),
    ("bool_or(b)", "bool_or", ["b"], {}),
    ("count_if(b)", "count_if", ["b"], {}),
    ("bit_and(i)", "bit_and", ["i"], {}),
    ("bit_or(l)", "bit_or", ["l"], {}),
    ("bit_xor(i)", "bit_xor", ["i"], {}),
    ("sort_array(collect_set(s))", "collect_set", ["s"], {}),
    ("transform(array_sort(collect_list(CASE WHEN i IS NOT NULL THEN struct(id, i) END)), x -> x.i)", "array_agg", ["i"], {"order": [{"col": "id"}]}),
    ("listagg(s, '-') WITHIN GROUP (ORDER BY s DESC NULLS LAST)", "string_agg", ["s", "sep"], {"order": ORDER_S}),
    ("listagg(DISTINCT s, '-') WITHIN GROUP (ORDER BY s)", "string_agg", ["s", "sep"],
     {"order": [{"col": "s"}], "distinct": True}),
    ("percentile(i, 0.3)", "percentile", ["i", "p"], {}),
    ("percentile(i, array(0.1, 0.9))", "percentile", ["i", "ps"], {}),
    ("median(i)", "percentile", ["i", "half"], {}),
    ("percentile_cont(0.3) WITHIN GROUP (ORDER BY f DESC)", "percentile", ["f", "p"], {"desc": True}),
    ("percentile_disc(0.3) WITHIN GROUP (ORDER BY i DESC)", "percentile_disc", ["i", "p"], {"desc": True}),
    ("percentile_disc(0.3) WITHIN GROUP (ORDER BY i)", "percentile_disc", ["i", "p"], {}),
    ("mode() WITHIN GROUP (ORDER BY i)", "mode", ["i"], {}),
    ("mode() WITHIN GROUP (ORDER BY i DESC)", "mode", ["i"], {"desc": True}),
    ("count(DISTINCT s)", "approx_count_distinct", ["s"], {}),
]  # fmt: skip

LONG = "https://example.org/a/rather/long/path/"


def random_row(rng: random.Random, number: int) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    specials = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -2.25, 1e16, 1.0]
    return (
        rng.choice([None, 0.0, -0.0, float("nan"), 7.0]),
        number,
        maybe(rng.randint(-5, 9)),
        maybe(rng.choice([2**58, -(2**58), 3, rng.randint(-100, 100)])),
        maybe(rng.choice([1e12, -1e12, 0.1, rng.random()])),
        maybe(rng.choice(specials)),
        maybe(rng.choice([0.5, -1.25, 3.0])),
        maybe(Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2)),
        maybe(rng.choice(["", "a", "b", "ä€😀", "\ufffd", LONG + "1", LONG + "2"])),
        maybe(rng.random() < 0.5),
        maybe(dt.datetime(2024, 1, rng.randint(1, 28), 1, 2, 3, 456789)),
        maybe(dt.date(rng.choice([1960, 2024]), 1, rng.randint(1, 28))),
        maybe(bytes([rng.randint(0, 255) for _ in range(rng.randint(0, 3))])),
    )


def random_steps(seed: int, count: int, rows: int, retract: float) -> list[Rows]:
    rng = random.Random(seed)
    there: list[tuple[Any, ...]] = []
    out: list[Rows] = []
    for n in range(count):
        step = []
        for j in range(rows):
            if there and rng.random() < retract:
                step.append((*there.pop(rng.randrange(len(there))), -1))
            else:
                there.append(random_row(rng, n * rows + j))
                step.append((*there[-1], 1))
        out.append(step)
    return out


def calls(spark: SparkSession) -> list[dict[str, Any]]:
    """The calls of FUNCTIONS with the types that Spark gives them; reads the view `input`."""
    sql = ", ".join(f"{f[0]} AS g{i}" for i, f in enumerate(FUNCTIONS))
    schema = spark.sql(f"SELECT {sql} FROM input").schema
    return [
        {"name": f"g{i}", "func": func, "args": args, "type": schema[f"g{i}"].dataType.simpleString(), **more}
        for i, (_, func, args, more) in enumerate(FUNCTIONS)
    ]


def with_constants(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "'-' AS sep", "0.3 AS p", "0.5 AS half", "array(0.1D, 0.9D) AS ps")


def batch_answers(spark: SparkSession, folder: Path, steps: list[Rows]) -> list[dict[Any, list[Any]]]:
    """For each step and key the results of FUNCTIONS; several queries, since Spark cannot plan all at once."""
    out: list[dict[Any, list[Any]]] = [{} for _ in steps]
    groups: list[list[int]] = [[], [], []]
    for i, f in enumerate(FUNCTIONS):
        groups["DISTINCT" in f[0]].append(i) if "listagg(DISTINCT" not in f[0] else groups[2].append(i)
    for n, group in enumerate(groups):
        where = folder / f"expected{n}"
        where.mkdir()
        sql = ", ".join(FUNCTIONS[i][0] for i in group)
        query = f"SELECT step, `k$a`, {sql} FROM input GROUP BY step, `k$a`"
        for step, answer in enumerate(expected(spark, where, DDL, steps, query)):
            for key, *values in answer:
                row = out[step].setdefault(key, [None] * len(FUNCTIONS))
                for i, value in zip(group, values, strict=True):
                    row[i] = value
    return out


@pytest.mark.parametrize(("retract", "weight"), [(0.45, "__weight"), (0.0, None)])
def test_every_function_equals_spark_after_every_epoch(
    plain_spark: SparkSession, tmp_path: Path, retract: float, weight: str | None
) -> None:
    steps = random_steps(11, 6, 30, retract)
    if weight:
        # At the end only one group is left, and then none.
        left = _left(steps)
        steps += [[(*r, -1) for r in left if r[0] != 7.0], [(*r, -1) for r in left if r[0] == 7.0]]
    answers = batch_answers(plain_spark, tmp_path, steps)
    spec = {"keys": ["k$a"], "weight": weight, "aggs": calls(plain_spark), "mode": "changes", "windowEnd": None}
    trace = Trace(plain_spark, tmp_path, lambda f: apply(plain_spark, "Aggregate", with_constants(f), spec), DDL)
    trace.start()
    try:
        for n, (rows, answer) in enumerate(zip(steps, answers, strict=True)):
            if n == 3:
                trace.stop()
                trace.start()
            trace.step(rows)
            assert_same(trace.state, answer)
        if weight:
            assert state_entries(trace) == 0
    finally:
        trace.stop()


def _left(steps: list[Rows]) -> list[tuple[Any, ...]]:
    there: dict[int, tuple[Any, ...]] = {}
    for rows in steps:
        for r in rows:
            if r[-1] > 0:
                there[r[1]] = r[:-1]
            else:
                del there[r[1]]
    return list(there.values())


def assert_same(got: Any, wanted: dict[Any, list[Any]]) -> None:
    """Equal but for rounding; says which function differs."""
    assert {row[0] for row in got} == set(wanted)
    for key, *values in got:
        for f, a, b in zip(FUNCTIONS, values, wanted[key], strict=True):
            assert a == b or _rounding(f[0], a, b), (f[0], key, a, b)


def _rounding(name: str, a: Any, b: Any) -> bool:
    # Spark adds 1e12 to small numbers in plain doubles; what is lost there is not lost here.
    if not (isinstance(a, float) and isinstance(b, float)):
        return False
    return a == pytest.approx(b, rel=1e-4, abs=1.0) if "(f" in name else a == pytest.approx(b, rel=1e-6, abs=1e-6)


def aggregate(keys: list[str], *aggs: tuple[str, str, list[str], str], **more: Any) -> dict[str, Any]:
    return {
        "keys": keys,
        "weight": "__weight",
        "mode": "changes",
        "windowEnd": None,
        "latenessMs": 0,
        "aggs": [{"name": n, "func": f, "args": a, "type": t} for n, f, a, t in aggs],
        **more,
    }


def test_arrival_order_and_nulls(spark: SparkSession, tmp_path: Path) -> None:
    spec = aggregate(
        ["k"],
        ("first", "first_value", ["v"], "string"),
        ("last", "last_value", ["v"], "string"),
        ("list", "array_agg", ["v"], "array<string>"),
        ("joined", "string_agg", ["v", "sep"], "string"),
    )
    spec["aggs"].append({"name": "known", "func": "first_value", "args": ["v"], "type": "string", "ignoreNulls": True})
    ddl = "k int, v string, sep string, __weight bigint"
    trace = Trace(spark, tmp_path, "Aggregate", ddl, spec)
    trace.start()
    try:
        trace.step([(1, None, ",", 1), (1, "b", ",", 1), (1, "a", ",", 1)])
        assert set(trace.state) == {(1, None, "a", ("b", "a"), "b,a", "b")}
        trace.step([(1, None, ",", -1), (1, "c", ",", 1)])
        assert set(trace.state) == {(1, "b", "c", ("b", "a", "c"), "b,a,c", "b")}
        trace.step([(1, "c", ",", -1), (1, "b", ",", 1), (1, "b", ",", -1), (1, "b", ",", -1)])
        assert set(trace.state) == {(1, "a", "a", ("a",), "a", "a")}
        assert trace.step([(1, "x", ",", 1), (1, "x", ",", -1)]) == []
    finally:
        trace.stop()


def test_sum_that_overflows_only_on_the_way(spark: SparkSession, tmp_path: Path) -> None:
    big = 2**63 - 1
    spec = aggregate([], ("s", "sum", ["x"], "bigint"), ("n", "count", [], "bigint"))
    trace = Trace(spark, tmp_path, "Aggregate", "x bigint, __weight bigint", spec)
    trace.start()
    try:
        trace.step([(big, 1), (big, 1), (-big, 1)])
        assert set(trace.state) == {(big, 3)}
        with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
            trace.step([(1, 1)])
    finally:
        trace.stop()


def watermarked(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("__wm", "0 seconds")


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)


@pytest.mark.parametrize("lateness", [0, 2000])
def test_window_closes_at_its_end_in_a_chain(spark: SparkSession, tmp_path: Path, lateness: int) -> None:
    first = aggregate(["k", "w$e"], ("x", "sum", ["x"], "bigint"), windowEnd="w$e", weight=None, latenessMs=lateness)
    second = aggregate(["w$e"], ("x", "max", ["x"], "bigint"), windowEnd="w$e", latenessMs=lateness)
    third = aggregate(["w$e"], ("x", "sum", ["x"], "bigint"), windowEnd="w$e", latenessMs=lateness, mode="close")

    def chain(frame: DataFrame) -> DataFrame:
        for spec in (first, second, third):
            frame = apply(spark, "Aggregate", frame if spec is not first else watermarked(frame), spec)
        return frame

    late = lateness / 1000
    trace = Trace(spark, tmp_path, chain, "k string, `w$e` timestamp, x int, __wm timestamp")
    trace.start()
    try:
        assert trace.step([("a", at(10), 1, at(5)), ("b", at(10), 2, at(5)), ("b", at(20), 4, at(5))]) == []
        assert trace.step([("a", at(10), 4, at(9.999 + late))]) == []
        assert trace.step([("a", at(20), 9, at(10 + late))]) == [(at(10), 5, 1)]
        trace.stop()
        trace.start()
        assert trace.step([("a", at(30), 1, at(40))]) == [(at(20), 9, 1), (at(30), 1, 1)]
        kept = [(state_entries(trace, op), timers(trace, op)) for op in range(3)]
        assert kept == [(0, 0)] * 3
    finally:
        trace.stop()


def test_few_and_many_groups_of_a_window(spark: SparkSession, tmp_path: Path) -> None:
    """So many that a page of the state is spread over a map, and so few that each has a page of its own; some are taken back."""
    spec = aggregate(
        ["k", "e", "d"], ("n", "count", [], "bigint"), ("s", "sum", ["x"], "bigint"), windowEnd="e", mode="close"
    )
    ddl = "k string, d double, e bigint, x int, __wm timestamp, __weight bigint"
    trace = Trace(spark, tmp_path, lambda f: apply(spark, "Aggregate", watermarked(f), spec), ddl)
    many = [(f"key {i}", 10_000, i) for i in range(20_000)]
    few = [(None, 20_000, 1), ("a", 20_000, 2), ("b", 20_000, 3)]
    trace.start()
    try:
        trace.step([(k, 0.0, e, x, at(5), 1) for k, e, x in many + few])
        assert timers(trace) == 256 + 3 and state_entries(trace) > 18_000
        trace.step([(k, -0.0, e, 7, at(6), 1) for k, e, x in many if x % 2] + [("b", 0.0, 20_000, 3, at(6), -1)])
        trace.step([(k, 0.0, e, x, at(6), -1) for k, e, x in many if x % 5 == 0 and x % 2 == 0])
        trace.stop()
        trace.start()
        closed = trace.step([("z", 0.0, 30_000, 0, at(10), 1)])
        expected = [(k, e, 0.0, 1 + x % 2, x + 7 * (x % 2), 1) for k, e, x in many if x % 10]
        assert Counter(closed) == Counter(expected)
        assert trace.step([("z", 0.0, 30_000, 0, at(20), 1)]) == [
            (None, 20_000, 0.0, 1, 1, 1),
            ("a", 20_000, 0.0, 1, 2, 1),
        ]
        assert trace.step([("z", 0.0, 30_000, 0, at(20), -2)]) == []
        assert (state_entries(trace), timers(trace)) == (0, 0)
    finally:
        trace.stop()


def test_retracted_window_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    spec = aggregate(["e"], ("lo", "min", ["x"], "int"), windowEnd="e", mode="close")
    ddl = "e bigint, x int, __wm timestamp, __weight bigint"
    trace = Trace(spark, tmp_path, lambda f: apply(spark, "Aggregate", watermarked(f), spec), ddl)
    trace.start()
    try:
        trace.step([(10_000, 1, at(1), 1), (10_000, 2, at(1), 1), (20_000, 3, at(1), 1)])
        trace.step([(10_000, 1, at(2), -1), (20_000, 3, at(2), -1)])
        assert trace.step([(30_000, 5, at(10), 1)]) == [(10_000, 2, 1)]
        assert trace.step([(30_000, 5, at(20), -1)]) == []
        assert (state_entries(trace), timers(trace)) == (0, 0)
    finally:
        trace.stop()


def test_types_come_back_as_they_went(spark: SparkSession, tmp_path: Path) -> None:
    kinds = "array<struct<t:timestamp_ntz,d:date>>"
    spec = aggregate(["k"], ("v", "array_agg", ["v"], kinds), ("n", "min", ["n"], "timestamp_ntz"))
    spec["aggs"].append({"name": "w", "func": "sum", "args": ["w"], "type": "interval day to second"})

    def build(frame: DataFrame) -> DataFrame:
        shaped = frame.selectExpr(
            "k",
            "named_struct('t', n, 'd', CAST(n AS DATE)) AS v",
            "n",
            "n - TIMESTAMP_NTZ'2024-01-01' AS w",
            "__weight",
        )
        return apply(spark, "Aggregate", shaped, spec)

    trace = Trace(spark, tmp_path, build, "k date, n timestamp_ntz, __weight bigint")
    trace.start()
    try:
        day, noon = dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 12)
        trace.step([(day, noon, 1), (day, noon, 1)])
        pair = (noon, day)
        assert set(trace.state) == {canonical((day, (pair, pair), noon, dt.timedelta(hours=72)))}
        assert trace.types[:3] == ["date", kinds, "timestamp_ntz"]
    finally:
        trace.stop()
