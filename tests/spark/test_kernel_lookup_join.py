"""The lookup join: each row with what the table holds when it arrives, whichever commits share an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from .join_trace import Bag, JoinTrace, Spec, Step, rows_of

LEFT = "k string, v bigint, at bigint, lw bigint"
RIGHT = "dk string, name string, dat bigint, rw bigint"


def spec(kind: str, weight: str | None = None) -> Spec:
    return {
        "kind": kind,
        "leftKeys": ["k"],
        "rightKeys": ["dk"],
        "leftColumns": ["k", "v"],
        "rightColumns": ["dk", "name"],
        "leftTime": "at",
        "rightTime": "dat",
        "leftWeight": weight,
        "rightWeight": "rw",
    }


def brief(change: Bag) -> list[tuple[Any, ...]]:
    return sorted(((r.get("k"), r["v"], r.get("name")) for r in rows_of(change)), key=repr)


def test_rows_are_answered_in_the_order_of_commits(spark: SparkSession, tmp_path: Path) -> None:
    trace = JoinTrace(spark, tmp_path, LEFT, RIGHT, {"left": ("LookupJoin", spec("left")), "inner": ("LookupJoin", spec("inner"))})  # fmt: skip
    trace.start()
    # One epoch of commits 1 to 6: a row before its match, with it in one commit, after a change, after a deletion.
    out = trace.step(
        Step(
            left=[("a", 1, 1, 1), ("a", 2, 2, 1), ("a", 3, 3, 1), ("a", 4, 4, 1), ("a", 5, 6, 1), ("b", 6, 6, 1), (None, 7, 6, 1)],
            right=[("a", "x", 2, 1), ("a", "x", 4, -1), ("a", "y", 4, 1), ("a", "y", 5, -1), ("b", "z", 5, 1)],
        )
    )  # fmt: skip
    found = [("a", 2, "x"), ("a", 3, "x"), ("a", 4, "y"), ("b", 6, "z")]
    assert brief(out["inner"]) == found
    assert brief(out["left"]) == sorted([*found, ("a", 1, None), ("a", 5, None), (None, 7, None)], key=repr)
    # State goes on: b is there, a is not, and what comes out of other operators arrives at the end of the epoch.
    end = (1 << 63) - 1
    out = trace.step(Step(left=[("a", 8, end, 1), ("b", 9, 7, 1)], right=[("a", "w", 9, 1), ("b", "z", 8, -1)]))
    assert brief(out["inner"]) == [("a", 8, "w"), ("b", 9, "z")]
    trace.stop()


def test_a_retracted_row_takes_its_answer_back(spark: SparkSession, tmp_path: Path) -> None:
    trace = JoinTrace(spark, tmp_path, LEFT, RIGHT, {"left": ("LookupJoin", spec("left", "lw"))})
    trace.start()
    out = trace.step(Step(left=[("a", 1, 1, 1), ("a", 2, 1, 1), ("a", 2, 3, -1)], right=[("a", "x", 2, 1)]))
    assert brief(out["left"]) == [("a", 1, None)]
    out = trace.step(Step(left=[("a", 1, 4, -1), ("a", 1, 4, 1)]))
    assert {(r["v"], r.get("name"), w) for r, w in weights(out["left"])} == {(1, None, -1), (1, "x", 1)}
    trace.stop()


def weights(change: Bag) -> list[tuple[dict[str, Any], int]]:
    import json

    return [(json.loads(row), weight) for row, weight in change.items()]
