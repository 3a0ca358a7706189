"""Tables with upserts, updates and deletes: every view over them equals batch SQL after every commit."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given
from pyspark.sql import SparkSession
from tests.spark.batch_model import Batch, Maintained
from tests.spark.conftest import Opener
from tests.spark.following import bag, contents, settle
from tests.spark.test_generated_windows import few, seeds

Key = int
Model = dict[Key, tuple[str | None, int | None, float | None]]
Step = tuple[str, object]

AGGREGATES = {
    "counts": "SELECT g, count(*) AS n, count(v) AS c, count(DISTINCT v) AS d, approx_count_distinct(v) AS ad, "
    "count(*) FILTER (WHERE v > 0) AS p FROM t GROUP BY g",
    "sums": "SELECT g, sum(v) AS s, avg(v) AS a, sum(DISTINCT v) AS sd, avg(x) AS ax, sum(x) AS sx FROM t GROUP BY g",
    "extremes": "SELECT g, min(v) AS lo, max(x) AS hi, min_by(v, id) AS f, max_by(v, id) AS l, "
    "bool_and(v > 0) AS ba, bool_or(v > 0) AS bo FROM t GROUP BY g",
    "moments": "SELECT g, stddev(x) AS sd, stddev_pop(x) AS sp, variance(x) AS vs, var_pop(x) AS vp, "
    "covar_pop(v, x) AS cp, covar_samp(v, x) AS cs, corr(v, x) AS r FROM t GROUP BY g",
    "lists": "SELECT g, sort_array(array_agg(v)) AS vs, string_agg(CAST(v AS STRING), ',') WITHIN GROUP (ORDER BY v) AS t, "
    "median(v) AS m, percentile(x, 0.25) AS q, percentile_disc(0.3) WITHIN GROUP (ORDER BY v) AS d FROM t GROUP BY g",
    "total": "SELECT count(*) AS n, sum(v) AS s, max(x) AS hi FROM t",
    "big_groups": "SELECT g, sum(v) AS s FROM t GROUP BY g HAVING count(*) > 1",
}
SHAPES = {
    "kept": "SELECT id, v + 1 AS w FROM t WHERE v > 0",
    "distinct_rows": "SELECT DISTINCT g, v FROM t",
    "best": "SELECT id, g, v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 3",
    "best_skipping": "SELECT id, v FROM t ORDER BY v, id LIMIT 2 OFFSET 1",
    "best_per_group": "SELECT id, g, v FROM (SELECT id, g, v, row_number() OVER (PARTITION BY g ORDER BY v DESC, id) AS rn FROM t) "
    "WHERE rn <= 2",
    "ranked": "SELECT id, g, rank() OVER (PARTITION BY g ORDER BY v) AS r, dense_rank() OVER (PARTITION BY g ORDER BY v) AS d FROM t",
    "neighbours": "SELECT id, g, lag(v) OVER (PARTITION BY g ORDER BY id) AS b, lead(v) OVER (PARTITION BY g ORDER BY id) AS a, "
    "sum(v) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM t",
    "rolled_up": "SELECT g, v, count(*) AS n FROM t GROUP BY ROLLUP (g, v)",
    "united": "SELECT g AS a FROM t UNION ALL SELECT CAST(v AS STRING) AS a FROM t",
    "except_set": "SELECT g FROM t EXCEPT SELECT g FROM t WHERE v > 2",
    "pairs": "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.g = b.g AND a.id < b.id",
    "unequalled": "SELECT id FROM t a WHERE NOT EXISTS (SELECT 1 FROM t b WHERE b.g = a.g AND b.v > a.v)",
    "of_all": "SELECT id, v, (SELECT max(v) FROM t) AS m FROM t WHERE id IN (SELECT id FROM t WHERE v > 0)",
    "intersect_all": "SELECT v FROM t WHERE id < 5 INTERSECT ALL SELECT v FROM t WHERE id >= 3",
}


def trace_of(seed: int) -> list[Step]:
    """A first load, then changes, with a restart somewhere, everything deleted near the end and put back."""
    chance = random.Random(seed)
    load: Step = ("upsert", _rows(chance, 6, 12))
    before = [_step(chance) for _ in range(chance.randint(1, 3))]
    after = [_step(chance) for _ in range(chance.randint(2, 3))]
    return [load, *before, ("restart", None), *after, ("clear", None), load]


def _step(chance: random.Random) -> Step:
    kind = chance.choice(["upsert", "upsert", "update", "delete", "transaction"])
    if kind == "update":
        return kind, chance.randrange(3)
    if kind == "delete":
        return kind, [chance.randrange(10) for _ in range(chance.randint(1, 6))]
    return kind, _rows(chance, 1, 8)


def _rows(
    chance: random.Random, least: int, most: int
) -> list[tuple[Key, tuple[str | None, int | None, float | None]]]:
    return [
        (
            chance.randrange(10),
            (
                chance.choice(["a", "b", None]),
                chance.choice([None, *range(-2, 5)]),
                chance.choice([None, 0.0, 1.5, -2.25, 8.0]),
            ),
        )
        for _ in range(chance.randint(least, most))
    ]


def change(db, model: Model, step: Step) -> None:  # type: ignore[no-untyped-def]
    kind, argument = step
    if kind == "upsert":
        assert isinstance(argument, list)
        db.insert("t", [(k, *v) for k, v in argument])
        model.update(argument)
    elif kind == "update":
        db.execute(f"UPDATE t SET v = v * 2 + 1, g = coalesce(g, 'c') WHERE id % 3 = {argument}")
        for k, (g, v, x) in list(model.items()):
            if k % 3 == argument:
                model[k] = (g if g is not None else "c", None if v is None else v * 2 + 1, x)
    elif kind == "delete":
        assert isinstance(argument, list)
        db.execute(f"DELETE FROM t WHERE id IN ({', '.join(map(str, argument))})")
        for k in argument:
            model.pop(k, None)
    elif kind == "clear":
        db.execute("DELETE FROM t")
        model.clear()
    else:
        assert isinstance(argument, list)
        with db.transaction() as transaction:
            transaction.execute("UPDATE t SET x = 1.0 WHERE v IS NULL")
            transaction.insert("t", [(k, *v) for k, v in argument])
        for k, (g, v, _) in list(model.items()):
            if v is None:
                model[k] = (g, v, 1.0)
        model.update(argument)


def run(opener: Opener, spark: SparkSession, folder: Path, selects: dict[str, str], trace: list[Step]) -> None:
    db = opener(folder)
    db.execute("CREATE TABLE t (id INT, g STRING, v BIGINT, x DOUBLE, PRIMARY KEY (id))")
    views = Maintained(db, selects)
    batch = Batch(spark, {"t": "id INT, g STRING, v BIGINT, x DOUBLE"})
    model: Model = {}
    for step in trace:
        if step[0] == "restart":
            db.close()
            db = opener(folder)
            views.reopened(db)
        else:
            change(db, model, step)
        rows = [(k, *v) for k, v in model.items()]
        assert contents(db, "t") == bag(rows)
        settle(db)
        batch.load({"t": rows})
        views.check(db, batch.answers(selects))
    db.close()


def test_aggregates_over_a_changing_table(interpreted: Opener, spark: SparkSession) -> None:
    @few
    @given(seeds)
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run(interpreted, spark, Path(folder), AGGREGATES, trace_of(seed))

    check()


def test_other_shapes_over_a_changing_table(interpreted: Opener, spark: SparkSession) -> None:
    @few
    @given(seeds)
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run(interpreted, spark, Path(folder), SHAPES, trace_of(seed))

    check()
