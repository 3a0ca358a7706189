"""The regular join against Spark's batch join, after every step of generated traces."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.kernel import Kernel

from .join_trace import Bag, JoinTrace, Spec, Step
from .kernel_trace import write

LEFT = "`l$k` bigint, `l$j` string, `l$v` bigint, lw bigint"
RIGHT = "`r$k` bigint, `r$j` string, `r$v` bigint, rw bigint"
KINDS = ("inner", "left", "right", "full", "semi", "anti", "mark")
SQL_KINDS = {
    "inner": "INNER",
    "left": "LEFT",
    "right": "RIGHT",
    "full": "FULL",
    "semi": "LEFT SEMI",
    "anti": "LEFT ANTI",
}
RESIDUAL = "`l$v` + coalesce(`r$v`, 0) > 5"


def spec(kind: str, residual: str | None = None, null_safe: bool = False, **more: Any) -> Spec:
    return {
        "kind": kind,
        "leftKeys": ["l$k", "l$j"],
        "rightKeys": ["r$k", "r$j"],
        "nullSafe": [False, null_safe],
        "leftColumns": ["l$k", "l$j", "l$v"],
        "rightColumns": ["r$k", "r$j", "r$v"],
        "leftWeight": "lw",
        "rightWeight": "rw",
        "residual": residual,
        "ttlMs": None,
        **({"mark": "m"} if kind == "mark" else {}),
        **more,
    }


def trace(seed: int, steps: int, size: int, keys: int) -> list[Step]:
    """Inserts and retractions on both sides; the last step takes out all that is left."""
    rng = random.Random(seed)
    live: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] = ([], [])

    def rows(side: int) -> list[tuple[Any, ...]]:
        out = []
        for _ in range(rng.randint(0, size)):
            if live[side] and rng.random() < 0.45:
                row = live[side].pop(rng.randrange(len(live[side])))
                out.append((*row, -1))
            else:
                key = rng.choice([None, *range(keys)])
                row = (key, rng.choice([None, "a", "bb"]), rng.choice([None, *range(6)]))
                live[side].append(row)
                out.append((*row, 1))
        return out

    made = [Step(rows(0) if i % 3 != 1 else [], rows(1) if i % 3 != 2 else []) for i in range(steps)]
    made.append(Step([(*r, -1) for r in live[0]], [(*r, -1) for r in live[1]]))
    return made


def expected(
    spark: SparkSession, folder: Path, steps: list[Step], joins: dict[str, tuple[str, Spec]]
) -> dict[str, list[Bag]]:
    """What Spark's batch join gives after each step."""
    for name, ddl, side in (("lefts", LEFT, "left"), ("rights", RIGHT, "right")):
        total: Counter[tuple[Any, ...]] = Counter()
        rows = []
        for i, step in enumerate(steps):
            for row in getattr(step, side):
                total[row[:-1]] += row[-1]
            rows += [(i, *row, 1) for row, n in total.items() for _ in range(n)]
        write(folder / f"{name}.parquet", f"{name}_step int, {ddl}", rows)
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
    out: dict[str, list[Bag]] = {}
    for label, (_, join) in joins.items():
        same = "<=>" if join["nullSafe"][1] else "="
        residual = f"AND {join['residual']}" if join["residual"] else ""
        on = f"ON lefts_step = rights_step AND `l$k` = `r$k` AND `l$j` {same} `r$j` {residual}"
        alone = join["kind"] in ("semi", "anti", "mark")
        columns = join["leftColumns"] + ([] if alone else join["rightColumns"])
        names = ", ".join(f"`{c}`" for c in columns)
        number = "lefts_step" if alone else "coalesce(lefts_step, rights_step)"
        select = f"SELECT {number}, to_json(struct({names})) FROM lefts"
        if join["kind"] == "mark":
            parts = (
                (f"{select} LEFT {k} JOIN rights {on}".replace("))", f", {m} AS m))", 1))
                for k, m in (("SEMI", "true"), ("ANTI", "false"))
            )
            sql = " UNION ALL ".join(parts)
        else:
            sql = f"{select} {SQL_KINDS[join['kind']]} JOIN rights {on}"
        out[label] = [Counter() for _ in steps]
        for i, row in spark.sql(sql).collect():
            out[label][i][row] += 1
    return out


def check(
    spark: SparkSession, folder: Path, joins: dict[str, tuple[str, Spec]], steps: list[Step], restart: int
) -> None:
    answers = expected(spark, folder, steps, joins)
    run = JoinTrace(spark, folder / "run", LEFT, RIGHT, joins)
    run.start()
    try:
        for i, step in enumerate(steps):
            if i == restart:
                run.stop()
                run.start()
            run.step(step)
            for label in joins:
                assert run.sums[label] == answers[label][i], f"{label} after step {i}"
    finally:
        run.stop()
    assert run.state_entries(*range(len(joins))) == 0


def test_all_kinds_without_residual(plain_spark: SparkSession, tmp_path: Path) -> None:
    joins = {kind: ("Join", spec(kind)) for kind in KINDS}
    check(plain_spark, tmp_path, joins, trace(1, 8, 30, 4), restart=4)


def test_all_kinds_with_residual(plain_spark: SparkSession, tmp_path: Path) -> None:
    joins = {kind: ("Join", spec(kind, RESIDUAL)) for kind in KINDS}
    check(plain_spark, tmp_path, joins, trace(2, 8, 30, 4), restart=5)


def test_null_safe_keys_and_rows_beyond_one_chunk(spark: SparkSession, tmp_path: Path) -> None:
    joins = {
        "full": ("Join", spec("full", null_safe=True)),
        "full residual": ("Join", spec("full", "`l$v` < `r$v`", null_safe=True)),
        "anti": ("Join", spec("anti", null_safe=True)),
    }
    steps = trace(3, 3, 40, 2)
    wide = [(7, "x", i, 1) for i in range(300)]
    gone = [(*row[:-1], -1) for row in wide]
    steps[1:1] = [Step(wide, []), Step([], wide[:3]), Step(gone[20:], []), Step(gone[:20], gone[:3])]
    check(spark, tmp_path, joins, steps, restart=2)


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_rows_are_forgotten_after_the_time_to_live(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    joins = {kind: ("Join", spec(kind, ttlMs=1))}
    run = JoinTrace(spark, tmp_path, LEFT, RIGHT, joins)
    # Spark runs epochs without data for ever where state expires.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        run.start()
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    try:
        run.step(Step(left=[(1, "a", 1, 1)], right=[(1, "a", 2, 1)]))
        before = Counter(run.sums[kind])
        assert sum(before.values()) == 1
        run.step(Step(right=[(1, "a", 3, 1)]))
        run.step(Step(left=[(1, "a", 1, -1)]))
        assert run.sums[kind] == before
    finally:
        run.stop()


def test_what_the_spec_does_not_know_is_refused(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1L AS a")
    with pytest.raises(Exception, match="colour"):
        Kernel(spark._jvm).Join.apply(frame._jdf, frame._jdf, '{"kind": "inner", "colour": 1}')
