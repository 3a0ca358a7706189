"""The recursion operator against a fixpoint computed in Python, after every step of generated traces over cyclic graphs."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from .join_trace import Bag, JoinTrace, Spec, Step

BASE = "`b$a` bigint, `b$b` bigint, `b$d` bigint, bw bigint"
EDGES = "`e$s` bigint, `e$d` bigint, ew bigint"
DEPTH = 4
Row = tuple[Any, ...]


def spec(everything: bool, residual: str | None) -> Spec:
    names = ["a", "b", "d"] if everything else ["a", "b"]
    return {
        "columns": [f"r${n}" for n in names],
        "types": ["bigint"] * len(names),
        "all": everything,
        "maxDepth": 100,
        "otherColumns": ["e$s", "e$d"],
        "rowKeys": ["`r$b`"],
        "otherKeys": ["e$s"],
        "outputs": ["`r$a`", "`e$d`", "`r$d` + 1"][: len(names)],
        "residual": residual,
        "baseWeight": "bw",
        "otherWeight": "ew",
    }


JOINS = {
    "union": ("Recursion", spec(False, None)),
    "union filtered": ("Recursion", spec(False, "`e$d` <> `r$a` OR `r$a` IS NULL")),
    "union all": ("Recursion", spec(True, f"`r$d` < {DEPTH}")),
}


def answers(base: Counter[Row], edges: Counter[Row]) -> dict[str, Bag]:
    def text(row: Row) -> str:
        values = zip(("r$a", "r$b", "r$d"), row, strict=False)
        return json.dumps({n: v for n, v in values if v is not None}, separators=(",", ":"))

    def reached(filtered: bool) -> Bag:
        rows = {r[:2] for r in base}
        while True:
            more = {
                (a, d)
                for a, b in rows
                for s, d in edges
                if b is not None and s == b and not (filtered and (d is None or d == a) and a is not None)
            }
            if more <= rows:
                return Counter(text(r) for r in rows)
            rows |= more

    total: Counter[Row] = Counter()
    level = Counter(base)
    while level:
        total += level
        deeper: Counter[Row] = Counter()
        for (a, b, d), n in level.items():
            for (s, t), m in edges.items():
                if b is not None and s == b and d < DEPTH:
                    deeper[(a, t, d + 1)] += n * m
        level = deeper
    return {
        "union": reached(False),
        "union filtered": reached(True),
        "union all": Counter({text(r): n for r, n in total.items()}),
    }


def test_recursion_follows_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(11)
    live: list[list[Row]] = [[], []]
    # A cycle that is entered from 0, is cut off from it, and is entered again elsewhere.
    steps = [
        Step([(0, 0, 0, 1)], [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 1, 1)]),
        Step([], [(0, 1, -1)]),
        Step([], [(0, 3, 1)]),
    ]
    live[0], live[1] = [(0, 0, 0)], [(1, 2), (2, 3), (3, 1), (0, 3)]
    for _ in range(7):
        changed: list[list[Row]] = [[], []]
        for side in (0, 1):
            for _ in range(rng.randint(0, 4)):
                if live[side] and rng.random() < 0.5:
                    changed[side].append((*live[side].pop(rng.randrange(len(live[side]))), -1))
                    continue
                ends = (rng.choice([None, *range(5)]), rng.choice([None, *range(5)]))
                row = ends if side else (*ends, rng.randint(0, DEPTH))
                live[side].append(row)
                changed[side].append((*row, 1))
        steps.append(Step(*changed))
    steps.append(Step([(*r, -1) for r in live[0]], [(*r, -1) for r in live[1]]))

    base: Counter[Row] = Counter()
    edges: Counter[Row] = Counter()
    run = JoinTrace(spark, tmp_path, BASE, EDGES, JOINS)
    run.start()
    try:
        for i, step in enumerate(steps):
            if i == 5:
                run.stop()
                run.start()
            for bag, rows in ((base, step.left), (edges, step.right)):
                for row in rows:
                    bag[row[:-1]] += row[-1]
            run.step(step)
            for label, wanted in answers(+base, +edges).items():
                assert run.sums[label] == wanted, f"{label} after step {i}"
    finally:
        run.stop()
    assert run.state_entries(*range(len(JOINS))) == 0
