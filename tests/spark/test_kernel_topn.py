"""TopN against Spark batch, after every epoch of generated traces."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.kernel_trace import Trace, apply, collections, expected

DDL = "p string, `o$x` double, s string, n int, __weight bigint"
COLUMNS = ["p", "o$x", "s", "n"]
LONG = "https://example.org/a/rather/long/path/"


def steps(rng: random.Random, count: int, rows: int, retract: float = 0.45) -> list[list[tuple[Any, ...]]]:
    """Inserts and retractions of rows with many ties, NULLs and strings that share a long prefix."""
    there: list[tuple[Any, ...]] = []
    out = []
    for _ in range(count):
        step = []
        for _ in range(rows):
            if there and rng.random() < retract:
                row, weight = there.pop(rng.randrange(len(there))), -1
            else:
                row = (
                    rng.choice(["a", "b", None]),
                    rng.choice([None, float("nan"), 0.0, -1.5, 2.0, 2.0, 1e300, float("-inf")]),
                    rng.choice([None, "", "z", LONG + "1", LONG + "2", LONG, LONG + "3" * 20, "ä€😀"]),
                    rng.choice([None, 1, 2]),
                )
                weight = 1
                there.append(row)
            step.append((*row, weight))
        out.append(step)
    return out


def spec(order: list[tuple[str, bool, bool]], **more: Any) -> dict[str, Any]:
    return {
        "partition": ["p"],
        "order": [{"col": c, "desc": d, "nullsFirst": f} for c, d, f in order],
        "columns": COLUMNS,
        "weight": "__weight",
        "limit": 3,
        "offset": 0,
        "rank": None,
        **more,
    }


def sql_order(order: list[tuple[str, bool, bool]], whole: bool) -> str:
    items = [f"`{c}` {'DESC' if d else 'ASC'} NULLS {'FIRST' if f else 'LAST'}" for c, d, f in order]
    used = {c for c, _, _ in order}
    rest = [f"`{c}` ASC NULLS FIRST" for c in COLUMNS if c not in used] if whole else []
    return ", ".join(items + rest)


def batch_sql(spec_: dict[str, Any], order: list[tuple[str, bool, bool]]) -> str:
    rank = spec_["rank"]
    func = rank["func"] if rank else "row_number"
    partition = ", ".join(["step", *spec_["partition"]])
    over = f"PARTITION BY {partition} ORDER BY {sql_order(order, whole=func == 'row_number')}"
    upper = f"AND rn <= {spec_['offset'] + spec_['limit']}" if spec_["limit"] is not None else ""
    return (
        f"SELECT step, p, `o$x`, s, n{', rn' if rank else ''} "
        f"FROM (SELECT *, {func}() OVER ({over}) AS rn FROM input) WHERE rn > {spec_['offset']} {upper}"
    )


BY_NUMBER = [("o$x", True, False)]
BY_STRING = [("s", False, True), ("o$x", True, True)]
BY_STRING_DESC = [("s", True, True)]


@pytest.mark.parametrize(
    ("order", "more"),
    [
        (BY_NUMBER, {}),
        (BY_STRING, {"limit": 4, "offset": 2}),
        (BY_STRING_DESC, {"partition": [], "limit": 5}),
        (BY_STRING, {"limit": None, "offset": 3}),
        (BY_NUMBER, {"rank": {"name": "rn", "func": "row_number"}}),
        (BY_NUMBER, {"rank": {"name": "rn", "func": "rank"}, "limit": 4}),
        (BY_STRING_DESC, {"rank": {"name": "rn", "func": "dense_rank"}, "limit": 2}),
    ],
)
def test_follows_inserts_and_retractions(
    spark: SparkSession, tmp_path: Path, order: list[tuple[str, bool, bool]], more: dict[str, Any]
) -> None:
    trace_steps = steps(random.Random(str(order) + str(more)), 7, 14)
    use = spec(order, **more)
    want = expected(spark, tmp_path, DDL, trace_steps, batch_sql(use, order))
    trace = Trace(spark, tmp_path, "TopN", DDL, use)
    trace.start()
    for i, step in enumerate(trace_steps):
        out = trace.step(step)
        assert trace.state == want[i], f"step {i}"
        for p in {r[0] for r in out}:
            signs = [r[-1] > 0 for r in out if r[0] == p]
            assert not use["partition"] or signs == sorted(signs), "an assertion before a retraction"
        if i == 3:
            trace.stop()
            trace.start()
    trace.stop()


@pytest.mark.parametrize(
    ("func", "more"),
    [(None, {}), ("row_number", {}), ("rank", {}), ("dense_rank", {}), (None, {"partition": [], "limit": 66})],
)
def test_append_only(spark: SparkSession, tmp_path: Path, func: str | None, more: dict[str, Any]) -> None:
    trace_steps = steps(random.Random(str(func)), 5, 24, retract=0)
    rank = {"name": "rn", "func": func} if func else None
    use = spec(BY_NUMBER, weight=None, rank=rank, offset=1, **more)
    want = expected(spark, tmp_path, DDL, trace_steps, batch_sql(use, BY_NUMBER))
    trace = Trace(spark, tmp_path, "TopN", DDL, use)
    trace.start()
    for i, step in enumerate(trace_steps):
        trace.step(step)
        assert trace.state == want[i], f"step {i}"
        if i == 2:
            trace.stop()
            trace.start()
    trace.stop()


def test_every_type_orders_and_comes_back(plain_spark: SparkSession, tmp_path: Path) -> None:
    """Each column in turn is the order, both ways, in one global partition that holds everything."""
    ddl = (
        "b boolean, t tinyint, sm smallint, i int, l bigint, f float, d double, m decimal(10,2), w decimal(38,5), s string, "
        "bin binary, da date, ts timestamp, ntz timestamp_ntz, arr array<string>, __weight bigint"
    )
    rng = random.Random(5)
    types = ["b", "t", "sm", "i", "l", "f", "d", "m", "w", "s", "bin", "da", "ts", "ntz", "arr"]

    def row() -> tuple[Any, ...]:
        values: list[Any] = [
            rng.random() < 0.5,
            rng.randint(-128, 127),
            rng.randint(-(2**15), 2**15 - 1),
            rng.randint(-(2**31), 2**31 - 1),
            rng.randint(-(2**63), 2**63 - 1),
            rng.choice([float("nan"), -2.0, 0.5, 3.0]),
            rng.choice([float("nan"), float("inf"), rng.uniform(-5, 5)]),
            Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2),
            Decimal(rng.randint(-(10**37), 10**37)).scaleb(-5),
            "".join(rng.choice("a\x00\x01é€😀") for _ in range(rng.randint(0, 40))),
            bytes(rng.choice([0, 1, 2, 255]) for _ in range(rng.randint(0, 40))),
            dt.date(1969, 12, 20) + dt.timedelta(rng.randint(0, 30)),
            dt.datetime(1969, 12, 31, 23) + dt.timedelta(microseconds=rng.randint(0, 10**10)),
            dt.datetime(1969, 12, 31, 23) + dt.timedelta(microseconds=rng.randint(0, 10**10)),
            tuple(rng.choice(["a", "b"]) for _ in range(rng.randint(0, 3))),
        ]
        return (*(None if rng.random() < 0.15 else v for v in values), 1)

    rows = [row() for _ in range(40)]
    trace_steps = [rows, [(*r[:-1], -1) for r in rows[::2]]]
    orders = [(c, False) for c in types] + [(c, True) for c in ("s", "d", "w", "arr")]

    def operators(source: DataFrame) -> DataFrame:
        outputs = []
        for c, desc in orders:
            use = {
                "partition": [],
                "order": [{"col": c, "desc": desc, "nullsFirst": not desc}],
                "columns": types,
                "weight": "__weight",
                "limit": 12,
                "offset": 1,
                "rank": {"name": "rn", "func": "row_number"},
            }
            frame = apply(plain_spark, "TopN", source, use)
            outputs.append(frame.selectExpr(f"'{c}' AS c", f"{desc} AS d", *frame.columns))
        return reduce(DataFrame.unionAll, outputs)

    selects = []
    for c, desc in orders:
        rest = ", ".join(x for x in types if x != c)
        over = f"PARTITION BY step ORDER BY {c} {'DESC' if desc else 'ASC'}, {rest}"
        selects.append(
            f"SELECT step, '{c}', {desc}, {', '.join(types)}, rn FROM "
            f"(SELECT *, row_number() OVER ({over}) AS rn FROM input) WHERE rn BETWEEN 2 AND 13"
        )
    want = expected(plain_spark, tmp_path, ddl, trace_steps, " UNION ALL ".join(selects))
    trace = Trace(plain_spark, tmp_path, operators, ddl)
    trace.start()
    for i, step in enumerate(trace_steps):
        trace.step(step)
        for c, desc in orders:
            got = {r for r in trace.state if r[:2] == (c, desc)}
            assert got == {r for r in want[i] if r[:2] == (c, desc)}, f"{c} {desc} step {i}"
    trace.stop()


def test_reads_only_the_head(spark: SparkSession, tmp_path: Path) -> None:
    """The input grows; what the operator keeps for append-only input does not."""
    ddl = "k bigint, __weight bigint"
    use = {"partition": [], "order": [{"col": "k", "desc": False}], "columns": ["k"], "weight": None, "limit": 8}
    trace = Trace(spark, tmp_path, "TopN", ddl, use)
    trace.start()
    trace.step([(k, 1) for k in range(1000, 3000)])
    trace.step([(k, 1) for k in range(500, 1000)])
    progress = trace.query.lastProgress
    assert progress is not None
    assert sum(s["numRowsTotal"] for s in progress["stateOperators"]) <= 9
    assert trace.state == collections([[(k, 1) for k in range(500, 508)]])[0]
    trace.stop()
