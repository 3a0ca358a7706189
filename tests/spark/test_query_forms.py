"""Less usual forms of SELECT: after every commit each view has what Spark's batch gives for the same SELECT, or for one that means the same."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests.spark.batch_model import Batch, Maintained
from tests.spark.conftest import Opener
from tests.spark.following import bag, contents, settle

SCHEMAS = {"a": "id BIGINT, k STRING, x BIGINT", "b": "id BIGINT, k STRING, v BIGINT"}
COMMITS = (
    """INSERT INTO a VALUES (1, 'p', 10), (2, 'p', 20), (3, 'q', NULL), (4, NULL, 10);
       INSERT INTO b VALUES (1, 'p', 10), (2, 'q', 15), (3, 'q', 25), (4, NULL, 30), (5, 'r', NULL)""",
    "DELETE FROM b WHERE v = 15; UPDATE a SET x = x + 4 WHERE k = 'p'; UPDATE a SET k = 'r' WHERE id = 3; INSERT INTO a VALUES (5, 'q', 28)",
    "DELETE FROM a WHERE id > 1; UPDATE b SET v = 9 WHERE k = 'p'",
)
SAME = {
    "natural_full": "SELECT * FROM (SELECT x, k FROM a) l NATURAL FULL JOIN (SELECT v, k FROM b) r",
    "smaller": "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.x < b.v AND b.k <> 'r'",
    "apart": "SELECT a.id, b.id AS bid FROM a FULL JOIN b ON a.x + b.v > 30 OR a.k = b.k",
    "by_subquery": """SELECT (SELECT max(v) FROM b WHERE b.k = a.k) + 1 AS m, sum(x) AS s FROM a GROUP BY (SELECT max(v) FROM b WHERE b.k = a.k)""",
    "by_exists": """SELECT CASE WHEN EXISTS (SELECT 1 FROM b WHERE b.k = a.k) THEN 'y' ELSE 'n' END AS e, count(*) AS n FROM a GROUP BY e HAVING e <> ''""",
    "by_conditions": "SELECT k, x > 10 AS large, count(*) AS n FROM a GROUP BY ROLLUP (k, x > 10)",
    "by_sets": "SELECT k, x > 10 AS large, count(*) AS n FROM a GROUP BY GROUPING SETS ((k, x > 10), (x > 10), ())",
    "shifted": """SELECT id, x - lag(x, 1, x) OVER (PARTITION BY k ORDER BY id) AS delta, lag(x, 2 - 1, id) IGNORE NULLS OVER (ORDER BY id) AS known,
      lead(DATE'2024-01-31' + CAST(id AS INT), 1, DATE'2020-02-02') OVER (ORDER BY id) AS day, lag(k, 2, 0) OVER (ORDER BY id) AS k FROM a""",
    "none_larger": "SELECT a.id, a.x FROM a LEFT ANTI JOIN b ON b.v > a.x",
}
MEANT = {
    "first_of": (
        "SELECT DISTINCT ON (k) k, id FROM a ORDER BY k, x DESC, id",
        "SELECT k, id FROM (SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY x DESC, id) AS r FROM a) WHERE r = 1",
    ),
    "with_ties": (
        "SELECT k, sum(x) AS s FROM a GROUP BY k ORDER BY s IS NULL DESC FETCH FIRST 1 ROW WITH TIES",
        """SELECT k, s FROM (SELECT k, sum(x) AS s, rank() OVER (ORDER BY sum(x) IS NULL DESC) AS r FROM a GROUP BY k)
             WHERE r <= 1""",
    ),
    "series": (
        "SELECT a.id, n FROM a, LATERAL generate_series(a.id, 3) g(n)",
        "SELECT id, explode(sequence(id, 3)) FROM a WHERE id <= 3",
    ),
    "ordinal": (
        "SELECT a.id, u.y, u.n FROM a, UNNEST(array(x, id)) WITH ORDINALITY AS u(y, n)",
        "SELECT id, x, 1 FROM a UNION ALL SELECT id, id, 2 FROM a",
    ),
    "on_exists": (
        "SELECT a.id, b.id AS bid FROM a FULL JOIN b ON a.k = b.k AND EXISTS (SELECT 1 FROM b c WHERE c.v = a.x)",
        """SELECT l.id, b.id FROM (SELECT id, k, x IN (SELECT v FROM b WHERE v IS NOT NULL) AS f FROM a WHERE x IS NOT NULL
             UNION ALL SELECT id, k, false FROM a WHERE x IS NULL) l FULL JOIN b ON l.k = b.k AND l.f""",
    ),
}


def test_views_are_those_of_batch_after_every_commit(interpreted: Opener, spark: SparkSession) -> None:
    db = interpreted()
    for name, columns in SCHEMAS.items():
        db.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id))")
    views = Maintained(db, SAME | {name: ours for name, (ours, _) in MEANT.items()})
    batch = Batch(spark, SCHEMAS)
    for commit in COMMITS:
        db.execute(commit)
        settle(db)
        batch.load({name: db.sql(f"SELECT * FROM {name}").fetchall() for name in SCHEMAS})
        answers = batch.answers(SAME | {name: plain for name, (_, plain) in MEANT.items()})
        views.check(db, answers)
        if commit == COMMITS[1]:
            for name in ("first_of", "with_ties", "series", "ordinal", "natural_full", "by_sets"):
                assert bag(db.sql(views.selects[name]).fetchall()) == answers[name], name


def test_the_cost_of_a_join_without_an_equality_is_shown(interpreted: Opener) -> None:
    db = interpreted()
    db.execute("CREATE TABLE a (id BIGINT, x BIGINT); CREATE TABLE b (id BIGINT, v BIGINT)")
    plan = db.explain("SELECT a.id, b.v FROM a JOIN b ON a.x < b.v")
    assert "keeps rows of both sides in one partition; O(diff · all rows of the other side)" in plan


def test_other_ways_to_write_windows_and_time_joins(interpreted: Opener) -> None:
    db = interpreted()
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts);
        CREATE SOURCE q (k STRING, w BIGINT, qts TIMESTAMP, WATERMARK FOR qts);
        CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING);
        CREATE MATERIALIZED VIEW bare AS SELECT k, window_end, sum(v) AS v FROM HOP(s, ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)
          GROUP BY k, window_start, window_end;
        CREATE MATERIALIZED VIEW usual AS SELECT k, window_end, sum(v) AS v
          FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) GROUP BY k, window_start, window_end;
        CREATE MATERIALIZED VIEW asof_on AS SELECT s.k, v, w FROM s ASOF JOIN q ON s.k = q.k AND s.ts >= q.qts AND s.ts - q.qts <= INTERVAL '1' MINUTE;
        CREATE MATERIALIZED VIEW matched AS
          SELECT s.k, v, w FROM s ASOF JOIN q MATCH_CONDITION (s.ts >= q.qts AND s.ts - q.qts <= INTERVAL '1' MINUTE) ON s.k = q.k;
        CREATE MATERIALIZED VIEW named AS SELECT v, name FROM s LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS x ON s.v = x.id;
        INSERT INTO t VALUES (1, 'one');
        INSERT INTO q VALUES ('a', 7, TIMESTAMP '2026-01-01 00:00:00'), ('a', 8, TIMESTAMP '2026-01-01 00:05:00');
        INSERT INTO s VALUES ('a', 1, TIMESTAMP '2026-01-01 00:00:30'), ('a', 2, TIMESTAMP '2026-01-01 00:02:30');
        UPDATE t SET name = 'uno' WHERE id = 1;
        INSERT INTO t VALUES (2, 'two');
        INSERT INTO s VALUES ('a', 1, TIMESTAMP '2026-01-01 00:04:00'), ('a', 2, TIMESTAMP '2026-01-01 00:05:00');
    """)
    settle(db)
    assert contents(db, "bare") == contents(db, "usual") and contents(db, "usual")
    assert contents(db, "asof_on") == contents(db, "matched") and contents(db, "matched")
    assert contents(db, "named") == bag([(1, "one"), (2, None), (1, "uno"), (2, "two")])
