"""TemporalFilter: rows that enter and leave with the watermark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.spark.kernel_state import state_entries, timers
from tests.spark.kernel_trace import Trace, apply

DDL = "`v$x` double, e bigint, x bigint, __wm timestamp, __weight bigint"


def at(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def open_trace(spark: SparkSession, folder: Path, **more: Any) -> Trace:
    spec = {"columns": ["v$x"], "weight": "__weight", "enter": "e", "exit": "x", **more}

    def build(frame: DataFrame) -> DataFrame:
        return apply(spark, "TemporalFilter", frame.withWatermark("__wm", "0 seconds"), spec)

    trace = Trace(spark, folder, build, DDL)
    trace.start()
    return trace


def test_rows_enter_and_leave_on_the_second(spark: SparkSession, tmp_path: Path) -> None:
    trace = open_trace(spark, tmp_path)
    try:
        rows = [(1.0, 5000, 9001, at(4999), 1), (2.0, None, 6000, at(4999), 2), (3.0, 20000, None, at(4999), 1)]
        assert trace.step(rows) == [(2.0, 2)]
        assert trace.step([(-0.0, None, None, at(5000), 1)]) == [(0.0, 1), (1.0, 1)]
        trace.stop()
        trace.start()
        assert trace.step([(4.0, 7000, 8000, at(5999), 1), (9.0, None, 5000, at(5999), 1)]) == []
        assert trace.step([(1.0, 5000, 9001, at(9999), -1), (1.0, 5000, 9001, at(9999), 2)]) == [(1.0, 1), (2.0, -2)]
        assert trace.step([(0.0, None, None, at(10000), -1)]) == [(0.0, -1), (1.0, -2)]
        assert (state_entries(trace), timers(trace)) == (1, 1), "one row still waits"
        assert trace.step([(5.0, None, 1, at(20000), 1)]) == [(3.0, 1)]
        assert (state_entries(trace), timers(trace)) == (0, 0)
    finally:
        trace.stop()


def test_retraction_cancels_a_waiting_row(spark: SparkSession, tmp_path: Path) -> None:
    trace = open_trace(spark, tmp_path)
    try:
        assert trace.step([(1.0, 5000, 9000, at(1000), 1), (2.0, 5000, 9000, at(1000), 1)]) == []
        assert trace.step([(1.0, 5000, 9000, at(2000), -1)]) == []
        assert trace.step([(8.0, 1, 2, at(6000), 1)]) == [(2.0, 1)]
        assert trace.step([(2.0, 5000, 9000, at(7000), -1)]) == [(2.0, -1)]
        assert (state_entries(trace), timers(trace)) == (0, 0)
        assert trace.step([(8.0, 1, 2, at(30000), 1)]) == []
    finally:
        trace.stop()


def test_append_only_without_entry(spark: SparkSession, tmp_path: Path) -> None:
    trace = open_trace(spark, tmp_path, weight=None, enter=None)
    try:
        assert trace.step([(1.0, None, 3000, at(0), 1), (1.0, None, 3000, at(0), 1)]) == [(1.0, 2)]
        assert trace.step([(2.0, None, 9000, at(3000), 1)]) == [(2.0, 1), (1.0, -2)]
    finally:
        trace.stop()
