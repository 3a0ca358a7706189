"""Session: bounds, merging, splitting, closing and late rows; and against a naive model on generated traces."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.kernel_state import state_entries, timers
from tests.spark.kernel_trace import Trace, apply

GAP = 10
SECOND = 1_000_000


def spec(**more: Any) -> dict[str, Any]:
    return {
        "keys": ["k"],
        "weight": None,
        "time": "t",
        "gapMicros": GAP * SECOND,
        "start": "w$s",
        "end": "w$e",
        "mode": "changes",
        "latenessMs": 0,
        "row": None,
        "aggs": [
            {"name": "n", "func": "count", "args": [], "type": "bigint"},
            {"name": "lo", "func": "min", "args": ["x"], "type": "int"},
            {"name": "xs", "func": "array_agg", "args": ["x"], "type": "array<int>"},
            {"name": "d", "func": "count", "args": ["x"], "type": "bigint", "distinct": True},
        ],
        **more,
    }


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)


def open_trace(spark: SparkSession, folder: Path, description: dict[str, Any]) -> Trace:
    def build(frame: DataFrame) -> DataFrame:
        frame = frame.withWatermark("__wm", "0 seconds").selectExpr("*", "struct(k, t, x) AS r")
        return apply(spark, "Session", frame, description)

    trace = Trace(spark, folder, build, "k string, t bigint, x int, __wm timestamp, __weight bigint")
    trace.start()
    return trace


def row(k: str, t: float, x: int, wm: float, w: int = 1) -> tuple[Any, ...]:
    return (k, int(t * SECOND), x, at(wm), w)


def session(k: str, start: float, last: float, *xs: int) -> tuple[Any, ...]:
    bounds = (int(start * SECOND), int((last + GAP) * SECOND))
    return (k, *bounds, len(xs), min(xs), tuple(xs), len(set(xs)), False)


def test_bridge_merges_and_exact_gap_belongs(spark: SparkSession, tmp_path: Path) -> None:
    trace = open_trace(spark, tmp_path, spec())
    try:
        trace.step([row("a", 100, 1, 0), row("a", 120.000001, 2, 0), row("b", 100, 3, 0), row("b", 110, 4, 0)])
        assert set(trace.state) == {
            session("a", 100, 100, 1),
            session("a", 120.000001, 120.000001, 2),
            session("b", 100, 110, 3, 4),
        }
        out = trace.step([row("a", 110.000001, 5, 0)])
        assert len(out) == 2, "the first is too far by a microsecond"
        trace.stop()
        trace.start()
        out = trace.step([row("a", 105, 6, 0)])
        assert [r[-1] for r in out] == [-1, -1, 1]
        assert session("a", 100, 120.000001, 1, 6, 5, 2) in trace.state
    finally:
        trace.stop()


@pytest.mark.parametrize("weight", [None, "__weight"])
def test_close_is_exact_and_late_rows_come_out(spark: SparkSession, tmp_path: Path, weight: str | None) -> None:
    trace = open_trace(spark, tmp_path, spec(mode="close", row="r", weight=weight, latenessMs=1000))
    nothing = (None,) * 7
    try:
        assert trace.step([row("a", 100, 1, 1), row("a", 105, 2, 1)]) == []
        assert trace.step([row("b", 200, 1, 115.999)]) == []
        closed = trace.step([row("b", 201, 2, 116)])
        assert [tuple(r) for r in closed] == [(*_array(session("a", 100, 105, 1, 2)), None, 1)]
        # 105 alone has closed; 106.5 alone has not, though the closed session would have reached it.
        out = trace.step([row("a", 105, 7, 116), row("a", 106.5, 8, 116)])
        assert out == [], "together they are one session that is open"
        out = trace.step([row("c", 105, 7, 116), row("d", 94, 8, 116)])
        assert sorted((tuple(r[:7]), r[7], r[8].x, r[9]) for r in out) == [(nothing, True, 7, 1), (nothing, True, 8, 1)]
        out = trace.step([row("z", 900, 1, 1000)])
        assert {r[:3] for r in out} == {
            ("a", 105 * SECOND, 116_500_000),
            ("b", 200 * SECOND, 211 * SECOND),
            ("z", 900 * SECOND, 910 * SECOND),
        }
        assert (state_entries(trace), timers(trace)) == (0, 0)
    finally:
        trace.stop()


def _array(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(list(v) if isinstance(v, tuple) else v for v in values)


def test_retractions_split_and_empty(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(5)
    trace = open_trace(spark, tmp_path, spec(weight="__weight"))
    there: list[tuple[str, int, int]] = []
    try:
        for n in range(7):
            step = []
            for _ in range(12):
                if there and (n == 6 or rng.random() < 0.5):
                    k, t, x = there.pop(rng.randrange(len(there)))
                    step.append(row(k, t, x, 0, -1))
                elif n < 6:
                    there.append((rng.choice("ab"), rng.randrange(0, 150, 4), rng.randint(0, 9)))
                    step.append(row(*there[-1], 0))
            trace.step(step)
            got = Counter((r[0], r[1], r[2], r[3], r[4], tuple(sorted(r[5])), r[6]) for r in trace.state)
            assert got == model(there)
    finally:
        trace.stop()


def model(rows: list[tuple[str, int, int]]) -> Counter[Any]:
    out: Counter[Any] = Counter()
    for key in {r[0] for r in rows}:
        runs: list[list[tuple[str, int, int]]] = []
        for r in sorted((r for r in rows if r[0] == key), key=lambda r: r[1]):
            if runs and r[1] - runs[-1][-1][1] <= GAP:
                runs[-1].append(r)
            else:
                runs.append([r])
        for run in runs:
            xs = sorted(r[2] for r in run)
            bounds = (run[0][1] * SECOND, (run[-1][1] + GAP) * SECOND)
            out[(key, *bounds, len(xs), xs[0], tuple(xs), len(set(xs)))] += 1
    return out
