"""Analytic functions against Spark batch, after every epoch of generated traces."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.kernel_trace import Trace, expected

DDL = "p string, `o$t` timestamp, v int, d double, s string, __weight bigint"
COLUMNS = ["p", "o$t", "v", "d", "s"]
START = dt.datetime(2024, 1, 1)
SECOND = 1_000_000


@dataclass(frozen=True)
class Call:
    """A call as the kernel gets it, and in SQL. `peers`: ties of the ORDER BY are left as ties."""

    func: str
    type: str
    args: tuple[str, ...] = ()
    literals: tuple[Any, ...] = ()
    frame: tuple[str, float | None, float | None] | None = None
    ignore_nulls: bool = False
    peers: bool = False
    sql_frame: str = field(default="")

    def spec(self, name: str) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": name,
            "func": self.func,
            "args": list(self.args),
            "literals": list(self.literals),
            "type": self.type,
            "ignoreNulls": self.ignore_nulls,
        }
        if self.frame:
            out["frame"] = {"unit": self.frame[0], "start": self.frame[1], "end": self.frame[2]}
        return out

    def sql(self, order: str, rest: str) -> str:
        values = [f"'{x}'" if isinstance(x, str) else str(x) for x in self.literals]
        args = ", ".join([*self.args, *values]) or ("*" if self.func == "count" else "")
        nulls = " IGNORE NULLS" if self.ignore_nulls else ""
        by = order if self.peers else f"{order}, {rest}"
        frame = self.sql_frame
        if self.frame and not frame:
            unit, low, high = self.frame
            frame = f"{unit.upper()} BETWEEN {bound(low, 'PRECEDING')} AND {bound(high, 'FOLLOWING')}"
        return f"{self.func}({args}){nulls} OVER (PARTITION BY step, p ORDER BY {by} {frame})"


def bound(at: float | None, unbounded: str) -> str:
    if at is None:
        return f"UNBOUNDED {unbounded}"
    if at == 0:
        return "CURRENT ROW"
    return f"{abs(at)} {'PRECEDING' if at < 0 else 'FOLLOWING'}"


ROWS_NOW = ("rows", None, 0)
NEAR = [
    Call("lag", "int", ("v",)),
    Call("lag", "string", ("s",), (2, "none")),
    Call("lead", "int", ("v",), (1, -7)),
    Call("lead", "timestamp", ("`o$t`",), (2,)),
    Call("sum", "bigint", ("v",), frame=("rows", -2, 1)),
    Call("avg", "double", ("d",), frame=("rows", -1, 0)),
    Call("max", "string", ("s",), frame=("rows", -3, -1)),
    Call("nth_value", "int", ("v",), (2,), frame=("rows", -2, 2)),
]
RUNNING = [
    Call("row_number", "int"),
    Call("rank", "int", peers=True),
    Call("dense_rank", "int", peers=True),
    Call("sum", "bigint", ("v",), peers=True),
    Call("count", "bigint", peers=True),
    Call("count", "bigint", ("v",), frame=ROWS_NOW),
    Call("avg", "double", ("v",), frame=ROWS_NOW),
    Call("min", "double", ("d",), peers=True),
    Call("max", "string", ("s",), frame=ROWS_NOW),
    Call("first_value", "string", ("s",), frame=ROWS_NOW),
    Call("last_value", "int", ("v",), frame=ROWS_NOW, ignore_nulls=True),
    Call("stddev_samp", "double", ("d",), frame=ROWS_NOW),
    Call("covar_pop", "double", ("v", "d"), frame=ROWS_NOW),
    Call("lag", "int", ("v",), (1,)),
]
WHOLE = [
    Call("percent_rank", "double", peers=True),
    Call("cume_dist", "double", peers=True),
    Call("ntile", "int", (), (3,)),
    Call("row_number", "int"),
    Call("lag", "int", ("v",), (1,), ignore_nulls=True),
    Call("sum", "double", ("d",), frame=("rows", None, None)),
    Call("max", "int", ("v",), frame=("rows", 0, None)),
    Call("sum", "bigint", ("v",), frame=("rows", None, 1)),
    Call("nth_value", "string", ("s",), (2,), frame=("rows", None, None), ignore_nulls=True),
]
BY_TIME = [
    Call(
        "sum",
        "bigint",
        ("v",),
        frame=("range", -3 * SECOND, 2 * SECOND),
        peers=True,
        sql_frame="RANGE BETWEEN INTERVAL 3 SECONDS PRECEDING AND INTERVAL 2 SECONDS FOLLOWING",
    ),
    Call(
        "count",
        "bigint",
        (),
        frame=("range", None, -1 * SECOND),
        peers=True,
        sql_frame="RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 1 SECOND PRECEDING",
    ),
    Call(
        "min",
        "double",
        ("d",),
        frame=("range", 1 * SECOND, 4 * SECOND),
        peers=True,
        sql_frame="RANGE BETWEEN INTERVAL 1 SECOND FOLLOWING AND INTERVAL 4 SECONDS FOLLOWING",
    ),
]


def steps(rng: random.Random, count: int, rows: int) -> list[list[tuple[Any, ...]]]:
    """Rows that arrive roughly in order, with ties, NULLs and duplicates, and retractions of any of them."""
    there: list[tuple[Any, ...]] = []
    out = []
    for i in range(count):
        step = []
        for _ in range(rows):
            if there and rng.random() < 0.3:
                row, weight = there.pop(rng.randrange(len(there))), -1
            else:
                late = rng.randint(0, 40) if rng.random() < 0.2 else rng.randint(0, 3)
                row = (
                    rng.choice(["a", "b"]),
                    None if rng.random() < 0.1 else START + dt.timedelta(seconds=i * 4 + 40 - late),
                    rng.choice([None, 1, 2, 30]),
                    rng.choice([None, 0.25, -3.5, 8.0]),
                    rng.choice([None, "x", "yy"]),
                )
                weight = 1
                there.append(row)
                if rng.random() < 0.15:
                    there.append(row)
                    step.append((*row, 1))
            step.append((*row, weight))
        out.append(step)
    return out


@pytest.mark.parametrize("desc", [False, True])
@pytest.mark.parametrize("calls", [NEAR, RUNNING, WHOLE, BY_TIME], ids=["near", "running", "whole", "by_time"])
def test_follows_inserts_and_retractions(spark: SparkSession, tmp_path: Path, calls: list[Call], desc: bool) -> None:
    trace_steps = steps(random.Random(f"{calls}{desc}"), 8, 9)
    order = f"`o$t` {'DESC NULLS LAST' if desc else 'ASC NULLS FIRST'}"
    rest = ", ".join(f"{c} ASC NULLS FIRST" for c in ("p", "v", "d", "s"))
    listed = ", ".join(c.sql(order, rest) for c in calls)
    want = expected(spark, tmp_path, DDL, trace_steps, f"SELECT step, p, `o$t`, v, d, s, {listed} FROM input")
    spec = {
        "partition": ["p"],
        "order": [{"col": "o$t", "desc": desc, "nullsFirst": not desc}],
        "columns": COLUMNS,
        "weight": "__weight",
        "calls": [c.spec(f"w{i}") for i, c in enumerate(calls)],
    }
    for call in spec["calls"]:
        call["args"] = [a.strip("`") for a in call["args"]]  # type: ignore[index]
    trace = Trace(spark, tmp_path, "Analytic", DDL, spec)
    trace.start()
    assert trace.types[5:-1] == [c.type for c in calls]
    for i, step in enumerate(trace_steps):
        trace.step(step)
        assert trace.state == want[i], f"step {i}"
        if i == 4:
            trace.stop()
            trace.start()
    trace.stop()


def test_rows_in_order_touch_only_the_end(spark: SparkSession, tmp_path: Path) -> None:
    """What an epoch writes depends on what came, not on the size of the partition."""
    spec = {
        "partition": [],
        "order": [{"col": "k"}],
        "columns": ["k"],
        "weight": None,
        "calls": [Call("row_number", "int").spec("n"), Call("sum", "bigint", ("k",), frame=("rows", -2, 0)).spec("s")],
    }
    trace = Trace(spark, tmp_path, "Analytic", "k bigint", spec)
    trace.start()
    trace.step([(k,) for k in range(2000)])
    assert trace.step([(2000,)]) == [(2000, 2001, 1999 + 1998 + 2000, 1)]
    progress = trace.query.lastProgress
    assert progress is not None
    assert sum(s["numRowsUpdated"] for s in progress["stateOperators"]) <= 2
    trace.stop()


def test_without_order_the_frame_is_the_partition(spark: SparkSession, tmp_path: Path) -> None:
    spec = {
        "partition": ["p"],
        "order": [],
        "columns": ["p", "v"],
        "weight": "__weight",
        "calls": [Call("sum", "bigint", ("v",)).spec("total")],
    }
    trace = Trace(spark, tmp_path, "Analytic", "p string, v int, __weight bigint", spec)
    trace.start()
    trace.step([("a", 1, 1), ("a", 2, 1), ("b", 5, 1)])
    assert dict(trace.state) == {("a", 1, 3): 1, ("a", 2, 3): 1, ("b", 5, 5): 1}
    out = trace.step([("a", 2, -1)])
    assert sorted(out) == [("a", 1, 1, 1), ("a", 1, 3, -1), ("a", 2, 3, -1)]
    trace.stop()
