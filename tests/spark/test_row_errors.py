"""Rows that cannot be computed are dropped from the result and reported as errors, until they are retracted."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.job_trace import JobTrace, Rows, row

from penstock.spark.functions import register

DDL = """
CREATE TABLE t (id BIGINT, a BIGINT, b BIGINT, s STRING);
CREATE TABLE u (id BIGINT, x BIGINT);
CREATE TABLE arrays (id BIGINT, xs ARRAY<BIGINT>);
CREATE SOURCE e (k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts);
CREATE SOURCE f (k STRING, w BIGINT, fts TIMESTAMP, WATERMARK FOR fts);
CREATE SOURCE m (k STRING, v BIGINT, ms BIGINT, WATERMARK FOR ms);
CREATE LOOKUP TABLE d (id BIGINT PRIMARY KEY, y BIGINT) WITH (connector = 'static');
"""
ZERO = "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
REMAINDER = "Remainder by zero. Use `try_mod` to tolerate divisor being 0 and return NULL instead."
SUM = "the sum does not fit into BIGINT"
LARGE = (1 << 63) - 1
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def millis(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000)


def instant(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def cast_error(value: str, kind: str) -> str:
    return (
        f'The value \'{value}\' of the type "STRING" cannot be cast to "{kind}" because it is malformed. Correct the value as per the syntax, '
        "or change its target type. Use `try_cast` to tolerate malformed input and return NULL instead."
    )


CASES: dict[str, tuple[str, Rows, Counter[tuple[object, ...]], tuple[str, str, str]]] = {
    "division": (
        "SELECT id, a / b AS q, id + 1 AS w FROM t",
        [(1, 6, 3, "x", 1), (2, 1, 0, "y", 1)],
        Counter({(1, 2.0, 2): 1}),
        ("a / b", ZERO, row(id=2, a=1, b=0)),
    ),
    "overflow": (
        "SELECT id + 1 AS w FROM t",
        [(1, 6, 3, "x", 1), (LARGE, 1, 0, "y", 1)],
        Counter({(2,): 1}),
        ("id + 1", "overflow. Use 'try_add' to tolerate overflow and return NULL instead.", row(id=LARGE)),
    ),
    "cast": (
        "SELECT CAST(s AS INT) AS n FROM t",
        [(1, 0, 0, "7", 2), (2, 0, 0, "seven", 3), (3, 0, 0, None, 1)],
        Counter({(7,): 2, (None,): 1}),
        ("CAST(s AS INT)", cast_error("seven", "INT"), row(s="seven")),
    ),
    "shared subexpression": (
        "SELECT a / b AS q, a / b + 1 AS r FROM t",
        [(1, 6, 3, "x", 1), (2, 1, 0, "y", 1)],
        Counter({(2.0, 3.0): 1}),
        ("a / b", ZERO, row(a=1, b=0)),
    ),
    "shared by BETWEEN": (
        "SELECT id FROM t WHERE a / b BETWEEN 1 AND 5",
        [(1, 6, 3, "x", 1), (2, 1, 0, "y", 1), (3, 60, 1, "y", 1)],
        Counter({(1,): 1}),
        ("a / b BETWEEN 1 AND 5", ZERO, row(id=2, a=1, b=0)),
    ),
    "condition": (
        "SELECT id FROM t WHERE a % b = 0",
        [(1, 6, 3, "x", 1), (2, 1, 0, "y", 1), (3, 4, 3, "z", 1)],
        Counter({(1,): 1}),
        ("a % b = 0", REMAINDER, row(id=2, a=1, b=0)),
    ),
    "case": (
        "SELECT CASE WHEN b <> 0 THEN a / b WHEN s = 'x' THEN 1 / b END AS q FROM t",
        [(1, 6, 3, "x", 1), (2, 1, 0, "y", 1), (3, 1, 0, "x", 1)],
        Counter({(2.0,): 1, (None,): 1}),
        ("CASE WHEN b <> 0 THEN a / b WHEN s = 'x' THEN 1 / b END", ZERO, row(a=1, b=0, s="x")),
    ),
    "index": (
        "SELECT xs[2] AS x FROM arrays",
        [(1, [1, 2, 3], 1), (2, [4], 1)],
        Counter({(3,): 1}),
        (
            "xs[2]",
            "The index 2 is out of bounds. The array has 1 elements. Use the SQL function `get()` to tolerate accessing element at "
            "invalid index and return NULL instead.",
            row(xs=[4]),
        ),
    ),
    "argument": (
        "SELECT b, count(*) AS n, sum(a % b) AS r FROM t GROUP BY b",
        [(1, 7, 3, "x", 1), (2, 1, 0, "y", 1), (3, 8, 3, "z", 1)],
        Counter({(3, 2, 3): 1}),
        ("sum(a % b)", REMAINDER, row(a=1, b=0)),
    ),
    "filtered argument": (
        "SELECT count(*) AS n, sum(a % b) FILTER (WHERE b <> 0) AS r, max(id % (a - 1)) AS m FROM t",
        [(1, 7, 3, "x", 1), (2, 5, 0, "y", 1), (3, 1, 3, "z", 1)],
        Counter({(2, 1, 2): 1}),
        ("max(id % (a - 1))", REMAINDER, row(id=3, a=1, b=3)),
    ),
    "text as a number": (
        "SELECT sum(s) AS n FROM t",
        [(1, 0, 0, "7", 1), (2, 0, 0, "seven", 1)],
        Counter({(7.0,): 1}),
        ("sum(s)", cast_error("seven", "DOUBLE"), row(s="seven")),
    ),
    "key": (
        "SELECT a % b AS k, count(*) AS n FROM t GROUP BY a % b",
        [(1, 7, 3, "x", 1), (2, 1, 0, "y", 1), (3, 8, 3, "z", 1)],
        Counter({(1, 1): 1, (2, 1): 1}),
        ("a % b", REMAINDER, row(a=1, b=0)),
    ),
    "after an aggregate": (
        "SELECT s, sum(a) / sum(b) AS q FROM t GROUP BY s",
        [(1, 7, 3, "x", 1), (2, 1, 1, "y", 1), (3, 8, -1, "y", 1)],
        Counter({("x", 7 / 3): 1}),
        ("sum(a) / sum(b)", ZERO, '{"s":"y","sum(a)":9,"sum(b)":0}'),
    ),
    "sum": (
        "SELECT s, sum(a) AS n, count(*) AS c FROM t GROUP BY s",
        [(1, LARGE, 3, "x", 1), (2, LARGE, 1, "y", 1), (3, 1, -1, "y", 1)],
        Counter({("x", LARGE, 1): 1}),
        ("sum(a)", SUM, row(s="y")),
    ),
    "generator": (
        "SELECT id, x FROM arrays LATERAL VIEW explode(slice(xs, xs[1], 2)) g AS x",
        [(1, [1, 2, 3], 1), (2, [4], 1)],
        Counter({(1, 2): 1, (1, 3): 1}),
        (
            "SLICE(xs, xs[1], 2)",
            "The index 1 is out of bounds. The array has 1 elements. Use the SQL function `get()` to tolerate accessing element at "
            "invalid index and return NULL instead.",
            row(id=2, xs=[4]),
        ),
    ),
    "union": (
        "SELECT id AS x FROM t UNION ALL SELECT s FROM t",
        [(1, 0, 0, "7", 1), (2, 0, 0, "seven", 1)],
        Counter({(1,): 1, (2,): 1, (7,): 1}),
        ("CAST(s AS bigint)", cast_error("seven", "BIGINT"), row(s="seven")),
    ),
    "intersection": (
        "SELECT id AS x FROM t INTERSECT SELECT s FROM t",
        [(7, 0, 0, "7", 1), (2, 0, 0, "seven", 1)],
        Counter({(7,): 1}),
        ("CAST(s AS bigint)", cast_error("seven", "BIGINT"), row(s="seven")),
    ),
    "order": (
        "SELECT id FROM t ORDER BY a / b DESC LIMIT 2",
        [(1, 6, 3, "x", 1), (2, 9, 0, "y", 1), (3, 6, 1, "z", 1), (4, 6, 2, "z", 1)],
        Counter({(3,): 1, (4,): 1}),
        ("a / b", ZERO, row(id=2, a=9, b=0)),
    ),
    "partition": (
        "SELECT id, row_number() OVER (PARTITION BY a % b ORDER BY id) AS n FROM t",
        [(1, 6, 3, "x", 1), (2, 9, 0, "y", 1), (3, 6, 1, "z", 1)],
        Counter({(1, 1): 1, (3, 2): 1}),
        ("a % b", REMAINDER, row(id=2, a=9, b=0)),
    ),
    "window argument": (
        "SELECT id, max(a / b) OVER (ORDER BY id) AS n FROM t",
        [(1, 6, 3, "x", 1), (2, 9, 0, "y", 1), (3, 6, 1, "z", 1)],
        Counter({(1, 2.0): 1, (3, 6.0): 1}),
        ("max(a / b)", ZERO, row(id=2, a=9, b=0)),
    ),
    "part": (
        "WITH c AS (SELECT s, sum(a % b) AS n FROM t GROUP BY s) SELECT x.s, x.n FROM c x JOIN (SELECT max(n) AS m FROM c) y ON x.n = y.m",
        [(1, 7, 3, "x", 1), (2, 5, 0, "y", 1), (3, 8, 3, "z", 1)],
        Counter({("z", 2): 1}),
        ("sum(a % b)", REMAINDER, row(a=5, b=0, s="y")),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_row(spark: SparkSession, tmp_path: Path, case: str) -> None:
    _check_row(spark, tmp_path, case)


@pytest.mark.parametrize("case", ["division", "cast", "shared subexpression", "shared by BETWEEN", "condition", "case"])
def test_row_without_generated_code(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """As in plans whose code would be too large; the errors are the same."""
    _check_row(plain_session(spark), tmp_path, case)


def plain_session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    return session


def _check_row(spark: SparkSession, tmp_path: Path, case: str) -> None:
    select, rows, result, error = CASES[case]
    table = "arrays" if "arrays" in select else "t"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        assert trace.compiled.fallible
        trace.commit({table: rows})
        assert trace.results == [result]
        (found,) = trace.errors
        assert set(found) == {error}
        trace.commit({table: [(*r[:-1], -r[-1]) for r in rows]})
        assert trace.errors == [Counter()]


@pytest.mark.parametrize("generated", [True, False], ids=["generated code", "row by row"])
@pytest.mark.parametrize("keys", [("s", "'y'"), ("CAST(s AS BINARY)", "X'79'")], ids=["texts", "bytes"])
def test_maps_with_a_key_twice(spark: SparkSession, tmp_path: Path, keys: tuple[str, str], generated: bool) -> None:
    """Several in one epoch: what one row leaves in Spark's expression is not seen by the next."""
    select = "SELECT id, size(map({}, 1, {}, 2)) AS n FROM t".format(*keys)
    with JobTrace(spark if generated else plain_session(spark), tmp_path, DDL, select) as trace:
        rows = [(i, 0, 0, "y" if i % 2 else "x", 1) for i in range(6)]
        trace.commit({"t": rows})
        assert trace.results == [Counter({(i, 2): 1 for i in (0, 2, 4)})]
        assert [(r, "Duplicate map key" in e) for _, e, r in sorted(trace.errors[0], key=str)] == [
            (row(id=i, s="y"), True) for i in (1, 3, 5)
        ]
        trace.commit({"t": [(*r[:-1], -1) for r in rows]})
        assert (trace.results, trace.errors) == ([Counter()], [Counter()])


def test_bytes_that_are_no_text(spark: SparkSession, tmp_path: Path) -> None:
    """Neither the log nor the view store could hold them."""
    text = "CAST(unhex(s) AS STRING)"
    select = (
        f"SELECT id, {text} AS x FROM t",
        f"SELECT max({text}) AS x FROM t GROUP BY id",
        f"SELECT id FROM t WHERE {text} > 'a'",
        f"SELECT id, TRY_CAST(unhex(s) AS STRING) AS x, is_valid_utf8({text}) AS v, make_valid_utf8({text}) AS m FROM t",
    )
    for number, one in enumerate(select):
        with JobTrace(spark, tmp_path / str(number), DDL, one) as trace:
            rows = [(1, 0, 0, "62", 1), (2, 0, 0, "FF", 1), (3, 0, 0, None, 1), (4, 0, 0, "62C3", 2)]
            trace.commit({"t": rows})
            errors = {e: n for _, e, n in trace.errors[0]}
            if number == 3:
                found = {(1, "b", True, "b"): 1, (2, None, False, "\ufffd"): 1, (3, None, None, None): 1}
                assert trace.results == [Counter(found | {(4, None, False, "b\ufffd"): 2})]
            else:
                results = [{(1, "b"): 1, (3, None): 1}, {("b",): 1, (None,): 1}, {(1,): 1}]
                assert trace.results == [Counter(results[number])]
                assert sorted(trace.errors[0].values()) == [1, 2]
                assert all("UTF8" in e for e in errors)
            trace.commit({"t": [(*r[:-1], -r[-1]) for r in rows]})
            assert (trace.results, trace.errors) == ([Counter()], [Counter()])


def test_more_than_one_join(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT t.id, u.x FROM t JOIN u ON t.a % t.b = u.id AND t.a / u.x > 1"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        rows = [(1, 7, 3, "x", 1), (2, 5, 0, "y", 1), (3, 4, 3, "z", 2)]
        trace.commit({"t": rows, "u": [(1, 2, 1), (1, 0, 1), (1, 9, 1)]})
        pair = "a / x > 1"
        assert trace.results == [Counter({(1, 2): 1, (3, 2): 2})]
        key = ("a % b", REMAINDER, row(id=2, a=5, b=0))
        first = (pair, ZERO, '{"t.id":1,"a":7,"b":3,"u.id":1,"x":0}')
        assert trace.errors == [Counter({key: 1, first: 1, (pair, ZERO, '{"t.id":3,"a":4,"b":3,"u.id":1,"x":0}'): 2})]
        trace.commit({"t": [(3, 4, 3, "z", -2)], "u": [(1, 0, 1)]})
        assert trace.results == [Counter({(1, 2): 1})]
        assert trace.errors == [Counter({key: 1, first: 2})]
        trace.restart()
        trace.commit({"u": [(1, 0, -2)], "t": [(2, 5, 0, "y", -1)]})
        assert trace.errors == [Counter()]


def test_a_pair_that_fails_is_no_match(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT t.id, u.x FROM t LEFT JOIN u ON t.id = u.id AND t.a / u.x > 1"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"t": [(1, 7, 3, "x", 1)], "u": [(1, 0, 1)]})
        assert trace.results == [Counter({(1, None): 1})]
        error = ("a / x > 1", ZERO, '{"t.id":1,"a":7,"u.id":1,"x":0}')
        assert trace.errors == [Counter({error: 1})]
        trace.commit({"u": [(1, 0, -1), (1, 2, 1)]})
        assert trace.results == [Counter({(1, 2): 1})]
        assert trace.errors == [Counter()]


def test_interval_join(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT e.v, f.w FROM e JOIN f ON e.k = f.k AND f.fts BETWEEN e.ts AND e.ts + INTERVAL '10' SECOND AND e.v / f.w > 1"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit(
            {"e": [("a", 9, at(1))], "f": [("a", 0, at(2)), ("a", 3, at(3))]}, {"e": millis(1), "f": millis(3)}
        )
        assert trace.results == [Counter({(9, 3): 1})]
        (error,) = trace.errors[0]
        assert error[:2] == ("v / w > 1", ZERO)


def test_lookup_join(spark: SparkSession, tmp_path: Path) -> None:
    for kind, result in (("", Counter({(1, 2): 1})), ("LEFT ", Counter({(1, 2): 1, (9, None): 1}))):
        select = f"SELECT e.v, d.y FROM e {kind}JOIN d ON e.v = d.id AND 4 / d.y > 1"
        with JobTrace(spark, tmp_path / kind.strip(), DDL, select) as trace:
            trace.commit({"d": [(1, 2, 1), (2, 0, 1)]})
            trace.commit({"e": [("a", 1, at(1)), ("a", 2, at(2)), ("a", 9, at(2))]})
            assert trace.results == [result]
            assert trace.errors == [Counter({("4 / y > 1", ZERO, row(v=2, id=2, y=0)): 1})]


WINDOW = "GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE"


@pytest.mark.parametrize("exact", [False, True], ids=["native", "kernel"])
def test_closing_windows(spark: SparkSession, tmp_path: Path, exact: bool) -> None:
    """Rows that fail, and groups whose sum does not fit, in windows that close: in Spark's operator and in the kernel's."""
    select = (
        f"SELECT k, window_end, sum(v) AS n, sum(10 div v) FILTER (WHERE v < 100) AS q, avg(v) AS m FROM e {WINDOW}"
    )
    with JobTrace(spark, tmp_path, DDL, select, exact_state=exact) as trace:
        assert [o.native for o in trace.compiled.operators] == [not exact]
        rows = [("a", 5, at(1)), ("a", 0, at(2)), ("a", 1, at(3)), ("b", LARGE, at(4)), ("b", 7, at(5))]
        rows += [("c", LARGE, at(4)), ("c", 9, at(5)), ("c", -9, at(6)), ("d", -LARGE, at(4)), ("d", -1, at(5))]
        trace.commit({"e": rows}, {"e": millis(6)})
        failed = ("sum(10 DIV v) FILTER (WHERE v < 100)", ZERO)
        assert {e[:2] for e in trace.errors[0]} == {failed}
        trace.commit({"e": [("z", 1, at(30))]}, {"e": millis(30)})
        trace.commit({}, {"e": millis(31)})
        found = sorted((r[0], r[1], r[2], r[3]) for r in trace.results[0])
        assert found == [
            ("a", at(10), 6, 12),
            ("c", at(10), LARGE, 0),
            ("d", at(10), -LARGE - 1, -10),
        ]
        group = ("sum(v)", SUM, row(k="b", window_start=instant(0), window_end=instant(10)))
        assert set(trace.errors[0]) - {e for e in trace.errors[0] if e[:2] == failed} == {group}


def test_late_rows_fail_once(spark: SparkSession, tmp_path: Path) -> None:
    select = (
        "CREATE STREAM x AS SELECT k, count(*) AS n FROM (SELECT k, 10 div v AS q, ts FROM e) GROUP BY k, q, "
        "TUMBLE(ts, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO late"
    )
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"e": [("a", 5, at(1)), ("a", 0, at(2))]}, {"e": millis(30)})
        trace.commit({"e": [("late", 5, at(3)), ("bad", 0, at(4))]}, {"e": millis(31)})
        trace.commit({}, {"e": millis(32)})
        assert trace.results == [Counter({("a", 1): 1})]
        assert sum(trace.late.values()) == 1
        assert sum(trace.errors[0].values()) == 2


def test_session(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT k, sum(v) AS n FROM e GROUP BY k, SESSION(ts, INTERVAL '5' SECOND)"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"e": [("a", LARGE, at(1)), ("a", 5, at(8))]}, {"e": millis(1)})
        assert trace.results == [Counter({("a", LARGE): 1, ("a", 5): 1})]
        trace.commit({"e": [("a", 1, at(4))]}, {"e": millis(2)})
        assert trace.results == [Counter()]
        error = ("sum(v)", SUM, row(k="a", window_start=instant(1), window_end=instant(13)))
        assert trace.errors == [Counter({error: 1})]
        trace.commit({"e": [("a", -6, at(5))]}, {"e": millis(3)})
        assert trace.results == [Counter({("a", LARGE): 1})]
        assert trace.errors == [Counter()]


def test_times_in_milliseconds(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT k, count(*) AS n FROM m GROUP BY k, HOP(ms, INTERVAL '5' SECOND, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"m": [("a", 1, 6_000), ("far", 1, LARGE), ("far", 1, -LARGE)]}, {"m": 6_000})
        trace.commit({}, {"m": 60_000})
        trace.commit({}, {"m": 60_001})
        assert trace.results == [Counter({("a", 1): 2})]
        told = {("ms", "the time is out of range", row(k="far", ms=x)) for x in (LARGE, -LARGE)}
        assert set(trace.errors[0]) == told


def test_window_function(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT id, sum(a) OVER (PARTITION BY s ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM t"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"t": [(1, LARGE, 0, "x", 1), (2, 5, 0, "x", 1), (3, 7, 0, "x", 1)]})
        assert trace.results == [Counter({(1, LARGE): 1, (3, 12): 1})]
        assert trace.errors == [Counter({("sum(a)", SUM, row(id=2, a=5, s="x")): 1})]
        trace.restart()
        trace.commit({"t": [(1, LARGE, 0, "x", -1)]})
        assert trace.results == [Counter({(2, 5): 1, (3, 12): 1})]
        assert trace.errors == [Counter()]


def test_running_sum(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT id, sum(a) OVER (ORDER BY id) AS n FROM t"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"t": [(1, LARGE, 0, "x", 1), (2, 5, 0, "x", 1)]})
        trace.commit({"t": [(3, -9, 0, "x", 1)]})
        assert trace.results == [Counter({(1, LARGE): 1, (3, LARGE - 4): 1})]
        assert trace.errors == [Counter({("sum(a)", SUM, row(id=2, a=5)): 1})]
        trace.commit({"t": [(2, 5, 0, "x", -1)]})
        assert trace.results == [Counter({(1, LARGE): 1, (3, LARGE - 9): 1})]
        assert trace.errors == [Counter()]


def test_recursion(spark: SparkSession, tmp_path: Path) -> None:
    select = """
    WITH RECURSIVE r AS (
      SELECT id, 100 AS n FROM t UNION SELECT u.x, r.n div u.x FROM r JOIN u ON r.id = u.id
    ) SELECT id, n FROM r"""
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"t": [(1, 0, 0, "x", 1)], "u": [(1, 2, 1), (2, 0, 1), (2, 5, 1)]})
        assert trace.results == [Counter({(1, 100): 1, (2, 50): 1, (5, 10): 1})]
        ((expression, error, _),) = trace.errors[0]
        assert expression == "n DIV x" and error.startswith("Division by zero")
        trace.commit({"t": [(1, 0, 0, "x", -1)]})
        assert trace.results == [Counter()]
        assert trace.errors == [Counter()]


def test_temporal_filter(spark: SparkSession, tmp_path: Path) -> None:
    select = "SELECT k FROM e WHERE ts > now() - INTERVAL '10' SECOND"
    with JobTrace(spark, tmp_path, DDL, select) as trace:
        trace.commit({"e": [("a", 1, at(1))]}, {"e": millis(1)})
        assert trace.results == [Counter({("a",): 1})]
        assert trace.errors == [Counter()]


@pytest.mark.parametrize("generated", [True, False], ids=["generated code", "row by row"])
def test_queries_that_share_a_job(spark: SparkSession, tmp_path: Path, generated: bool) -> None:
    """Each query has its own errors, and a row that fails in one is in the results of the others."""
    session = spark if generated else plain_session(spark)
    select = (
        "SELECT id, a / b AS q FROM t",
        "SELECT id, 'divides' AS c FROM t WHERE b % a = 0",
        "SELECT id, s FROM t",
        "SELECT id, x FROM t LATERAL VIEW explode(sequence(1, a)) g AS x",
    )
    with JobTrace(session, tmp_path, DDL, *select) as trace:
        rows = [(1, 2, 4, "x", 1), (2, 1, 0, "y", 1), (3, 0, 1, "z", 3)]
        trace.commit({"t": rows})
        assert trace.results == [
            Counter({(1, 0.5): 1, (3, 0.0): 3}),
            Counter({(1, "divides"): 1, (2, "divides"): 1}),
            Counter({(1, "x"): 1, (2, "y"): 1, (3, "z"): 3}),
            Counter({(1, 1): 1, (1, 2): 1, (2, 1): 1, (3, 1): 3, (3, 0): 3}),
        ]
        assert trace.errors == [
            Counter({("a / b", ZERO, row(id=2, a=1, b=0)): 1}),
            Counter({("b % a = 0", REMAINDER, row(id=3, a=0, b=1)): 3}),
            Counter(),
            Counter(),
        ]
        trace.commit({"t": [(*r[:-1], -r[-1]) for r in rows]})
        assert trace.results == [Counter()] * 4
        assert trace.errors == [Counter()] * 4


def test_many_errors_go_to_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(i, i, 0, "x" * 100, 1) for i in range(50_000)]
    with JobTrace(spark, tmp_path, DDL, "SELECT id, s, a / b AS q FROM t") as trace:
        trace.commit({"t": rows})
        assert trace.results == [Counter()]
        assert len(trace.errors[0]) == len(rows)
        assert trace.files > 5
        assert not list((tmp_path / "out").iterdir())


PLAIN = (
    "SELECT id, s, a > b AS c, upper(s) AS u, coalesce(a, b) AS x FROM t WHERE s LIKE 'a%' AND id IN (1, 2)",
    "SELECT s, count(*) AS n, max(a) AS m, avg(b) AS v FROM t GROUP BY s",
    "SELECT k, count(*) AS n FROM e GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE",
    "SELECT t.id, u.x FROM t JOIN u ON t.id = u.id AND t.a < u.x",
    "SELECT id, CAST(a AS DOUBLE) * 2 AS d, CAST(a AS STRING) AS s FROM t",
    "SELECT id, pmod(a, 10) + 1 AS p, CASE WHEN a > 0 THEN s END AS q FROM t",
    "SELECT id, try_add(a, b) AS p, try_multiply(a, 1000) AS q, try_divide(a, b) AS r FROM t",
    "SELECT id, row_number() OVER (PARTITION BY s ORDER BY id) AS n FROM t",
)


@pytest.mark.parametrize("select", PLAIN)
def test_queries_that_cannot_fail_have_no_guard(spark: SparkSession, tmp_path: Path, select: str) -> None:
    trace = JobTrace(spark, tmp_path, DDL, select)
    assert not trace.compiled.fallible
    assert trace.compiled.guarded == []
    plan = trace.compiled.frame._jdf.queryExecution().analyzed().toString()
    assert "Attempt" not in plan


def test_python_function(spark: SparkSession, tmp_path: Path) -> None:
    """What a function raises is the error of its row, and only where its value is used."""

    def root(x: float) -> float:
        return math.sqrt(x)

    def half(x: int | None) -> int | None:
        if x == 13:
            raise LookupError("unlucky")
        return None if x is None else x // 2

    register(spark, "root", root, "double")
    register(spark, "half", half, "bigint")
    select = (
        "SELECT id, root(a) AS r, CASE WHEN b <> 0 THEN half(a div b) END AS h FROM t",
        "SELECT id, half(half(b)) AS h, half(half(a) + 1) AS g FROM t WHERE half(id) > 0",
    )
    results = (
        Counter({(2, 3.0, 1): 1, (3, 2.0, None): 1, (13, 1.0, 0): 1}),
        Counter({(2, 0, 2): 1, (3, 0, 1): 1}),
    )
    errors = (
        Counter({("ROOT(a)", "ValueError: math domain error", row(id=4, a=-1, b=13)): 1}),
        Counter(
            {
                ("HALF(id) > 0", "LookupError: unlucky", row(id=13, a=1, b=26)): 1,
                ("HALF(HALF(b))", "LookupError: unlucky", row(id=4, a=-1, b=13)): 1,
            }
        ),
    )
    for i in range(len(select)):
        with JobTrace(spark, tmp_path / str(i), DDL, select[i]) as trace:
            trace.commit({"t": [(2, 9, 3, "x", 1), (3, 4, 0, "y", 1), (4, -1, 13, "z", 1), (13, 1, 26, "z", 1)]})
            assert trace.results == [results[i]]
            assert trace.errors == [errors[i]]


def test_a_time_that_is_too_far_away_fails_nothing_but_windows(spark: SparkSession, tmp_path: Path) -> None:
    with JobTrace(spark, tmp_path, DDL, "SELECT k, ms FROM m") as trace:
        rows = [("a", 1, 6_000), ("far", 1, LARGE), ("far", 1, -LARGE)]
        trace.commit({"m": rows}, {"m": 6_000})
        trace.commit({"m": rows}, {"m": 7_000})
        assert trace.results == [Counter({(k, ms): 2 for k, _, ms in rows})]
        assert trace.errors == [Counter()]
